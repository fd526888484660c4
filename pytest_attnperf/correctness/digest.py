"""Two figures of a tensor by which a later process recognises the same values: their size, and one projection. Also a
hash, by which it recognises the same bits.

The projection is the sum of all elements, each with a pseudo-random sign that depends on its position, divided by the
square root of their number. A change of the tensor moves it by about the root mean square of that change. Rounding
errors move it no more than that, in whatever order something was summed.
"""

from __future__ import annotations

import hashlib
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
"""Elements per row. An element's sign is that of its column times that of its row, so that two vectors suffice instead
of a tensor of signs. Divides the number of elements that are read together."""

DIGITS = 6
BITS_DIGITS = 16
"""Hex digits by which equal bits of results are recognised."""

INPUTS = "inputs(): "
"""Prefix of the digests of inputs, which are stored together with those of outputs."""

APART = 0.005
"""Largest difference between digests of the same tensor, in units of the root mean square. Another order of summation
changes a digest by less than 1e-5, also in fp32; another result of the same size changes the projection by about 1."""


def compute_digest(tensor: torch.Tensor) -> Digest | None:
    """Returns (root mean square, projection on pseudo-random signs) of a tensor's finite elements in row-major order.
    Returns None if all of them are 0, none is finite, or the tensor is complex, quantized, sparse or empty."""
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


def hash_bits(tensors: Iterable[torch.Tensor]) -> str:
    """Returns 16 hex digits of a SHA-256 over shapes, dtypes and all bits of the tensors, in their order."""
    import torch

    digest = hashlib.sha256()
    for tensor in tensors:
        digest.update(f"{tuple(tensor.shape)} {tensor.dtype};".encode())
        flat = tensor.detach().contiguous().reshape(-1)
        if flat.numel():
            digest.update(flat.view(torch.uint8).cpu().numpy().data)
    return digest.hexdigest()[:BITS_DIGITS]


def compute_input_digests(names: Sequence[str], inputs: Tensors) -> dict[str, Digest]:
    """Returns {`INPUTS` + name: digest} for the inputs; leaves out those for which `compute_digest` returns None."""
    found = {f"{INPUTS}{name}": compute_digest(tensor) for name, tensor in zip(names, inputs, strict=False)}
    return {name: figures for name, figures in found.items() if figures is not None}


def _project_stretch(values: torch.Tensor, first: int, columns: torch.Tensor) -> torch.Tensor:
    """Returns the sum of consecutive elements, each times its pseudo-random sign, as a tensor of shape ().

    first     position of the first element within the whole tensor, a multiple of ROW
    columns   the signs of the ROW columns; those of rows are made here
    """
    whole = values.numel() // ROW
    rows = _make_signs(first // ROW + 1, whole + 1, values.device)
    rest = values[whole * ROW :]
    last = rest.dot(columns[: rest.numel()]) * rows[whole]
    return (values[: whole * ROW].view(whole, ROW) @ columns).dot(rows[:whole]) + last


def _make_signs(first: int, count: int, device: torch.device) -> torch.Tensor:
    """Returns pseudo-random signs, -1.0 or 1.0 (fp64), of the positions `first` to `first + count - 1`. They are equal
    in every release of torch, because only integer arithmetic decides them."""
    import torch

    mixed = torch.arange(first, first + count, dtype=torch.int64, device=device) * 0x9E3779B97F4A7C1
    mixed = (mixed ^ (mixed >> 29)) * 0x3F58476D1CE4E5B
    return (((mixed ^ (mixed >> 32)) >> 7) & 1).double() * 2 - 1


def _round_digits(value: float) -> float:
    return float(f"{value:.{DIGITS}g}")


def are_apart(ours: Digest, theirs: Digest) -> bool:
    """Returns whether two digests differ by more than another order of summation explains: APART times the rms."""
    size = max(ours[0], theirs[0])
    return any(not abs(one - two) <= APART * size for one, two in zip(ours, theirs, strict=True))


def select_agreed(digests: Iterable[Mapping[str, Digest]]) -> dict[str, Digest]:
    """Returns those digests of the first process, by name, that every other process has too, within APART. Values that
    each process draws anew thereby drop out. Raises ValueError if there is no process."""
    first, *others = digests
    return {
        name: figures
        for name, figures in first.items()
        if all(name in other and not are_apart(figures, other[name]) for other in others)
    }
