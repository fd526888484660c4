"""Runs a user's reference function: in the widest dtype for the exact result, in narrower ones for budgets."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pytest_attnperf.errors import WorkloadError
from pytest_attnperf.records.call_fit import find_misfit, format_kind
from pytest_attnperf.workloads import gradients
from pytest_attnperf.workloads.defined import format_tensors
from pytest_attnperf.workloads.float_widths import Noise, round_in_between, widen_floats, working_step
from pytest_attnperf.workloads.precision import full_fp32_matmul, reference_dtype, without_autocast
from pytest_attnperf.workloads.returned import name_outputs

if TYPE_CHECKING:
    import torch

    from pytest_attnperf.backends import Outputs, Tensors

INPUT_STEP = 2.0**-22
"""Inputs are changed by two rounding steps of fp32, in which kernels compute: a kernel may use several operations where
torch uses one. A saved log-sum-exp of 200 has that error, and so has every weight that is computed from it."""

NOISE_DRAWS = 3
"""Number of draws: a single one may be lucky on the element that a problem is most sensitive at."""

OPERATORS_MOST = 2000
"""Above this number of operators one draw is made: a reference that loops over a sequence takes seconds for each."""

GRAD_OUTPUT = "grad_out"
"""Name of an incoming gradient; several are called 'grad_out0', 'grad_out1' ..."""


MADE = "inputs() makes {} tensor(s), which are its arguments"


@dataclass
class Reference:
    """Runs `fn(*inputs)` on copies of the inputs, gradients enabled, and names what it returns.

    problem    the problem's name, for messages
    times      '' for the function alone, else one of `gradients.PASSES`: inputs beyond the function's own are then the
               incoming gradients, and all passes but 'forward' return the gradients of the inputs, too
    in_place   names of inputs that a call may overwrite: they hold the result if the function returns None
    count      number of inputs of the function itself, once known
    incoming   shape and dtype of each incoming gradient, once known
    outputs    names of the outputs of a function with gradients, once known; `roots` are those that have a gradient
    tensors    description of these inputs, once known; `dtypes` are their dtypes
    quantises  whether it rounds to 8-bit integers, so that the exact result is unrounded; None before the first result
    """

    problem: str
    fn: Callable[..., Any]
    times: str = ""
    in_place: tuple[str, ...] = ()
    count: int = 0
    incoming: tuple[tuple[tuple[int, ...], torch.dtype], ...] = ()
    outputs: tuple[str, ...] = ()
    roots: tuple[str, ...] = ()
    tensors: str = ""
    dtypes: tuple[torch.dtype, ...] = ()
    quantises: bool | None = None

    def learn(self, inputs: Tensors) -> None:
        """Records number, shapes and dtypes of `inputs`, those of the function itself, and, by one run, which outputs
        have gradients. Raises WorkloadError when `in_place` names an input that does not exist."""
        self.count, self.tensors = len(inputs), format_tensors(inputs)
        self.dtypes = tuple(tensor.dtype for tensor in inputs)
        if self.has_gradients:
            self._require_fit(inputs)
            with without_autocast():
                graph = gradients.record_graph(self.fn, _copy_inputs(inputs, None), None)
            self.incoming = tuple((tuple(tensor.shape), tensor.dtype) for tensor in graph.incoming)
            self.outputs = tuple(graph.outputs)
            self.roots = tuple(gradients.differentiable_outputs(graph.outputs))
        known = self.names
        # A forward pass alone has no incoming gradients, but its backward pass, proven beside it, may overwrite some.
        later = GRAD_OUTPUT if self.times == gradients.FORWARD else "\0"
        if unknown := [name for name in self.in_place if name not in known and not name.startswith(later)]:
            raise WorkloadError(
                f"in_place of {self.problem!r} names {', '.join(map(repr, unknown))}; the inputs are "
                f"{', '.join(known)} (the parameters of the reference, in the order of what inputs() makes)"
            )

    @property
    def has_gradients(self) -> bool:
        """True if the problem times a backward pass, so that results include gradients."""
        return self.times in (gradients.BOTH, gradients.BACKWARD)

    @property
    def names(self) -> tuple[str, ...]:
        """Names of all inputs: the function's parameters, then 'grad_out' or 'grad_out0' ... for the incoming
        gradients."""
        return (*gradients.input_names(self.fn, self.count), *incoming_names(len(self.incoming)))

    @property
    def overwritten_numbers(self) -> tuple[int, ...]:
        """Numbers of the inputs that `in_place` names: those that a call may overwrite."""
        return tuple(number for number, name in enumerate(self.names) if name in self.in_place)

    def compute_truth(self, inputs: Tensors) -> Outputs:
        """Returns the outputs by name, computed in fp32 or fp64 (`reference_dtype`), whatever dtypes the function
        names. Raises WorkloadError when an output is narrower nevertheless."""
        floats = tuple(tensor for tensor in inputs if tensor.is_floating_point())
        if not floats:
            return self._call_function(inputs, None)
        dtype = reference_dtype(floats)
        with widen_floats(dtype, unrounded=bool(self.quantises)):
            outputs = self._call_function(inputs, dtype)
        for name, tensor in outputs.items():
            if tensor.is_floating_point() and tensor.dtype.itemsize < dtype.itemsize:
                raise WorkloadError(
                    f"the reference of {self.problem!r} returned {name!r} as {tensor.dtype} for inputs in {dtype}, so "
                    "that its own rounding would pass for the truth: compute it with torch's own operators, whose "
                    "types are widened for this, and not with numpy or another kernel"
                )
        return outputs

    def compute_plain(self, inputs: Tensors) -> Outputs:
        """Returns the outputs by name, computed in the inputs' own dtypes; sets `quantises` if it is None."""
        import torch

        outputs = self._call_function(inputs, None)
        if self.quantises is None:
            self.quantises = any(tensor.dtype in (torch.int8, torch.uint8) for tensor in outputs.values())
        return outputs

    def find_idle(self, inputs: Tensors) -> tuple[Outputs, tuple[torch.Tensor | None, ...]]:
        """Returns (the outputs as of `compute_truth`; for each input a mask of the elements without effect, whose
        gradient through them is exactly 0, or None for inputs without a gradient). For a function without gradients of
        its own. Raises WorkloadError if no output has a gradient, and whatever the function or its gradient raises."""
        import torch

        dtype = reference_dtype(tuple(tensor for tensor in inputs if tensor.is_floating_point()))
        with full_fp32_matmul(), without_autocast(), torch.inference_mode(False), torch.enable_grad():
            leaves = tuple(
                tensor.requires_grad_() if tensor.is_floating_point() else tensor
                for tensor in _copy_inputs(inputs, dtype)
            )
            # The function gets copies, because it may write to them, which torch refuses for leaves.
            own = tuple(tensor.clone() for tensor in leaves)
            with widen_floats(dtype, unrounded=bool(self.quantises)):
                returned = results_of(self.fn(*own), own, self.overwritten_numbers)
                outputs = name_outputs(returned, own[0].device, keep_graph=True)
            roots = [outputs[name] for name in gradients.differentiable_outputs(outputs)]
            if not roots:
                raise WorkloadError(f"no output of the reference of {self.problem!r} has a gradient")
            # Not ones: what sums up to a constant, as a softmax does, has a gradient of 0.
            generator = torch.Generator(roots[0].device).manual_seed(0)
            weights = [torch.rand(root.shape, generator=generator, device=root.device).to(root.dtype) for root in roots]
            numbers = [number for number, tensor in enumerate(leaves) if tensor.requires_grad]
            found = torch.autograd.grad(roots, [leaves[n] for n in numbers], weights, allow_unused=True)
        idle: list[torch.Tensor | None] = [None] * len(inputs)
        for number, gradient in zip(numbers, found, strict=True):
            idle[number] = None if gradient is None else gradient == 0
        return {name: tensor.detach() for name, tensor in outputs.items()}, tuple(idle)

    def in_low_precision(self, inputs: Tensors) -> tuple[Outputs, ...]:
        """Returns results with every intermediate one rounded at random to the precision of the narrowest input. There
        are NOISE_DRAWS results, one if the function calls many operators, and none if it fails with rounding. Most
        kernels round in between, where a function that upcasts rounds once."""
        step = working_step(inputs)
        found: list[Outputs] = []
        noise: Noise | None = None
        # An error here is no problem of the case: only the budget stays narrower.
        with contextlib.suppress(Exception):
            for draw in range(NOISE_DRAWS if step else 0):
                noise = Noise(step, draw, noise)
                found.append(self._compute_rounded(inputs, noise))
                if noise.operators > OPERATORS_MOST:
                    break
        return tuple(found)

    def _compute_rounded(self, inputs: Tensors, noise: Noise) -> Outputs:
        """Computes the outputs by name with `noise` on the inputs and on the result of every operator."""
        dtype = reference_dtype(tuple(tensor for tensor in inputs if tensor.is_floating_point()))
        moved = tuple(
            noise.perturb(tensor.to(dtype), INPUT_STEP) if tensor.is_floating_point() else tensor for tensor in inputs
        )
        with widen_floats(dtype, unrounded=bool(self.quantises)), round_in_between(noise):
            return self._call_function(moved, dtype)

    def _require_fit(self, own: Tensors) -> None:
        require_fit(f"the reference of {self.problem!r}", MADE.format(len(own)), self.fn, *own)

    def _call_function(self, inputs: Tensors, dtype: torch.dtype | None) -> Outputs:
        """Calls the function on copies of the inputs, floating-point ones in `dtype` unless it is None; returns the
        outputs, with gradients if any, by name. Raises WorkloadError if one is no tensor."""
        import torch

        with full_fp32_matmul(), without_autocast(), torch.inference_mode(False), torch.enable_grad():
            copies = _copy_inputs(inputs, dtype)
            own = copies[: self.count] if self.count else copies
            if self.has_gradients:
                graph = gradients.record_graph(self.fn, own, copies[self.count :])
                outputs = gradients.run_backward(graph, self.names[: self.count])
            else:
                self._require_fit(own)
                returned = self.fn(*own)
                outputs = name_outputs(
                    results_of(returned, copies, self.overwritten_numbers if self.count else ()), own[0].device
                )
        named: dict[str, Any] = dict(outputs) or {"out": None}
        for name, tensor in named.items():
            if not isinstance(tensor, torch.Tensor):
                raise WorkloadError(
                    f"the reference of {self.problem!r} returned {format_kind(tensor)} for {name!r}; it must "
                    "return a tensor, a number, or a tuple, list, dict or dataclass of them"
                )
        return outputs


def require_fit(what: str, called: str, function: Callable[..., Any], *args: Any, **named: Any) -> None:
    """Raises WorkloadError, which names the function as `what`, if it cannot be called so; `called` says how it is."""
    if misfit := find_misfit(function, *args, **named):
        raise WorkloadError(f"{what} {misfit}; {called}")


def results_of(returned: Any, tensors: Tensors, overwritten: tuple[int, ...]) -> Any:
    """Returns `returned`, what a call returned; if that is None, the tensors numbered `overwritten` (one alone, or a
    tuple), which then hold the result."""
    if returned is not None or not overwritten:
        return returned
    held = tuple(tensors[number] for number in overwritten)
    return held[0] if len(held) == 1 else held


def incoming_names(count: int) -> tuple[str, ...]:
    """Returns the names of `count` incoming gradients: 'grad_out' for one, else 'grad_out0', 'grad_out1' ..."""
    return (GRAD_OUTPUT,) if count == 1 else tuple(f"{GRAD_OUTPUT}{number}" for number in range(count))


def _copy_inputs(inputs: Tensors, dtype: torch.dtype | None) -> Tensors:
    """Returns detached copies that can require gradients; floating-point ones in `dtype` unless it is None."""
    return tuple(
        tensor.detach().to(dtype if dtype and tensor.is_floating_point() else tensor.dtype, copy=True)
        for tensor in inputs
    )
