"""A function together with its gradients: forward, then backward with incoming gradients that are given as tensors."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pytest_attnperf.errors import CaseFailedError
from pytest_attnperf.workloads.returned import detached, named_outputs

if TYPE_CHECKING:
    import torch

    from pytest_attnperf.backends import Outputs, Tensors

BOTH, FORWARD, BACKWARD = "both", "forward", "backward"
PASSES = (BOTH, FORWARD, BACKWARD)
"""What of a function with gradients is timed."""


@dataclass(frozen=True)
class Graph:
    """One forward pass, ready for its backward pass.

    leaves     the inputs of the function; the floating-point ones require gradients
    outputs    what it returned, by name, with its autograd graph
    incoming   for each output that has a gradient, what the backward pass begins with, of its shape and dtype
    """

    leaves: Tensors
    outputs: Outputs
    incoming: Tensors


def forward(fn: Callable[..., Any], tensors: Tensors, only: int | None = None) -> tuple[Tensors, Outputs]:
    """The leaves that `fn` was called with, which read `tensors` where they lie, and its outputs with their graph.

    only   number of the one input that is to require a gradient; None for all that take one
    """
    import torch

    with torch.inference_mode(False), torch.enable_grad():
        leaves = tuple(
            tensor.detach().requires_grad_() if takes_gradient(tensor) and only in (None, number) else tensor.detach()
            for number, tensor in enumerate(tensors)
        )
        return leaves, named_outputs(fn(*leaves), keep_graph=True)


def without(fn: Callable[..., Any], tensors: Tensors) -> Outputs:
    """The outputs of `fn` as they are computed where nobody asks for gradients."""
    import torch

    with torch.inference_mode(False), torch.no_grad():
        return named_outputs(fn(*(tensor.detach() for tensor in tensors)))


def of_one(
    fn: Callable[..., Any], tensors: Tensors, number: int, incoming: Mapping[str, torch.Tensor]
) -> torch.Tensor | None:
    """The gradient of one input where no other requires one; None where no output depends on it.

    incoming   what the backward pass begins with, by the name of the output

    Raises CaseFailedError for an output of another shape.
    """
    import torch

    leaves, outputs = forward(fn, tensors, only=number)
    roots = [name for name in differentiable_outputs(outputs) if name in incoming]
    if not roots:
        return None
    given = [_fitting(name, outputs[name], incoming[name]) for name in roots]
    (found,) = torch.autograd.grad([outputs[name] for name in roots], [leaves[number]], given, allow_unused=True)
    return None if found is None else found.detach()


def run(fn: Callable[..., Any], tensors: Tensors, incoming: Sequence[torch.Tensor] | None) -> Graph:
    """Run the forward pass on `tensors`. Raises as `ready` does.

    incoming   one tensor for each output that has a gradient, in their order; None makes ones
    """
    return ready(*forward(fn, tensors), incoming)


def ready(leaves: Tensors, outputs: Outputs, incoming: Sequence[torch.Tensor] | None) -> Graph:
    """What a forward pass gave, ready for its backward pass; `incoming` as `run` takes it.

    Raises CaseFailedError where no output has a gradient, or there are more or fewer of them than `incoming`.
    """
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
    return Graph(leaves, outputs, tuple(_fitting(name, outputs[name], tensor) for name, tensor in given))


def backward(graph: Graph, names: Sequence[str]) -> Outputs:
    """The outputs of a forward pass and the gradients of its inputs, as 'grad_' and the input's name; detached.

    An input that no output depends on has no gradient, and none is named.
    """
    import torch

    roots = [graph.outputs[name] for name in differentiable_outputs(graph.outputs)]
    wanted = [(name, leaf) for name, leaf in zip(names, graph.leaves, strict=True) if leaf.requires_grad]
    found = torch.autograd.grad(roots, [leaf for _, leaf in wanted], graph.incoming, allow_unused=True)
    gradients = {f"grad_{name}": gradient for (name, _), gradient in zip(wanted, found, strict=True)}
    results = {name: detached(output) for name, output in graph.outputs.items()}
    return results | {name: gradient.detach() for name, gradient in gradients.items() if gradient is not None}


def differentiable_outputs(outputs: Outputs) -> list[str]:
    """Names of the outputs that have a gradient."""
    return [name for name, output in outputs.items() if getattr(output, "requires_grad", False)]


def takes_gradient(tensor: torch.Tensor) -> bool:
    """Whether a gradient is asked of an input: floating point of two bytes or more; fp8 has no arithmetic."""
    return tensor.is_floating_point() and tensor.dtype.itemsize >= 2


def input_names(function: Callable[..., Any], count: int) -> tuple[str, ...]:
    """Names of `count` inputs: the positional parameters of `function`, then 'input2', 'input3' ... for *args."""
    positional = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):  # a builtin may have no signature
        parameters = ()  # type: ignore[assignment]
    named = [parameter.name for parameter in parameters if parameter.kind in positional][:count]
    return (*named, *(f"input{number}" for number in range(len(named), count)))


def _fitting(name: str, output: torch.Tensor, incoming: torch.Tensor) -> torch.Tensor:
    if incoming.shape != output.shape:
        raise CaseFailedError(
            f"output {name!r} has shape {tuple(output.shape)}, that of the reference {tuple(incoming.shape)}: no "
            "gradient can be sent back through it"
        )
    return incoming if incoming.dtype == output.dtype else incoming.to(output.dtype)
