"""Rows of a length that TMA does not take, copied into rows of one that it does, with zeros behind, and back."""

# mypy: disable-error-code="untyped-decorator, no-untyped-def"
# Parameters of a jit function are tensors or compile-time constants as its caller decides; mypy cannot say which.

from __future__ import annotations

from typing import TYPE_CHECKING

import triton
import triton.language as tl

from kernels.configs import pad_size

if TYPE_CHECKING:
    import torch

ROWS = 32
"""Of a program: as many rows of 16 bits are whole pieces of 16 bytes, so that memory is read and written by these."""


@triton.jit
def resize_rows_kernel(
    x_ptr, out_ptr,  # (R, COLUMNS), (R, OUT_COLUMNS), of 16 bits
    rows, COLUMNS: tl.constexpr, OUT_COLUMNS: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """The first columns of each row, zeros where x has none. Grid: (ceil(R / ROWS),).

    A program's rows are one range of memory before and after. BLOCK elements hold the longer one.
    """
    first_row = tl.program_id(0).to(tl.int64) * ROWS
    x_ptr += first_row * COLUMNS
    out_ptr += first_row * OUT_COLUMNS
    if first_row + ROWS <= rows:  # a known number of rows, whose masks are known to be as wide as pieces
        resize(x_ptr, out_ptr, ROWS, COLUMNS, OUT_COLUMNS, BLOCK)
    else:
        resize(x_ptr, out_ptr, rows - first_row, COLUMNS, OUT_COLUMNS, BLOCK)


@triton.jit
def resize(x_ptr, out_ptr, rows, COLUMNS: tl.constexpr, OUT_COLUMNS: tl.constexpr, BLOCK: tl.constexpr):
    """Move `rows` rows."""
    here = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + here, mask=here < rows * COLUMNS, other=0.0)
    row, column = here // OUT_COLUMNS, here % OUT_COLUMNS
    moved = tl.gather(x, tl.minimum(row * COLUMNS + column, BLOCK - 1), 0)
    tl.store(out_ptr + here, tl.where(column < COLUMNS, moved, 0.0).to(x.dtype), mask=here < rows * OUT_COLUMNS)


def resize_rows(x: torch.Tensor, columns: int, out: torch.Tensor | None = None) -> torch.Tensor:
    """Returns x (..., C), contiguous, with `columns` in its last dimension, cut or with zeros behind: in `out`, or in a
    new tensor, or x itself where it has as many."""
    if x.shape[-1] == columns:
        return x
    if out is None:
        out = x.new_empty(*x.shape[:-1], columns)
    rows = x.numel() // x.shape[-1]
    block = ROWS * pad_size(max(x.shape[-1], columns))
    resize_rows_kernel[(triton.cdiv(rows, ROWS),)](
        x, out, rows, COLUMNS=x.shape[-1], OUT_COLUMNS=columns, ROWS=ROWS, BLOCK=block, num_warps=4
    )
    return out
