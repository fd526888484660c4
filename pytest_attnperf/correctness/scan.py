"""Passes over an output and its reference: the largest errors, the elements that are not finite, and their positions.

Everything is computed in fp64, CHUNK elements at a time. Numbers are copied from the device together: one transfer says
whether an output is right, and two or three more describe a wrong one.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

CHUNK = 2**22
"""Elements compared at once. Four fp64 copies of them are 128 MiB, which bounds the memory a comparison needs besides
the tensors; and a pass over them takes a GPU longer than its launch."""


@dataclass(frozen=True)
class Allowed:
    """The allowed error of an element: base + eps * max(|expected|, typical).

    typical   root mean square of the reference's elements: shape (), fp64, on the reference's device
    """

    base: float
    eps: float
    typical: torch.Tensor

    def compute_errors(self, truth: torch.Tensor) -> torch.Tensor:
        """Returns base + eps * max(|truth|, typical) for each element of `truth`, a chunk of the reference in fp64."""
        return truth.abs().clamp_(min=self.typical).mul_(self.eps).add_(self.base)


@dataclass(frozen=True)
class Scan:
    """The result of a pass over all elements.

    worst          flat index of the first element that violates the pattern of NaN and Inf, else of the one that
                   exceeds its budget most
    norm           root of the sum of squared errors over the `finite` elements, those that are finite on both sides
    largest        the largest error of the finite elements
    typical        `Allowed.typical`
    nan_count, inf_count, finite_count     violations of the pattern, as in `records.ErrorFigures`
    """

    worst: int
    norm: float
    largest: float
    finite: int
    typical: float
    nan_count: int = 0
    inf_count: int = 0
    finite_count: int = 0

    @property
    def violations(self) -> int:
        """Number of elements that are NaN, Inf or finite where the reference is not the same."""
        return self.nan_count + self.inf_count + self.finite_count

    @property
    def rms(self) -> float:
        """Root mean square of the errors of elements that are finite on both sides; infinite if there are none."""
        return self.norm / math.sqrt(self.finite) if self.finite else math.inf


def typical_magnitude(reference: torch.Tensor) -> torch.Tensor:
    """Returns the root mean square of all elements, shape (), fp64, without waiting for the device; not finite if one
    is not."""
    import torch

    norms = [torch.linalg.vector_norm(truth) for _, _, truth in iterate_chunks(reference, reference)]
    typical: torch.Tensor = torch.linalg.vector_norm(torch.stack(norms)) / math.sqrt(reference.numel())
    return typical


def typical_finite_magnitude(reference: torch.Tensor) -> torch.Tensor:
    """Returns the root mean square of the finite elements; 0 if there are none. Shape (), fp64."""
    import torch

    norms, counts = [], []
    for _, _, truth in iterate_chunks(reference, reference):
        finite = _is_finite(truth)
        norms.append(torch.linalg.vector_norm(truth.masked_fill(~finite, 0.0)))
        counts.append(finite.sum())
    typical: torch.Tensor = (
        torch.linalg.vector_norm(torch.stack(norms)) / torch.stack(counts).sum().clamp_(min=1).sqrt()
    )
    return typical


def scan_finite(got: torch.Tensor, reference: torch.Tensor, allowed: Allowed) -> Scan | None:
    """Compares two tensors whose elements are all finite, in few operations; returns None if it cannot decide (NaN or
    Inf somewhere, an overflow, or 0 / 0): use `scan_any`."""
    import torch

    rows = [allowed.typical.expand(4)]
    for first, ours, truth in iterate_chunks(got, reference):
        error = (ours - truth).abs_()
        norm, largest = torch.linalg.vector_norm(error), error.amax()
        ratio, place = error.div_(allowed.compute_errors(truth)).max(0)
        rows.append(torch.stack((ratio, place.double().add_(first), norm, largest)))
    values = torch.stack(rows).tolist()
    # A NaN or Inf on either side makes the norm one, an overflow `typical`, and 0 / 0 allowed the ratio.
    if not all(math.isfinite(value) for row in values for value in row):
        return None
    typical, parts = values[0][0], values[1:]
    worst = max(parts, key=lambda row: row[0])[1]
    norm, largest = math.hypot(*(row[2] for row in parts)), max(row[3] for row in parts)
    return Scan(int(worst), norm, largest, got.numel(), typical)


def scan_any(got: torch.Tensor, reference: torch.Tensor, allowed: Allowed) -> Scan:
    """Compares tensors that may hold NaN or Inf. Equal elements, equal Inf, and NaN for NaN are exactly right, whatever
    is allowed."""
    import torch

    rows = []
    for first, ours, truth in iterate_chunks(got, reference):
        ours_finite, nan = _is_finite(ours), ours != ours
        finite = ours_finite & _is_finite(truth)
        same = (ours == truth) | (nan & (truth != truth))
        violated = ~(same | finite)
        error = (ours - truth).abs_().masked_fill_(~finite, 0.0)
        # Where all is exactly right, the worst is a finite element, whose figures say so.
        ratio, place = (
            (error / allowed.compute_errors(truth)).masked_fill_(same, 0.0).masked_fill_(~finite, -1.0).max(0)
        )
        violation = violated.to(torch.uint8).argmax()
        errors = (ratio, place.double().add_(first), torch.linalg.vector_norm(error), error.amax())
        places = (violation.double().add_(first), allowed.typical)
        counted = (finite, violated, nan & violated, ours_finite & violated)
        rows.append(torch.stack((*errors, *places, *(mask.sum().double() for mask in counted))))
    return _merge_chunks(torch.stack(rows).tolist())


def _merge_chunks(rows: list[list[float]]) -> Scan:
    """Merges the results of consecutive parts of a tensor, one row each, into a Scan. Columns: largest error / allowed,
    its place, norm and largest error, place of the first violation, typical; numbers of finite, violating, violating
    NaN, and wrongly finite elements."""
    finite, violated, nan, not_inf = (int(sum(row[column] for row in rows)) for column in (6, 7, 8, 9))
    worst = next((row[4] for row in rows if row[7]), max(rows, key=lambda row: row[0])[1])
    norm, largest = math.hypot(*(row[2] for row in rows)), max(row[3] for row in rows)
    return Scan(int(worst), norm, largest, finite, rows[0][5], nan, violated - nan - not_inf, not_inf)


def find_violations(
    got: torch.Tensor, reference: torch.Tensor, allowed: Allowed
) -> tuple[int, tuple[int, ...], tuple[int, ...]]:
    """Returns (count, smallest index, largest index, both per dimension) of the elements beyond their budget, or NaN or
    Inf unlike the reference. Returns (0, (), ()) if there are none."""
    import torch

    mask = torch.empty(got.numel(), dtype=torch.bool, device=got.device)
    for first, ours, truth in iterate_chunks(got, reference):
        within = (ours - truth).abs_() <= allowed.compute_errors(truth)
        within &= _is_finite(ours) & _is_finite(truth)
        same = (ours == truth) | ((ours != ours) & (truth != truth))
        mask[first : first + CHUNK] = ~(within | same)
    numbers = [mask.sum()]
    box = mask.view(1, *got.shape)
    for dim in range(1, box.ndim):
        line = box.any(dim=tuple(other for other in range(box.ndim) if other != dim)).to(torch.uint8)
        numbers += [line.argmax(), line.numel() - 1 - line.flip(0).argmax()]
    count, *ends = torch.stack(numbers).tolist()
    return (count, tuple(ends[::2]), tuple(ends[1::2])) if count else (0, (), ())


def read_neighbours(
    got: torch.Tensor, reference: torch.Tensor, place: tuple[int, ...], reach: int
) -> tuple[int, list[float], list[float]]:
    """Returns (index of the first in its row, values of `got`, of `reference`): up to `reach` elements each side of
    `place`, along the last dimension. Integers stay integers, so that 2^53 and 2^53 + 1 differ."""
    import torch

    if not place:
        return read_neighbours(got.reshape(1), reference.reshape(1), (0,), reach)
    first = max(0, place[-1] - reach)
    stretch = slice(first, place[-1] + reach + 1)
    ours, truth = got[place[:-1]][stretch], reference[place[:-1]][stretch]
    if _is_exact(ours, truth):
        return first, ours.tolist(), truth.tolist()
    mine, theirs = torch.stack((ours.double(), truth.double())).tolist()
    return first, mine, theirs


def unravel(index: int, shape: torch.Size) -> tuple[int, ...]:
    """Returns the index per dimension of a flat, row-major index; () for a scalar."""
    place: tuple[int, ...] = ()
    for size in reversed(shape):
        index, part = divmod(index, size)
        place = (part, *place)
    return place


def iterate_chunks(got: torch.Tensor, reference: torch.Tensor) -> Iterator[tuple[int, torch.Tensor, torch.Tensor]]:
    """Yields (flat index of the chunk's first element, its elements of `got`, of `reference`), in row-major order, both
    in fp64.

    fp64 tensors are passed on without a copy: do not write to them. fp8 has few operators of its own, and fp64 holds
    all its values. fp64 does not hold all 8-byte integers beyond 2^53: where two differ and their fp64 values do not,
    the
    value of `got` becomes the next larger one.
    """
    import torch

    flat_got, flat_reference = got.reshape(-1), reference.reshape(-1)
    for first in range(0, flat_got.numel(), CHUNK):
        mine, theirs = flat_got[first : first + CHUNK], flat_reference[first : first + CHUNK]
        ours, truth = mine.double(), theirs.double()
        if mine.dtype == theirs.dtype and mine.dtype.itemsize == 8 and not mine.is_floating_point():
            hidden = (mine.view(torch.int64) != theirs.view(torch.int64)) & (ours == truth)
            ours = torch.where(hidden, ours.nextafter(torch.full_like(ours, math.inf)), ours)
        yield first, ours, truth


def _is_finite(values: torch.Tensor) -> torch.Tensor:
    """Returns a mask of the elements that are neither NaN nor Inf; twice as fast on a CPU as torch's `isfinite`."""
    return values.abs() < math.inf


def _is_exact(ours: torch.Tensor, truth: torch.Tensor) -> bool:
    return not (ours.is_floating_point() or truth.is_floating_point())
