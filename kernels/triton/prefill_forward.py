"""Flash attention forward in Triton: the kernel and its launcher.

The score matrix S = Q K^T is never stored. One program owns BLOCK_M query rows of one head and walks over the keys in
tiles of BLOCK_N, keeping three running values per row (Milakov and Gimelshein 2018, arXiv:1805.02867; Dao 2023,
arXiv:2307.08691):

    m_i   (BLOCK_M,)            largest scaled score so far, in units of log2
    l_i   (BLOCK_M,)            sum of 2^(score - m_i) so far
    acc   (BLOCK_M, BLOCK_D)    sum of 2^(score - m_i) * v so far, fp32

When a tile raises the maximum, what was summed so far is scaled down by 2^(old - new). At the end out = acc / l_i and
the log-sum-exp is (m_i + log2 l_i) * ln 2. Powers of two are used because GPUs have an exp2 instruction: 1/sqrt(D) and
log2(e) are folded into one factor that becomes part of a fused multiply-add.

Key tiles that every row of the program sees whole go through a loop without any mask; only the tiles on the causal
diagonal and a ragged last tile pay for one.
"""

# mypy: disable-error-code="untyped-decorator, no-untyped-def"
# Parameters of a jit function are tensors or compile-time constants as its caller decides; mypy cannot say which.

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import triton
import triton.language as tl

from kernels.triton.configs import padded_head_dim

if TYPE_CHECKING:
    import torch

LN_2 = tl.constexpr(math.log(2.0))


@triton.jit
def _dot(a, b, acc, PRECISION: tl.constexpr, IN_FP32: tl.constexpr):
    """acc + a b. Triton's interpreter multiplies the bit patterns of bf16, so there bf16 is widened first (exact)."""
    if IN_FP32:
        a = a.to(tl.float32)
        b = b.to(tl.float32)
    return tl.dot(a, b, acc, input_precision=PRECISION)


@triton.jit
def _load_tile(pointers, mask, WHOLE: tl.constexpr):
    """Keys or values of a tile, zero where the mask is false; a whole tile needs no mask and loads faster."""
    if WHOLE:
        return tl.load(pointers)
    return tl.load(pointers, mask=mask, other=0.0)


@triton.jit
def _attend(
    acc, l_i, m_i,  # (BLOCK_M, BLOCK_D), (BLOCK_M,), (BLOCK_M,): the running values
    q,  # (BLOCK_M, BLOCK_D)
    k_base, v_base,  # key 0 of this head
    offs_m, offs_n, offs_d,  # query rows, keys of a tile, head dimensions
    start, stop,  # the keys to walk over; start is a multiple of BLOCK_N
    seq_kv, causal_offset, row_stride, scale_log2,
    MASKED: tl.constexpr, CAUSAL: tl.constexpr, EVEN_N: tl.constexpr, HEAD_DIM: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_D: tl.constexpr,
    PRELOAD_V: tl.constexpr, PRECISION: tl.constexpr, IN_FP32: tl.constexpr,
):  # fmt: skip
    """Fold the keys start..stop into the running values."""
    in_head = offs_d[None, :] < HEAD_DIM  # (1, BLOCK_D)
    tile = offs_n[:, None] * row_stride + offs_d[None, :]  # (BLOCK_N, BLOCK_D), fits 32 bits
    for start_n in tl.range(start, stop, BLOCK_N):
        start_n = tl.multiple_of(start_n, BLOCK_N)
        # The position of a tile may pass 2^31 elements in a long sequence; positions inside a tile cannot.
        to_tile = start_n.to(tl.int64) * row_stride
        loads = in_head
        if MASKED and not EVEN_N:
            loads = in_head & (start_n + offs_n < seq_kv)[:, None]
        WHOLE: tl.constexpr = BLOCK_D == HEAD_DIM and (EVEN_N or not MASKED)

        k = _load_tile(k_base + to_tile + tile, loads, WHOLE)  # (BLOCK_N, BLOCK_D)
        if PRELOAD_V:
            v = _load_tile(v_base + to_tile + tile, loads, WHOLE)
        s = _dot(q, k.T, tl.zeros([BLOCK_M, BLOCK_N], dtype=tl.float32), PRECISION, IN_FP32)  # (BLOCK_M, BLOCK_N) fp32
        if MASKED:
            visible = (start_n + offs_n < seq_kv)[None, :]
            if CAUSAL:
                visible = visible & (start_n + offs_n[None, :] <= offs_m[:, None] + causal_offset)
            s = tl.where(visible, s, float("-inf"))

        m_new = tl.maximum(m_i, tl.max(s, 1) * scale_log2)
        p = tl.exp2(s * scale_log2 - m_new[:, None])  # (BLOCK_M, BLOCK_N), at most 1
        rescale = tl.exp2(m_i - m_new)  # (BLOCK_M,)
        l_i = l_i * rescale + tl.sum(p, 1)
        acc = acc * rescale[:, None]
        if not PRELOAD_V:
            v = _load_tile(v_base + to_tile + tile, loads, WHOLE)
        acc = _dot(p.to(v.dtype), v, acc, PRECISION, IN_FP32)
        m_i = m_new
    return acc, l_i, m_i


@triton.jit
def prefill_forward_kernel(
    q_ptr, k_ptr, v_ptr, out_ptr, lse_ptr,  # (B, Sq, H, D), 2 x (B, Skv, Hk, D), (B, Sq, H, D), (B, H, Sq) fp32
    heads, kv_heads, seq_q, seq_kv, scale_log2,
    CAUSAL: tl.constexpr, WITH_LSE: tl.constexpr, EVEN_N: tl.constexpr, HEAD_DIM: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_D: tl.constexpr,
    PRELOAD_V: tl.constexpr, PRECISION: tl.constexpr, IN_FP32: tl.constexpr,
):  # fmt: skip
    """Attention of BLOCK_M query rows of one head. Grid: (B * H, ceil(Sq / BLOCK_M)); all tensors contiguous."""
    batch = tl.program_id(0) // heads
    head = tl.program_id(0) % heads
    kv_head = head // (heads // kv_heads)
    # Under a causal mask the last rows see the most keys: starting them first keeps the tail of the grid short.
    block_m = tl.num_programs(1) - 1 - tl.program_id(1) if CAUSAL else tl.program_id(1)
    start_m = block_m * BLOCK_M
    causal_offset = seq_kv - seq_q  # bottom-right: row i sees keys up to i + causal_offset

    offs_m = start_m + tl.arange(0, BLOCK_M)
    offs_n = tl.arange(0, BLOCK_N)
    offs_d = tl.arange(0, BLOCK_D)
    q_row_stride = heads * HEAD_DIM
    kv_row_stride = kv_heads * HEAD_DIM
    to_rows = (batch.to(tl.int64) * seq_q + start_m) * q_row_stride + head * HEAD_DIM
    q_tile = tl.arange(0, BLOCK_M)[:, None] * q_row_stride + offs_d[None, :]  # (BLOCK_M, BLOCK_D)
    q_mask = (offs_m < seq_q)[:, None] & (offs_d < HEAD_DIM)[None, :]
    to_keys = batch.to(tl.int64) * seq_kv * kv_row_stride + kv_head * HEAD_DIM

    q = tl.load(q_ptr + to_rows + q_tile, mask=q_mask, other=0.0)
    acc = tl.zeros([BLOCK_M, BLOCK_D], dtype=tl.float32)
    l_i = tl.zeros([BLOCK_M], dtype=tl.float32)
    # Every row sees key 0, which is in the first tile walked, so m_i is finite from then on and no exp2 is of a NaN.
    m_i = tl.full([BLOCK_M], float("-inf"), dtype=tl.float32)

    if CAUSAL:
        seen_by_all = tl.minimum(start_m + causal_offset + 1, seq_kv)
        seen_by_any = tl.minimum(start_m + causal_offset + BLOCK_M, seq_kv)
    else:
        seen_by_all = seq_kv
        seen_by_any = seq_kv
    full_stop = seen_by_all // BLOCK_N * BLOCK_N
    acc, l_i, m_i = _attend(
        acc, l_i, m_i, q, k_ptr + to_keys, v_ptr + to_keys, offs_m, offs_n, offs_d,
        0, full_stop, seq_kv, causal_offset, kv_row_stride, scale_log2,
        False, CAUSAL, EVEN_N, HEAD_DIM, BLOCK_M, BLOCK_N, BLOCK_D, PRELOAD_V, PRECISION, IN_FP32,
    )  # fmt: skip
    if CAUSAL or not EVEN_N:
        acc, l_i, m_i = _attend(
            acc, l_i, m_i, q, k_ptr + to_keys, v_ptr + to_keys, offs_m, offs_n, offs_d,
            full_stop, seen_by_any, seq_kv, causal_offset, kv_row_stride, scale_log2,
            True, CAUSAL, EVEN_N, HEAD_DIM, BLOCK_M, BLOCK_N, BLOCK_D, PRELOAD_V, PRECISION, IN_FP32,
        )  # fmt: skip

    acc = acc / l_i[:, None]
    tl.store(out_ptr + to_rows + q_tile, acc.to(out_ptr.dtype.element_ty), mask=q_mask)
    if WITH_LSE:
        lse_rows = lse_ptr + tl.program_id(0).to(tl.int64) * seq_q + offs_m
        tl.store(lse_rows, (m_i + tl.log2(l_i)) * LN_2, mask=offs_m < seq_q)


def prefill_forward(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, *, causal: bool, with_lse: bool, config: dict[str, Any]
) -> tuple[torch.Tensor, torch.Tensor | None]:
    """Launch the kernel: q (B, Sq, H, D), k and v (B, Skv, Hk, D), contiguous, one of fp16, bf16, fp32.

    `config` holds BLOCK_M, BLOCK_N, PRELOAD_V and the compiler's options (num_warps, num_stages, on AMD
    waves_per_eu). Returns out (B, Sq, H, D) in q's dtype and, when asked, the natural log-sum-exp (B, H, Sq) in fp32.
    """
    import torch

    batch, seq_q, heads, head_dim = q.shape
    seq_kv, kv_heads = k.shape[1], k.shape[2]
    out = torch.empty_like(q)
    lse = torch.empty((batch, heads, seq_q), dtype=torch.float32, device=q.device) if with_lse else None
    grid = (batch * heads, triton.cdiv(seq_q, config["BLOCK_M"]))
    prefill_forward_kernel[grid](
        q, k, v, out, lse, heads, kv_heads, seq_q, seq_kv, math.log2(math.e) / math.sqrt(head_dim),
        CAUSAL=causal, WITH_LSE=with_lse, EVEN_N=seq_kv % config["BLOCK_N"] == 0, HEAD_DIM=head_dim,
        BLOCK_D=padded_head_dim(head_dim), PRECISION="ieee",
        IN_FP32=q.dtype == torch.bfloat16 and not q.is_cuda, **config,
    )  # fmt: skip
    return out, lse
