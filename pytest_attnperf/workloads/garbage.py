"""NaN and Inf in the elements of inputs that the definition never reads: padding, and slots of a cache without a key.

A pool of pages, a padded batch and a cache with room hold what was there before, which may be NaN. A kernel must not
load such elements, or must replace them before it computes: 0 * NaN is NaN, so a weight of 0 does not hide them.

An op family says itself what is not read (`Unread`). For a function, `UnreadSearch` finds it; whether its callers ever
have NaN there nobody knows (keys before a window are numbers), so a function that is right as soon as they are large
numbers is right, with a note.

Only floating-point inputs get garbage, because integers have no NaN: slots of `i8` caches keep large values. 8-bit
formats without Inf get NaN alone.
"""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from pytest_attnperf.errors import WorkloadError
from pytest_attnperf.workloads.base import Unread, unread
from pytest_attnperf.workloads.edge_planting import is_free
from pytest_attnperf.workloads.input_memory import as_integers, copy_tensors

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    import torch

    from pytest_attnperf.backends import Outputs, Tensors
    from pytest_attnperf.workloads.adhoc_reference import Reference
    from pytest_attnperf.workloads.base import Workload

KINDS = 4
"""Rows hold in turn NaN, Inf, -Inf, and Inf in one element only. Inf times a query of both signs is NaN, which many
maxima ignore; the score of a key with a single Inf is Inf, which none ignores."""
LONE = KINDS - 1

LARGE = 1000.0
"""In the place of NaN where that shows nothing: a weight of 1e-3 gives it away, and no product of fp16 overflows."""

SLOW_SECONDS = 0.5
"""A reference that takes longer than this is not searched."""


@dataclass(frozen=True)
class Placed:
    """Inputs with garbage, and how many elements of each input hold it, by name; no entry for 0."""

    inputs: Tensors
    elements: dict[str, int] = field(default_factory=dict)

    @property
    def names(self) -> str:
        """Names of the inputs that hold garbage, for messages: 'k_cache and v_cache'."""
        return " and ".join(self.elements)

    def describe_read(self, *, used: bool) -> str:
        """Returns what is said of a call that is wrong only while these elements hold NaN or Inf, or is `used` for one
        that is wrong with large numbers, too."""
        where = "where the definition reads nothing (padding, or slots without a key)"
        s = "s" * (len(self.elements) > 1)
        if used:
            return (
                f"wrong only while unused elements of input{s} {self.names} hold other values: they reach the result, "
                f"{where}; give them a weight of 0, or do not load them"
            )
        return (
            f"wrong only while unused elements of input{s} {self.names} hold NaN or Inf: they are read, {where}; mask "
            "the loads themselves, because 0 * NaN is NaN"
        )

    def describe_zeroed(self) -> str:
        """Returns what is said of a function that only multiplies these elements by 0."""
        return (
            f"multiplies elements of {self.names} by 0 that the reference does not read: NaN or Inf there would reach "
            "the result, because 0 * NaN is NaN; mask the loads if callers may have them"
        )


def place_garbage(workload: Workload, inputs: Tensors, seed: int) -> Placed:
    """Returns copies of planted canonical inputs that hold NaN and Inf wherever `workload.unread` says that nothing is
    read, or the inputs themselves if there is no such place. `seed` decides which row holds which kind.

    Raises WorkloadError for a number or a mask of `unread` that does not fit the inputs.
    """
    found = unread(workload, inputs)
    for one in found:
        _require_fit(workload.id, one, inputs)
    return fill_unread(inputs, found, seed)


def fill_unread(inputs: Tensors, found: Iterable[Unread], seed: int) -> Placed:
    """Returns copies of the inputs, with their strides and shared memory, that hold NaN and Inf in the elements of
    `found`; the inputs themselves if none of these is of a floating-point type."""
    wanted = [one for one in found if inputs[one.number].is_floating_point() and bool(one.mask.any())]
    if not wanted:
        return Placed(inputs)
    copies, elements = copy_tensors(inputs), {}
    for one in wanted:
        elements[one.name] = _fill(copies[one.number], one, seed)
    return Placed(copies, elements)


def _fill(tensor: torch.Tensor, found: Unread, seed: int) -> int:
    """Fills the elements of `found` in place; returns how many hold garbage."""
    import torch

    mask = found.mask
    if tensor.dim() < 2:  # each element is a row
        tensor, mask = tensor.reshape(-1, 1), mask.reshape(-1, 1)
    rows, columns = tensor.shape[:-1], tensor.shape[-1]
    # The sum of the indices: neighbours along every axis are of different kinds.
    place = torch.full((*(1 for _ in rows), 1), seed % KINDS, device=tensor.device)
    for axis, size in enumerate(rows):
        place = place + torch.arange(size, device=tensor.device).view(-1, *(1 for _ in rows[axis:]))
    kinds = place % KINDS
    lone = (kinds == LONE) & mask.all(-1, keepdim=True)
    column = torch.arange(columns, device=tensor.device)
    chosen = mask.expand(tensor.shape) & (~lone | (column == place // KINDS % columns))
    bits = as_integers(tensor)
    garbage = _large_bits if found.finite else _garbage_bits
    bits.copy_(torch.where(chosen, garbage(tensor.dtype, tensor.device)[kinds], bits))
    return int(chosen.sum())


def _garbage_bits(dtype: torch.dtype, device: torch.device) -> torch.Tensor:
    """Returns the bits of each kind's value (KINDS,) as integers; NaN in place of Inf in types without Inf."""
    import torch

    values = torch.tensor([math.nan, math.inf, -math.inf, math.inf], dtype=torch.float32).to(dtype)
    lost = values.float().isfinite()
    values = torch.where(lost, torch.tensor(math.nan), values.float()).to(dtype) if bool(lost.any()) else values
    return as_integers(values).to(device)


def _large_bits(dtype: torch.dtype, device: torch.device) -> torch.Tensor:
    """Returns the bits of numbers in the place of NaN and Inf (KINDS,), of both signs."""
    import torch

    large = min(LARGE, torch.finfo(dtype).max)
    return as_integers(torch.tensor([large, large, -large, large], dtype=torch.float32).to(dtype)).to(device)


def _require_fit(identity: str, one: Unread, inputs: Tensors) -> None:
    import torch

    if not 0 <= one.number < len(inputs):
        raise WorkloadError(f"unread of {identity} names input {one.number}; there are {len(inputs)}, from 0")
    shape, own = tuple(inputs[one.number].shape), tuple(one.mask.shape)
    sizes = zip(reversed(own), reversed(shape), strict=False)
    if one.mask.dtype != torch.bool or len(own) > len(shape) or any(mine not in (1, size) for mine, size in sizes):
        raise WorkloadError(
            f"unread of {identity} gives a mask of {one.mask.dtype} {own} for {one.name!r}; it must "
            f"be torch.bool, of a shape that broadcasts to {shape}"
        )


@dataclass
class UnreadSearch:
    """Finds the elements of a function's inputs that its reference does not read, for the first planted inputs.

    Candidates are elements of free numbers (`edge_planting.is_free`) without effect: the gradient of the reference's
    result there is exactly 0. They are unread if the reference gives the same bits with NaN and Inf in them, both in
    wide types and as it is written.

    note    why it was not searched, in words; '' if it was, or before
    finite  what is found gets large numbers, because the function multiplies it by 0
    """

    reference: Reference
    note: str = ""
    finite: bool = False
    _seed: int | None = None
    _made: int = 0
    _found: tuple[Unread, ...] = ()

    def note_seed(self, seed: int) -> None:
        """Remembers the seed of the planted inputs that were made last."""
        self._made = seed

    def find(self, inputs: Tensors) -> tuple[Unread, ...]:
        """Returns the unread elements of the planted inputs that were made last. () for other seeds than the first, so
        that a process searches once, and where the reference reads everything."""
        if self._seed is None:
            self._seed = self._made
            self._found = self._search(inputs)
        found = self._found if self._seed == self._made else ()
        return tuple(replace(one, finite=self.finite) for one in found)

    def _search(self, inputs: Tensors) -> tuple[Unread, ...]:
        self.note = ""
        if self.reference.has_gradients or not any(map(is_free, inputs)):
            return ()
        try:
            started = time.perf_counter()
            plain = self.reference.compute_plain(inputs)
            if time.perf_counter() - started > SLOW_SECONDS:
                self.note = f"takes more than {SLOW_SECONDS:g} s"
                return ()
            truth, idle = self.reference.find_idle(inputs)
            if not (candidates := self._list_candidates(inputs, idle)):
                return ()
            if self._is_unread(inputs, candidates, truth, plain):
                return candidates
            narrowed = tuple(filter(None, (_keep_whole_rows(one) for one in candidates)))
            alone = tuple(one for one in narrowed if self._is_unread(inputs, (one,), {}, plain))
            return alone if alone and self._is_unread(inputs, alone, truth, plain) else ()
        except Exception as error:  # the user's own function, and torch's of it
            self.note = f"has no gradient ({type(error).__name__})"
            return ()

    def _list_candidates(self, inputs: Tensors, idle: Sequence[torch.Tensor | None]) -> tuple[Unread, ...]:
        """Returns the idle elements of inputs of free numbers that have others, too: an input that is not read at all
        may follow from the others, and a kernel may use it."""
        names, kept = self.reference.names, self.reference.overwritten_numbers
        return tuple(
            Unread(number, names[number], mask)
            for number, mask in enumerate(idle)
            if mask is not None
            and number not in kept
            and is_free(inputs[number])
            and bool(mask.any())
            and not bool(mask.all())
        )

    def _is_unread(self, inputs: Tensors, found: tuple[Unread, ...], truth: Outputs, plain: Outputs) -> bool:
        """Returns whether the reference's results with garbage in `found` have the bits of `plain` and, if given, of
        `truth`."""
        filled = fill_unread(inputs, found, 0).inputs
        if not _has_same_bits(self.reference.compute_plain(filled), plain):
            return False
        return not truth or _has_same_bits(self.reference.compute_truth(filled), truth)


def _keep_whole_rows(one: Unread) -> Unread | None:
    """Returns only whole rows of the last axis and whole columns of the others; None if there are none."""
    rows = one.mask.all(-1, keepdim=True)
    columns = one.mask.flatten(0, -2).all(0) if one.mask.dim() > 1 else one.mask
    mask = one.mask & (rows | columns)
    return Unread(one.number, one.name, mask) if bool(mask.any()) else None


def _has_same_bits(ones: Outputs, others: Outputs) -> bool:
    import torch

    return ones.keys() == others.keys() and all(
        one.shape == others[name].shape
        and one.dtype == others[name].dtype
        and torch.equal(as_integers(one.detach().contiguous()), as_integers(others[name].detach().contiguous()))
        for name, one in ones.items()
    )
