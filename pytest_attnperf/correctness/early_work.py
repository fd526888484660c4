"""Checks that `convert`, which is never timed, only rearranges inputs for a backend's layout.

Layouts, paddings and casts move elements one by one. So one changed input element changes one element of the converted
tensors, and no converted element depends on two inputs. A product, a softmax or a norm breaks both rules. `convert`
cannot keep a result for the call either, because other inputs are converted in between.

If a backend may run its own forward pass, only the incoming gradient is checked, because no forward pass knows it.

Elements that were moved, cast or scaled are also proportional to their input, which an exp of each element is not. So
`convert` runs on an input x, on -x/2 and on x/4; a straight line through the first two results predicts the third.
Scales, and values divided by them, are on no line, because they ignore the sign; they follow a power of the input.
Factors that are powers of two change no rounding. So honest casts and scales fit exactly, and so does quantisation with
one scale per tensor.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from pytest_attnperf.backends import copy_into
from pytest_attnperf.correctness import poison
from pytest_attnperf.records.time_units import format_time
from pytest_attnperf.workloads.input_memory import as_integers

if TYPE_CHECKING:
    import torch

    from pytest_attnperf.backends import Prepared, Tensors

ADVICE = (
    "`Prepared.convert` may move, pad, pack and cast elements only, because it is not timed; compute in `Prepared.call`"
)

BACKWARD = ("backward", "varlen_backward")
"""Op families whose backends may run a forward pass of their own before the call."""

INCOMING = 3
"""Number of the input that no forward pass knows: the gradient of its result."""

STEADY, GROSS, LUCK = 0.05, 0.5, 0.02
"""Thresholds for a tensor that differs between two equal conversions, as relative differences. An element follows from
an input if equal inputs change it by at most STEADY, and other inputs by at least GROSS (opposite sign gives 1). Memory
that was never written matches by chance, but in at most LUCK of all unsteady elements."""

GROUP = 16
"""Elements of the smallest group that is quantised with its own scale and offset."""

FACTORS = (1.0, -0.5, 0.25)
"""Factors that multiply the input, in the order that this whole file uses."""

STEPS = 2
"""Allowed deviation of an element: rounding steps of the narrower type, relative to the sum of the three sizes."""

SHARE = 0.05
"""`convert` fails if more than this share of the elements deviates: some may be too small to be halved exactly."""

SAMPLE = 2**12
"""Number of elements that are checked, drawn at random."""

LEVELS = 256
"""At most so many different values mean 8-bit quantisation with a fixed scale: rounding is intended there."""


class Decoys:
    """Converts inputs that the call never gets: checks `convert` once, and runs it on other inputs before each check.

    family    op family of the workload
    wait      waits for the device
    seconds   shortest time of `convert`; None before the first one, and where it returns its inputs unchanged
    """

    def __init__(self, prepared: Prepared, family: str, wait: Callable[[], None]) -> None:
        self.seconds: float | None = None
        self._prepared = prepared
        self._wait = wait
        self._may_work = prepared.declares.own_forward and family in BACKWARD
        self._looked = False
        self._as_given = False

    def convert(self, inputs: Tensors) -> list[str]:
        """Checks at the first call that the backend's untimed `convert` (own tensors of the inputs) only rearranges and
        casts; returns at most one problem, in words. Later calls return [] and only convert other values than `inputs`,
        so that `convert` cannot keep a result for the next call."""
        import torch

        with torch.no_grad():
            if not self._looked:
                self._looked = True
                return self._inspect_convert(inputs)
            if self.seconds is not None:
                self._convert_timed(tuple(_change_everywhere(tensor) for tensor in inputs))
            elif self._as_given:
                self._convert_unmeasured(inputs)
        return []

    def describe_slow_conversion(self, call_seconds: float) -> str:
        """Returns a note, in words, if the fastest `convert` took longer than `call_seconds`; '' otherwise."""
        if self.seconds is None or not 0 < call_seconds < self.seconds:
            return ""
        return (
            f"not timed: bringing the inputs into the backend's layout takes {format_time(self.seconds * 1e6)}, a call "
            f"{format_time(call_seconds * 1e6)}"
        )

    def _inspect_convert(self, inputs: Tensors) -> list[str]:
        plain = self._prepared.convert(inputs)
        if all(any(one is given for given in inputs) for one in plain):
            self._as_given = True
            self._convert_unmeasured(inputs)
            return []
        if not any(poison.has_overlap(one, own) for one in plain for own in self._prepared.tensors):
            return self._list_problems(inputs)
        # It converts into memory of its own, which must stay as it is loaded.
        kept = tuple(tensor.clone() for tensor in self._prepared.tensors)
        found = self._list_problems(inputs)
        for own, copy in zip(self._prepared.tensors, kept, strict=True):
            copy_into(own, copy)
        self.seconds = None
        return found

    def _convert_unmeasured(self, inputs: Tensors) -> None:
        """Converts changed `inputs`, untimed, and drops the result; does nothing if memory does not suffice."""
        import torch

        with contextlib.suppress(torch.OutOfMemoryError):
            self._prepared.convert(tuple(_change_everywhere(tensor) for tensor in inputs))

    def _list_problems(self, inputs: Tensors) -> list[str]:
        """Changes each floating-point input alone, and checks which converted elements change, and that they are
        proportional to it; returns at most one problem, in words. Last, it converts other inputs, so that `convert`
        cannot keep a result."""
        base = self._convert_copies(inputs)
        touched: list[torch.Tensor | None] = [None] * len(base)
        numbers: Iterable[int] = range(len(inputs))
        if self._may_work:
            numbers = (INCOMING,)
            others = tuple(one if number == INCOMING else _change_everywhere(one) for number, one in enumerate(inputs))
            touched = list(self._find_changes(inputs, others, base)[0])
        found: list[str] = []
        for number in numbers:
            # A single number is a scale, and may be applied.
            if not found and inputs[number].is_floating_point() and inputs[number].numel() > 1:
                found += self._list_spread_problems(inputs, number, base)
                found += self._list_mixing_problems(inputs, number, base, touched)
        self._convert_timed(tuple(_change_everywhere(tensor) for tensor in inputs))
        return found[:1]

    def _list_spread_problems(self, inputs: Tensors, number: int, base: Tensors) -> list[str]:
        """Returns a problem, in words, if changing one element of input `number` changes more elements of a converted
        tensor than that tensor could hold copies of it; [] otherwise.

        base   what `convert` gives for the unchanged inputs
        """
        other = _replace_input(inputs, number, _change_one(inputs[number]))
        for place, mask in enumerate(self._find_changes(inputs, other, base)[0]):
            copies = max(1, -(-mask.numel() // inputs[number].numel()))
            changed = int(mask.sum())
            if changed > copies:
                return [
                    f"work is done before the call: one element of input {number} reaches {changed} elements of tensor "
                    f"{place} that `convert` gives. {ADVICE}"
                ]
        return []

    def _list_mixing_problems(
        self, inputs: Tensors, number: int, base: Tensors, touched: list[torch.Tensor | None]
    ) -> list[str]:
        """Returns a problem if converted elements depend on input `number` and on an earlier one, or are not
        proportional to it.

        base      what `convert` gives for the unchanged inputs
        touched   for each converted tensor, a mask of the elements that earlier inputs reach; extended by this input's
        """
        masks, halves = self._find_changes(
            inputs, _replace_input(inputs, number, _change_everywhere(inputs[number])), base
        )
        for place, changed in enumerate(masks):
            earlier = touched[place]
            both = 0 if earlier is None else int((changed & earlier).sum())
            if both:
                return [
                    f"work is done before the call: {both} elements of tensor {place} that `convert` gives depend on "
                    f"input {number} and on another input. {ADVICE}"
                ]
            touched[place] = changed if earlier is None else changed | earlier
        quarters = self._convert_timed(_replace_input(inputs, number, _scale_tensor(inputs[number], FACTORS[2])))
        few = _find_statistics(masks, inputs[number].numel())
        for place, seen in enumerate(zip(base, halves, quarters, strict=True)):
            off = 0 if place in few else count_strays(seen, masks[place], inputs[number].dtype)
            if off:
                return [
                    f"work is done before the call: {off} elements of tensor {place} that `convert` gives are not "
                    f"proportional to input {number}, as moved, cast and scaled ones are. {ADVICE}"
                ]
        return []

    def _find_changes(self, inputs: Tensors, other: Tensors, base: Tensors) -> tuple[Tensors, Tensors]:
        """Returns (a mask per converted tensor: which elements differ between `base` and `other`; the tensors of
        `other`).

        `base` is what `convert` gives for `inputs`; `other` are inputs of which some were changed.
        A backend's own forward pass may leave memory unwritten, or sum in any order, so that its tensors differ between
        equal runs. Then each conversion is made twice, in another order than that in which memory is reused.
        """
        after = self._convert_copies(other)
        if not self._may_work:
            return tuple(map(_mark_differences, base, after)), after
        pairs = zip(base, after, self._convert_copies(other), self._convert_copies(inputs), strict=True)
        return tuple(_mark_outstanding(*four) for four in pairs), after

    def _convert_copies(self, inputs: Tensors) -> Tensors:
        return tuple(tensor.clone() for tensor in self._convert_timed(inputs))

    def _convert_timed(self, inputs: Tensors) -> Tensors:
        self._wait()
        begin = time.perf_counter()
        converted = self._prepared.convert(inputs)
        self._wait()
        took = time.perf_counter() - begin
        self.seconds = took if self.seconds is None else min(took, self.seconds)
        return converted


def _replace_input(inputs: Tensors, number: int, other: torch.Tensor) -> Tensors:
    return (*inputs[:number], other, *inputs[number + 1 :])


def _change_everywhere(tensor: torch.Tensor) -> torch.Tensor:
    """Returns a floating-point tensor times -0.5, so that every nonzero element changes. Integers and booleans are
    returned as they are, because they may be indices."""
    return _scale_tensor(tensor, FACTORS[1]) if tensor.is_floating_point() else tensor


def _scale_tensor(tensor: torch.Tensor, factor: float) -> torch.Tensor:
    return tensor * factor if tensor.element_size() > 1 else (tensor.float() * factor).to(tensor.dtype)


def _change_one(tensor: torch.Tensor) -> torch.Tensor:
    """Returns a copy with one element times -0.5: of the first row's first 64, the one of median size. The largest may
    be the scale from which all others are quantised."""
    other = tensor.clone()
    row = other
    while row.dim() > 1:
        row = row[0]
    row = row.reshape(-1)[:64] if row.dim() else row.reshape(1)
    sizes = row.double().abs()
    place = int(sizes.argsort()[len(sizes) // 2])
    row[place : place + 1].copy_(_change_everywhere(row[place : place + 1]))
    return other


def _mark_differences(one: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
    """Returns a mask like `one` of the elements whose bits differ from `other`; all True if the shapes differ."""
    import torch

    if one.shape != other.shape:
        return torch.ones_like(one, dtype=torch.bool)
    return as_integers(one).ne(as_integers(other))


def _mark_outstanding(
    one: torch.Tensor, other: torch.Tensor, other_again: torch.Tensor, again: torch.Tensor
) -> torch.Tensor:
    """Returns a mask of the elements in which `one` and `other` differ. Where two conversions of equal inputs differ,
    too (`again` from `one`, or `other_again` from `other`), it marks only large differences of steady elements; none if
    those may be chance."""
    import torch

    if len({tensor.shape for tensor in (one, other, other_again, again)}) > 1:
        return torch.ones_like(one, dtype=torch.bool)
    changed, unsteady = (
        _mark_differences(one, other),
        _mark_differences(one, again) | _mark_differences(other, other_again),
    )
    if not bool(unsteady.any()):
        return changed
    steady = (_relative_difference(one, again) <= STEADY) & (_relative_difference(other, other_again) <= STEADY)
    gross = changed & steady & (_relative_difference(one, other) >= GROSS)
    return gross if int(gross.sum()) > LUCK * int(unsteady.sum()) else torch.zeros_like(gross)


def _relative_difference(one: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
    """Returns |one - other| / (|one| + |other|) of each element, in fp64: 1 for opposite signs."""
    first, second = one.double(), other.double()
    return (first - second).abs() / (first.abs() + second.abs()).clamp_min(1e-300)


def _find_statistics(masks: Tensors, count: int) -> set[int]:
    """Returns the positions, within `masks` (one per converted tensor), of tensors with at most `count` / GROUP
    elements that depend on an input of `count` elements: offsets and scales of quantised groups, for which no
    proportion is known. Returns an empty set if together they have more than twice as many."""
    few = {place for place, mask in enumerate(masks) if mask.numel() <= count // GROUP and bool(mask.any())}
    return few if sum(masks[place].numel() for place in few) <= 2 * count // GROUP else set()


def count_strays(seen: tuple[torch.Tensor, ...], changed: torch.Tensor, dtype: torch.dtype) -> int:
    """Returns how many of the sampled changed elements are not proportional to the input. Returns 0 if at most SHARE of
    them are not, for 8-bit types, for shapes or dtypes that differ, and where few different values mean quantisation.

    seen      the tensors converted from the input times each of FACTORS
    changed   marks the elements that depend on the input
    dtype     the input's dtype
    """
    import torch

    given = {tensor.dtype for tensor in seen}
    if len(given) > 1 or any(tensor.shape != changed.shape for tensor in seen):
        return 0
    if not (is_wide(dtype) and is_wide(seen[0].dtype)):  # 8-bit ones cannot be halved exactly
        return 0
    places = _sample_places(changed)
    one, half, quarter = (tensor.reshape(-1)[places].double() for tensor in seen)
    levels = len(one.unique())  # type: ignore[no-untyped-call]
    if levels <= min(LEVELS, len(places) // 2):
        return 0
    limits = torch.finfo(seen[0].dtype)
    size = one.abs() + half.abs() + quarter.abs()
    allowed = STEPS * max(limits.eps, torch.finfo(dtype).eps) * size + 4 * limits.smallest_normal * limits.eps
    fits = ((one + half) / 2 - quarter).abs() <= allowed
    for power in (-1, 0, 1):
        halved = (half.abs() - one.abs() * 0.5**power).abs() <= allowed
        fits |= halved & ((quarter.abs() - one.abs() * 0.25**power).abs() <= allowed)
    off = int((~fits & size.isfinite()).sum())
    return off if off > SHARE * len(places) else 0


def is_wide(dtype: torch.dtype) -> bool:
    """Returns whether a dtype is floating point of two bytes or more."""
    return dtype.is_floating_point and dtype.itemsize >= 2


def _sample_places(changed: torch.Tensor) -> torch.Tensor:
    """Returns flat indices of True elements of the mask `changed`: all, or, if it has more than SAMPLE elements, those
    among SAMPLE that are drawn at random."""
    import torch

    count, flat = changed.numel(), changed.reshape(-1)
    if count <= SAMPLE:
        return flat.nonzero()[:, 0]
    generator = torch.Generator()
    generator.seed()
    places = torch.randint(count, (SAMPLE,), generator=generator).to(changed.device)
    return places[flat[places]]
