"""Multi-head latent attention in Triton, few queries per sequence: three kernels, the keys split between programs.

All heads of a token read the same latents, so the rows of a program are the (token, head) pairs of one sequence, and a
tile of latents is loaded once for all of them. Each head has its own W_UK and W_UV, which one row alone would multiply
with vectors, not matrices; and with the keys split over several programs each of them would absorb the same query
again. So both products are kernels of their own, over the tokens of all sequences by head, which read the weights once:

    mla_absorb_kernel    q_latent = q_nope W_UK, rounded to the inputs' dtype
    mla_split_kernel     attention over one part of the keys: normalised sum of latents, and its log-sum-exp
    mla_merge_kernel     where there are many parts: one of them (`kernels.triton.mla.merge`)
    mla_combine_kernel   the parts' weighted sum, rounded to the inputs' dtype, times W_UV^T

With one part per sequence its sum is stored in the inputs' dtype, with more in fp32. Symbols and the running values are
those of `kernels.triton.mla.kernel`.
"""

# mypy: disable-error-code="untyped-decorator, no-untyped-def"
# Parameters of a jit function are tensors or compile-time constants as its caller decides; mypy cannot say which.

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import triton
import triton.language as tl

from kernels.configs import pad_size
from kernels.triton.mla.kernel import attend
from kernels.triton.mla.launch import check_tensors
from kernels.triton.mla.merge import mla_merge_kernel
from kernels.triton.primitives import LN_2, dot
from kernels.triton.triton_backend import is_interpreted

if TYPE_CHECKING:
    import torch


@triton.jit
def mla_absorb_kernel(
    q_nope_ptr, wkv_b_ptr, q_latent_ptr,  # (tokens, H, D), (H, D + DV, C), (tokens, H, C)
    tokens, heads,
    D: tl.constexpr, DV: tl.constexpr, C: tl.constexpr,
    BLOCK_T: tl.constexpr, BLOCK_K: tl.constexpr, BLOCK_D: tl.constexpr,
    PRECISION: tl.constexpr, IN_FP32: tl.constexpr,
):  # fmt: skip
    """BLOCK_K latent columns of BLOCK_T absorbed queries of one head. Grid: (H, ceil(tokens / BLOCK_T),
    ceil(C / BLOCK_K)); tokens are those of all sequences."""
    head = tl.program_id(0).to(tl.int64)
    offs_t = tl.program_id(1) * BLOCK_T + tl.arange(0, BLOCK_T)
    offs_c = tl.program_id(2) * BLOCK_K + tl.arange(0, BLOCK_K)
    offs_d = tl.arange(0, BLOCK_D)
    rows = offs_t.to(tl.int64) * heads + head
    in_tokens, in_c, in_d = offs_t < tokens, offs_c < C, offs_d < D
    w_tile = wkv_b_ptr + head * (D + DV) * C + offs_d[:, None] * C + offs_c[None, :]
    w = tl.load(w_tile, mask=in_d[:, None] & in_c[None, :], other=0.0)  # (BLOCK_D, BLOCK_K) of W_UK
    q_tile = q_nope_ptr + rows[:, None] * D + offs_d[None, :]
    q = tl.load(q_tile, mask=in_tokens[:, None] & in_d[None, :], other=0.0)  # (BLOCK_T, BLOCK_D)
    q_latent = dot(q, w, tl.zeros([BLOCK_T, BLOCK_K], dtype=tl.float32), PRECISION, IN_FP32)
    to = q_latent_ptr + rows[:, None] * C + offs_c[None, :]
    tl.store(to, q_latent.to(q_latent_ptr.dtype.element_ty), mask=in_tokens[:, None] & in_c[None, :])


@triton.jit
def mla_split_kernel(
    q_latent_ptr, q_pe_ptr,  # (B, S, H, C), (B, S, H, R)
    kv_ptr, k_pe_ptr,  # (B, T, C), (B, T, R)
    part_ptr, part_lse_ptr,  # (B, S, H, parts, C), (B, S, H, parts) fp32
    heads, seq_q, seq_kv, keys_per_part, scale_log2,
    CAUSAL: tl.constexpr, R: tl.constexpr, C: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_R: tl.constexpr, BLOCK_C: tl.constexpr,
    PRECISION: tl.constexpr, IN_FP32: tl.constexpr,
):  # fmt: skip
    """BLOCK_M (token, head) rows of one sequence over one part of its keys. Grid: (ceil(S * H / BLOCK_M), parts, B).

    keys_per_part is a multiple of BLOCK_N, and no part is empty; a row that sees no key of a part has sum 0 and
    log-sum-exp -inf there. The log-sum-exp is kept in units of log2.
    """
    batch = tl.program_id(2).to(tl.int64)
    part, parts = tl.program_id(1), tl.num_programs(1)
    seq_rows = seq_q * heads
    offs_m = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    offs_c = tl.arange(0, BLOCK_C)
    offs_r = tl.arange(0, BLOCK_R)
    in_rows = offs_m < seq_rows
    rows = batch * seq_rows + offs_m  # (BLOCK_M,)
    c_mask = in_rows[:, None] & (offs_c < C)[None, :]
    q_latent = tl.load(q_latent_ptr + rows[:, None] * C + offs_c[None, :], mask=c_mask, other=0.0)
    r_mask = in_rows[:, None] & (offs_r < R)[None, :]
    q_pe = tl.load(q_pe_ptr + rows[:, None] * R + offs_r[None, :], mask=r_mask, other=0.0)

    start = part * keys_per_part
    end = tl.minimum(start + keys_per_part, seq_kv)
    last_key = tl.zeros([BLOCK_M], dtype=tl.int32) + (seq_kv - 1)
    seen_by_all = end
    if CAUSAL:
        causal_offset = seq_kv - seq_q  # bottom-right: token i sees keys up to i + causal_offset
        last_key = tl.minimum(offs_m // heads + causal_offset, seq_kv - 1)
        first_token = tl.program_id(0) * BLOCK_M // heads
        seen_by_all = tl.maximum(tl.minimum(first_token + causal_offset + 1, end), start)
    full_stop = start + (seen_by_all - start) // BLOCK_N * BLOCK_N
    acc = tl.zeros([BLOCK_M, BLOCK_C], dtype=tl.float32)
    l_i = tl.zeros([BLOCK_M], dtype=tl.float32)
    m_i = tl.full([BLOCK_M], float("-inf"), dtype=tl.float32)
    kv_base = kv_ptr + batch * seq_kv * C
    pe_base = k_pe_ptr + batch * seq_kv * R
    acc, l_i, m_i = attend(
        acc, l_i, m_i, q_latent, q_pe, kv_base, pe_base, last_key, start, full_stop, seq_kv, scale_log2,
        False, R, C, BLOCK_M, BLOCK_N, BLOCK_R, BLOCK_C, PRECISION, IN_FP32,
    )  # fmt: skip
    acc, l_i, m_i = attend(
        acc, l_i, m_i, q_latent, q_pe, kv_base, pe_base, last_key, full_stop, end, seq_kv, scale_log2,
        True, R, C, BLOCK_M, BLOCK_N, BLOCK_R, BLOCK_C, PRECISION, IN_FP32,
    )  # fmt: skip

    slots = rows * parts + part
    acc = acc * (1.0 / tl.where(l_i == 0.0, 1.0, l_i))[:, None]
    tl.store(part_ptr + slots[:, None] * C + offs_c[None, :], acc.to(part_ptr.dtype.element_ty), mask=c_mask)
    tl.store(part_lse_ptr + slots, m_i + tl.log2(l_i), mask=in_rows)


@triton.jit
def mla_combine_kernel(
    part_ptr, part_lse_ptr,  # (tokens, H, parts, C), (tokens, H, parts) fp32, in units of log2
    wkv_b_ptr, out_ptr, lse_ptr,  # (H, D + DV, C), (tokens, H, DV), (B, H, S) fp32
    tokens, heads, seq_q, parts,
    WITH_LSE: tl.constexpr, D: tl.constexpr, DV: tl.constexpr, C: tl.constexpr,
    BLOCK_T: tl.constexpr, BLOCK_K: tl.constexpr, BLOCK_V: tl.constexpr,
    PRECISION: tl.constexpr, IN_FP32: tl.constexpr,
):  # fmt: skip
    """BLOCK_V output columns of BLOCK_T tokens of one head. Grid: (H, ceil(tokens / BLOCK_T), ceil(DV / BLOCK_V)).

    Every row sees key 0, so the log-sum-exp of part 0 is finite, and that of the others is finite or -inf.
    """
    head = tl.program_id(0).to(tl.int64)
    offs_t = tl.program_id(1) * BLOCK_T + tl.arange(0, BLOCK_T)
    offs_v = tl.program_id(2) * BLOCK_V + tl.arange(0, BLOCK_V)
    offs_c = tl.arange(0, BLOCK_K)
    in_tokens, in_v = offs_t < tokens, offs_v < DV
    rows = offs_t.to(tl.int64) * heads + head
    m_i = tl.full([BLOCK_T], float("-inf"), dtype=tl.float32)
    l_i = tl.zeros([BLOCK_T], dtype=tl.float32)
    for part in tl.range(0, parts):
        part_lse = tl.load(part_lse_ptr + rows * parts + part, mask=in_tokens, other=0.0)
        m_new = tl.maximum(m_i, part_lse)
        l_i = l_i * tl.exp2(m_i - m_new) + tl.exp2(part_lse - m_new)
        m_i = m_new
    lse = m_i + tl.log2(l_i)  # (BLOCK_T,)

    out = tl.zeros([BLOCK_T, BLOCK_V], dtype=tl.float32)
    w_head = wkv_b_ptr + head * (D + DV) * C
    for start_c in tl.range(0, C, BLOCK_K):
        in_c = start_c + offs_c < C
        latent = tl.zeros([BLOCK_T, BLOCK_K], dtype=tl.float32)
        for part in tl.range(0, parts):
            slots = rows * parts + part
            weight = tl.exp2(tl.load(part_lse_ptr + slots, mask=in_tokens, other=0.0) - lse)  # (BLOCK_T,)
            tile = part_ptr + slots[:, None] * C + start_c + offs_c[None, :]
            mask = in_tokens[:, None] & in_c[None, :]
            latent += weight[:, None] * tl.load(tile, mask=mask, other=0.0).to(tl.float32)
        w_tile = w_head + (D + offs_v)[:, None] * C + start_c + offs_c[None, :]
        w = tl.load(w_tile, mask=in_v[:, None] & in_c[None, :], other=0.0)  # (BLOCK_V, BLOCK_K) of W_UV
        out = dot(latent.to(w.dtype), w.T, out, PRECISION, IN_FP32)
    out_tile = out_ptr + rows[:, None] * DV + offs_v[None, :]
    tl.store(out_tile, out.to(out_ptr.dtype.element_ty), mask=in_tokens[:, None] & in_v[None, :])
    if WITH_LSE and tl.program_id(2) == 0:
        lse_rows = lse_ptr + (offs_t // seq_q).to(tl.int64) * heads * seq_q + head * seq_q + offs_t % seq_q
        tl.store(lse_rows, lse * LN_2, mask=in_tokens)


def mla_decode(
    q_nope: torch.Tensor,
    q_pe: torch.Tensor,
    kv_latent: torch.Tensor,
    k_pe: torch.Tensor,
    wkv_b: torch.Tensor,
    *,
    causal: bool,
    with_lse: bool,
    config: dict[str, Any],
) -> tuple[torch.Tensor, torch.Tensor | None]:
    """Attends over an MLA cache by three kernels: q_nope (B, S, H, D), q_pe (B, S, H, R), kv_latent (B, T, C), k_pe (B,
    T, R), wkv_b (H, D + Dv, C), contiguous, one of fp16, bf16, fp32.

    `config` holds BLOCK_M, BLOCK_N, BLOCK_T, BLOCK_K, BLOCK_V, PROGRAMS (how many programs of the split kernel fill the
    device: keys are split while there are fewer), MERGE_PARTS (more parts than these are merged before the last kernel
    combines them; 0: never) and the compiler's options, which all three kernels get. Returns out (B, S, H, Dv) in the
    inputs' dtype and, when asked, the natural log-sum-exp (B, H, S) in fp32. Raises UsageError as `check_tensors`.
    """
    import torch

    check_tensors(q_nope, q_pe, kv_latent, k_pe, wkv_b, causal=causal)
    batch, seq_q, heads, nope = q_nope.shape
    seq_kv, rope = k_pe.shape[1:]
    value, latent, tokens = wkv_b.shape[1] - nope, wkv_b.shape[2], batch * seq_q
    options = {name: value for name, value in config.items() if name not in _CONSTANTS}
    block_k, block_t, block_v = config["BLOCK_K"], config["BLOCK_T"], config["BLOCK_V"]
    how = {"PRECISION": "ieee", "IN_FP32": q_nope.dtype == torch.bfloat16 and is_interpreted(q_nope), **options}
    row_blocks = triton.cdiv(seq_q * heads, config["BLOCK_M"])
    keys_per_part = split_keys(seq_kv, config["BLOCK_N"], batch * row_blocks, config["PROGRAMS"])
    parts = triton.cdiv(seq_kv, keys_per_part)

    q_latent = q_nope.new_empty((batch, seq_q, heads, latent))
    mla_absorb_kernel[(heads, triton.cdiv(tokens, block_t), triton.cdiv(latent, block_k))](
        q_nope, wkv_b, q_latent, tokens, heads,
        D=nope, DV=value, C=latent, BLOCK_T=block_t, BLOCK_K=block_k, BLOCK_D=pad_size(nope), **how,
    )  # fmt: skip
    part_dtype = torch.float32 if parts > 1 else q_nope.dtype
    part = torch.empty((batch, seq_q, heads, parts, latent), dtype=part_dtype, device=q_nope.device)
    part_lse = torch.empty(part.shape[:-1], dtype=torch.float32, device=q_nope.device)
    mla_split_kernel[(row_blocks, parts, batch)](
        q_latent, q_pe, kv_latent, k_pe, part, part_lse, heads, seq_q, seq_kv, keys_per_part,
        math.log2(math.e) / math.sqrt(nope + rope),
        CAUSAL=causal and seq_q > 1, R=rope, C=latent, BLOCK_M=config["BLOCK_M"], BLOCK_N=config["BLOCK_N"],
        BLOCK_R=pad_size(rope), BLOCK_C=pad_size(latent), **how,
    )  # fmt: skip
    if 0 < config.get("MERGE_PARTS", 0) < parts:
        (part, part_lse), parts = _merge_parts(part, part_lse, q_nope.dtype), 1
    out = q_nope.new_empty((batch, seq_q, heads, value))
    lse = torch.empty((batch, heads, seq_q), dtype=torch.float32, device=out.device) if with_lse else None
    mla_combine_kernel[(heads, triton.cdiv(tokens, block_t), triton.cdiv(value, block_v))](
        part, part_lse, wkv_b, out, lse, tokens, heads, seq_q, parts,
        WITH_LSE=with_lse, D=nope, DV=value, C=latent, BLOCK_T=block_t, BLOCK_K=block_k, BLOCK_V=block_v, **how,
    )  # fmt: skip
    return out, lse


_CONSTANTS = frozenset({"BLOCK_M", "BLOCK_N", "BLOCK_T", "BLOCK_K", "BLOCK_V", "PROGRAMS", "MERGE_PARTS"})


def _merge_parts(part: torch.Tensor, part_lse: torch.Tensor, dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
    """Returns the parts (B, S, H, parts, C) and their log-sum-exp (B, S, H, parts) as one part each, in `dtype`."""
    *rows, parts, latent = part.shape
    merged, merged_lse = part.new_empty((*rows, 1, latent), dtype=dtype), part_lse.new_empty((*rows, 1))
    mla_merge_kernel[(merged_lse.numel(),)](
        part, part_lse, merged, merged_lse, parts, C=latent, BLOCK_P=16, BLOCK_C=pad_size(latent), num_warps=4
    )
    return merged, merged_lse


def split_keys(seq_kv: int, block_n: int, programs: int, wanted: int) -> int:
    """Returns the keys per part, a multiple of block_n, so that `programs` times the number of parts is near `wanted`.

    programs   number of programs without splitting
    """
    tiles = triton.cdiv(seq_kv, block_n)
    parts = max(1, min(tiles, wanted // programs))
    return int(triton.cdiv(tiles, parts)) * block_n
