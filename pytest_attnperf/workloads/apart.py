"""A function with gradients, called in the other ways in which it is used: without any, and for that of one input.

A kernel may look at `torch.is_grad_enabled()`, and at which of its inputs require a gradient, and do something else.
What it then gives must be what an ordinary call gives.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from pytest_attnperf.workloads import gradients

if TYPE_CHECKING:
    import torch

    from pytest_attnperf.backends import Outputs, Tensors
    from pytest_attnperf.workloads.adhoc_reference import Reference


class Apart:
    """Computes what a forward and a backward pass give: outputs without gradients, each gradient by itself.

    fn      the function
    known   what is known of it
    own     makes what a call may work on: copies of the inputs that it overwrites; takes the number of the first
    """

    def __init__(self, fn: Callable[..., Any], known: Reference, own: Callable[..., Tensors]) -> None:
        self._fn = fn
        self._known = known
        self._own = own
        self._said: list[str] = []

    @property
    def notes(self) -> tuple[str, ...]:
        """What of the last call could not be computed so, and was taken from an ordinary call, in words."""
        return tuple(self._said)

    def __call__(self, *tensors: Any) -> Outputs:
        """Outputs and gradients by name. Raises what an ordinary call raises, where one is needed."""
        self._said.clear()
        inputs, incoming = tensors[: self._known.count], tensors[self._known.count :]
        with _nothing_compiled():
            found = dict(self._outputs(inputs))
            for number, name in enumerate(self._known.names[: self._known.count]):
                if gradients.takes_gradient(inputs[number]):
                    self._add_gradient(found, name, number, inputs, incoming)
            if self._said:
                graph = gradients.run(self._fn, self._own(*inputs), self._own(*incoming, first=len(inputs)))
                found = gradients.backward(graph, self._known.names[: self._known.count]) | found
        return found

    def _outputs(self, inputs: Tensors) -> Outputs:
        """Those without gradients; none where an honest kernel may have reasons for giving others."""
        try:
            outputs = gradients.without(self._fn, self._own(*inputs))
        except Exception as error:
            self._said.append(f"not proven under no_grad, which raises {_shown(error)}")
            return {}
        if missing := [name for name in self._known.outputs if name not in outputs]:
            named = ", ".join(map(repr, missing))
            self._said.append(f"not proven under no_grad: {named} is not returned there")
            return {}
        return outputs

    def _add_gradient(
        self, found: dict[str, torch.Tensor], name: str, number: int, inputs: Tensors, incoming: Tensors
    ) -> None:
        given = self._own(*incoming, first=len(inputs))
        roots = dict(zip(self._known.roots, given, strict=True))
        try:
            gradient = gradients.of_one(self._fn, self._own(*inputs), number, roots)
        except Exception as error:
            self._said.append(f"not proven where {name!r} alone requires a gradient, which raises {_shown(error)}")
            return
        if gradient is not None:
            found[f"grad_{name}"] = gradient


@contextlib.contextmanager
def _nothing_compiled() -> Iterator[None]:
    """What torch.compile would compile anew runs as it is written meanwhile: compiling takes seconds."""
    import torch

    stance: Any = getattr(torch.compiler, "set_stance", None)
    if stance is None or "torch._dynamo" not in sys.modules:
        yield
        return
    with stance("eager_on_recompile"):
        yield


def _shown(error: Exception) -> str:
    """An error in one line."""
    return f"{type(error).__name__}: {str(error).partition(chr(10))[0]}"
