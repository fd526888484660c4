"""dK and dV: one program owns BLOCK_N keys of one K/V head and walks over the queries that see them.

With S the scores, lse and delta as the forward pass and `backward_delta` left them, and everything transposed, so that
the owned keys are the rows (FlashAttention-2, arXiv:2307.08691, algorithm 2):

    P^T  = 2^(scale log2(e) K Q^T - log2(e) lse)    (BLOCK_N, BLOCK_M)
    dV  += P^T dO                                   (BLOCK_N, BLOCK_D), fp32
    dS^T = P^T * (V dO^T - delta)                   (BLOCK_N, BLOCK_M)
    dK  += dS^T Q                                   (BLOCK_N, BLOCK_D), fp32; times scale at the end

The query heads that share the K/V head are walked one after the other, so that their sum is made in registers, always
in the same order. Rows past the end of a sequence get lse = +inf, so that their weights are 0. With V_TRANSPOSED v and
dv are (B, Hk, D, Skv), as `kernels.triton.trans_v.kernel` reads v: their tiles are contiguous along the keys.
"""

# mypy: disable-error-code="untyped-decorator, no-untyped-def"
# Parameters of a jit function are tensors or compile-time constants as its caller decides; mypy cannot say which.

from __future__ import annotations

import triton
import triton.language as tl

from kernels.triton.backward.tiles import load_statistic, load_tile, sequence
from kernels.triton.primitives import LOG2_E, dot


@triton.jit
def _walk_rows(
    dk, dv, k, v,  # 4 x (BLOCK_N, BLOCK_D); the first two are the sums so far, fp32
    q_base, dout_base, lse_base, delta_base,  # row 0 of this sequence and query head
    start, stop,  # the rows to walk over; start is a multiple of BLOCK_M
    offs_n, offs_m, offs_d,  # keys, rows of a tile, head dimensions
    seq_q, causal_offset, row_stride, scale,
    MASKED: tl.constexpr, EVEN_M: tl.constexpr, HEAD_DIM: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
    BLOCK_D: tl.constexpr, PRECISION: tl.constexpr, IN_FP32: tl.constexpr,
):  # fmt: skip
    """Add what the rows start..stop contribute; MASKED where some of them do not see all keys."""
    WHOLE: tl.constexpr = BLOCK_D == HEAD_DIM and EVEN_M
    tile = offs_m[:, None] * row_stride + offs_d[None, :]  # (BLOCK_M, BLOCK_D), fits 32 bits
    for start_m in tl.range(start, stop, BLOCK_M):
        start_m = tl.multiple_of(start_m, BLOCK_M)
        rows = start_m + offs_m
        inside = rows < seq_q
        loads = inside[:, None] & (offs_d < HEAD_DIM)[None, :]
        # The position of a tile may pass 2^31 elements in a long sequence; positions inside a tile cannot.
        to_tile = start_m.to(tl.int64) * row_stride
        q = load_tile(q_base + to_tile + tile, loads, WHOLE)  # (BLOCK_M, BLOCK_D)
        lse = load_statistic(lse_base + rows, inside, float("inf"), EVEN_M)  # (BLOCK_M,)
        s = dot(k, q.T, tl.zeros([BLOCK_N, BLOCK_M], dtype=tl.float32), PRECISION, IN_FP32)  # (BLOCK_N, BLOCK_M) fp32
        p = tl.exp2(s * (scale * LOG2_E) - (lse * LOG2_E)[None, :])
        if MASKED:
            # A row without keys has lse = -inf and so p = inf, which is replaced here like all that is not seen.
            p = tl.where(offs_n[:, None] <= rows[None, :] + causal_offset, p, 0.0)
        dout = load_tile(dout_base + to_tile + tile, loads, WHOLE)  # (BLOCK_M, BLOCK_D)
        dv = dot(p.to(dout.dtype), dout, dv, PRECISION, IN_FP32)
        delta = load_statistic(delta_base + rows, inside, 0.0, EVEN_M)  # (BLOCK_M,)
        dp = dot(v, dout.T, tl.zeros([BLOCK_N, BLOCK_M], dtype=tl.float32), PRECISION, IN_FP32)
        ds = p * (dp - delta[None, :])  # (BLOCK_N, BLOCK_M)
        dk = dot(ds.to(q.dtype), q, dk, PRECISION, IN_FP32)
    return dk, dv


@triton.jit
def backward_dkv_kernel(
    q_ptr, k_ptr, v_ptr, dout_ptr,  # (B, Sq, H, D), 2 x (B, Skv, Hk, D), (B, Sq, H, D); or packed, without B
    lse_ptr, delta_ptr,  # 2 x (B, H, Sq) fp32; packed (H, Tq)
    dk_ptr, dv_ptr,  # as k
    cu_seqlens_q_ptr, cu_seqlens_k_ptr,  # None, or of packed sequences 2 x (B + 1,) int32
    heads, kv_heads, seq_q, seq_kv, stats_stride, scale,
    CAUSAL: tl.constexpr, VARLEN: tl.constexpr, EVEN_M: tl.constexpr, HEAD_DIM: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_D: tl.constexpr,
    SPLIT: tl.constexpr, V_TRANSPOSED: tl.constexpr, PRECISION: tl.constexpr, IN_FP32: tl.constexpr,
):  # fmt: skip
    """dK and dV of BLOCK_N keys of one K/V head. Grid: (B * Hk, ceil(longest Skv / BLOCK_N)); contiguous tensors.

    Under a causal mask the first keys are seen by the most rows; they come first in the grid, so its tail is short.
    SPLIT: rows that see all keys get a loop of their own, without a mask, at the cost of registers.
    V_TRANSPOSED: v and dv are (B, Hk, D, Skv); dense problems only.
    """
    batch = tl.program_id(0) // kv_heads
    kv_head = tl.program_id(0) % kv_heads
    first_row, rows = sequence(cu_seqlens_q_ptr, batch, seq_q, VARLEN)
    first_key, keys = sequence(cu_seqlens_k_ptr, batch, seq_kv, VARLEN)
    start_n = tl.program_id(1) * BLOCK_N
    if start_n >= keys:
        return
    causal_offset = keys - rows  # bottom-right: row i sees keys up to i + causal_offset

    offs_n = start_n + tl.arange(0, BLOCK_N)
    offs_m = tl.arange(0, BLOCK_M)
    offs_d = tl.arange(0, BLOCK_D)
    row_stride = heads * HEAD_DIM
    to_keys = ((first_key + start_n) * kv_heads + kv_head) * HEAD_DIM
    key_tile = tl.arange(0, BLOCK_N)[:, None] * (kv_heads * HEAD_DIM) + offs_d[None, :]  # (BLOCK_N, BLOCK_D)
    key_mask = (offs_n < keys)[:, None] & (offs_d < HEAD_DIM)[None, :]
    k = tl.load(k_ptr + to_keys + key_tile, mask=key_mask, other=0.0)
    if V_TRANSPOSED:
        # A head dimension is a whole sequence away from the next, which may pass 2^31 elements.
        to_values = (first_key * kv_heads + kv_head * keys) * HEAD_DIM
        value_tile = offs_d.to(tl.int64)[:, None] * keys + offs_n[None, :]  # (BLOCK_D, BLOCK_N)
        value_mask = (offs_d < HEAD_DIM)[:, None] & (offs_n < keys)[None, :]
        v = tl.load(v_ptr + to_values + value_tile, mask=value_mask, other=0.0).T
    else:
        v = tl.load(v_ptr + to_keys + key_tile, mask=key_mask, other=0.0)
    dk = tl.zeros([BLOCK_N, BLOCK_D], dtype=tl.float32)
    dv = tl.zeros([BLOCK_N, BLOCK_D], dtype=tl.float32)

    # Rows before `seen_from` see none of the keys, those from `all_from` on see all of them.
    seen_from = 0
    all_from = 0
    if CAUSAL:
        seen_from = tl.maximum(start_n - causal_offset, 0) // BLOCK_M * BLOCK_M
        all_from = tl.minimum(tl.cdiv(tl.maximum(start_n + BLOCK_N - 1 - causal_offset, 0), BLOCK_M) * BLOCK_M, rows)
    for member in range(heads // kv_heads):
        head = kv_head * (heads // kv_heads) + member
        to_rows = (first_row * heads + head) * HEAD_DIM
        to_stats = first_row * (1 if VARLEN else heads) + head.to(tl.int64) * stats_stride
        if CAUSAL and SPLIT:
            dk, dv = _walk_rows(
                dk, dv, k, v, q_ptr + to_rows, dout_ptr + to_rows, lse_ptr + to_stats, delta_ptr + to_stats,
                seen_from, all_from, offs_n, offs_m, offs_d, rows, causal_offset, row_stride, scale,
                True, EVEN_M, HEAD_DIM, BLOCK_M, BLOCK_N, BLOCK_D, PRECISION, IN_FP32,
            )  # fmt: skip
        dk, dv = _walk_rows(
            dk, dv, k, v, q_ptr + to_rows, dout_ptr + to_rows, lse_ptr + to_stats, delta_ptr + to_stats,
            all_from if SPLIT else seen_from, rows, offs_n, offs_m, offs_d, rows, causal_offset, row_stride, scale,
            CAUSAL and not SPLIT, EVEN_M, HEAD_DIM, BLOCK_M, BLOCK_N, BLOCK_D, PRECISION, IN_FP32,
        )  # fmt: skip

    tl.store(dk_ptr + to_keys + key_tile, (dk * scale).to(dk_ptr.dtype.element_ty), mask=key_mask)
    if V_TRANSPOSED:
        tl.store(dv_ptr + to_values + value_tile, dv.to(dv_ptr.dtype.element_ty).T, mask=value_mask)
    else:
        tl.store(dv_ptr + to_keys + key_tile, dv.to(dv_ptr.dtype.element_ty), mask=key_mask)
