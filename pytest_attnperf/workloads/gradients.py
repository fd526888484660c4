"""A function together with its gradients: forward, then backward with incoming gradients that are given as tensors.

The function is also called in its other ways (`Apart`): without gradients, and for the gradient of one input. A kernel
may read `torch.is_grad_enabled()`, and which of its inputs require a gradient, and do something else. Its results must
then equal those of an ordinary call.

Incoming gradients are hidden until the backward pass (`Withheld`): their memory holds other values before. Where only a
backward pass is timed, its forward pass is not, although the incoming gradients are already in memory. A forward pass
that searched its callers for them could compute the gradients there.
"""

from __future__ import annotations

import contextlib
import inspect
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pytest_attnperf.errors import CaseFailedError
from pytest_attnperf.workloads.input_memory import as_integers
from pytest_attnperf.workloads.returned import detach_tensor, name_outputs

if TYPE_CHECKING:
    import torch

    from pytest_attnperf.backends import Outputs, Tensors
    from pytest_attnperf.workloads.adhoc_reference import Reference

BOTH, FORWARD, BACKWARD = "both", "forward", "backward"
PASSES = (BOTH, FORWARD, BACKWARD)
"""The passes of a function with gradients that can be timed."""


@dataclass(frozen=True)
class Graph:
    """One forward pass, ready for its backward pass.

    leaves     the inputs of the function; the floating-point ones require gradients
    outputs    what it returned, by name, with its autograd graph
    incoming   for each output that has a gradient, the incoming gradient, of its shape and dtype
    """

    leaves: Tensors
    outputs: Outputs
    incoming: Tensors


def run_forward(fn: Callable[..., Any], tensors: Tensors, only: int | None = None) -> tuple[Tensors, Outputs]:
    """Calls `fn` on leaves that share memory with `tensors`; returns (leaves, outputs by name, with their autograd
    graph).

    only   number of the one input that requires a gradient; None for all that can have one
    """
    import torch

    with torch.inference_mode(False), torch.enable_grad():
        leaves = tuple(
            tensor.detach().requires_grad_() if takes_gradient(tensor) and only in (None, number) else tensor.detach()
            for number, tensor in enumerate(tensors)
        )
        return leaves, name_outputs(fn(*leaves), keep_graph=True)


def run_without_gradients(fn: Callable[..., Any], tensors: Tensors) -> Outputs:
    """Calls `fn` under no_grad on detached `tensors`, and returns its outputs by name."""
    import torch

    with torch.inference_mode(False), torch.no_grad():
        return name_outputs(fn(*(tensor.detach() for tensor in tensors)))


def compute_one_gradient(
    fn: Callable[..., Any], tensors: Tensors, number: int, incoming: Mapping[str, torch.Tensor]
) -> torch.Tensor | None:
    """Returns the gradient of input `number`, where no other requires one; None if no output depends on it.

    incoming   incoming gradients, by the name of the output
    Raises CaseFailedError for an output of another shape.
    """
    import torch

    leaves, outputs = run_forward(fn, tensors, only=number)
    roots = [name for name in differentiable_outputs(outputs) if name in incoming]
    if not roots:
        return None
    given = [_fit_incoming(name, outputs[name], incoming[name]) for name in roots]
    (found,) = torch.autograd.grad([outputs[name] for name in roots], [leaves[number]], given, allow_unused=True)
    return None if found is None else found.detach()


def record_graph(fn: Callable[..., Any], tensors: Tensors, incoming: Sequence[torch.Tensor] | None) -> Graph:
    """Runs the forward pass of `fn` on `tensors`; returns it ready for `run_backward`. Raises the errors of
    `make_graph`.

    incoming   one tensor for each output that has a gradient, in their order; None makes ones
    """
    return make_graph(*run_forward(fn, tensors), incoming)


def make_graph(leaves: Tensors, outputs: Outputs, incoming: Sequence[torch.Tensor] | None) -> Graph:
    """Builds a Graph from what `run_forward` returned; `incoming` has one tensor per output with a gradient, None makes
    ones. Raises CaseFailedError if no output has a gradient, if their number differs from that of `incoming`, or a
    shape does."""
    import torch

    differentiable = differentiable_outputs(outputs)
    if not differentiable:
        raise CaseFailedError(
            f"backward was asked for, but none of the outputs ({', '.join(outputs) or 'none'}) depends on the inputs "
            "through autograd: return what the kernel's autograd function returned, without detach() or no_grad()"
        )
    if incoming is None:
        incoming = [torch.ones_like(outputs[name]) for name in differentiable]
    if len(incoming) != len(differentiable):
        raise CaseFailedError(
            f"{len(differentiable)} outputs have gradients ({', '.join(differentiable)}), but the reference has "
            f"{len(incoming)} such outputs: both must return the same differentiable outputs"
        )
    given = zip(differentiable, incoming, strict=True)
    return Graph(leaves, outputs, tuple(_fit_incoming(name, outputs[name], tensor) for name, tensor in given))


def run_backward(graph: Graph, names: Sequence[str]) -> Outputs:
    """Runs the backward pass; returns the detached outputs and, as 'grad_' and the input's name, the gradients. `names`
    are those of the inputs. An input that no output depends on has no gradient, and is left out."""
    import torch

    roots = [graph.outputs[name] for name in differentiable_outputs(graph.outputs)]
    wanted = [(name, leaf) for name, leaf in zip(names, graph.leaves, strict=True) if leaf.requires_grad]
    found = torch.autograd.grad(roots, [leaf for _, leaf in wanted], graph.incoming, allow_unused=True)
    gradients = {f"grad_{name}": gradient for (name, _), gradient in zip(wanted, found, strict=True)}
    results = {name: detach_tensor(output) for name, output in graph.outputs.items()}
    return results | {name: gradient.detach() for name, gradient in gradients.items() if gradient is not None}


def differentiable_outputs(outputs: Outputs) -> list[str]:
    """Returns the names of the outputs that have a gradient."""
    return [name for name, output in outputs.items() if getattr(output, "requires_grad", False)]


def takes_gradient(tensor: torch.Tensor) -> bool:
    """Returns whether an input can have a gradient: floating point of two bytes or more, as fp8 has no arithmetic."""
    return tensor.is_floating_point() and tensor.dtype.itemsize >= 2


def input_names(function: Callable[..., Any], count: int) -> tuple[str, ...]:
    """Returns `count` names of inputs: the positional parameters of `function`, then e.g. 'input2' for *args."""
    positional = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):  # a builtin may have no signature
        parameters = ()  # type: ignore[assignment]
    named = [parameter.name for parameter in parameters if parameter.kind in positional][:count]
    return (*named, *(f"input{number}" for number in range(len(named), count)))


def _fit_incoming(name: str, output: torch.Tensor, incoming: torch.Tensor) -> torch.Tensor:
    if incoming.shape != output.shape:
        raise CaseFailedError(
            f"output {name!r} has shape {tuple(output.shape)}, that of the reference {tuple(incoming.shape)}: no "
            "gradient can be sent back through it; return the shape of the reference"
        )
    return incoming if incoming.dtype == output.dtype else incoming.to(output.dtype)


class Withheld:
    """Random values that replace incoming gradients of the same size; drawn once, so that a captured graph reads them.

    like   incoming gradients of the same shapes and sizes
    """

    def __init__(self, like: Tensors) -> None:
        self._others = tuple(map(_draw_like, like))

    @contextlib.contextmanager
    def hide(self, tensors: Tensors) -> Iterator[None]:
        """Replaces the values of `tensors` by random ones inside the block, and restores every bit afterwards. On a GPU
        all of this is work in the current stream, so that it may be captured."""
        import torch

        with torch.no_grad():
            kept = tuple(tensor.clone() for tensor in tensors)
            for tensor, own, other in zip(tensors, kept, self._others, strict=True):
                _as_bits(own).bitwise_not_()  # so that the true values are nowhere else in memory
                tensor.copy_(other)
        try:
            yield
        except BaseException:
            with contextlib.suppress(Exception):  # a capture that has failed takes no more work, and has done none
                _put_back(tensors, kept)
            raise
        _put_back(tensors, kept)


def _put_back(tensors: Tensors, kept: Tensors) -> None:
    import torch

    with torch.no_grad():
        for tensor, own in zip(tensors, kept, strict=True):
            _as_bits(own).bitwise_not_()
            tensor.copy_(own)


def _draw_like(like: torch.Tensor) -> torch.Tensor:
    """Draws normal values with shape, dtype and root mean square of `like`: others on each call, because the generator
    is its own and takes a random seed."""
    import torch

    generator = torch.Generator(like.device)
    generator.seed()
    size = like.detach().abs().double().square().mean().sqrt()
    normal = torch.randn(like.shape, generator=generator, dtype=torch.float32, device=like.device)
    return (normal * size).to(like.dtype)


def _as_bits(tensor: torch.Tensor) -> torch.Tensor:
    import torch

    return as_integers(torch.view_as_real(tensor) if tensor.is_complex() else tensor)


class Apart:
    """Computes the results of a forward and a backward pass separately: outputs without gradients, each gradient alone.

    fn      the function
    known   the reference, which knows its inputs and outputs
    own     copies the inputs that a call overwrites; takes the number of the first input
    """

    def __init__(self, fn: Callable[..., Any], known: Reference, own: Callable[..., Tensors]) -> None:
        self._fn = fn
        self._known = known
        self._own = own
        self._said: list[str] = []

    @property
    def notes(self) -> tuple[str, ...]:
        """Sentences on results of the last call that could not be computed apart, and came from an ordinary call."""
        return tuple(self._said)

    def __call__(self, *tensors: Any) -> Outputs:
        """Returns the outputs, from one call under no_grad, and each gradient from a call of its own, all by name. A
        result that fails so is listed in `notes`, and taken from an ordinary call, whose errors are raised.

        tensors   the inputs, then the gradients of the outputs"""
        self._said.clear()
        inputs, incoming = tensors[: self._known.count], tensors[self._known.count :]
        with _prevent_recompiling():
            found = dict(self._compute_outputs(inputs))
            for number, name in enumerate(self._known.names[: self._known.count]):
                if takes_gradient(inputs[number]):
                    self._add_gradient(found, name, number, inputs, incoming)
            if self._said:
                graph = record_graph(self._fn, self._own(*inputs), self._own(*incoming, first=len(inputs)))
                found = run_backward(graph, self._known.names[: self._known.count]) | found
        return found

    def _compute_outputs(self, inputs: Tensors) -> Outputs:
        """Returns the outputs computed under no_grad. Returns {} and adds a note if that raises or an output is
        missing, as may happen with an honest kernel."""
        try:
            outputs = run_without_gradients(self._fn, self._own(*inputs))
        except Exception as error:
            self._said.append(f"not proven under no_grad, which raises {_format_error(error)}")
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
            gradient = compute_one_gradient(self._fn, self._own(*inputs), number, roots)
        except Exception as error:
            self._said.append(
                f"not proven where {name!r} alone requires a gradient, which raises {_format_error(error)}"
            )
            return
        if gradient is not None:
            found[f"grad_{name}"] = gradient


@contextlib.contextmanager
def _prevent_recompiling() -> Iterator[None]:
    """Inside the block, lets torch.compile run uncompiled what it would compile again, because compiling takes seconds.
    Does nothing if torch's compiler is not loaded."""
    import torch

    stance: Any = getattr(torch.compiler, "set_stance", None)
    if stance is None or "torch._dynamo" not in sys.modules:
        yield
        return
    with stance("eager_on_recompile"):
        yield


def _format_error(error: Exception) -> str:
    """Returns 'Type: first line of the message'."""
    return f"{type(error).__name__}: {str(error).partition(chr(10))[0]}"
