"""delta = rowsum(dO * O), fp32: what dS = P * (dP - delta) subtracts (FlashAttention-2, arXiv:2307.08691, section 2.3).

It equals rowsum(P * dP), for O = P V, but needs no keys; both other kernels of the backward pass read it.
"""

# mypy: disable-error-code="untyped-decorator, no-untyped-def"
# Parameters of a jit function are tensors or compile-time constants as its caller decides; mypy cannot say which.

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def backward_delta_kernel(
    dout_ptr, out_ptr, delta_ptr,  # 2 x (B, S, H, D), (B, H, S) fp32
    heads, seq,
    HEAD_DIM: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_D: tl.constexpr,
):  # fmt: skip
    """delta of BLOCK_M rows of one head. Grid: (B * H, ceil(S / BLOCK_M)); packed sequences are one batch of Tq."""
    batch = tl.program_id(0) // heads
    head = tl.program_id(0) % heads
    rows = tl.program_id(1) * BLOCK_M + tl.arange(0, BLOCK_M)
    offs_d = tl.arange(0, BLOCK_D)
    inside = rows < seq
    tile = ((batch.to(tl.int64) * seq + rows) * heads + head)[:, None] * HEAD_DIM + offs_d[None, :]
    mask = inside[:, None] & (offs_d < HEAD_DIM)[None, :]
    dout = tl.load(dout_ptr + tile, mask=mask, other=0.0).to(tl.float32)  # (BLOCK_M, BLOCK_D)
    out = tl.load(out_ptr + tile, mask=mask, other=0.0).to(tl.float32)
    tl.store(delta_ptr + tl.program_id(0).to(tl.int64) * seq + rows, tl.sum(dout * out, 1), mask=inside)
