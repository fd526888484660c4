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

from kernels.triton.prefill.forward import head_and_rank, head_and_rank_on_xcd, store_rows, with_scales
from kernels.triton.prefill.launch import PADDED_KEYS, output_dtype
from kernels.triton.prefill.tiles import attend
from kernels.triton.primitives import LOG2_E
from kernels.triton.varlen.launch import check_varlen, varlen_constants

if TYPE_CHECKING:
    import torch


WHOLE_VALUES = tl.constexpr(PADDED_KEYS)


@triton.jit
def attend_packed_block(
    q_ptr, k_ptr, v_ptr, out_ptr, lse_ptr,  # (Tq, H, D), (Tk, Hk, D), (Tk, Hk, Dv), (Tq, H, Dv), (H, Tq) fp32
    q_scale_ptr, k_scale_ptr, v_scale_ptr, slopes_ptr, bias_ptr,  # 3 x (1,), (H,) fp32, (H, max Sq, max Skv); or None
    first_q, first_k, seq_q, seq_kv, sequence, head, block_m,
    heads, kv_heads, total_q, value_keys, bias_rows, bias_keys, window, scale_log2,
    CAUSAL: tl.constexpr, WINDOWED: tl.constexpr, WITH_LSE: tl.constexpr, GUARDED: tl.constexpr,
    HEAD_DIM: tl.constexpr, HEAD_DIM_V: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
    BLOCK_D: tl.constexpr, TAIL_D: tl.constexpr, BLOCK_DV: tl.constexpr, TAIL_DV: tl.constexpr,
    PRELOAD_V: tl.constexpr, INT8_WEIGHTS: tl.constexpr, V_TRANSPOSED: tl.constexpr,
    PRECISION: tl.constexpr, IN_FP32: tl.constexpr, AS_READ: tl.constexpr = False,
):  # fmt: skip
    """Attention of the rows block_m * BLOCK_M ... of one head of a sequence; arguments as `varlen_forward_kernel`.

    first_q, first_k, seq_q, seq_kv    where the sequence begins in q and in k, and its lengths
    V_TRANSPOSED    v is as `launch.transposed_values` lays it out
    """
    kv_head = head // (heads // kv_heads)
    scale_log2 = with_scales(scale_log2, q_scale_ptr, k_scale_ptr)
    slope = None
    if slopes_ptr is not None:
        slope = tl.load(slopes_ptr + head) * LOG2_E
    start_m = block_m * BLOCK_M
    row = first_q.to(tl.int64) + start_m
    k_stride = kv_heads * HEAD_DIM
    if V_TRANSPOSED:
        v_stride = value_keys
        v_base = v_ptr + kv_head.to(tl.int64) * HEAD_DIM_V * v_stride
        v_base += (first_k // WHOLE_VALUES + sequence) * WHOLE_VALUES
    else:
        v_stride = kv_heads * HEAD_DIM_V
        v_base = v_ptr + first_k.to(tl.int64) * v_stride + kv_head * HEAD_DIM_V
    own_bias = None
    if bias_ptr is not None:
        own_bias = bias_ptr + (head.to(tl.int64) * bias_rows + start_m) * bias_keys
    acc, acc_tail, l_i, m_i = attend(
        q_ptr + row * heads * HEAD_DIM + head * HEAD_DIM,
        k_ptr + first_k.to(tl.int64) * k_stride + kv_head * HEAD_DIM, v_base,
        own_bias, slope, start_m, seq_q, seq_kv, window, heads * HEAD_DIM, k_stride, v_stride, scale_log2,
        CAUSAL, WINDOWED, False, GUARDED, HEAD_DIM, HEAD_DIM_V, BLOCK_M, BLOCK_N, BLOCK_D, TAIL_D, BLOCK_DV,
        TAIL_DV, PRELOAD_V, INT8_WEIGHTS, V_TRANSPOSED, PRECISION, IN_FP32, out_ptr.dtype.element_ty, bias_keys,
        AS_READ,
    )  # fmt: skip
    lse_rows = None
    if WITH_LSE:
        lse_rows = lse_ptr + head.to(tl.int64) * total_q + row
    store_rows(
        acc, acc_tail, l_i, m_i, out_ptr + row * heads * HEAD_DIM_V + head * HEAD_DIM_V, lse_rows, v_scale_ptr,
        start_m, seq_q, heads * HEAD_DIM_V, GUARDED, HEAD_DIM_V, BLOCK_M, BLOCK_DV, TAIL_DV, INT8_WEIGHTS,
    )  # fmt: skip


@triton.jit
def varlen_forward_kernel(
    q_ptr, k_ptr, v_ptr, out_ptr, lse_ptr,  # (Tq, H, D), (Tk, Hk, D), (Tk, Hk, Dv), (Tq, H, Dv), (H, Tq) fp32
    q_scale_ptr, k_scale_ptr, v_scale_ptr, slopes_ptr, bias_ptr,  # 3 x (1,), (H,) fp32, (H, max Sq, max Skv); or None
    cu_q_ptr, cu_k_ptr,  # 2 x (B + 1,) int32
    heads, kv_heads, total_q, value_keys, bias_rows, bias_keys, window, scale_log2,
    CAUSAL: tl.constexpr, WINDOWED: tl.constexpr, WITH_LSE: tl.constexpr, GUARDED: tl.constexpr,
    HEAD_DIM: tl.constexpr, HEAD_DIM_V: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
    BLOCK_D: tl.constexpr, TAIL_D: tl.constexpr, BLOCK_DV: tl.constexpr, TAIL_DV: tl.constexpr,
    PRELOAD_V: tl.constexpr, INT8_WEIGHTS: tl.constexpr, V_TRANSPOSED: tl.constexpr,
    PRECISION: tl.constexpr, IN_FP32: tl.constexpr, GROUP_HEADS: tl.constexpr, XCDS: tl.constexpr = 1,
    AS_READ: tl.constexpr = False,
):  # fmt: skip
    """Attention of BLOCK_M rows of one head of one sequence. Grid: (B * H, ceil(longest / BLOCK_M)).

    Lengths are not known when it is compiled: the last tile of keys may be ragged, and causal rows may see no key.
    value_keys    of transposed v, see `launch.count_value_keys`, else None
    bias_rows, bias_keys    max Sq and max Skv with a bias, else None
    """
    rank = tl.program_id(1) * tl.num_programs(0) + tl.program_id(0)
    if XCDS > 1:
        sequence_head, block_rank = head_and_rank_on_xcd(
            rank, tl.num_programs(0), tl.num_programs(1), heads // kv_heads, XCDS
        )
    else:
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
        attend_packed_block(
            q_ptr, k_ptr, v_ptr, out_ptr, lse_ptr, q_scale_ptr, k_scale_ptr, v_scale_ptr, slopes_ptr, bias_ptr,
            first_q, first_k, seq_q, seq_kv, sequence, head, block_m,
            heads, kv_heads, total_q, value_keys, bias_rows, bias_keys, window, scale_log2,
            CAUSAL, WINDOWED, WITH_LSE, GUARDED, HEAD_DIM, HEAD_DIM_V, BLOCK_M, BLOCK_N, BLOCK_D, TAIL_D, BLOCK_DV,
            TAIL_DV, PRELOAD_V, INT8_WEIGHTS, V_TRANSPOSED, PRECISION, IN_FP32, AS_READ,
        )  # fmt: skip


def varlen_forward(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    cu_seqlens_q: torch.Tensor,
    cu_seqlens_k: torch.Tensor,
    *,
    max_q: int,
    max_kv: int,
    causal: bool,
    with_lse: bool,
    config: Mapping[str, Any],
    window: int = 0,
    int8: str = "",
    descales: tuple[torch.Tensor, ...] = (),
    alibi_slopes: torch.Tensor | None = None,
    bias: torch.Tensor | None = None,
    out_dtype: torch.dtype | None = None,
) -> tuple[torch.Tensor, torch.Tensor | None]:
    """Attends in packed sequences: q (Tq, H, D), k (Tk, Hk, D), v (Tk, Hk, Dv), contiguous, D and Dv at most 256.

    q, k, v, int8, descales, out_dtype    as in `prefill_forward`; where v is multiplied in 8 bits, it comes from
                                  `launch.transposed_values`
    cu_seqlens_q, cu_seqlens_k    int32 (B + 1,): 0, then where each sequence ends. Not read here, which would wait for
                                  the device; `launch.check_lengths` checks them beforehand
    max_q, max_kv                 rows of the longest sequence of q, and of k; rows past them are not computed
    causal                        bottom-right aligned in each sequence
    window                        0, or with causal the most keys that a row sees
    alibi_slopes                  fp32 (H,): -slope * |i + Skv - Sq - j| is added to the scaled scores
    bias                          (H, max_q, max_kv), any float type: added to the scaled scores, rows and keys counted
                                  in each sequence
    config                        BLOCK_M, BLOCK_N, PRELOAD_V, GROUP_HEADS, the compiler's options, and XCDS or not

    Returns out (Tq, H, Dv) in q's dtype, for 8 bits in `out_dtype`, and, when asked, the natural log-sum-exp (H, Tq) in
    fp32. Rows that see no key get 0 and -inf. Raises UsageError naming the argument, its value and what is allowed.
    """
    import torch

    offsets = (cu_seqlens_q, cu_seqlens_k)
    sizes = check_varlen(q, k, v, offsets, (max_q, max_kv), causal, window, int8, descales, alibi_slopes, bias)
    rows = (sizes.total_q, sizes.heads)
    out = torch.empty((*rows, sizes.head_dim_v), dtype=output_dtype(q, out_dtype), device=q.device)
    lse = torch.empty(rows[::-1], dtype=torch.float32, device=q.device) if with_lse else None
    q_scale, k_scale, v_scale = (None, None, None, *descales)[-3:]
    varlen_forward_kernel[(sizes.sequences * sizes.heads, triton.cdiv(max_q, config["BLOCK_M"]))](
        q, k, v, out, lse, q_scale, k_scale, v_scale, alibi_slopes, bias, cu_seqlens_q, cu_seqlens_k,
        sizes.heads, sizes.kv_heads, sizes.total_q, sizes.value_keys, *sizes.bias_sizes, window or None,
        math.log2(math.e) / math.sqrt(sizes.head_dim),
        WITH_LSE=with_lse, **varlen_constants(sizes, q, v, causal, window, int8, bias), **config,
    )  # fmt: skip
    return out, lse
