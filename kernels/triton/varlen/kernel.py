"""Flash attention forward over packed sequences of different lengths, and its launcher.

Sequence b holds rows cu_seqlens_q[b] ... cu_seqlens_q[b + 1] of q and out, and rows cu_seqlens_k[b] ... of k and v. One
program owns BLOCK_M rows of one head of one sequence, as in `prefill_forward`, whose walk over the keys it shares.
"""

# mypy: disable-error-code="untyped-decorator, no-untyped-def"
# Parameters of a jit function are tensors or compile-time constants as its caller decides; mypy cannot say which.

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import triton
import triton.language as tl

from kernels.triton.prefill.forward import head_and_rank, store_rows
from kernels.triton.prefill.launch import check_varlen, dtype_name, head_dims
from kernels.triton.prefill.tiles import attend
from kernels.triton.primitives import LOG2_E

if TYPE_CHECKING:
    import torch


@triton.jit
def varlen_forward_kernel(
    q_ptr, k_ptr, v_ptr, out_ptr, lse_ptr,  # (Tq, H, D), (Tk, Hk, D), (Tk, Hk, Dv), (Tq, H, Dv), (H, Tq) fp32
    cu_q_ptr, cu_k_ptr, slopes_ptr,  # 2 x (B + 1,) int32, (H,) fp32 or None
    heads, kv_heads, total_q, window, scale_log2,
    CAUSAL: tl.constexpr, WINDOWED: tl.constexpr, WITH_LSE: tl.constexpr,
    HEAD_DIM: tl.constexpr, HEAD_DIM_V: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
    BLOCK_D: tl.constexpr, TAIL_D: tl.constexpr, BLOCK_DV: tl.constexpr, TAIL_DV: tl.constexpr,
    PRELOAD_V: tl.constexpr, PRECISION: tl.constexpr, IN_FP32: tl.constexpr, GROUP_HEADS: tl.constexpr,
):  # fmt: skip
    """Attention of BLOCK_M rows of one head of one sequence. Grid: (B * H, ceil(longest / BLOCK_M)).

    Lengths are not known when it is compiled: the last tile of keys may be ragged, and causal rows may see no key.
    """
    rank = tl.program_id(1) * tl.num_programs(0) + tl.program_id(0)
    sequence_head, block_rank = head_and_rank(rank, tl.num_programs(0), tl.num_programs(1), GROUP_HEADS)
    sequence = sequence_head // heads
    head = sequence_head % heads
    first_q = tl.load(cu_q_ptr + sequence)
    first_k = tl.load(cu_k_ptr + sequence)
    seq_q = tl.load(cu_q_ptr + sequence + 1) - first_q
    seq_kv = tl.load(cu_k_ptr + sequence + 1) - first_k
    blocks = (seq_q + BLOCK_M - 1) // BLOCK_M
    # As in the dense kernel: under a causal mask a sequence's last rows, which see the most keys, start first.
    block_m = blocks - 1 - block_rank if CAUSAL else block_rank
    if (block_m >= 0) & (block_m < blocks):
        kv_head = head // (heads // kv_heads)
        slope = None
        if slopes_ptr is not None:
            slope = tl.load(slopes_ptr + head) * LOG2_E
        start_m = block_m * BLOCK_M
        row = first_q.to(tl.int64) + start_m
        k_stride = kv_heads * HEAD_DIM
        v_stride = kv_heads * HEAD_DIM_V
        acc, acc_tail, l_i, m_i = attend(
            q_ptr + row * heads * HEAD_DIM + head * HEAD_DIM,
            k_ptr + first_k.to(tl.int64) * k_stride + kv_head * HEAD_DIM,
            v_ptr + first_k.to(tl.int64) * v_stride + kv_head * HEAD_DIM_V,
            None, slope, start_m, seq_q, seq_kv, window, heads * HEAD_DIM, k_stride, v_stride, scale_log2,
            CAUSAL, WINDOWED, False, CAUSAL, HEAD_DIM, HEAD_DIM_V, BLOCK_M, BLOCK_N, BLOCK_D, TAIL_D, BLOCK_DV,
            TAIL_DV, PRELOAD_V, False, False, PRECISION, IN_FP32,
        )  # fmt: skip
        lse_rows = None
        if WITH_LSE:
            lse_rows = lse_ptr + head.to(tl.int64) * total_q + row
        store_rows(
            acc, acc_tail, l_i, m_i, out_ptr + row * heads * HEAD_DIM_V + head * HEAD_DIM_V, lse_rows, None,
            start_m, seq_q, heads * HEAD_DIM_V, CAUSAL, HEAD_DIM_V, BLOCK_M, BLOCK_DV, TAIL_DV, False,
        )  # fmt: skip


def varlen_forward(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    cu_seqlens_q: torch.Tensor,
    cu_seqlens_k: torch.Tensor,
    *,
    max_q: int,
    causal: bool,
    with_lse: bool,
    config: Mapping[str, Any],
    window: int = 0,
    alibi_slopes: torch.Tensor | None = None,
) -> tuple[torch.Tensor, torch.Tensor | None]:
    """Attends in packed sequences: q (Tq, H, D), k (Tk, Hk, D), v (Tk, Hk, Dv), contiguous, all fp16, bf16 or fp32.

    cu_seqlens_q, cu_seqlens_k    int32 (B + 1,): 0, then where each sequence ends. Not read here, which would wait for
                                  the device; `prefill.launch.check_lengths` checks them beforehand
    max_q                         rows of the longest sequence of q; rows past it are not computed
    causal                        bottom-right aligned in each sequence
    window                        0, or with causal the most keys that a row sees
    alibi_slopes                  fp32 (H,): -slope * |i + Skv - Sq - j| is added to the scaled scores
    config                        BLOCK_M, BLOCK_N, PRELOAD_V, GROUP_HEADS and the compiler's options

    Returns out (Tq, H, Dv) in q's dtype and, when asked, the natural log-sum-exp (H, Tq) in fp32. Rows that see no key
    get 0 and -inf. Raises UsageError naming the argument, its value and what is allowed.
    """
    import torch

    check_varlen(q, k, v, cu_seqlens_q, cu_seqlens_k, max_q, causal, window, alibi_slopes)
    (total_q, heads, head_dim), kv_heads, head_dim_v = q.shape, k.shape[1], v.shape[2]
    out = torch.empty((total_q, heads, head_dim_v), dtype=q.dtype, device=q.device)
    lse = torch.empty((heads, total_q), dtype=torch.float32, device=q.device) if with_lse else None
    sequences = cu_seqlens_q.shape[0] - 1
    varlen_forward_kernel[(sequences * heads, triton.cdiv(max_q, config["BLOCK_M"]))](
        q, k, v, out, lse, cu_seqlens_q, cu_seqlens_k, alibi_slopes,
        heads, kv_heads, total_q, window or None, math.log2(math.e) / math.sqrt(head_dim),
        CAUSAL=causal, WINDOWED=window > 0, WITH_LSE=with_lse, **head_dims(head_dim, head_dim_v), PRECISION="ieee",
        IN_FP32=dtype_name(q) == "bfloat16" and not q.is_cuda, **config,
    )  # fmt: skip
    return out, lse
