"""Flash decoding: a few query tokens per sequence over a long cache, split over the keys (flash-decoding, Dao et al.
2023, https://crfm.stanford.edu/2023/10/12/flashdecoding.html).

One token has too few rows to fill a GPU, so the keys of a sequence are cut into splits, and every (sequence, K/V head,
split) is a program. The query heads that share its K/V head, times the tokens, are the rows of one product, so that
keys and values are read once. Per row, over the keys walked so far:

    m_i   (BLOCK_M,)            largest score, in units of log2
    l_i   (BLOCK_M,)            sum of 2^(score - m_i)
    acc   (BLOCK_M, BLOCK_D)    sum of 2^(score - m_i) * v, fp32

With one split the program writes the result; with more it stores the three, and `decode_reduce` joins them. Splits past
the end of a sequence store nothing: how many there are for a sequence follows from its length, which only the device
knows. How many are launched follows from shapes, so that a captured graph serves any lengths.
"""

# mypy: disable-error-code="untyped-decorator, no-untyped-def"
# Parameters of a jit function are tensors or compile-time constants as its caller decides; mypy cannot say which.

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import triton
import triton.language as tl

from kernels.configs import pad_size
from kernels.triton.decode.checks import require_arguments
from kernels.triton.decode.reduce import decode_reduce_kernel, first_key_walked
from kernels.triton.decode.space import LAUNCH_CONSTANTS
from kernels.triton.primitives import LN_2, LOG2_E, dot
from kernels.triton.triton_backend import is_interpreted

if TYPE_CHECKING:
    import torch


@triton.jit
def tanh(x):
    """tanh of fp32 to a few units in the last place: a Taylor series where 1 - e^-2x would cancel."""
    x2 = x * x
    series = x * (1.0 + x2 * (-1.0 / 3.0 + x2 * (2.0 / 15.0 + x2 * (-17.0 / 315.0 + x2 * (62.0 / 2835.0)))))
    e = tl.exp2(tl.abs(x) * (-2.0 * LOG2_E))
    ratio = (1.0 - e) / (1.0 + e)
    return tl.where(tl.abs(x) < 0.25, series, tl.where(x < 0.0, -ratio, ratio))


@triton.jit
def _pages_of(table_ptr, first_entry, start_n, keys, PAGE: tl.constexpr, BLOCK_N: tl.constexpr):
    """Pages of the keys of a tile, (BLOCK_N,); one number where a tile is within one page, or there are none."""
    if PAGE == 0:
        pages = start_n * 0
    elif PAGE % BLOCK_N == 0:
        pages = tl.load(table_ptr + first_entry + start_n // PAGE)
    else:
        pages = tl.load(table_ptr + first_entry + keys // PAGE)
    return pages


@triton.jit
def _load_rows(pointers, in_head, dtype: tl.constexpr, WHOLE: tl.constexpr, IN_FP32: tl.constexpr):
    """Keys or values of a tile, (BLOCK_N, BLOCK_D), in `dtype`, zero past the head dimension.

    IN_FP32: in fp32, which holds the same values. Triton's interpreter makes the bit patterns of bf16 out of integers.
    """
    rows = tl.load(pointers) if WHOLE else tl.load(pointers, mask=in_head, other=0.0)
    return rows.to(tl.float32) if IN_FP32 else rows.to(dtype)


@triton.jit
def decode_kernel(
    q_ptr, k_ptr, v_ptr,  # (B, Q, H, D), 2 x (B, Skv, Hk, D) or (pages, PAGE, Hk, D)
    table_ptr, seq_lens_ptr,  # (B, pages_per_sequence) int32 or None, (B,) int32
    sinks_ptr, k_scale_ptr, v_scale_ptr,  # (H,) fp32 or None, 2 x (1,) fp32 or None
    out_ptr, lse_ptr,  # (B, Q, H, D), (B, H, Q) fp32 or None: written where there is one split
    acc_ptr, max_ptr, sum_ptr,  # (B, Q, H, splits, D), 2 x (B, Q, H, splits), fp32: written where there are more
    kv_heads, room, split_keys, scale,  # room: Skv or pages_per_sequence; split_keys: a multiple of BLOCK_N
    QUERIES: tl.constexpr, GROUP: tl.constexpr, PAGE: tl.constexpr, CAP: tl.constexpr, WINDOW: tl.constexpr,
    SINKS: tl.constexpr, QUANTISED: tl.constexpr, WITH_LSE: tl.constexpr, ONE_SPLIT: tl.constexpr,
    HEAD_DIM: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_D: tl.constexpr,
    PRECISION: tl.constexpr, IN_FP32: tl.constexpr,
):  # fmt: skip
    """All tokens of one sequence and one K/V head over one split of its keys. Grid: (B * Hk, splits)."""
    batch = tl.program_id(0) // kv_heads
    kv_head = tl.program_id(0) % kv_heads
    split = tl.program_id(1)
    length = tl.load(seq_lens_ptr + batch)
    start = first_key_walked(length, QUERIES, WINDOW, BLOCK_N) + split * split_keys
    if start >= length:
        return
    stop = tl.minimum(start + split_keys, length)

    offs_m = tl.arange(0, BLOCK_M)
    offs_n = tl.arange(0, BLOCK_N)
    offs_d = tl.arange(0, BLOCK_D)
    token = offs_m // GROUP
    head = kv_head * GROUP + offs_m % GROUP
    real = offs_m < QUERIES * GROUP  # (BLOCK_M,)
    in_head = offs_d[None, :] < HEAD_DIM  # (1, BLOCK_D)
    row = (batch.to(tl.int64) * QUERIES + token) * (kv_heads * GROUP) + head  # of (B * Q * H)
    q_mask = real[:, None] & in_head
    q = tl.load(q_ptr + row[:, None] * HEAD_DIM + offs_d[None, :], mask=q_mask, other=0.0)
    last = (length - QUERIES + token)[:, None]  # (BLOCK_M, 1), the last key that a row sees
    batch_row = batch.to(tl.int64) * room  # of the contiguous cache, or of the block table
    k_head = k_ptr + kv_head * HEAD_DIM + offs_d[None, :]
    v_head = v_ptr + kv_head * HEAD_DIM + offs_d[None, :]
    # What turns a product of stored values into a score in units of log2; with a cap, into score / cap.
    score_scale = scale / CAP if CAP > 0 else scale * LOG2_E
    if QUANTISED:
        score_scale = score_scale * tl.load(k_scale_ptr)

    m_i = tl.full([BLOCK_M], float("-inf"), dtype=tl.float32)
    l_i = tl.zeros([BLOCK_M], dtype=tl.float32)
    acc = tl.zeros([BLOCK_M, BLOCK_D], dtype=tl.float32)
    # Past the end the last key is loaded again, and hidden by the mask of the scores: loads need no mask of their own.
    keys = tl.minimum(start + offs_n, stop - 1)
    pages = _pages_of(table_ptr, batch_row, start, keys, PAGE, BLOCK_N)
    for start_n in tl.range(start, stop, BLOCK_N):
        start_n = tl.multiple_of(start_n, BLOCK_N)
        keys = tl.minimum(start_n + offs_n, stop - 1)
        rows = batch_row + keys if PAGE == 0 else pages.to(tl.int64) * PAGE + keys % PAGE  # of the cache, (BLOCK_N,)
        to_rows = rows[:, None] * (kv_heads * HEAD_DIM)
        # The next tile's, so that the loads of its keys do not wait for the table.
        next_n = tl.minimum(start_n + BLOCK_N, stop - 1)
        pages = _pages_of(table_ptr, batch_row, next_n, tl.minimum(next_n + offs_n, stop - 1), PAGE, BLOCK_N)
        k = _load_rows(k_head + to_rows, in_head, q.dtype, HEAD_DIM == BLOCK_D, IN_FP32)  # (BLOCK_N, BLOCK_D)
        v = _load_rows(v_head + to_rows, in_head, q.dtype, HEAD_DIM == BLOCK_D, IN_FP32)
        s = dot(q, k.T, tl.zeros([BLOCK_M, BLOCK_N], dtype=tl.float32), PRECISION, IN_FP32) * score_scale
        if CAP > 0:
            s = tanh(s) * (CAP * LOG2_E)
        position = (start_n + offs_n)[None, :]
        visible = (position <= last) & (position < stop)
        if WINDOW > 0:
            visible = visible & (position > last - WINDOW)
        s = tl.where(visible, s, float("-inf"))

        m_new = tl.maximum(m_i, tl.max(s, 1))
        # A row that has seen no key yet, as in a window's first tile, keeps l_i = 0 instead of exp2(-inf + inf).
        m_finite = tl.where(m_new == float("-inf"), 0.0, m_new)
        p = tl.exp2(s - m_finite[:, None])  # (BLOCK_M, BLOCK_N), at most 1
        rescale = tl.exp2(m_i - m_finite)
        l_i = l_i * rescale + tl.sum(p, 1)
        acc = dot(p.to(q.dtype), v, acc * rescale[:, None], PRECISION, IN_FP32)
        m_i = m_new

    if QUANTISED:
        acc = acc * tl.load(v_scale_ptr)
    if ONE_SPLIT:
        if SINKS:
            sink = tl.load(sinks_ptr + head, mask=real, other=0.0) * LOG2_E
            m_new = tl.maximum(m_i, sink)
            rescale = tl.exp2(m_i - m_new)
            l_i = l_i * rescale + tl.exp2(sink - m_new)
            acc = acc * rescale[:, None]
            m_i = m_new
        acc = acc * (1.0 / l_i)[:, None]
        tl.store(out_ptr + row[:, None] * HEAD_DIM + offs_d[None, :], acc.to(out_ptr.dtype.element_ty), mask=q_mask)
        if WITH_LSE:
            to_lse = (batch * kv_heads * GROUP + head) * QUERIES + token
            tl.store(lse_ptr + to_lse, (m_i + tl.log2(l_i)) * LN_2, mask=real)
    else:
        slot = row * tl.num_programs(1) + split
        tl.store(acc_ptr + slot[:, None] * HEAD_DIM + offs_d[None, :], acc, mask=q_mask)
        tl.store(max_ptr + slot, m_i, mask=real)
        tl.store(sum_ptr + slot, l_i, mask=real)


def keys_walked(room_keys: int, queries: int, window: int, block_n: int) -> int:
    """Returns the most keys that one sequence's splits cover: all; with a window at most window + queries - 1 +
    block_n."""
    return min(room_keys, window + queries - 1 + block_n) if window else room_keys


def splits_of(span: int, programs_per_split: int, config: dict[str, Any]) -> tuple[int, int]:
    """Returns (number of splits, keys of each): enough splits for PROGRAMS programs, but of at least SPLIT_KEYS_MIN
    keys.

    span                  most keys that a sequence's programs read
    programs_per_split    B * Hk
    """
    wanted = max(1, min(triton.cdiv(config["PROGRAMS"], programs_per_split), span // config["SPLIT_KEYS_MIN"]))
    keys = triton.cdiv(triton.cdiv(span, wanted), config["BLOCK_N"]) * config["BLOCK_N"]
    return triton.cdiv(span, keys), keys


def flash_decode(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    seq_lens: torch.Tensor,
    *,
    block_table: torch.Tensor | None = None,
    sinks: torch.Tensor | None = None,
    k_scale: torch.Tensor | None = None,
    v_scale: torch.Tensor | None = None,
    cap: float = 0.0,
    window: int = 0,
    with_lse: bool = False,
    config: dict[str, Any],
    reduce_config: dict[str, Any],
) -> tuple[torch.Tensor, torch.Tensor | None]:
    """Attends from q (B, Q, H, D) to the first L = seq_lens[b] keys of sequence b; token i sees keys to L - Q + i.

    k, v             (B, Skv, Hk, D), or with block_table (pages, page_size, Hk, D); in q's dtype (fp16, bf16, fp32), or
                     in fp8 or int8 with k_scale and v_scale
    seq_lens         (B,) int32, Q ... Skv, or Q ... pages_per_sequence * page_size
    block_table      (B, pages_per_sequence) int32, see `paged_cache`; entries of pages past the end are not read
    sinks            (H,) fp32: one more logit in the denominator of each head
    k_scale, v_scale    (1,) fp32: value = stored * scale
    cap              0, or c: a scaled score s becomes c tanh(s / c)
    window           0, or the most keys a token sees, its own included
    config           BLOCK_N, PROGRAMS, SPLIT_KEYS_MIN and the compiler's options
    reduce_config    BLOCK_SPLITS and the compiler's options

    Returns out (B, Q, H, D) in q's dtype and, when asked, the natural logarithm of the denominator (B, H, Q) in fp32.
    Raises UsageError naming the argument, its value and what is allowed. Values on the device (lengths, tables) are not
    checked: `require_block_table` does that where a host may wait for them.
    """
    import torch

    require_arguments(q, k, v, seq_lens, block_table, sinks, k_scale, v_scale, cap, window)
    (batch, queries, heads, head_dim), kv_heads = q.shape, k.shape[2]
    page = 0 if block_table is None else k.shape[1]
    room = k.shape[1] if block_table is None else block_table.shape[1]
    span = keys_walked(room * (page or 1), queries, window, config["BLOCK_N"])
    splits, split_keys = splits_of(span, batch * kv_heads, config)
    out = torch.empty_like(q)
    lse = torch.empty((batch, heads, queries), dtype=torch.float32, device=q.device) if with_lse else None
    acc, row_max, row_sum = _partial_results(q, splits)
    decode_kernel[(batch * kv_heads, splits)](
        q, k, v, block_table, seq_lens, sinks, k_scale, v_scale, out, lse, acc, row_max, row_sum,
        kv_heads, room, split_keys, 1.0 / math.sqrt(head_dim),
        QUERIES=queries, GROUP=heads // kv_heads, PAGE=page, CAP=float(cap), WINDOW=window,
        SINKS=sinks is not None, QUANTISED=k_scale is not None, WITH_LSE=with_lse, ONE_SPLIT=splits == 1,
        HEAD_DIM=head_dim, BLOCK_M=pad_size(queries * (heads // kv_heads)), BLOCK_D=pad_size(head_dim),
        PRECISION="ieee", IN_FP32=q.dtype == torch.bfloat16 and is_interpreted(q),
        **{name: value for name, value in config.items() if name not in LAUNCH_CONSTANTS},
    )  # fmt: skip
    if splits > 1:
        decode_reduce_kernel[(batch * queries * heads,)](
            acc, row_max, row_sum, seq_lens, sinks, out, lse, heads, splits, split_keys,
            QUERIES=queries, WINDOW=window, SINKS=sinks is not None, WITH_LSE=with_lse, HEAD_DIM=head_dim,
            BLOCK_N=config["BLOCK_N"], BLOCK_D=pad_size(head_dim), **reduce_config,
        )  # fmt: skip
    return out, lse


def _partial_results(q: torch.Tensor, splits: int) -> tuple[torch.Tensor | None, ...]:
    """Allocates fp32 memory for the splits' results: acc (B, Q, H, splits, D), maxima and sums (B, Q, H, splits); three
    None for one split."""
    import torch

    if splits == 1:
        return None, None, None
    *rows, head_dim = q.shape
    shapes = ((*rows, splits, head_dim), (*rows, splits), (*rows, splits))
    return tuple(torch.empty(shape, dtype=torch.float32, device=q.device) for shape in shapes)
