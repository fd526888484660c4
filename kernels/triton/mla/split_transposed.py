"""The split latent attention of few rows, transposed: keys are the rows of the products, and heads their columns.

wgmma multiplies 64 rows or none, and `mla_split_kernel` has 16 heads for rows. Here a tile of latents is the left
operand of both products, as it lies in shared memory, and the few heads are the narrow right one:

    S^T    = latent q_latent^T + k_pe q_pe^T      (BLOCK_N, BLOCK_M)
    acc^T += latent^T P^T                         (BLOCK_C, BLOCK_M)

No latent passes through registers, and each product reads a tile once, where the warps of the other kernel read it once
each. Only NVIDIA's configurations ask for it (TRANSPOSED). Symbols are those of `kernels.triton.mla.kernel`.

`mla_combine_kernel` walks over the parts of a row one after another, in few programs. Where a short batch has many parts,
`mla_merge_kernel` makes one of them first, with a program for each row.
"""

# mypy: disable-error-code="untyped-decorator, no-untyped-def"
# Parameters of a jit function are tensors or compile-time constants as its caller decides; mypy cannot say which.

from __future__ import annotations

import triton
import triton.language as tl

from kernels.triton.mla.kernel import load_tile
from kernels.triton.primitives import dot


@triton.jit
def mla_split_transposed_kernel(
    q_latent_ptr, q_pe_ptr,  # (B, S, H, C), (B, S, H, R)
    kv_ptr, k_pe_ptr,  # (B, T, C), (B, T, R)
    part_ptr, part_lse_ptr,  # (B, S, H, parts, C), (B, S, H, parts) fp32
    heads, seq_q, seq_kv, keys_per_part, scale_log2,
    CAUSAL: tl.constexpr, R: tl.constexpr, C: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_R: tl.constexpr, BLOCK_C: tl.constexpr,
    PRECISION: tl.constexpr, IN_FP32: tl.constexpr,
):  # fmt: skip
    """What `mla_split_kernel` computes: BLOCK_M (token, head) rows of one sequence over one part of its keys. Grid:
    (ceil(S * H / BLOCK_M), parts, B)."""
    batch = tl.program_id(2).to(tl.int64)
    part, parts = tl.program_id(1), tl.num_programs(1)
    offs_m = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    offs_n = tl.arange(0, BLOCK_N)
    offs_c = tl.arange(0, BLOCK_C)
    offs_r = tl.arange(0, BLOCK_R)
    in_rows = offs_m < seq_q * heads
    in_c, in_r = offs_c < C, offs_r < R
    rows = batch * seq_q * heads + offs_m  # (BLOCK_M,)
    c_mask = in_c[:, None] & in_rows[None, :]
    q_latent = tl.load(q_latent_ptr + rows[None, :] * C + offs_c[:, None], mask=c_mask, other=0.0)
    q_pe = tl.load(q_pe_ptr + rows[None, :] * R + offs_r[:, None], mask=in_r[:, None] & in_rows[None, :], other=0.0)

    start = part * keys_per_part
    end = tl.minimum(start + keys_per_part, seq_kv)
    # The last key that a row sees. Bottom-right: token i sees keys up to i + T - S.
    last_key = offs_m // heads + (seq_kv - seq_q) if CAUSAL else offs_m * 0 + seq_kv - 1
    acc = tl.zeros([BLOCK_C, BLOCK_M], dtype=tl.float32)
    l_i = tl.zeros([BLOCK_M], dtype=tl.float32)
    m_i = tl.full([BLOCK_M], float("-inf"), dtype=tl.float32)
    kv_base = kv_ptr + batch * seq_kv * C + offs_c[None, :]
    pe_base = k_pe_ptr + batch * seq_kv * R + offs_r[None, :]
    for start_n in tl.range(start, end, BLOCK_N):
        # Past the end the last key is loaded again, and hidden by the mask of the scores.
        keys = tl.minimum(start_n + offs_n, seq_kv - 1).to(tl.int64)[:, None]
        kv = load_tile(kv_base + keys * C, in_c[None, :], BLOCK_C == C)  # (BLOCK_N, BLOCK_C)
        k_pe = load_tile(pe_base + keys * R, in_r[None, :], BLOCK_R == R)  # (BLOCK_N, BLOCK_R)
        s = dot(k_pe, q_pe, tl.zeros([BLOCK_N, BLOCK_M], dtype=tl.float32), PRECISION, IN_FP32)
        s = dot(kv, q_latent, s, PRECISION, IN_FP32)
        position = (start_n + offs_n)[:, None]
        s = tl.where((position <= last_key[None, :]) & (position < end), s, float("-inf"))
        m_new = tl.maximum(m_i, tl.max(s, 0) * scale_log2)
        # A row that has seen no key yet, as in a later part of a split, has m_new = -inf: nothing may be subtracted.
        shift = tl.where(m_new == float("-inf"), 0.0, m_new)
        p = tl.exp2(s * scale_log2 - shift[None, :])  # (BLOCK_N, BLOCK_M), at most 1
        rescale = tl.exp2(m_i - shift)  # (BLOCK_M,)
        l_i = l_i * rescale + tl.sum(p, 0)
        acc = dot(kv.T, p.to(kv.dtype), acc * rescale[None, :], PRECISION, IN_FP32)
        m_i = m_new

    slots = rows * parts + part
    acc = acc * (1.0 / tl.where(l_i == 0.0, 1.0, l_i))[None, :]
    tl.store(part_ptr + slots[None, :] * C + offs_c[:, None], acc.to(part_ptr.dtype.element_ty), mask=c_mask)
    tl.store(part_lse_ptr + slots, m_i + tl.log2(l_i), mask=in_rows)


@triton.jit
def mla_merge_kernel(
    part_ptr, part_lse_ptr,  # (rows, parts, C), (rows, parts), fp32, the latter in units of log2
    merged_ptr, merged_lse_ptr,  # (rows, C) in the inputs' dtype, (rows,) fp32: one part
    parts, C: tl.constexpr, BLOCK_P: tl.constexpr, BLOCK_C: tl.constexpr,
):  # fmt: skip
    """The weighted sum of one row's parts, BLOCK_P at a time. Grid: (rows,). Part 0 has seen a key."""
    row = tl.program_id(0).to(tl.int64)
    offs_p = tl.arange(0, BLOCK_P)
    offs_c = tl.arange(0, BLOCK_C)
    in_c = offs_c < C
    m_i = tl.full((), float("-inf"), dtype=tl.float32)
    l_i = tl.full((), 0.0, dtype=tl.float32)
    acc = tl.zeros([BLOCK_C], dtype=tl.float32)
    for start in tl.range(0, parts, BLOCK_P):
        there = start + offs_p < parts
        slots = row * parts + start + offs_p
        part_lse = tl.load(part_lse_ptr + slots, mask=there, other=float("-inf"))
        mask = there[:, None] & in_c[None, :]
        part = tl.load(part_ptr + slots[:, None] * C + offs_c[None, :], mask=mask, other=0.0)
        m_new = tl.maximum(m_i, tl.max(part_lse, 0))
        weight = tl.exp2(part_lse - m_new)  # (BLOCK_P,)
        rescale = tl.exp2(m_i - m_new)
        l_i = l_i * rescale + tl.sum(weight, 0)
        acc = acc * rescale + tl.sum(weight[:, None] * part, 0)
        m_i = m_new
    tl.store(merged_ptr + row * C + offs_c, (acc / l_i).to(merged_ptr.dtype.element_ty), mask=in_c)
    tl.store(merged_lse_ptr + row, m_i + tl.log2(l_i))
