"""Two figures of a tensor by which a later process sees whether it would be the same: its size, and one projection.

The projection is the sum of all elements with signs that follow from their places, over the square root of their
number. For signs as good as random that of a change is as large as the change's root mean square, and no larger for
rounding errors, in whatever order something was summed.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from pytest_attnperf.correctness import scan

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    import torch

    from pytest_attnperf.backends import Tensors

Digest = tuple[float, float]
"""Root mean square of the finite elements, and their projection."""

ROW = 2**12
"""Elements whose signs are those of their column times that of their row: a product with two vectors, and no tensor of
signs as large as what they belong to. Divides the elements that are looked at together."""

DIGITS = 6

INPUTS = "inputs(): "
"""Begins the name of an input's digest among those of outputs."""

APART = 0.005
"""How far the figures of one problem may be apart, in units of their root mean square. What another order of summation
moves is below 1e-5 of it, in fp32, too; another result of the same size moves the projection by about all of it."""


def compute_digest(tensor: torch.Tensor) -> Digest | None:
    """Of a real tensor's elements in row-major order; None where it has none that is finite and not 0."""
    import torch

    if tensor.is_complex() or tensor.is_quantized or tensor.layout != torch.strided or not tensor.numel():
        return None
    totals = torch.zeros(3, dtype=torch.float64, device=tensor.device)
    columns = _make_signs(0, ROW, tensor.device)
    with torch.no_grad():
        for first, _, chunk in scan.iterate_chunks(tensor, tensor):
            finite = chunk.abs() < math.inf
            values = chunk if bool(finite.all()) else chunk.masked_fill(~finite, 0.0)
            totals += torch.stack((values.dot(values), _project_stretch(values, first, columns), finite.sum().double()))
    squares, projection, count = totals.tolist()
    if not 0 < squares < math.inf:
        return None
    return _round_digits(math.sqrt(squares / count)), _round_digits(projection / math.sqrt(count))


def compute_input_digests(names: Sequence[str], inputs: Tensors) -> dict[str, Digest]:
    """Of each input that has one, by `INPUTS` and its name."""
    found = {f"{INPUTS}{name}": compute_digest(tensor) for name, tensor in zip(names, inputs, strict=False)}
    return {name: figures for name, figures in found.items() if figures is not None}


def _project_stretch(values: torch.Tensor, first: int, columns: torch.Tensor) -> torch.Tensor:
    """The sum of a stretch of elements with their signs; `first` is the place of the first, a multiple of ROW."""
    whole = values.numel() // ROW
    rows = _make_signs(first // ROW + 1, whole + 1, values.device)
    rest = values[whole * ROW :]
    last = rest.dot(columns[: rest.numel()]) * rows[whole]
    return (values[: whole * ROW].view(whole, ROW) @ columns).dot(rows[:whole]) + last


def _make_signs(first: int, count: int, device: torch.device) -> torch.Tensor:
    """-1 or 1 for each of so many places; the same for every release of torch, because integers decide."""
    import torch

    mixed = torch.arange(first, first + count, dtype=torch.int64, device=device) * 0x9E3779B97F4A7C1
    mixed = (mixed ^ (mixed >> 29)) * 0x3F58476D1CE4E5B
    return (((mixed ^ (mixed >> 32)) >> 7) & 1).double() * 2 - 1


def _round_digits(value: float) -> float:
    return float(f"{value:.{DIGITS}g}")


def are_apart(ours: Digest, theirs: Digest) -> bool:
    """Whether two digests are not of one tensor, however it was summed."""
    size = max(ours[0], theirs[0])
    return any(not abs(one - two) <= APART * size for one, two in zip(ours, theirs, strict=True))


def select_agreed(digests: Iterable[Mapping[str, Digest]]) -> dict[str, Digest]:
    """Those of the first that every other confirms: nobody can be held to what each process draws anew."""
    first, *others = digests
    return {
        name: figures
        for name, figures in first.items()
        if all(name in other and not are_apart(figures, other[name]) for other in others)
    }
