"""The two passes over the rows around the main kernel: the statistics that it reads, and dQ from its fp32 sums.

The main kernel works in tiles of BLOCK_M rows, each of one sequence and one head. What belongs to it alone therefore
lies in padded rows (H, P): a sequence begins at a multiple of BLOCK_M, and its last tile is whole. A tile of dQ's sums
is in the order of `in_lane_order`.
"""

# mypy: disable-error-code="untyped-decorator, no-untyped-def, no-untyped-call"
# Parameters of a jit function are tensors or compile-time constants as its caller decides; mypy cannot say which.

from __future__ import annotations

import math

from triton.experimental import gluon
from triton.experimental.gluon import language as gl

LOG2_E = gl.constexpr(math.log2(math.e))


@gluon.jit
def locate(cu_seqlens_ptr, batch, length, BLOCK: gl.constexpr):
    """(first row, rows, first padded row) of a sequence; dense ones have `length` rows each.

    Packed sequences: a sequence of n rows has n // BLOCK + 1 tiles from cu + batch * BLOCK, rounded down, on.
    """
    first, rows, padded = batch * length, length, batch * ((length + BLOCK - 1) // BLOCK * BLOCK)
    if cu_seqlens_ptr is not None:
        first = gl.load(cu_seqlens_ptr + batch)
        rows = gl.load(cu_seqlens_ptr + batch + 1) - first
        padded = (first + batch * BLOCK) // BLOCK * BLOCK
    return first, rows, padded


@gluon.jit
def in_lane_order(tile):
    """A tile (rows, columns) of wgmma's result as one dimension, in which the four values that a lane holds of 16 rows
    and 8 columns follow each other, and so do the 32 lanes: no value moves, and 512 bytes are added to at a time."""
    rows: gl.constexpr = tile.shape[0]
    columns: gl.constexpr = tile.shape[1]
    parts = tile.reshape([rows // 16, 2, 8, columns // 8, 4, 2])
    return parts.permute([0, 3, 2, 4, 1, 5]).reshape([rows * columns])


@gluon.jit(do_not_specialize=("heads", "seq_q", "lse_stride", "padded_rows"))
def backward_prepare_kernel(
    dout_ptr, out_ptr, lse_ptr,  # 2 x (B, Sq, H, D), (B, H, Sq) fp32; packed 2 x (Tq, H, D), (H, Tq)
    delta_ptr, lse_log2_ptr, dq_sums_ptr,  # 2 x (H, P), (H, P, D), fp32
    cu_seqlens_q_ptr, heads, seq_q, lse_stride, padded_rows, HEAD_DIM: gl.constexpr, BLOCK_M: gl.constexpr,
):  # fmt: skip
    """delta = rowsum(dO * O), log2(e) lse, and zeros for dQ, of one tile. Grid: (ceil(longest Sq / BLOCK_M), B * H).

    The log-sum-exp of a row without keys, and of one behind the last, is +inf: all its weights are then 2^-inf = 0.
    """
    layout: gl.constexpr = gl.BlockedLayout([1, 8], [256 // HEAD_DIM, HEAD_DIM // 8], [gl.num_warps(), 1], [1, 0])
    batch, head = gl.program_id(1) // heads, gl.program_id(1) % heads
    first, rows, to_padded = locate(cu_seqlens_q_ptr, batch, seq_q, BLOCK_M)
    start = gl.program_id(0) * BLOCK_M
    if start < rows:
        offs_m = start + gl.arange(0, BLOCK_M, layout=gl.SliceLayout(1, layout))
        offs_d = gl.arange(0, HEAD_DIM, layout=gl.SliceLayout(0, layout))
        inside = offs_m < rows
        tile = ((first + offs_m).to(gl.int64) * heads + head)[:, None] * HEAD_DIM + offs_d[None, :]
        dout = gl.load(dout_ptr + tile, mask=inside[:, None], other=0.0).to(gl.float32)  # (BLOCK_M, HEAD_DIM)
        out = gl.load(out_ptr + tile, mask=inside[:, None], other=0.0).to(gl.float32)
        to_lse = first.to(gl.int64) * (heads if cu_seqlens_q_ptr is None else 1) + head.to(gl.int64) * lse_stride
        lse = gl.load(lse_ptr + to_lse + offs_m, mask=inside, other=float("-inf"))
        padded = head.to(gl.int64) * padded_rows + to_padded + offs_m
        gl.store(delta_ptr + padded, gl.sum(dout * out, 1))
        gl.store(lse_log2_ptr + padded, gl.where(lse == float("-inf"), float("inf"), lse * LOG2_E))
        zeros = gl.zeros([BLOCK_M, HEAD_DIM], gl.float32, layout=layout)
        gl.store(dq_sums_ptr + padded[:, None] * HEAD_DIM + offs_d[None, :], zeros)


@gluon.jit(do_not_specialize=("heads", "seq_q", "padded_rows"))
def backward_round_kernel(
    dq_sums_ptr, dq_ptr,  # (H, P, D) fp32, (B, Sq, H, D) or packed (Tq, H, D)
    cu_seqlens_q_ptr, heads, seq_q, padded_rows, scale, HEAD_DIM: gl.constexpr, BLOCK_M: gl.constexpr,
):  # fmt: skip
    """dQ of one tile: its sums, times scale, in the dtype of q. Grid: (ceil(longest Sq / BLOCK_M), B * H)."""
    layout: gl.constexpr = gl.BlockedLayout([1, 8], [256 // HEAD_DIM, HEAD_DIM // 8], [gl.num_warps(), 1], [1, 0])
    batch, head = gl.program_id(1) // heads, gl.program_id(1) % heads
    first, rows, to_padded = locate(cu_seqlens_q_ptr, batch, seq_q, BLOCK_M)
    start = gl.program_id(0) * BLOCK_M
    if start < rows:
        offs_m = start + gl.arange(0, BLOCK_M, layout=gl.SliceLayout(1, layout))
        offs_d = gl.arange(0, HEAD_DIM, layout=gl.SliceLayout(0, layout))
        to_tile = (head.to(gl.int64) * padded_rows + to_padded + start) * HEAD_DIM
        in_order = gl.arange(0, BLOCK_M * HEAD_DIM, layout=gl.BlockedLayout([4], [32], [gl.num_warps()], [0]))
        # The inverse of `in_lane_order`.
        parts = gl.load(dq_sums_ptr + to_tile + in_order).reshape([BLOCK_M // 16, HEAD_DIM // 8, 8, 4, 2, 2])
        sums = gl.convert_layout(parts.permute([0, 4, 2, 1, 3, 5]).reshape([BLOCK_M, HEAD_DIM]), layout)
        tile = ((first + offs_m).to(gl.int64) * heads + head)[:, None] * HEAD_DIM + offs_d[None, :]
        gl.store(dq_ptr + tile, (sums * scale).to(dq_ptr.dtype.element_ty), mask=(offs_m < rows)[:, None])
