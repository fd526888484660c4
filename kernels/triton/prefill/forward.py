"""Flash attention forward in Triton: the kernel and its launcher.

The score matrix S = Q K^T is never stored. One program owns BLOCK_M query rows of one head and walks over the keys in
tiles of BLOCK_N, keeping three running values per row (Milakov and Gimelshein 2018, arXiv:1805.02867; Dao 2023,
arXiv:2307.08691):

    m_i   (BLOCK_M,)            largest scaled score so far, in units of log2
    l_i   (BLOCK_M,)            sum of 2^(score - m_i) so far
    acc   (BLOCK_M, BLOCK_DV)   sum of 2^(score - m_i) * v so far, fp32

When a tile raises the maximum, what was summed so far is scaled down by 2^(old - new). At the end out = acc / l_i and
the log-sum-exp is (m_i + log2 l_i) * ln 2. Powers of two are used because GPUs have an exp2 instruction: 1/sqrt(D) and
log2(e) are folded into one factor that becomes part of a fused multiply-add; so are the scales of 8-bit q and k.

Key tiles that every row of the program sees whole go through a loop without any mask; only the tiles on the edges of a
causal mask or window and a ragged last tile pay for one. Tiles that no row sees are not walked. A row that sees no key
keeps m_i = -inf and l_i = 0, and gets out = 0 and a log-sum-exp of -inf.
"""

# mypy: disable-error-code="untyped-decorator, no-untyped-def"
# Parameters of a jit function are tensors or compile-time constants as its caller decides; mypy cannot say which.

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import triton
import triton.language as tl

from kernels.triton.prefill.launch import PADDED_KEYS, check_dense, kernel_constants, output_dtype
from kernels.triton.prefill.tiles import INT8_STEPS, attend
from kernels.triton.primitives import LN_2, LOG2_E

if TYPE_CHECKING:
    import torch

WHOLE_VALUES = tl.constexpr(PADDED_KEYS)


@triton.jit
def head_and_rank(rank, batch_heads, blocks, GROUP_HEADS: tl.constexpr):
    """(head of all batches, rank of the block of rows) of the program that starts as number `rank`.

    GROUP_HEADS heads are worked through at a time, all their first blocks before all their second ones: the keys and
    values of as many heads are read again and again meanwhile, and should fit the last-level cache.
    """
    first = rank // (GROUP_HEADS * blocks) * GROUP_HEADS
    heads = tl.minimum(batch_heads - first, GROUP_HEADS)
    within = rank - first * blocks
    return first + within % heads, within // heads


@triton.jit
def head_and_rank_on_xcd(rank, batch_heads, blocks, group, XCDS: tl.constexpr):
    """As `head_and_rank`, in an order that keeps the `group` query heads of one K/V head on one XCD.

    The hardware deals workgroup n to XCD n % XCDS, and an XCD's L2 cache holds only what its own workgroups read (AMD,
    "AMD Instinct MI300X workload optimization"). K/V heads of all batches are dealt to the XCDs in turn; an XCD works
    through one after another, all its heads' first blocks before all their second ones. K/V heads left over, fewer than
    XCDS, keep the plain order: each on one XCD would leave others idle.
    """
    each = group * blocks
    dealt = batch_heads // group // XCDS * XCDS
    turn = rank // XCDS
    kv_head = turn // each * XCDS + rank % XCDS
    left = tl.maximum(batch_heads - dealt * group, 1)
    after = rank - dealt * each
    batch_head = tl.where(after < 0, kv_head * group + turn % group, dealt * group + after % left)
    return batch_head, tl.where(after < 0, turn % each // group, after // left)


@triton.jit
def with_scales(scale_log2, q_scale_ptr, k_scale_ptr):
    """The factor of the scores, with the scales of 8-bit q and k that are given."""
    if q_scale_ptr is not None:
        scale_log2 = scale_log2 * tl.load(q_scale_ptr)
    if k_scale_ptr is not None:
        scale_log2 = scale_log2 * tl.load(k_scale_ptr)
    return scale_log2


@triton.jit
def store_rows(
    acc, acc_tail, l_i, m_i, out_rows, lse_rows, v_scale_ptr,  # the last three: row start_m of this head, or None
    start_m, seq_q, out_stride,
    GUARDED: tl.constexpr, HEAD_DIM_V: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_DV: tl.constexpr,
    TAIL_DV: tl.constexpr, INT8_WEIGHTS: tl.constexpr,
):  # fmt: skip
    """Divide by the sum of the weights, apply the scale of the values, and store out and the log-sum-exp.

    One division a row: an exact one takes about ten instructions, and a lane has up to 64 elements.
    """
    rows = tl.arange(0, BLOCK_M)
    in_sequence = start_m + rows < seq_q
    divisor = l_i
    if GUARDED:
        divisor = tl.where(l_i == 0.0, 1.0, l_i)
    factor = 1.0 / divisor
    if INT8_WEIGHTS:
        factor = 1.0 / (divisor * INT8_STEPS)
    if v_scale_ptr is not None:
        factor = factor * tl.load(v_scale_ptr)
    offs_d = tl.arange(0, BLOCK_DV)
    tl.store(
        out_rows + (rows[:, None] * out_stride + offs_d[None, :]),
        (acc * factor[:, None]).to(out_rows.dtype.element_ty),
        mask=in_sequence[:, None] & (offs_d < HEAD_DIM_V)[None, :],
    )
    if TAIL_DV > 0:
        offs_tail = BLOCK_DV + tl.arange(0, TAIL_DV)
        tl.store(
            out_rows + (rows[:, None] * out_stride + offs_tail[None, :]),
            (acc_tail * factor[:, None]).to(out_rows.dtype.element_ty),
            mask=in_sequence[:, None] & (offs_tail < HEAD_DIM_V)[None, :],
        )
    if lse_rows is not None:
        tl.store(lse_rows + rows, (m_i + tl.log2(divisor)) * LN_2, mask=in_sequence)


@triton.jit
def attend_block(
    q_ptr, k_ptr, v_ptr, out_ptr, lse_ptr, q_scale_ptr, k_scale_ptr, v_scale_ptr, slopes_ptr, bias_ptr,
    batch, head, block_m, heads, kv_heads, seq_q, seq_kv, window, scale_log2,
    CAUSAL: tl.constexpr, WINDOWED: tl.constexpr, WITH_LSE: tl.constexpr, EVEN_N: tl.constexpr, GUARDED: tl.constexpr,
    HEAD_DIM: tl.constexpr, HEAD_DIM_V: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
    BLOCK_D: tl.constexpr, TAIL_D: tl.constexpr, BLOCK_DV: tl.constexpr, TAIL_DV: tl.constexpr,
    PRELOAD_V: tl.constexpr, INT8_WEIGHTS: tl.constexpr, V_TRANSPOSED: tl.constexpr,
    PRECISION: tl.constexpr, IN_FP32: tl.constexpr, AS_READ: tl.constexpr = False,
):  # fmt: skip
    """Attention of the rows block_m * BLOCK_M ... of one head of dense tensors; arguments as `prefill_forward_kernel`.

    V_TRANSPOSED: v is (B, Hk, Dv, S), S being Skv rounded up to a multiple of WHOLE_VALUES.
    """
    kv_head = head // (heads // kv_heads)
    start_m = block_m * BLOCK_M
    scale_log2 = with_scales(scale_log2, q_scale_ptr, k_scale_ptr)
    slope = None
    if slopes_ptr is not None:
        slope = tl.load(slopes_ptr + head) * LOG2_E
    row = batch.to(tl.int64) * seq_q + start_m
    q_stride = heads * HEAD_DIM
    k_stride = kv_heads * HEAD_DIM
    q_rows = q_ptr + row * q_stride + head * HEAD_DIM
    k_base = k_ptr + batch.to(tl.int64) * seq_kv * k_stride + kv_head * HEAD_DIM
    if V_TRANSPOSED:
        v_stride = (seq_kv + WHOLE_VALUES - 1) // WHOLE_VALUES * WHOLE_VALUES
        v_base = v_ptr + (batch.to(tl.int64) * kv_heads + kv_head) * HEAD_DIM_V * v_stride
    else:
        v_stride = kv_heads * HEAD_DIM_V
        v_base = v_ptr + batch.to(tl.int64) * seq_kv * v_stride + kv_head * HEAD_DIM_V
    bias_rows = None
    if bias_ptr is not None:
        bias_rows = bias_ptr + (head.to(tl.int64) * seq_q + start_m) * seq_kv
    acc, acc_tail, l_i, m_i = attend(
        q_rows, k_base, v_base, bias_rows, slope, start_m, seq_q, seq_kv, window, q_stride, k_stride, v_stride,
        scale_log2, CAUSAL, WINDOWED, EVEN_N, GUARDED, HEAD_DIM, HEAD_DIM_V, BLOCK_M, BLOCK_N, BLOCK_D, TAIL_D,
        BLOCK_DV, TAIL_DV, PRELOAD_V, INT8_WEIGHTS, V_TRANSPOSED, PRECISION, IN_FP32, out_ptr.dtype.element_ty,
        AS_READ=AS_READ,
    )  # fmt: skip
    out_stride = heads * HEAD_DIM_V
    out_rows = out_ptr + row * out_stride + head * HEAD_DIM_V
    lse_rows = None
    if WITH_LSE:
        lse_rows = lse_ptr + (batch.to(tl.int64) * heads + head) * seq_q + start_m
    store_rows(
        acc, acc_tail, l_i, m_i, out_rows, lse_rows, v_scale_ptr, start_m, seq_q, out_stride,
        GUARDED, HEAD_DIM_V, BLOCK_M, BLOCK_DV, TAIL_DV, INT8_WEIGHTS,
    )  # fmt: skip


@triton.jit
def prefill_forward_kernel(
    q_ptr, k_ptr, v_ptr, out_ptr, lse_ptr,  # (B, Sq, H, D), (B, Skv, Hk, D), (B, Skv, Hk, Dv), (B, Sq, H, Dv), fp32
    q_scale_ptr, k_scale_ptr, v_scale_ptr, slopes_ptr, bias_ptr,  # 3 x (1,), (H,) fp32, (H, Sq, Skv); or None
    heads, kv_heads, seq_q, seq_kv, window, scale_log2,
    CAUSAL: tl.constexpr, WINDOWED: tl.constexpr, WITH_LSE: tl.constexpr, EVEN_N: tl.constexpr, GUARDED: tl.constexpr,
    HEAD_DIM: tl.constexpr, HEAD_DIM_V: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
    BLOCK_D: tl.constexpr, TAIL_D: tl.constexpr, BLOCK_DV: tl.constexpr, TAIL_DV: tl.constexpr,
    PRELOAD_V: tl.constexpr, INT8_WEIGHTS: tl.constexpr, V_TRANSPOSED: tl.constexpr,
    PRECISION: tl.constexpr, IN_FP32: tl.constexpr, GROUP_HEADS: tl.constexpr, XCDS: tl.constexpr = 1,
    AS_READ: tl.constexpr = False,
):  # fmt: skip
    """Attention of BLOCK_M query rows of one head. Grid: (B * H, ceil(Sq / BLOCK_M)); all tensors contiguous."""
    rank = tl.program_id(1) * tl.num_programs(0) + tl.program_id(0)
    if XCDS > 1:
        batch_head, block_rank = head_and_rank_on_xcd(
            rank, tl.num_programs(0), tl.num_programs(1), heads // kv_heads, XCDS
        )
    else:
        batch_head, block_rank = head_and_rank(rank, tl.num_programs(0), tl.num_programs(1), GROUP_HEADS)
    batch = batch_head // heads
    head = batch_head % heads
    # Under a causal mask the last rows see the most keys: starting them first keeps the tail of the grid short.
    block_m = tl.num_programs(1) - 1 - block_rank if CAUSAL else block_rank
    attend_block(
        q_ptr, k_ptr, v_ptr, out_ptr, lse_ptr, q_scale_ptr, k_scale_ptr, v_scale_ptr, slopes_ptr, bias_ptr,
        batch, head, block_m, heads, kv_heads, seq_q, seq_kv, window, scale_log2,
        CAUSAL, WINDOWED, WITH_LSE, EVEN_N, GUARDED, HEAD_DIM, HEAD_DIM_V, BLOCK_M, BLOCK_N, BLOCK_D, TAIL_D, BLOCK_DV,
        TAIL_DV, PRELOAD_V, INT8_WEIGHTS, V_TRANSPOSED, PRECISION, IN_FP32, AS_READ,
    )  # fmt: skip


def prefill_forward(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    *,
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
    """Attends from q (B, Sq, H, D) to k (B, Skv, Hk, D), v (B, Skv, Hk, Dv); contiguous, D and Dv at most 256.

    q, k, v        all fp16, all bf16, all fp32, all of one fp8 type, or int8 as `int8` says. Where v is multiplied in
                   8 bits (fp8, and int8 of mode ''), it is (B, Hk, Dv, S), S being Skv rounded up to a multiple of 16:
                   8-bit matrix units want the keys of an element beside each other
    causal         bottom-right aligned: row i sees keys up to i + Skv - Sq
    window         0, or with causal the most keys that a row sees
    int8           of int8 k and v: '' multiplies weights in steps of 1 / 127 in int8, 'pv16' in the dtype of out after
                   an int8 q k^T, 'kv8' takes q in fp16, bf16 or fp32 and multiplies both products in it
    descales       fp32 (1,) of q, k and v, value = stored * descale; of 'kv8' those of k and v only
    alibi_slopes   fp32 (H,): -slope * |i + Skv - Sq - j| is added to the scaled scores
    bias           (H, Sq, Skv), any float type: is added to the scaled scores
    out_dtype      of out, for q of 8 bits: fp16, bf16 (if None) or fp32
    config         BLOCK_M, BLOCK_N, PRELOAD_V, GROUP_HEADS (see `head_and_rank`), the compiler's options, and XCDS if
                   blocks are ordered for that many, which ignores GROUP_HEADS (see `head_and_rank_on_xcd`)

    Returns out (B, Sq, H, Dv) in q's dtype, for 8 bits in `out_dtype`, and, when asked, the natural log-sum-exp (B, H,
    Sq) in fp32. Rows that see no key get 0 and -inf. Raises UsageError naming the argument, its value and what is
    allowed.
    """
    import torch

    shape = check_dense(q, k, v, causal, window, int8, descales, alibi_slopes, bias)
    out = torch.empty((*q.shape[:3], shape.head_dim_v), dtype=output_dtype(q, out_dtype), device=q.device)
    rows = (shape.batch, shape.heads, shape.seq_q)
    lse = torch.empty(rows, dtype=torch.float32, device=q.device) if with_lse else None
    q_scale, k_scale, v_scale = (None, None, None, *descales)[-3:]
    prefill_forward_kernel[(shape.batch * shape.heads, triton.cdiv(shape.seq_q, config["BLOCK_M"]))](
        q, k, v, out, lse, q_scale, k_scale, v_scale, alibi_slopes, bias,
        shape.heads, shape.kv_heads, shape.seq_q, shape.seq_kv, window or None,
        math.log2(math.e) / math.sqrt(shape.head_dim),
        WITH_LSE=with_lse, **kernel_constants(shape, q, v, causal, window, int8, bias, config), **config,
    )  # fmt: skip
    return out, lse
