"""Rows of a length that TMA does not take, copied into rows of one that it does, with zeros behind, and back."""

# mypy: disable-error-code="untyped-decorator, no-untyped-def"
# Parameters of a jit function are tensors or compile-time constants as its caller decides; mypy cannot say which.

from __future__ import annotations

from typing import TYPE_CHECKING

import triton
import triton.language as tl

if TYPE_CHECKING:
    import torch

ELEMENTS = 4096
"""Of a program: sixteen for each of 256 threads."""


@triton.jit
def resize_rows_kernel(
    x_ptr, out_ptr,  # (R, columns), (R, OUT_COLUMNS)
    elements, columns, OUT_COLUMNS: tl.constexpr, ELEMENTS: tl.constexpr,
):  # fmt: skip
    """The first columns of each row, zeros where x has none. Grid: (ceil(R * OUT_COLUMNS / ELEMENTS),)."""
    offsets = tl.program_id(0).to(tl.int64) * ELEMENTS + tl.arange(0, ELEMENTS)
    row, column = offsets // OUT_COLUMNS, offsets % OUT_COLUMNS
    inside = offsets < elements
    x = tl.load(x_ptr + row * columns + column, mask=inside & (column < columns), other=0.0)
    tl.store(out_ptr + offsets, x, mask=inside)


def resize_rows(x: torch.Tensor, columns: int, out: torch.Tensor | None = None) -> torch.Tensor:
    """Returns x (..., C), contiguous, with `columns` in its last dimension, cut or with zeros behind: in `out`, or in a
    new tensor, or x itself where it has as many."""
    if x.shape[-1] == columns:
        return x
    if out is None:
        out = x.new_empty(*x.shape[:-1], columns)
    grid = (triton.cdiv(out.numel(), ELEMENTS),)
    resize_rows_kernel[grid](x, out, out.numel(), x.shape[-1], OUT_COLUMNS=columns, ELEMENTS=ELEMENTS, num_warps=8)
    return out
