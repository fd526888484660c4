"""Chooses how large planted inputs of a user's problem may be: its reference must not overflow or lose precision."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pytest_attnperf.errors import WorkloadError
from pytest_attnperf.workloads.edge_planting import AMPLITUDES, is_free, plant_edges

if TYPE_CHECKING:
    import torch

    from pytest_attnperf.backends import Outputs, Tensors
    from pytest_attnperf.workloads.adhoc_reference import Reference

CONDITIONED = 4
"""Planted inputs are used if the plain computation's relative error is at most this many times that on unplanted
inputs, or this many rounding steps of the result. Beyond that, honest kernels differ by luck."""

TOO_MUCH = f"the reference overflows, or loses its precision, with elements of {AMPLITUDES[-1]:g} times the usual size"
"""Reason why the inputs of a seed are not planted."""


UNHEEDED = "inputs() gives the same for planted=True"
"""Reason why inputs are not planted that their own function should have planted."""

INCOMING = 0x1C0111
"""Makes the seed of incoming gradients differ from that of the inputs."""

SAMPLE = 2**16
"""Elements of an input that are compared between two seeds."""


class Once:
    """Results of the last planted inputs, returned once, then dropped, so that a backend cannot find them."""

    def __init__(self) -> None:
        self._inputs: Tensors = ()
        self._outputs: Outputs = {}

    def keep(self, inputs: Tensors, outputs: Outputs) -> None:
        """Keeps the results of `inputs` until the next `take` or `keep`."""
        self._inputs, self._outputs = inputs, outputs

    def take(self, inputs: Tensors) -> Outputs:
        """Returns the kept outputs if `inputs` are the very tensors that they were kept for, else {}; keeps nothing
        afterwards."""
        same = len(inputs) == len(self._inputs) and all(a is b for a, b in zip(inputs, self._inputs, strict=True))
        outputs = self._outputs if same else {}
        self._inputs, self._outputs = (), {}
        return outputs


@dataclass
class Planting:
    """Plants the inputs of one problem, and remembers which amplitudes were possible.

    unplanted   why the inputs that were made last are not planted, in words; '' if they are
    """

    reference: Reference
    unplanted: str = ""
    _free: tuple[int, ...] | None = None
    _heeded: bool | None = None
    _plain_error: dict[str, float] = field(default_factory=dict)
    _amplitudes: dict[int, float] = field(default_factory=dict)
    _seen: tuple[int, dict[int, torch.Tensor]] | None = None
    _constant: set[int] | None = None
    _one_signed: set[int] | None = None
    _truths: Once = field(default_factory=Once)
    _plains: Once = field(default_factory=Once)

    def refuse_unchanged(self, inputs: Tensors, seed: int) -> None:
        """Raises WorkloadError if `inputs` equal those of the last call, which had another seed, in all elements that
        are compared. Also records which inputs never changed, and which have one sign."""
        sample = {
            number: tensor.reshape(-1)[:: max(1, tensor.numel() // SAMPLE)].clone()
            for number, tensor in enumerate(inputs)
            if tensor.numel() > 1
        }
        signed = {number for number, elements in sample.items() if _has_one_sign(elements)}
        self._one_signed = signed if self._one_signed is None else self._one_signed & signed
        before, self._seen = self._seen, (seed, sample)
        if before is None or before[0] == seed or not sample or before[1].keys() != sample.keys():
            return
        same = {number for number, elements in sample.items() if _is_same(before[1][number], elements)}
        self._constant = same if self._constant is None else self._constant & same
        if len(same) == len(sample):
            raise WorkloadError(
                f"inputs() of {self.reference.problem!r} gives the same for the seeds {before[0]} and {seed}: a kernel "
                "that returns an old result would pass; draw them by the seed, or by torch's seeded generator"
            )

    @property
    def constant_names(self) -> tuple[str, ...]:
        """Names of the inputs of several elements that no seed so far changed, without those made large (planted)."""
        planted = () if self.unplanted else self._free or ()
        return tuple(self.reference.names[number] for number in sorted(self._constant or ()) if number not in planted)

    @property
    def left_names(self) -> tuple[str, ...]:
        """Names of the floating-point inputs of several elements that vary and have no planted ones, where others have
        some."""
        if self.unplanted or not self._free or self._seen is None:
            return ()
        names, dtypes = self.reference.names, self.reference.dtypes
        floats = {names[number] for number in self._seen[1] if dtypes[number].is_floating_point}
        seen = {names[number] for number in (*self._free, *self.reference.overwritten_numbers)}
        return tuple(name for name in names if name in floats - seen - {*self.constant_names, *self.one_signed})

    @property
    def one_signed(self) -> tuple[str, ...]:
        """Names of the floating-point inputs that vary, but whose elements all had the same sign so far."""
        numbers = (self._one_signed or set()) - (self._constant or set())
        return tuple(self.reference.names[number] for number in sorted(numbers))

    def plant_inputs(self, inputs: Tensors, seed: int) -> Tensors:
        """Returns `inputs` with some elements made large, the same ones for a seed; unchanged if the problem allows
        none, and then `unplanted` says why."""
        if self._free is None:
            self._free = self._find_free(inputs)
        if not self._free:
            return inputs
        if seed not in self._amplitudes:
            return self._plant_largest(inputs, seed)
        return self._plant_at(inputs, seed, self._amplitudes[seed])

    def _plant_largest(self, inputs: Tensors, seed: int) -> Tensors:
        """Returns `inputs` planted with the largest of AMPLITUDES at which the reference neither overflows nor loses
        precision for this seed, and remembers it; unchanged if there is none."""
        for amplitude in AMPLITUDES:
            tensors = self._plant_at(inputs, seed, amplitude)
            if self._is_borne(tensors):
                self._amplitudes[seed] = amplitude
                return tensors
        self._amplitudes[seed] = 0.0
        return self._plant_at(inputs, seed, 0.0)

    def _plant_at(self, inputs: Tensors, seed: int, amplitude: float) -> Tensors:
        """Returns `inputs` planted with this amplitude, or unchanged if it is 0; sets `unplanted` accordingly."""
        assert self._free is not None
        self.unplanted = "" if amplitude else TOO_MUCH
        return plant_edges(inputs, self._free, seed, amplitude) if amplitude else inputs

    def look_at_own(self, planted: Tensors, made: Callable[[], Tensors]) -> None:
        """Sets `unplanted`, a reason, if the user's inputs() gave the same with planted=True as without; else sets it
        to ''. Checks once only, because making inputs may take long.

        planted   what inputs() gave with planted=True
        made      makes the inputs of the same seed without planting
        """
        if self._heeded is None:
            plain = made()
            alike = len(plain) == len(planted) and all(map(_is_same, planted, plain))
            self._heeded, self.unplanted = not alike, UNHEEDED if alike else ""

    def compute_truth(self, inputs: Tensors) -> Outputs:
        """Returns the exact results of `inputs`, by output name; uses those that were computed while these inputs were
        planted, if they are kept."""
        if found := self._truths.take(inputs):
            return found
        if self.reference.quantises is None:
            self._plains.keep(inputs, self.reference.compute_plain(inputs))
        return self.reference.compute_truth(inputs)

    def compute_plain(self, inputs: Tensors) -> Outputs:
        """Returns the results in the inputs' own dtypes, by output name; kept ones if just computed for `inputs`."""
        return self._plains.take(inputs) or self.reference.compute_plain(inputs)

    def _find_free(self, inputs: Tensors) -> tuple[int, ...]:
        """Returns the indices of inputs that look like random numbers of both signs, so that elements may be made
        large. Returns () and sets `unplanted` to the reason if there are none, or the reference ignores one of them."""
        free = tuple(number for number, tensor in enumerate(inputs) if is_free(tensor))
        if not free:
            self.unplanted = "no input holds free numbers of both signs"
            return ()
        plain = self.reference.compute_plain(inputs)
        self._plain_error = _relative_errors(self.reference.compute_truth(inputs), plain)
        names = self.reference.names
        for number in free:
            if number not in self.reference.overwritten_numbers and self._is_ignored(inputs, number, plain):
                self.unplanted = (
                    f"the reference does not read {names[number]!r}, which may depend on other inputs; write "
                    "inputs(seed, planted) to plant them yourself"
                )
                return ()
        return free

    def _is_ignored(self, inputs: Tensors, number: int, plain: Outputs) -> bool:
        """Returns whether the reference's result stays bit-equal when input `number` is reversed and multiplied by
        -0.5; `plain` is the result for `inputs`."""
        import torch

        other = [*inputs]
        other[number] = inputs[number].flip(-1) * -0.5
        found = self.reference.compute_plain(tuple(other))
        pairs = ((_as_computable(found[name]), _as_computable(plain[name])) for name in plain)
        return all(torch.equal(one.nan_to_num(), other.nan_to_num()) for one, other in pairs)

    def _is_borne(self, inputs: Tensors) -> bool:
        plain = self.reference.compute_plain(inputs)
        truth = self.reference.compute_truth(inputs)
        results = (_as_computable(tensor) for outputs in (truth, plain) for tensor in outputs.values())
        if not all(bool(tensor.isfinite().all()) for tensor in results):
            return False
        errors = _relative_errors(truth, plain)
        steps = {name: _relative_step(plain[name]) for name in errors}
        borne = all(
            error <= CONDITIONED * max(self._plain_error.get(name, 0.0), steps[name]) for name, error in errors.items()
        )
        if borne:
            self._truths.keep(inputs, truth)
            self._plains.keep(inputs, plain)
        return borne


def draw_incoming(
    specs: tuple[tuple[tuple[int, ...], torch.dtype], ...], device: str, seed: int, *, planted: bool
) -> Tensors:
    """Draws incoming gradients from N(0, 1), one for each (shape, dtype) in `specs`. One of a single element is 1, as
    in backward(); with `planted` it is between 0.5 and 2, so that ignoring it shows."""
    import torch

    # Not the seed itself: a function of the same would draw its first input equal to the gradient of its output.
    generator = torch.Generator(device).manual_seed(seed ^ INCOMING)
    scale = random.Random(seed).uniform(0.5, 2.0) if planted else 1.0
    return tuple(
        torch.full(shape, scale, dtype=dtype, device=device)
        if all(size == 1 for size in shape)
        else torch.randn(shape, generator=generator, dtype=torch.float32, device=device).to(dtype)
        for shape, dtype in specs
    )


def _as_computable(tensor: torch.Tensor) -> torch.Tensor:
    """Returns fp8 as fp32, because torch has few fp8 operators; others unchanged."""
    return tensor.float() if tensor.is_floating_point() and tensor.dtype.itemsize == 1 else tensor


def _is_same(one: torch.Tensor, other: torch.Tensor) -> bool:
    import torch

    alike = (one.shape, one.dtype) == (other.shape, other.dtype)
    return alike and torch.equal(_as_computable(one), _as_computable(other))


def _has_one_sign(elements: torch.Tensor) -> bool:
    """Returns whether all elements are finite and either >= 0 or <= 0, but not all 0; False for integers and 8-bit
    types."""
    if not elements.is_floating_point() or elements.dtype.itemsize < 2:
        return False
    least, most = (float(one) for one in elements.aminmax())
    return (least >= 0) is not (most <= 0) and -math.inf < least and most < math.inf


def _relative_errors(truth: Outputs, plain: Outputs) -> dict[str, float]:
    """Returns {output: norm of plain - truth / norm of truth, 0 if that is 0}, for floating-point outputs that both
    have, not empty and of equal shape."""
    import torch

    errors = {}
    for name, true in truth.items():
        if name in plain and true.is_floating_point() and true.shape == plain[name].shape and true.numel():
            error = torch.linalg.vector_norm(plain[name].double() - true.double())
            size = torch.linalg.vector_norm(true.double())
            errors[name] = float(error / size) if size else 0.0
    return errors


def _relative_step(tensor: torch.Tensor) -> float:
    import torch

    return torch.finfo(tensor.dtype).eps if tensor.is_floating_point() else 0.1
