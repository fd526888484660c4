"""Inputs that show a single lost element, for any function: planted according to the values of the tensors alone.

Random inputs hide most mistakes: a sum over a thousand elements hardly changes when one is lost. Here single elements
and single rows are made so large that they decide a result, where a kernel is likely to fail: first and last, at powers
of two, at the edges of tiles and of the last tile, and one before and after each. A few rows are constant, of
alternating signs, or very small. Most rows do not change, so that ordinary mistakes still show.

Only tensors of free numbers are planted: floating point, both signs, centred, not bounded. Angles, probabilities,
decays, masks, scales and normalised rows have a meaning that a spike would break, so they are not changed.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import TYPE_CHECKING

from pytest_attnperf.workloads.input_memory import copy_tensors, each_once, memory_span

if TYPE_CHECKING:
    import torch

    from pytest_attnperf.backends import Tensors

AMPLITUDES = (64.0, 16.0, 4.0)
"""Sizes of a planted element, in units of its tensor's root mean square: the first that the problem allows is used. 64
times a random score of attention or a logit exceeds what exp can hold in fp32, and its square what f16 can."""

TILES = (16, 32, 64, 128, 256)
FAINT = 2.0**-10
"""Factor of a very small row: there it shows whether a norm adds eps to the mean of squares."""

PLANTED_SHARE = 8
"""At most one of PLANTED_SHARE rows is planted, and at least one."""

ENDS_REPEATED = 4
"""The first and the last of an axis are planted at this many places: they are lost most often."""

SMALLEST = 4.0
"""Smallest factor of a scaled row; the largest is the amplitude. Factors differ, so that no row always dominates."""

ROWS_MOST = 96
"""Largest number of rows planted in one tensor and way: an axis of 65,536 has about 70 edges."""

BOUND_SHARE = 0.1
"""A tensor is bounded if more than this share of its elements is within 5 % of the largest: sines, signs, masks."""

EQUAL_NORMS = 0.02
"""Rows are normalised if the standard deviation of their norms, relative to the mean, is below this."""

TRIES = 8
"""Attempts to find a row that is not planted yet."""

SAMPLE = 2**16
"""Elements that are read to find out what a tensor holds."""


Place = tuple[int, ...]


def plant_edges(tensors: Tensors, numbers: Sequence[int], seed: int, amplitude: float) -> Tensors:
    """Returns copies of all tensors, which share memory as the originals do; in those of `numbers`, single elements and
    rows are made large, `amplitude` times the tensor's RMS, at edges where kernels fail."""
    copies = copy_tensors(tensors)
    seen: set[tuple[int, int]] = set()
    for number in numbers:
        own = each_once(copies[number])
        if (place := (own.data_ptr(), memory_span(own))) not in seen:  # k and v may be one tensor
            _plant_in_place(own, random.Random(f"{seed} {number}"), amplitude)
        seen.add(place)
    return copies


def is_free(tensor: torch.Tensor) -> bool:
    """Returns whether a tensor looks like random numbers of both signs, any of which may be large: centred, not
    bounded, rows not normalised, two bytes or more."""
    import torch

    if not tensor.is_floating_point() or tensor.dtype.itemsize < 2 or not tensor.dim() or tensor.numel() < 2:
        return False
    with torch.no_grad():
        flat = tensor.detach().reshape(-1)
        values = flat[:: max(1, flat.numel() // SAMPLE)].double()
        largest, mean, rms = torch.stack(
            (values.abs().amax(), values.mean().abs(), values.square().mean().sqrt())
        ).tolist()
        if not 0 < largest < float("inf") or mean > rms / 2 or not bool((values < 0).any() & (values > 0).any()):
            return False
        near = float((values.abs() > 0.95 * largest).double().mean())
    few = values.numel() < 64  # the largest of a few is always near itself
    return (few or near < BOUND_SHARE) and not _rows_are_normalised(tensor)


def _rows_are_normalised(tensor: torch.Tensor) -> bool:
    """Returns whether all rows have nearly one norm, below 1.5. Returns False where rows or their elements are few,
    because it could be chance."""
    import torch

    if tensor.dim() < 2 or tensor.shape[-1] < 4 or tensor.numel() < 4 * tensor.shape[-1]:
        return False
    rows = tensor.detach().reshape(-1, tensor.shape[-1])
    norms = torch.linalg.vector_norm(rows[:: max(1, rows.shape[0] // 256)].double(), dim=-1)
    return float(norms.std()) < EQUAL_NORMS * float(norms.mean()) and float(norms.mean()) < 1.5


def list_edges(size: int) -> list[int]:
    """Returns indices along an axis of `size` elements where kernels fail: its ends, powers of two, the start of the
    last tile, and their neighbours. Sorted, without repetition."""
    marks = [0, size - 1, *(1 << power for power in range(size.bit_length())), *(size // t * t for t in TILES)]
    return sorted({place for mark in marks for place in (mark - 1, mark, mark + 1) if 0 <= place < size})


def _plant_in_place(planted: torch.Tensor, draw: random.Random, amplitude: float) -> None:
    import torch

    with torch.no_grad():
        size = float(planted.double().square().mean().sqrt())
        scaled = [row for axis in range(planted.dim() - 1) for row in _rows_at_edges(planted.shape, axis, draw)]
        if scaled:
            _scale_rows(planted, list(dict.fromkeys(scaled)), draw, amplitude)
        _plant_columns(planted, set(scaled), draw, amplitude * size)
        _plant_shapes(planted, draw, size)


def _rows_at_edges(shape: Sequence[int], axis: int, draw: random.Random) -> list[Place]:
    """Returns indices of rows, one index for each axis but the last: at edges of `axis`, and random in the others. The
    ends of the axis come first."""
    leading = shape[:-1]
    allowed = max(1, min(ROWS_MOST, _multiply_sizes(leading) // PLANTED_SHARE // len(leading)))
    places = list_edges(shape[axis])
    ends = [shape[axis] - 1, 0]
    rest = [place for place in places if place not in ends]
    chosen = [*ends, *draw.sample(rest, len(rest)), *ends * (ENDS_REPEATED - 1)][:allowed]
    return [tuple(place if dim == axis else draw.randrange(n) for dim, n in enumerate(leading)) for place in chosen]


def _scale_rows(planted: torch.Tensor, rows: list[Place], draw: random.Random, amplitude: float) -> None:
    """Multiplies the rows in place by random factors between SMALLEST and `amplitude`, the first by `amplitude`
    itself."""
    import torch

    factors = [amplitude, *(SMALLEST * (amplitude / SMALLEST) ** draw.random() for _ in rows[1:])]
    index = _index_places(rows, planted)
    scale = torch.tensor(factors, dtype=torch.float64, device=planted.device).to(planted.dtype)
    planted[index] = planted[index] * scale.unsqueeze(-1)


def _plant_columns(planted: torch.Tensor, scaled: set[Place], draw: random.Random, value: float) -> None:
    """Sets one element per row to `value` or its negative at an edge of the last axis, if possible in rows that are not
    in `scaled`. The ends come first, with both signs: a softmax ignores small elements."""
    import torch

    columns = planted.shape[-1]
    ends = [columns - 1, 0]
    rest = [column for column in list_edges(columns) if column not in ends]
    both = [(column, sign * value) for _ in range(ENDS_REPEATED // 2) for sign in (1, -1) for column in ends]
    others = [(column, draw.choice((-value, value))) for column in draw.sample(rest, len(rest))]
    allowed = max(1, min(ROWS_MOST, _multiply_sizes(planted.shape[:-1]) // PLANTED_SHARE)) if planted.dim() > 1 else 2
    chosen: dict[Place, float] = {}
    for column, element in [*both, *others][:allowed]:
        row = _draw_place(planted.shape, draw)
        for _ in range(TRIES):
            if row not in scaled and row not in {each[:-1] for each in chosen}:
                break
            row = _draw_place(planted.shape, draw)
        place = (*row, column)
        chosen[place] = element
    elements = torch.tensor(list(chosen.values()), dtype=torch.float64, device=planted.device).to(planted.dtype)
    planted[_index_places(list(chosen), planted)] = elements


def _plant_shapes(planted: torch.Tensor, draw: random.Random, size: float) -> None:
    """Makes one random row constant, one of alternating signs, and one very small, if rows suffice; `size` is the RMS
    of the tensor. The values are powers of two, so they are exact."""
    import torch

    if planted.dim() < 2 or _multiply_sizes(planted.shape[:-1]) < 4 * PLANTED_SHARE:
        return
    even = 2.0 ** round(torch.tensor(size).log2().item())
    signs = 1.0 - 2.0 * (torch.arange(planted.shape[-1], device=planted.device) % 2)
    planted[_draw_place(planted.shape, draw)] *= FAINT
    planted[_draw_place(planted.shape, draw)] = even
    planted[_draw_place(planted.shape, draw)] = (signs * even).to(planted.dtype)


def _draw_place(shape: Sequence[int], draw: random.Random) -> Place:
    """Draws a random row: an index in all axes but the last."""
    return tuple(draw.randrange(size) for size in shape[:-1])


def _index_places(places: list[Place], like: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """Converts places, indices of all rows or elements, to torch's advanced index: one tensor for each axis."""
    import torch

    return tuple(torch.tensor(axis, device=like.device) for axis in zip(*places, strict=True))


def _multiply_sizes(sizes: Sequence[int]) -> int:
    product = 1
    for size in sizes:
        product *= size
    return product
