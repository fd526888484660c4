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
"""Of a program: rows of up to 256 columns each."""


@triton.jit
def resize_rows_kernel(
    x_ptr, out_ptr,  # (R, columns), (R, OUT_COLUMNS)
    rows, columns, OUT_COLUMNS: tl.constexpr, ROWS: tl.constexpr, BLOCK_C: tl.constexpr,
):  # fmt: skip
    """The first columns of each row, zeros where x has none. Grid: (ceil(R / ROWS),); BLOCK_C holds OUT_COLUMNS."""
    first_row = tl.program_id(0).to(tl.int64) * ROWS
    row, column = tl.arange(0, ROWS)[:, None], tl.arange(0, BLOCK_C)[None, :]
    there = first_row + row < rows
    x = tl.load(x_ptr + first_row * columns + (row * columns + column), mask=there & (column < columns), other=0.0)
    out = out_ptr + first_row * OUT_COLUMNS + (row * OUT_COLUMNS + column)
    tl.store(out, x, mask=there & (column < OUT_COLUMNS))


def resize_rows(x: torch.Tensor, columns: int, out: torch.Tensor | None = None) -> torch.Tensor:
    """Returns x (..., C), contiguous, with `columns` in its last dimension, cut or with zeros behind: in `out`, or in a
    new tensor, or x itself where it has as many."""
    if x.shape[-1] == columns:
        return x
    if out is None:
        out = x.new_empty(*x.shape[:-1], columns)
    rows = x.numel() // x.shape[-1]
    constants = {"OUT_COLUMNS": columns, "ROWS": ROWS, "BLOCK_C": pad_size(columns)}
    resize_rows_kernel[(triton.cdiv(rows, ROWS),)](x, out, rows, x.shape[-1], num_warps=4, **constants)
    return out
