"""Error budgets of single rows, columns and other lines of an output, in addition to that of the whole output.

One lost column of a thousand, or one lost row of a hundred thousand, is small compared with the rounding of all others.
Where single rows are large, as planted ones are, their rounding would excuse the loss of an ordinary one. So the root
mean square of the errors is judged along every line: each row of the last axis, and for every axis all elements at one
index of it.

The allowed error of a line is

    8 * multiplier * max(plain, typical * size) + step * (4 * size + whole)

where `plain` is the error of the plain computation on that line, `size` the root mean square of the reference on it,
but no less than that of the median line, `whole` that of the whole reference without its largest eighth of lines,
`typical` the mean of plain / size over the lines of that kind, and `step` the rounding step of the output type at 1,
but no less than 2^-16. That is much, because the plain computation is lucky on one of many lines, and a line may hold
one large element only. A lost line still exceeds it, because its error is as large as the line.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pytest_attnperf.correctness import scan

if TYPE_CHECKING:
    import torch

ELEMENTS_MIN = 8
SHORT_SHARE = 0.5
"""Least allowed error of a line shorter than ELEMENTS_MIN, or of one element of a vector, as a share of its size: the
root mean square of a few rounding errors is a matter of luck. The error of a lost line is 1."""

VECTOR_SAMPLE = 4096
"""Elements of a vector that are judged one by one: more would cost more than the rest of a check."""

LINES_MIN = 4
"""Fewer short lines than this are not judged: none of them is typical."""

LARGEST_SHARE = 8
"""The largest 1 / LARGEST_SHARE of the lines does not count for `whole`: next to it all others would vanish."""

LEAST_STEP = 2.0**-16
"""Lines of fp32 are judged no more closely than this: losing a part of a line exceeds it."""

LINE_FACTOR = 8.0
LINE_STEPS = 4.0
"""The allowed error of a line in multiples of the whole's multiplier, and in rounding steps. With half of both, honest
fp32 gradients failed on columns on which the plain computation was lucky."""


@dataclass(frozen=True)
class LineBudget:
    """The allowed errors of lines of one kind.

    plain   the plain computation's error on each line, but at least the typical one, fp64
    size    the size of each line, fp64
    whole   the size of the whole reference without its largest lines, fp64, shape ()
    short   whether the lines hold fewer than ELEMENTS_MIN elements
    """

    plain: torch.Tensor
    size: torch.Tensor
    whole: torch.Tensor
    short: bool = False

    def merge(self, other: LineBudget) -> LineBudget:
        """Returns these budgets with the larger plain error of both on each line (row or column); both are of the same
        inputs."""
        import torch

        return LineBudget(torch.maximum(self.plain, other.plain), self.size, self.whole, self.short)

    def compute_allowed(self, multiplier: float, eps: float) -> torch.Tensor:
        """Returns the allowed root mean square error of each line (row or column), in the units of the output; the
        formula is in the module's docstring.

        multiplier   the tolerance's factor on the plain computation's error
        eps          rounding step of the output type at 1
        """
        step = max(eps, LEAST_STEP)
        allowed = LINE_FACTOR * multiplier * self.plain + step * (LINE_STEPS * self.size + self.whole)
        return allowed.clamp_min(SHORT_SHARE * self.size) if self.short else allowed


Lines = dict[str, LineBudget]
"""Budgets by kind of line: 'row', or 'axis 0' ..."""


@dataclass(frozen=True)
class WorstLine:
    """The line that exceeds its budget most, e.g. 'row (3, 17)' or 'index 999 of axis 1'."""

    name: str
    error: float
    allowed: float


def measure_lines(plain: torch.Tensor, reference: torch.Tensor) -> Lines:
    """Returns the budgets of each kind of line of one output ('row', 'axis 0' ...), from the errors of the plain
    computation. Leaves out a kind whose errors or sizes are not finite, or whose median line is 0."""
    import torch

    budgets: Lines = {}
    errors, sizes = (dict(_iterate_kinds(plain, reference, of)) for of in ("error", "size"))
    for kind, error in errors.items():
        size = sizes[kind]
        floor = size.median()
        size = torch.maximum(size, floor)
        if not bool(torch.isfinite(error).all() & torch.isfinite(size).all()) or not float(floor) > 0:
            continue
        typical = (error / size).mean()
        lines = sizes[kind].numel()
        others = sizes[kind].flatten().sort().values[: lines - math.ceil(lines / LARGEST_SHARE)] if lines > 1 else size
        whole = others.square().mean().sqrt()
        short = reference.numel() // lines < ELEMENTS_MIN
        budgets[kind] = LineBudget(torch.maximum(error, typical * size), size, whole, short)
    return budgets


def find_worst_line(
    got: torch.Tensor, reference: torch.Tensor, lines: Lines, multiplier: float, eps: float
) -> WorstLine | None:
    """Returns the row, column or other line with the largest error relative to its budget; None if no line is judged.

    All elements must be finite.
    lines        budgets by kind of line, of `measure_lines`
    multiplier   the tolerance's factor on the plain computation's error
    eps          rounding step of the output type at 1
    """
    found: list[WorstLine] = []
    for kind, error in _iterate_kinds(got, reference, "error") if lines else ():
        if kind not in lines:
            continue
        allowed = lines[kind].compute_allowed(multiplier, eps)
        # Where nothing is allowed, nothing may be off: 0 / 0 is no excess.
        excess = (error / allowed).nan_to_num(nan=0.0, posinf=math.inf)
        place = int(excess.argmax())
        found.append(WorstLine(_format_line(kind, place, got.shape), float(error[place]), float(allowed[place])))
    return max(found, key=lambda line: line.error / line.allowed if line.allowed else math.inf, default=None)


def _iterate_kinds(one: torch.Tensor, other: torch.Tensor, of: str) -> Iterator[tuple[str, torch.Tensor]]:
    """Yields (kind, root mean square on each line) for every kind of line that is judged: of one - other if `of` is
    'error', of `other` itself if it is 'size'. Yields nothing for an empty tensor or a scalar."""
    if not one.numel() or not one.dim():
        return
    if one.dim() == 1:
        if one.numel() >= LINES_MIN:
            step = _vector_step(one.numel())
            ours, theirs = one[::step].double(), other[::step].double()
            yield "axis 0", (theirs if of == "size" else ours - theirs).abs()
        return
    rows, columns = _sums_of_squares(one, other, of)
    last = one.shape[-1]
    leading = rows.view(one.shape[:-1])
    if _is_judged(last, rows.numel()) and one.dim() > 2:
        yield "row", (rows / last).sqrt()
    for axis in range(one.dim() - 1):
        elements = one.numel() // one.shape[axis]
        if _is_judged(elements, one.shape[axis]):
            others = tuple(dim for dim in range(leading.dim()) if dim != axis)
            sums = leading.sum(dim=others) if others else leading
            yield f"axis {axis}", (sums / elements).sqrt()
    if _is_judged(rows.numel(), last):
        yield f"axis {one.dim() - 1}", (columns / rows.numel()).sqrt()


def _vector_step(elements: int) -> int:
    """Returns n: every n-th element of a vector of `elements` elements is judged, 1 if it is short."""
    return max(1, elements // VECTOR_SAMPLE)


def _is_judged(elements: int, lines: int) -> bool:
    """Returns whether lines are judged: at least 2 of ELEMENTS_MIN elements or more, or LINES_MIN shorter ones."""
    return lines >= (2 if elements >= ELEMENTS_MIN else LINES_MIN)


def _sums_of_squares(one: torch.Tensor, other: torch.Tensor, of: str) -> tuple[torch.Tensor, torch.Tensor]:
    """Returns (sums over each row of the last axis, sums over each index of the last axis) of squares, in fp64: of one
    - other if `of` is 'error', of `other` if it is 'size'. It reads some rows at a time, to save memory."""
    import torch

    last = one.shape[-1]
    step = max(1, scan.CHUNK // max(1, last))
    ours, theirs = one.reshape(-1, last), other.reshape(-1, last)
    rows = torch.empty(ours.shape[0], dtype=torch.float64, device=one.device)
    columns = torch.zeros(last, dtype=torch.float64, device=one.device)
    for first in range(0, ours.shape[0], step):
        values = theirs[first : first + step].double()
        if of == "error":
            values = ours[first : first + step].double() - values
        squares = values.square()
        rows[first : first + step] = squares.sum(-1)
        columns += squares.sum(0)
    return rows, columns


def _format_line(kind: str, place: int, shape: torch.Size) -> str:
    if kind == "row":
        index: tuple[int, ...] = ()
        for size in reversed(shape[:-1]):
            place, part = divmod(place, size)
            index = (part, *index)
        return f"row {index}"
    return f"index {place * _vector_step(shape[0]) if len(shape) == 1 else place} of {kind}"
