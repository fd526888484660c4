"""The exact result for a workload and seed, and the error of plain arithmetic; shared by all backends of a process."""

from __future__ import annotations

import contextlib
import math
import random
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pytest_attnperf.correctness import poison, scan
from pytest_attnperf.correctness.digest import Digest, compute_digest
from pytest_attnperf.correctness.metrics import (
    MismatchError,
    Yardstick,
    describe_constant,
    find_constant_value,
    measure_yardstick,
)
from pytest_attnperf.errors import AttnperfError
from pytest_attnperf.workloads.input_memory import as_integers
from pytest_attnperf.workloads.precision import without_autocast

if TYPE_CHECKING:
    import torch

    from pytest_attnperf.backends import Outputs, Tensors
    from pytest_attnperf.workloads.base import Workload


class BadReferenceError(AttnperfError):
    """A reference that every output, or none, would agree with: such a check proves nothing."""


_SECRET = random.SystemRandom().getrandbits(62) | 1 << 62
"""Bits flipped in references; at least the second highest, so that an exponent changes."""

ELEMENTS_MIN = 65536
DRAWS_MAX = 64
"""A yardstick is the largest error over at least ELEMENTS_MIN elements, or DRAWS_MAX draws of a smaller problem. The
largest of a few rounding errors is a matter of luck: over one draw of 500 elements, honest kernels exceed it in 1 of
100, and over 16,384, honest gradients in f32 in 1 of 2,000."""
HELD_MAX = 4
"""Largest number of expected outputs held: of the timed inputs, and of a few check seeds."""
EXTRA_FLOPS_MAX = 2e8
"""Largest total FLOPs of the draws beyond the first, where the workload knows its FLOPs."""
EXTRA_ELEMENTS_MAX = 2**19
"""Largest total number of input elements of the draws beyond the first, where it does not."""
WEAK_SHARE = 0.25
"""Largest error of a user's reference, as a share of its own root mean square. Its budget is at most twice that: at
half of the result, zeros would pass."""
NOTHING_SHARE = 2.0**-18
"""An output that is this much smaller than the largest input or output consists of rounding errors only."""
SPREAD_MOST = 2.0
"""Largest factor on the error of a few draws, where few numbers are compared."""


@dataclass(frozen=True)
class Expected:
    """The reference of each output in fp32 or fp64, and its yardstick, by output name.

    While a backend runs, the references are stored with a secret pattern of bits flipped: a backend that searches
    Python's objects or freed memory for a result finds noise.

    sealed   the references with flipped bits
    """

    sealed: Outputs
    yardsticks: dict[str, Yardstick]

    @contextlib.contextmanager
    def reveal(self) -> Iterator[Outputs]:
        """Yields the readable references by output name; they are stored with secret bits flipped, and are so again
        when the block ends."""
        _reveals[0] += 1
        _flip_bits(self.sealed)
        try:
            yield self.sealed
        finally:
            _flip_bits(self.sealed)

    def count_bytes(self) -> int:
        """Returns the bytes of all references."""
        return sum(tensor.numel() * tensor.element_size() for tensor in self.sealed.values())

    def measure_coarseness(self) -> dict[str, float]:
        """Returns {output: RMS error of the plain computation / RMS of the reference} for floating-point outputs. It is
        at least half a rounding step of the output, the least budget. Outputs that are only rounding are left out."""
        import torch

        with self.reveal() as readable:
            return {
                name: float(f"{max(self.yardsticks[name].rms_error / size, torch.finfo(dtype).eps / 2):.3g}")
                for name, dtype, size in self._iterate_telling(readable)
            }

    def compute_digests(self) -> dict[str, Digest]:
        """Returns {output: digest of its reference} of floating-point outputs that are more than rounding."""
        with self.reveal() as readable:
            found = {name: compute_digest(readable[name]) for name, _, _ in self._iterate_telling(readable)}
        return {name: figures for name, figures in found.items() if figures is not None}

    def _iterate_telling(self, readable: Outputs) -> Iterator[tuple[str, torch.dtype, float]]:
        """Yields (name, dtype, rms) of floating-point outputs whose plain error is at most WEAK_SHARE of their rms."""
        for name, yardstick in self.yardsticks.items():
            size = _measure_size(readable[name]) if yardstick.dtype.is_floating_point else 0.0
            if size > 0 and yardstick.rms_error <= WEAK_SHARE * size:
                yield name, yardstick.dtype, size

    @property
    def reference(self) -> Outputs:
        """Readable copies of the references, by output name."""
        with self.reveal() as readable:
            return {name: tensor.clone() for name, tensor in readable.items()}


_reveals = [0]
"""How often references were made readable."""


def count_reveals() -> int:
    """Returns how often references were made readable in this process: never while a backend runs, except by itself."""
    return _reveals[0]


class References:
    """Expected outputs by (workload, seed, planted, device); holds the last few of the most recent workload only.

    Cases run in canonical order, all backends of a workload in a row, so that a few are enough, and memory is bounded.
    """

    def __init__(self) -> None:
        self._workload: Workload | None = None
        self._expected: dict[tuple[int, bool, str], Expected] = {}

    def compute_expected(self, workload: Workload, inputs: Tensors, *, seed: int, planted: bool) -> Expected:
        """Returns the expected outputs for `inputs`, made by `workload.make_inputs(seed, ..., planted=planted)`.

        Raises BadReferenceError when the reference is empty, constant, narrower than the output, or names other outputs
        than the plain computation. Also raises it when NaN or Inf is in an output that `workload.non_finite_outputs`
        does not name, or differs between reference and plain computation in one that it names.
        """
        if workload != self._workload:
            self._workload, self._expected = workload, {}
        key = (seed, planted, str(inputs[0].device) if inputs else "")
        found = self._expected.pop(key, None) or _make_expected(workload, inputs, seed, planted)
        self._expected[key] = found  # at the end: the first is the one unused for longest
        while len(self._expected) > HELD_MAX:
            del self._expected[next(iter(self._expected))]
        return found

    def has_memory_of(self, tensor: torch.Tensor) -> bool:
        """Returns whether a tensor shares memory with a stored reference, so that it is no result of its own."""
        kept = (sealed for expected in self._expected.values() for sealed in expected.sealed.values())
        return any(poison.has_overlap(tensor, sealed) for sealed in kept)

    def limit_memory(self, limit_bytes: float) -> None:
        """Frees stored references, those unused for longest first, until at most `limit_bytes` are left."""
        while self._expected and sum(expected.count_bytes() for expected in self._expected.values()) > limit_bytes:
            del self._expected[next(iter(self._expected))]

    def clear(self) -> None:
        """Frees all stored references."""
        self._workload, self._expected = None, {}


def _make_expected(workload: Workload, inputs: Tensors, seed: int, planted: bool) -> Expected:
    """Computes references and yardsticks (over several draws if outputs are small), and flips bits of the
    references."""
    import torch

    reference, yardsticks = _draw_yardsticks(workload, inputs)
    device = str(inputs[0].device) if inputs else "cpu"
    smallest = min(tensor.numel() for tensor in reference.values())
    inputs_elements = sum(tensor.numel() for tensor in inputs)
    count = count_draws(smallest, workload.flops, inputs_elements)
    for draw in range(1, count):
        _, more = _draw_yardsticks(workload, workload.make_inputs(seed + draw, device, planted=planted), by_line=False)
        yardsticks = {name: yardsticks[name].merge(more[name]) for name in yardsticks}
    yardsticks = {
        name: yardsticks[name].scale_largest(estimate_spread(reference[name].numel() * count)) for name in yardsticks
    }
    # In memory of its own: what a function returns may be expanded, or memory that it goes on using.
    sealed = {name: truth.clone(memory_format=torch.contiguous_format) for name, truth in reference.items()}
    _flip_bits(sealed)
    return Expected(sealed, yardsticks)


def count_draws(elements: int, flops: float | None, inputs_elements: int = 0) -> int:
    """Returns the number of seeds over which a yardstick is measured: 1 for large problems, up to DRAWS_MAX for small
    ones.

    elements          of the smallest output
    flops             of one call, which limit the draws beyond the first; None if unknown
    inputs_elements   of all inputs, which limit them where `flops` is not known; 0 means no limit
    """
    wanted = min(DRAWS_MAX, math.ceil(ELEMENTS_MIN / elements))
    if flops:
        return min(wanted, 1 + int(EXTRA_FLOPS_MAX / flops))
    return min(wanted, 1 + EXTRA_ELEMENTS_MAX // inputs_elements) if inputs_elements else wanted


def estimate_spread(elements: int) -> float:
    """Returns the ratio of the largest of ELEMENTS_MIN rounding errors to the largest of `elements`; at least 1. The
    largest of n normal errors is about sqrt(2 ln n) standard deviations."""
    if elements >= ELEMENTS_MIN:
        return 1.0
    return min(SPREAD_MOST, math.sqrt(math.log(ELEMENTS_MIN) / math.log(max(2, elements))))


def _draw_yardsticks(
    workload: Workload, inputs: Tensors, *, by_line: bool = True
) -> tuple[Outputs, dict[str, Yardstick]]:
    """Returns (references, yardsticks), each by output name, for one draw of inputs; without `by_line` only whole
    outputs are measured. Raises BadReferenceError if the reference proves nothing."""
    import torch

    lowering = getattr(workload, "in_low_precision", None)
    otherwise = getattr(workload, "plain_otherwise", None)
    with without_autocast():
        reference, plain = workload.reference(inputs), workload.plain(inputs)
        lows: tuple[Outputs, ...] = lowering(inputs) if lowering is not None else ()
        lows += otherwise(inputs) if otherwise is not None else ()
    returned: tuple[tuple[str, object], ...] = (("reference", reference), ("plain", plain))
    for method, outputs in returned:
        if not isinstance(outputs, dict):
            kind = type(outputs).__name__
            raise BadReferenceError(f"{workload.id}: {method}() returned {kind}; return e.g. {{'out': tensor}}")
        for name, output in outputs.items():
            if not isinstance(output, torch.Tensor):
                kind = type(output).__name__
                raise BadReferenceError(f"{workload.id}: {method}() returned {kind} as {name!r}; return a tensor")
    if not reference or reference.keys() != plain.keys():
        raise BadReferenceError(
            f"{workload.id}: the reference gives {sorted(reference)}, the plain computation {sorted(plain)}; both "
            "must give the same outputs, at least one"
        )
    yardsticks = {}
    for name, truth in reference.items():
        try:
            non_finite = name in workload.non_finite_outputs
            yardsticks[name] = own = measure_yardstick(name, truth, plain[name], non_finite=non_finite, by_line=by_line)
            if lowering is not None:
                _require_conditioned(workload, inputs, reference, name, own)
            for low in () if non_finite else lows:
                yardsticks[name] = _loosen_yardstick(yardsticks[name], truth, low.get(name), by_line)
            most = max(own.rms_error, WEAK_SHARE * _measure_size(truth)) if yardsticks[name] is not own else math.inf
            if yardsticks[name].rms_error > most and not _is_nothing(inputs, reference, name):
                yardsticks[name] = yardsticks[name].limit_rms(most)
        except MismatchError as error:
            raise BadReferenceError(f"{workload.id}: {error}") from error
        if (value := find_constant_value(truth)) is not None:
            raise BadReferenceError(f"{workload.id}: {describe_constant(name, value)}")
    # A reference whose function took gradients would hold its whole graph for as long as it is kept.
    return {name: truth.detach() for name, truth in reference.items()}, yardsticks


def _require_conditioned(
    workload: Workload, inputs: Tensors, reference: Outputs, name: str, yardstick: Yardstick
) -> None:
    """Raises BadReferenceError if the plain error of output `name` is above WEAK_SHARE of the result, so that zeros
    could pass. An output that is zero except for rounding has no precision to require, e.g. the gradient of an input
    that a softmax ignores."""
    size = _measure_size(reference[name])
    if not reference[name].is_floating_point() or not yardstick.rms_error > WEAK_SHARE * size:
        return
    if _is_nothing(inputs, reference, name):
        return
    raise BadReferenceError(
        f"{workload.id}: the reference of {name!r} is too imprecise: computed as it is written, it "
        f"is off by {yardstick.rms_error:.3g} in the root mean square, where the result itself is {size:.3g}, so that "
        f"zeros could pass (at most {WEAK_SHARE:g} of the result is allowed); compute it in fp32 and round at the end "
        "(x.float() ... .to(x.dtype)), or use inputs on which less cancels"
    )


def _is_nothing(inputs: Tensors, reference: Outputs, name: str) -> bool:
    """Returns whether output `name` is only rounding: below NOTHING_SHARE of the largest input or output, as RMS."""
    floats = [tensor for tensor in (*inputs, *reference.values()) if tensor.is_floating_point() and tensor.numel()]
    return _measure_size(reference[name]) <= NOTHING_SHARE * max(map(_measure_size, floats))


def _measure_size(tensor: torch.Tensor) -> float:
    """Returns the root mean square of the finite elements; 0 if there are none."""
    return float(scan.typical_finite_magnitude((tensor if tensor.dtype.itemsize > 1 else tensor.float()).detach()))


def _loosen_yardstick(yardstick: Yardstick, truth: torch.Tensor, low: torch.Tensor | None, by_line: bool) -> Yardstick:
    """Returns the yardstick with errors of at least those of `low`, the output in low-precision arithmetic. It is
    unchanged if `low` is None, not finite, of another shape, or not floating point."""
    if low is None or low.shape != truth.shape or not low.is_floating_point() or not yardstick.dtype.is_floating_point:
        return yardstick
    if not bool(low.isfinite().all()):
        return yardstick
    return yardstick.loosen(measure_yardstick("", truth, low, by_line=by_line))


def _flip_bits(outputs: Outputs) -> None:
    """Flips the secret bits of every element in place: once makes a reference unreadable, twice restores it."""
    import torch

    with torch.inference_mode():
        for tensor in outputs.values():
            as_integers(tensor).bitwise_xor_(_SECRET >> (64 - 8 * tensor.element_size()))
