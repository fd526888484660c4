"""dQ: one program owns BLOCK_M query rows of one head and walks over the keys that they see.

With S the scores, lse and delta as the forward pass and `backward_delta` left them (FlashAttention-2,
arXiv:2307.08691, algorithm 2, but with a kernel of its own for dQ, so that no sum depends on the order of programs):

    P   = 2^(scale log2(e) Q K^T - log2(e) lse)     (BLOCK_M, BLOCK_N)
    dS  = P * (dO V^T - delta)                      (BLOCK_M, BLOCK_N)
    dQ += dS K                                      (BLOCK_M, BLOCK_D), fp32; times scale at the end

Key tiles that every row sees whole go through a loop without any mask. Rows past the end of a sequence get
lse = +inf, so that their weights are 0. With V_TRANSPOSED v is (B, Hk, D, Skv), as `kernels.triton.trans_v.kernel`
reads it: tiles of V^T are contiguous along the keys, and are an operand of dO V^T as they are.
"""

# mypy: disable-error-code="untyped-decorator, no-untyped-def"
# Parameters of a jit function are tensors or compile-time constants as its caller decides; mypy cannot say which.

from __future__ import annotations

import triton
import triton.language as tl

from kernels.triton.backward.tiles import load_tile, sequence
from kernels.triton.prefill.forward import head_and_rank_on_xcd
from kernels.triton.primitives import LOG2_E, dot


@triton.jit
def _walk_keys(
    dq, q, dout,  # 3 x (BLOCK_M, BLOCK_D); the first is the sum so far, fp32
    lse_log2, delta,  # 2 x (BLOCK_M,) fp32
    k_base, v_base,  # key 0 of this sequence and K/V head
    start, stop,  # the keys to walk over; start is a multiple of BLOCK_N
    offs_m, offs_n, offs_d,  # query rows, keys of a tile, head dimensions
    seq_kv, causal_offset, row_stride, scale_log2,
    MASKED: tl.constexpr, CAUSAL: tl.constexpr, EVEN_N: tl.constexpr, HEAD_DIM: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_D: tl.constexpr, V_TRANSPOSED: tl.constexpr,
    PRECISION: tl.constexpr, IN_FP32: tl.constexpr,
):  # fmt: skip
    """Add what the keys start..stop contribute; MASKED where some row does not see all of them."""
    WHOLE: tl.constexpr = BLOCK_D == HEAD_DIM and (EVEN_N or not MASKED)
    tile = offs_n[:, None] * row_stride + offs_d[None, :]  # (BLOCK_N, BLOCK_D), fits 32 bits
    for start_n in tl.range(start, stop, BLOCK_N):
        start_n = tl.multiple_of(start_n, BLOCK_N)
        keys = start_n + offs_n
        loads = (offs_d < HEAD_DIM)[None, :]
        if MASKED and not EVEN_N:
            loads = loads & (keys < seq_kv)[:, None]
        # The position of a tile may pass 2^31 elements in a long sequence; positions inside a tile cannot.
        to_tile = start_n.to(tl.int64) * row_stride
        k = load_tile(k_base + to_tile + tile, loads, WHOLE)  # (BLOCK_N, BLOCK_D)
        if V_TRANSPOSED:
            v_loads = (offs_d < HEAD_DIM)[:, None] & (keys < seq_kv)[None, :]
            v_tile = offs_d.to(tl.int64)[:, None] * seq_kv + keys[None, :]
            v = load_tile(v_base + v_tile, v_loads, WHOLE)  # (BLOCK_D, BLOCK_N)
        else:
            v = load_tile(v_base + to_tile + tile, loads, WHOLE)
        s = dot(q, k.T, tl.zeros([BLOCK_M, BLOCK_N], dtype=tl.float32), PRECISION, IN_FP32)  # (BLOCK_M, BLOCK_N) fp32
        p = tl.exp2(s * scale_log2 - lse_log2[:, None])
        if MASKED and (CAUSAL or not EVEN_N):
            # A causal row's last key is in the sequence, so that the causal mask hides what is past its end.
            visible = keys[None, :] <= offs_m[:, None] + causal_offset if CAUSAL else (keys < seq_kv)[None, :]
            # A row without keys has lse = -inf and so p = inf, which is replaced here like all that is not seen.
            p = tl.where(visible, p, 0.0)
        v_t = v if V_TRANSPOSED else v.T
        dp = dot(dout, v_t, tl.zeros([BLOCK_M, BLOCK_N], dtype=tl.float32), PRECISION, IN_FP32)
        ds = p * (dp - delta[:, None])  # (BLOCK_M, BLOCK_N)
        dq = dot(ds.to(k.dtype), k, dq, PRECISION, IN_FP32)
    return dq


@triton.jit
def backward_dq_kernel(
    q_ptr, k_ptr, v_ptr, dout_ptr,  # (B, Sq, H, D), 2 x (B, Skv, Hk, D), (B, Sq, H, D); or packed, without B
    lse_ptr, delta_ptr,  # 2 x (B, H, Sq) fp32; packed (H, Tq)
    dq_ptr,  # as q
    cu_seqlens_q_ptr, cu_seqlens_k_ptr,  # None, or of packed sequences 2 x (B + 1,) int32
    heads, kv_heads, seq_q, seq_kv, stats_stride, scale,
    CAUSAL: tl.constexpr, VARLEN: tl.constexpr, EVEN_N: tl.constexpr, HEAD_DIM: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_D: tl.constexpr,
    SPLIT: tl.constexpr, V_TRANSPOSED: tl.constexpr, PRECISION: tl.constexpr, IN_FP32: tl.constexpr,
    XCDS: tl.constexpr = 1,
):  # fmt: skip
    """dQ of BLOCK_M rows of one head. Grid: (B * H, ceil(longest Sq / BLOCK_M)); all tensors contiguous.

    V_TRANSPOSED: v is (B, Hk, D, Skv); dense problems only.

    SPLIT: tiles of keys that all rows see get a loop of their own, without a mask, at the cost of registers.
    """
    batch_head, rank = tl.program_id(0), tl.program_id(1)
    if XCDS > 1:
        batch_head, rank = head_and_rank_on_xcd(
            rank * tl.num_programs(0) + batch_head, tl.num_programs(0), tl.num_programs(1), heads // kv_heads, XCDS
        )
    batch = batch_head // heads
    head = batch_head % heads
    kv_head = head // (heads // kv_heads)
    first_row, rows = sequence(cu_seqlens_q_ptr, batch, seq_q, VARLEN)
    first_key, keys = sequence(cu_seqlens_k_ptr, batch, seq_kv, VARLEN)
    # Under a causal mask the last rows see the most keys: starting them first keeps the tail of the grid short.
    block_m = tl.num_programs(1) - 1 - rank if CAUSAL else rank
    start_m = block_m * BLOCK_M
    if start_m >= rows:
        return
    causal_offset = keys - rows  # bottom-right: row i sees keys up to i + causal_offset

    offs_m = start_m + tl.arange(0, BLOCK_M)
    offs_n = tl.arange(0, BLOCK_N)
    offs_d = tl.arange(0, BLOCK_D)
    key_stride = kv_heads * HEAD_DIM
    inside = offs_m < rows
    to_rows = ((first_row + start_m) * heads + head) * HEAD_DIM
    row_tile = tl.arange(0, BLOCK_M)[:, None] * (heads * HEAD_DIM) + offs_d[None, :]  # (BLOCK_M, BLOCK_D)
    row_mask = inside[:, None] & (offs_d < HEAD_DIM)[None, :]
    to_keys = (first_key * kv_heads + kv_head) * HEAD_DIM
    to_values = (first_key * kv_heads + kv_head * keys) * HEAD_DIM if V_TRANSPOSED else to_keys
    to_stats = first_row * (1 if VARLEN else heads) + head.to(tl.int64) * stats_stride

    q = tl.load(q_ptr + to_rows + row_tile, mask=row_mask, other=0.0)
    dout = tl.load(dout_ptr + to_rows + row_tile, mask=row_mask, other=0.0)
    lse_log2 = tl.load(lse_ptr + to_stats + offs_m, mask=inside, other=float("inf")) * LOG2_E
    delta = tl.load(delta_ptr + to_stats + offs_m, mask=inside, other=0.0)
    dq = tl.zeros([BLOCK_M, BLOCK_D], dtype=tl.float32)

    if CAUSAL:
        seen_by_all = tl.minimum(tl.maximum(start_m + causal_offset + 1, 0), keys)
        seen_by_any = tl.minimum(start_m + causal_offset + BLOCK_M, keys)
    else:
        seen_by_all = keys
        seen_by_any = keys
    masked_from = 0
    if SPLIT:
        masked_from = seen_by_all // BLOCK_N * BLOCK_N
        dq = _walk_keys(
            dq, q, dout, lse_log2, delta, k_ptr + to_keys, v_ptr + to_values, 0, masked_from,
            offs_m, offs_n, offs_d, keys, causal_offset, key_stride, scale * LOG2_E,
            False, CAUSAL, EVEN_N, HEAD_DIM, BLOCK_M, BLOCK_N, BLOCK_D, V_TRANSPOSED, PRECISION, IN_FP32,
        )  # fmt: skip
    if CAUSAL or not EVEN_N or not SPLIT:
        dq = _walk_keys(
            dq, q, dout, lse_log2, delta, k_ptr + to_keys, v_ptr + to_values, masked_from, seen_by_any,
            offs_m, offs_n, offs_d, keys, causal_offset, key_stride, scale * LOG2_E,
            True, CAUSAL, EVEN_N, HEAD_DIM, BLOCK_M, BLOCK_N, BLOCK_D, V_TRANSPOSED, PRECISION, IN_FP32,
        )  # fmt: skip

    tl.store(dq_ptr + to_rows + row_tile, (dq * scale).to(dq_ptr.dtype.element_ty), mask=row_mask)
