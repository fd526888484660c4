"""What the three kernels of the backward pass share: where a sequence lies, and tiles loaded with or without a mask."""

# mypy: disable-error-code="untyped-decorator, no-untyped-def"
# Parameters of a jit function are tensors or compile-time constants as its caller decides; mypy cannot say which.

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def sequence(cu_seqlens_ptr, batch, length, VARLEN: tl.constexpr):
    """(first row in the packed tensor as int64, rows) of a sequence; dense ones have `length` rows each."""
    if VARLEN:
        first = tl.load(cu_seqlens_ptr + batch)
        return first.to(tl.int64), tl.load(cu_seqlens_ptr + batch + 1) - first
    return batch.to(tl.int64) * length, length


@triton.jit
def load_tile(pointers, mask, WHOLE: tl.constexpr):
    """A tile, zero where the mask is false; a whole tile needs no mask and loads faster."""
    if WHOLE:
        return tl.load(pointers)
    return tl.load(pointers, mask=mask, other=0.0)


@triton.jit
def load_statistic(pointers, mask, other, WHOLE: tl.constexpr):
    """One fp32 value per row, `other` where the mask is false."""
    if WHOLE:
        return tl.load(pointers)
    return tl.load(pointers, mask=mask, other=other)
