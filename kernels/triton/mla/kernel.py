"""Multi-head latent attention in Triton, whole sequences: one kernel absorbs, attends and projects up.

Keys and values of all heads are projections of one latent row per key (DeepSeek-V2, arXiv:2405.04434, section 2.1):
k_nope = W_UK latent, v = W_UV latent. The products associate, so W_UK moves to the query and W_UV behind the softmax:

    q_latent = q_nope W_UK              (rows, C): absorbed once per row
    S        = (q_latent latent^T + q_pe k_pe^T) / sqrt(D + R)
    out      = (softmax(S) latent) W_UV^T

One program owns BLOCK_M query rows of one head. A row belongs to one program only, so absorbing and projecting up
inside it is the same work as in separate products. A tile of BLOCK_N latents is loaded once and serves as keys and as
values. Running values per row (Milakov and Gimelshein 2018, arXiv:1805.02867):

    m_i   (BLOCK_M,)            largest scaled score so far, in units of log2
    l_i   (BLOCK_M,)            sum of 2^(score - m_i) so far
    acc   (BLOCK_M, BLOCK_C)    sum of 2^(score - m_i) * latent so far, fp32

At the end acc / l_i is rounded to the inputs' dtype and projected up; the log-sum-exp is (m_i + log2 l_i) * ln 2.
"""

# mypy: disable-error-code="untyped-decorator, no-untyped-def"
# Parameters of a jit function are tensors or compile-time constants as its caller decides; mypy cannot say which.

from __future__ import annotations

import triton
import triton.language as tl

from kernels.triton.primitives import LN_2, dot


@triton.jit
def load_tile(pointers, mask, WHOLE: tl.constexpr):
    """Elements of a tile, zero where the mask is false; a whole tile needs no mask and loads faster."""
    if WHOLE:
        return tl.load(pointers)
    return tl.load(pointers, mask=mask, other=0.0)


@triton.jit
def attend(
    acc, l_i, m_i,  # (BLOCK_M, BLOCK_C), (BLOCK_M,), (BLOCK_M,): the running values
    q_latent, q_pe,  # (BLOCK_M, BLOCK_C), (BLOCK_M, BLOCK_R)
    kv_base, pe_base,  # key 0 of this sequence
    last_key,  # (BLOCK_M,): the last key that each row sees, below seq_kv
    start, stop,  # the keys to walk over; start is a multiple of BLOCK_N
    seq_kv, scale_log2,
    MASKED: tl.constexpr, R: tl.constexpr, C: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_R: tl.constexpr, BLOCK_C: tl.constexpr,
    PRECISION: tl.constexpr, IN_FP32: tl.constexpr,
):  # fmt: skip
    """Fold the keys start..stop into the running values; without MASKED every row sees all of them."""
    offs_n = tl.arange(0, BLOCK_N)
    offs_c = tl.arange(0, BLOCK_C)
    offs_r = tl.arange(0, BLOCK_R)
    kv_tile = offs_n[:, None] * C + offs_c[None, :]  # (BLOCK_N, BLOCK_C)
    pe_tile = offs_n[:, None] * R + offs_r[None, :]  # (BLOCK_N, BLOCK_R)
    for start_n in tl.range(start, stop, BLOCK_N):
        start_n = tl.multiple_of(start_n, BLOCK_N)
        kv_mask = (offs_c < C)[None, :]
        pe_mask = (offs_r < R)[None, :]
        if MASKED:
            in_sequence = (start_n + offs_n < seq_kv)[:, None]
            kv_mask = kv_mask & in_sequence
            pe_mask = pe_mask & in_sequence
        to_tile = start_n.to(tl.int64)
        kv = load_tile(kv_base + to_tile * C + kv_tile, kv_mask, BLOCK_C == C and not MASKED)  # (BLOCK_N, BLOCK_C)
        k_pe = load_tile(pe_base + to_tile * R + pe_tile, pe_mask, BLOCK_R == R and not MASKED)  # (BLOCK_N, BLOCK_R)

        s = tl.zeros([BLOCK_M, BLOCK_N], dtype=tl.float32)
        s = dot(q_pe, k_pe.T, s, PRECISION, IN_FP32)
        s = dot(q_latent, kv.T, s, PRECISION, IN_FP32)
        if MASKED:
            s = tl.where(start_n + offs_n[None, :] <= last_key[:, None], s, float("-inf"))
        m_new = tl.maximum(m_i, tl.max(s, 1) * scale_log2)
        # A row that has seen no key yet, as in a later part of a split, has m_new = -inf: nothing may be subtracted.
        shift = tl.where(m_new == float("-inf"), 0.0, m_new) if MASKED else m_new
        p = tl.exp2(s * scale_log2 - shift[:, None])  # (BLOCK_M, BLOCK_N), at most 1
        rescale = tl.exp2(m_i - shift)  # (BLOCK_M,)
        l_i = l_i * rescale + tl.sum(p, 1)
        acc = dot(p.to(kv.dtype), kv, acc * rescale[:, None], PRECISION, IN_FP32)
        m_i = m_new
    return acc, l_i, m_i


@triton.jit
def reloaded(tile, pointers, mask):
    """What was computed, after a way through memory that only this program reads.

    Hopper's wgmma takes its first operand from registers where the program computed it, and from shared memory where it
    was loaded. (64, 512) halves are half the registers of 8 warps, which the accumulator fills by itself.
    """
    tl.store(pointers, tile, mask=mask)
    tl.debug_barrier()
    return tl.load(pointers, mask=mask, other=0.0)


@triton.jit
def attend_block(
    q_nope_ptr, q_pe_ptr, kv_ptr, k_pe_ptr, wkv_b_ptr, out_ptr, lse_ptr, scratch_ptr,  # as `mla_kernel`
    item, batch_heads,  # None for the block of rows of this program in `mla_kernel`'s grid; else which block, and B * H
    heads, seq_q, seq_kv, scale_log2,
    CAUSAL: tl.constexpr, WITH_LSE: tl.constexpr, EVEN_N: tl.constexpr,
    D: tl.constexpr, DV: tl.constexpr, R: tl.constexpr, C: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_D: tl.constexpr,
    BLOCK_R: tl.constexpr, BLOCK_C: tl.constexpr, RELOAD: tl.constexpr,
    PRECISION: tl.constexpr, IN_FP32: tl.constexpr,
):  # fmt: skip
    """Compute and store BLOCK_M query rows of one head. Items are blocks of rows of all heads, first those of one rank.

    W_UK and W_UV are read in tiles of BLOCK_D rows. RELOAD: see `reloaded`. Every row sees key 0, of the first tile.
    """
    # Under a causal mask the last rows see the most keys: starting them first keeps the tail of the grid short.
    if item is None:
        batch = (tl.program_id(0) // heads).to(tl.int64)
        head = tl.program_id(0) % heads
        block_m = tl.num_programs(1) - 1 - tl.program_id(1) if CAUSAL else tl.program_id(1)
    else:
        batch = (item % batch_heads // heads).to(tl.int64)
        head = item % heads
        block_m = tl.cdiv(seq_q, BLOCK_M) - 1 - item // batch_heads if CAUSAL else item // batch_heads
    offs_m = block_m * BLOCK_M + tl.arange(0, BLOCK_M)
    offs_d = tl.arange(0, BLOCK_D)
    offs_r = tl.arange(0, BLOCK_R)
    offs_c = tl.arange(0, BLOCK_C)
    in_rows = (offs_m < seq_q)[:, None]
    rows = (batch * seq_q + offs_m) * heads + head  # (BLOCK_M,)
    w_head = wkv_b_ptr + head.to(tl.int64) * (D + DV) * C

    q_latent = tl.zeros([BLOCK_M, BLOCK_C], dtype=tl.float32)
    for start_d in tl.range(0, D, BLOCK_D):
        in_d = start_d + offs_d < D
        q = tl.load(q_nope_ptr + rows[:, None] * D + start_d + offs_d[None, :], mask=in_rows & in_d[None, :], other=0.0)
        w = tl.load(
            w_head + (start_d + offs_d)[:, None] * C + offs_c[None, :],
            mask=in_d[:, None] & (offs_c < C)[None, :],
            other=0.0,
        )  # (BLOCK_D, BLOCK_C) of W_UK
        q_latent = dot(q, w, q_latent, PRECISION, IN_FP32)
    q_latent = q_latent.to(q_nope_ptr.dtype.element_ty)
    if RELOAD:
        own_rows = scratch_ptr + rows[:, None] * C + offs_c[None, :]  # (BLOCK_M, BLOCK_C)
        q_latent = reloaded(q_latent, own_rows, in_rows & (offs_c < C)[None, :])
    q_pe = tl.load(q_pe_ptr + rows[:, None] * R + offs_r[None, :], mask=in_rows & (offs_r < R)[None, :], other=0.0)

    acc = tl.zeros([BLOCK_M, BLOCK_C], dtype=tl.float32)
    l_i = tl.zeros([BLOCK_M], dtype=tl.float32)
    m_i = tl.full([BLOCK_M], float("-inf"), dtype=tl.float32)
    kv_base = kv_ptr + batch * seq_kv * C
    pe_base = k_pe_ptr + batch * seq_kv * R
    last_key = tl.zeros([BLOCK_M], dtype=tl.int32) + (seq_kv - 1)
    seen_by_all = seq_kv
    seen_by_any = seq_kv
    if CAUSAL:
        causal_offset = seq_kv - seq_q  # bottom-right: row i sees keys up to i + causal_offset
        last_key = tl.minimum(offs_m + causal_offset, seq_kv - 1)
        seen_by_all = tl.minimum(block_m * BLOCK_M + causal_offset + 1, seq_kv)
        seen_by_any = tl.minimum(block_m * BLOCK_M + causal_offset + BLOCK_M, seq_kv)
    full_stop = seen_by_all // BLOCK_N * BLOCK_N
    acc, l_i, m_i = attend(
        acc, l_i, m_i, q_latent, q_pe, kv_base, pe_base, last_key, 0, full_stop, seq_kv, scale_log2,
        False, R, C, BLOCK_M, BLOCK_N, BLOCK_R, BLOCK_C, PRECISION, IN_FP32,
    )  # fmt: skip
    if CAUSAL or not EVEN_N:
        acc, l_i, m_i = attend(
            acc, l_i, m_i, q_latent, q_pe, kv_base, pe_base, last_key, full_stop, seen_by_any, seq_kv, scale_log2,
            True, R, C, BLOCK_M, BLOCK_N, BLOCK_R, BLOCK_C, PRECISION, IN_FP32,
        )  # fmt: skip

    latent = (acc * (1.0 / l_i)[:, None]).to(q_nope_ptr.dtype.element_ty)
    for start_d in tl.range(0, DV, BLOCK_D):
        in_d = start_d + offs_d < DV
        w = tl.load(
            w_head + (D + start_d + offs_d)[:, None] * C + offs_c[None, :],
            mask=in_d[:, None] & (offs_c < C)[None, :],
            other=0.0,
        )  # (BLOCK_D, BLOCK_C) of W_UV
        out = dot(latent, w.T, tl.zeros([BLOCK_M, BLOCK_D], dtype=tl.float32), PRECISION, IN_FP32)
        out_tile = out_ptr + rows[:, None] * DV + start_d + offs_d[None, :]
        tl.store(out_tile, out.to(out_ptr.dtype.element_ty), mask=in_rows & in_d[None, :])
    if WITH_LSE:
        batch_head = tl.program_id(0) if item is None else item % batch_heads
        lse_rows = lse_ptr + batch_head.to(tl.int64) * seq_q + offs_m
        tl.store(lse_rows, (m_i + tl.log2(l_i)) * LN_2, mask=offs_m < seq_q)


@triton.jit
def mla_kernel(
    q_nope_ptr, q_pe_ptr,  # (B, S, H, D), (B, S, H, R)
    kv_ptr, k_pe_ptr,  # (B, T, C), (B, T, R)
    wkv_b_ptr,  # (H, D + DV, C): rows of W_UK, then of W_UV
    out_ptr, lse_ptr, scratch_ptr,  # (B, S, H, DV), (B, H, S) fp32, (B, S, H, C) or None
    heads, seq_q, seq_kv, scale_log2,
    CAUSAL: tl.constexpr, WITH_LSE: tl.constexpr, EVEN_N: tl.constexpr,
    D: tl.constexpr, DV: tl.constexpr, R: tl.constexpr, C: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_D: tl.constexpr,
    BLOCK_R: tl.constexpr, BLOCK_C: tl.constexpr, RELOAD: tl.constexpr,
    PRECISION: tl.constexpr, IN_FP32: tl.constexpr,
):  # fmt: skip
    """Latent attention of BLOCK_M query rows of one head. Grid: (B * H, ceil(S / BLOCK_M)); all tensors contiguous."""
    attend_block(
        q_nope_ptr, q_pe_ptr, kv_ptr, k_pe_ptr, wkv_b_ptr, out_ptr, lse_ptr, scratch_ptr,
        None, None, heads, seq_q, seq_kv, scale_log2, CAUSAL, WITH_LSE, EVEN_N, D, DV, R, C,
        BLOCK_M, BLOCK_N, BLOCK_D, BLOCK_R, BLOCK_C, RELOAD, PRECISION, IN_FP32,
    )  # fmt: skip
