"""The inner part of our flash attention kernels: one tile of keys, and the walk over all that a block of rows sees.

A head dimension that is no power of two is padded, or, where that saves a third or more, cut into a `lead` and a `tail`
(see `launch.split_head_dim`): 192 is 128 + 64, and both parts of a product are added up. Names that end with `_tail`
are unused if there is only one part. Code behind a false constant or a None pointer is not compiled.
"""

# mypy: disable-error-code="untyped-decorator, no-untyped-def"
# Parameters of a jit function are tensors or compile-time constants as its caller decides; mypy cannot say which.

from __future__ import annotations

import triton
import triton.language as tl

from kernels.triton.primitives import LOG2_E, dot

INT8_STEPS = tl.constexpr(127.0)
"""Factor of softmax weights in [0, 1] before they are rounded to int8."""


@triton.jit
def load_keys(
    base, start_n, row_stride, seq_kv,
    FIRST: tl.constexpr, WIDTH: tl.constexpr, HEAD_DIM: tl.constexpr, BLOCK_N: tl.constexpr, RAGGED: tl.constexpr,
):  # fmt: skip
    """Elements FIRST..FIRST + WIDTH of the keys (or values) from start_n on, (BLOCK_N, WIDTH), 0 where there are none.

    A tile that is whole needs no mask and loads faster.
    """
    offs_n = tl.arange(0, BLOCK_N)
    offs_d = FIRST + tl.arange(0, WIDTH)
    # The position of a tile may pass 2^31 elements in a long sequence; positions inside a tile cannot.
    pointers = base + start_n.to(tl.int64) * row_stride + (offs_n[:, None] * row_stride + offs_d[None, :])
    in_head = (offs_d < HEAD_DIM)[None, :]
    in_sequence = (start_n + offs_n < seq_kv)[:, None]
    if FIRST + WIDTH > HEAD_DIM:
        mask = in_head & in_sequence if RAGGED else in_head
        tile = tl.load(pointers, mask=mask, other=0.0)
    elif RAGGED:
        tile = tl.load(pointers, mask=in_sequence, other=0.0)
    else:
        tile = tl.load(pointers)
    return tile


@triton.jit
def load_key_columns(
    base, start_n, row_stride, seq_kv,
    FIRST: tl.constexpr, WIDTH: tl.constexpr, HEAD_DIM: tl.constexpr, BLOCK_N: tl.constexpr, RAGGED: tl.constexpr,
):  # fmt: skip
    """As `load_keys`, but loaded as (WIDTH, BLOCK_N), which a product reads without turning it around.

    Of loads that run ahead, Triton 3.9 for gfx942 spreads only such tiles over the banks of LDS: rows of 64 elements
    and more that are turned around afterwards all begin in one bank, a conflict of 16 ways.
    """
    offs_n = tl.arange(0, BLOCK_N)
    offs_d = FIRST + tl.arange(0, WIDTH)
    pointers = base + start_n.to(tl.int64) * row_stride + (offs_n[None, :] * row_stride + offs_d[:, None])
    in_head = (offs_d < HEAD_DIM)[:, None]
    in_sequence = (start_n + offs_n < seq_kv)[None, :]
    if FIRST + WIDTH > HEAD_DIM:
        mask = in_head & in_sequence if RAGGED else in_head
        tile = tl.load(pointers, mask=mask, other=0.0)
    elif RAGGED:
        tile = tl.load(pointers, mask=in_sequence, other=0.0)
    else:
        tile = tl.load(pointers)
    return tile.T


@triton.jit
def load_values(
    base, start_n, row_stride, seq_kv,
    FIRST: tl.constexpr, WIDTH: tl.constexpr, HEAD_DIM: tl.constexpr, BLOCK_N: tl.constexpr, RAGGED: tl.constexpr,
    TRANSPOSED: tl.constexpr,
):  # fmt: skip
    """As `load_keys`; where they are stored TRANSPOSED, element d of key n is at d * row_stride + n."""
    if not TRANSPOSED:
        return load_keys(base, start_n, row_stride, seq_kv, FIRST, WIDTH, HEAD_DIM, BLOCK_N, RAGGED)
    offs_n = start_n + tl.arange(0, BLOCK_N)
    offs_d = FIRST + tl.arange(0, WIDTH)
    pointers = base + offs_d[:, None] * row_stride + offs_n[None, :]
    in_head = (offs_d < HEAD_DIM)[:, None]
    if FIRST + WIDTH > HEAD_DIM:
        mask = in_head & (offs_n < seq_kv)[None, :] if RAGGED else in_head
        tile = tl.load(pointers, mask=mask, other=0.0)
    elif RAGGED:
        tile = tl.load(pointers, mask=(offs_n < seq_kv)[None, :], other=0.0)
    else:
        tile = tl.load(pointers)
    return tile.T


@triton.jit
def scores(q, k, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, PRECISION: tl.constexpr, IN_FP32: tl.constexpr):
    """q k^T, (BLOCK_M, BLOCK_N): int32 where both are int8, else fp32. int8 keys of wider queries are widened."""
    if q.dtype == tl.int8:
        s = tl.dot(q, k.T, out_dtype=tl.int32)
    elif k.dtype == tl.int8:
        wide = k.to(tl.float32).to(q.dtype)
        s = dot(q, wide.T, tl.zeros([BLOCK_M, BLOCK_N], dtype=tl.float32), PRECISION, IN_FP32)
    else:
        s = dot(q, k.T, tl.zeros([BLOCK_M, BLOCK_N], dtype=tl.float32), PRECISION, IN_FP32)
    return s


@triton.jit
def add_weighted(
    acc, p, v, INT8_WEIGHTS: tl.constexpr, PRECISION: tl.constexpr, IN_FP32: tl.constexpr, WIDE: tl.constexpr
):  # fmt: skip
    """acc + p v: weights p (BLOCK_M, BLOCK_N) in fp32, values v (BLOCK_N, WIDTH).

    The weights are rounded to what the values are stored in; with int8 values to WIDE, which holds the values exactly,
    or, with INT8_WEIGHTS, to whole steps of 1 / 127, whose products are summed in int32. Triton's interpreter truncates
    where it should round to fp8, so there (IN_FP32) such weights stay in fp32.
    """
    if INT8_WEIGHTS:
        steps = (p * INT8_STEPS + 0.5).to(tl.int8)
        acc += tl.dot(steps, v, out_dtype=tl.int32).to(tl.float32)
    elif v.dtype == tl.int8:
        acc = dot(p.to(WIDE), v.to(tl.float32).to(WIDE), acc, PRECISION, IN_FP32)
    elif IN_FP32 and v.dtype.is_fp8():
        acc = dot(p, v, acc, PRECISION, IN_FP32)
    else:
        acc = dot(p.to(v.dtype), v, acc, PRECISION, IN_FP32)
    return acc


@triton.jit
def added_scores(
    bias_rows, bias_stride, slope, offs_m, start_n, seq_q, seq_kv, causal_offset,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, RAGGED: tl.constexpr,
):  # fmt: skip
    """What ALiBi or a matrix bias adds to the scaled scores of a tile, (BLOCK_M, BLOCK_N) or smaller, times log2(e)."""
    offs_n = tl.arange(0, BLOCK_N)
    if bias_rows is not None:
        pointers = bias_rows + start_n + (tl.arange(0, BLOCK_M)[:, None] * bias_stride + offs_n[None, :])
        mask = (offs_m < seq_q)[:, None]
        if RAGGED:
            mask = mask & (start_n + offs_n < seq_kv)[None, :]
        added = tl.load(pointers, mask=mask, other=0.0).to(tl.float32) * LOG2_E
    else:
        distance = (offs_m + causal_offset)[:, None] - (start_n + offs_n)[None, :]
        added = -slope * tl.abs(distance).to(tl.float32)
    return added


@triton.jit
def walk(
    acc, acc_tail, l_i, m_i,  # (BLOCK_M, BLOCK_DV), (BLOCK_M, TAIL_DV), 2 x (BLOCK_M,): the running values
    q, q_tail,  # (BLOCK_M, BLOCK_D), (BLOCK_M, TAIL_D)
    k_base, v_base, bias_rows, slope,  # key 0 of this head, row start_m of the bias, the head's slope times log2(e)
    start_m, start, stop,  # the first row, and the keys to walk over; start is a multiple of BLOCK_N
    seq_q, seq_kv, window, k_stride, v_stride, scale_log2,
    MASKED: tl.constexpr, CAUSAL: tl.constexpr, WINDOWED: tl.constexpr, EVEN_N: tl.constexpr, GUARDED: tl.constexpr,
    HEAD_DIM: tl.constexpr, HEAD_DIM_V: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
    BLOCK_D: tl.constexpr, TAIL_D: tl.constexpr, BLOCK_DV: tl.constexpr, TAIL_DV: tl.constexpr,
    PRELOAD_V: tl.constexpr, INT8_WEIGHTS: tl.constexpr, V_TRANSPOSED: tl.constexpr,
    PRECISION: tl.constexpr, IN_FP32: tl.constexpr, WIDE: tl.constexpr, bias_stride, AS_READ: tl.constexpr,
):  # fmt: skip
    """Fold the keys start..stop into the running values. GUARDED: a row may have seen no key yet. AS_READ: keys are
    loaded by `load_key_columns`."""
    RAGGED: tl.constexpr = MASKED and not EVEN_N
    ADDED: tl.constexpr = (bias_rows is not None) or (slope is not None)
    offs_m = start_m + tl.arange(0, BLOCK_M)
    offs_n = tl.arange(0, BLOCK_N)
    causal_offset = seq_kv - seq_q  # bottom-right: row i sees keys up to i + causal_offset
    for start_n in tl.range(start, stop, BLOCK_N):
        start_n = tl.multiple_of(start_n, BLOCK_N)
        if AS_READ:
            k = load_key_columns(k_base, start_n, k_stride, seq_kv, 0, BLOCK_D, HEAD_DIM, BLOCK_N, RAGGED)
        else:
            k = load_keys(k_base, start_n, k_stride, seq_kv, 0, BLOCK_D, HEAD_DIM, BLOCK_N, RAGGED)
        if PRELOAD_V:
            v = load_values(v_base, start_n, v_stride, seq_kv, 0, BLOCK_DV, HEAD_DIM_V, BLOCK_N, RAGGED, V_TRANSPOSED)
        s = scores(q, k, BLOCK_M, BLOCK_N, PRECISION, IN_FP32)
        if TAIL_D > 0:
            k_tail = load_keys(k_base, start_n, k_stride, seq_kv, BLOCK_D, TAIL_D, HEAD_DIM, BLOCK_N, RAGGED)
            s += scores(q_tail, k_tail, BLOCK_M, BLOCK_N, PRECISION, IN_FP32)
        s = s.to(tl.float32)
        factor = scale_log2
        if ADDED:
            s = s * scale_log2 + added_scores(
                bias_rows, bias_stride, slope, offs_m, start_n, seq_q, seq_kv, causal_offset, BLOCK_M, BLOCK_N, RAGGED
            )
            factor = 1.0
        if MASKED:
            visible = (start_n + offs_n < seq_kv)[None, :]
            if CAUSAL:
                visible = visible & (start_n + offs_n[None, :] <= offs_m[:, None] + causal_offset)
            if WINDOWED:
                visible = visible & (start_n + offs_n[None, :] > offs_m[:, None] + (causal_offset - window))
            s = tl.where(visible, s, float("-inf"))

        m_new = tl.maximum(m_i, tl.max(s, 1) * factor)
        shift = m_new
        if GUARDED and (MASKED or bias_rows is not None):
            shift = tl.where(m_new == float("-inf"), 0.0, m_new)  # -inf - -inf would be NaN
        p = tl.exp2(s * factor - shift[:, None])  # (BLOCK_M, BLOCK_N), at most 1
        rescale = tl.exp2(m_i - shift)  # (BLOCK_M,)
        l_i = l_i * rescale + tl.sum(p, 1)
        acc = acc * rescale[:, None]
        if not PRELOAD_V:
            v = load_values(v_base, start_n, v_stride, seq_kv, 0, BLOCK_DV, HEAD_DIM_V, BLOCK_N, RAGGED, V_TRANSPOSED)
        acc = add_weighted(acc, p, v, INT8_WEIGHTS, PRECISION, IN_FP32, WIDE)
        if TAIL_DV > 0:
            v_tail = load_values(
                v_base, start_n, v_stride, seq_kv, BLOCK_DV, TAIL_DV, HEAD_DIM_V, BLOCK_N, RAGGED, V_TRANSPOSED
            )
            acc_tail = add_weighted(acc_tail * rescale[:, None], p, v_tail, INT8_WEIGHTS, PRECISION, IN_FP32, WIDE)
        m_i = m_new
    return acc, acc_tail, l_i, m_i


@triton.jit
def key_ranges(
    start_m, seq_q, seq_kv, window, CAUSAL: tl.constexpr, WINDOWED: tl.constexpr, BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
):  # fmt: skip
    """(first, whole_from, whole_to, stop): BLOCK_M rows see keys first..stop, and whole_from..whole_to all of them.

    All but stop are multiples of BLOCK_N, and first <= whole_from <= whole_to; stop may be smaller than all of them.
    """
    causal_offset = seq_kv - seq_q
    if CAUSAL:
        stop = tl.minimum(start_m + causal_offset + BLOCK_M, seq_kv)
        whole_to = tl.maximum(tl.minimum(start_m + causal_offset + 1, seq_kv), 0) // BLOCK_N * BLOCK_N
    else:
        stop = seq_kv
        whole_to = seq_kv // BLOCK_N * BLOCK_N
    if WINDOWED:
        # Row i sees keys from i + causal_offset - window + 1 on: the first row decides `first`, the last `whole_from`.
        lowest = start_m + causal_offset - window + 1
        first = tl.maximum(lowest, 0) // BLOCK_N * BLOCK_N
        whole_from = (tl.maximum(lowest + BLOCK_M - 1, 0) + BLOCK_N - 1) // BLOCK_N * BLOCK_N
        whole_to = tl.maximum(whole_to, first)
        whole_from = tl.minimum(whole_from, whole_to)
    else:
        first = 0
        whole_from = 0
    return first, whole_from, whole_to, stop


@triton.jit
def attend(
    q_rows, k_base, v_base, bias_rows, slope,
    start_m, seq_q, seq_kv, window, q_stride, k_stride, v_stride, scale_log2,
    CAUSAL: tl.constexpr, WINDOWED: tl.constexpr, EVEN_N: tl.constexpr, GUARDED: tl.constexpr,
    HEAD_DIM: tl.constexpr, HEAD_DIM_V: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
    BLOCK_D: tl.constexpr, TAIL_D: tl.constexpr, BLOCK_DV: tl.constexpr, TAIL_DV: tl.constexpr,
    PRELOAD_V: tl.constexpr, INT8_WEIGHTS: tl.constexpr, V_TRANSPOSED: tl.constexpr,
    PRECISION: tl.constexpr, IN_FP32: tl.constexpr, WIDE: tl.constexpr = tl.bfloat16, bias_stride=None,
    AS_READ: tl.constexpr = False,
):  # fmt: skip
    """The running values of BLOCK_M rows of one head, from row start_m on, after all keys: see `walk`.

    q_rows points to the first of the rows, k_base and v_base to key 0, bias_rows to the bias of the first row. The bias
    of a row has bias_stride elements, by default seq_kv. int8 values are multiplied in WIDE unless INT8_WEIGHTS.
    AS_READ: see `walk`.
    """
    if bias_stride is None:
        bias_stride = seq_kv
    rows = tl.arange(0, BLOCK_M)
    offs_d = tl.arange(0, BLOCK_D)
    in_sequence = (start_m + rows < seq_q)[:, None]
    q = tl.load(
        q_rows + (rows[:, None] * q_stride + offs_d[None, :]),
        mask=in_sequence & (offs_d < HEAD_DIM)[None, :],
        other=0.0,
    )
    q_tail = q
    if TAIL_D > 0:
        offs_tail = BLOCK_D + tl.arange(0, TAIL_D)
        q_tail = tl.load(
            q_rows + (rows[:, None] * q_stride + offs_tail[None, :]),
            mask=in_sequence & (offs_tail < HEAD_DIM)[None, :], other=0.0,
        )  # fmt: skip
    acc = tl.zeros([BLOCK_M, BLOCK_DV], dtype=tl.float32)
    acc_tail = acc
    if TAIL_DV > 0:
        acc_tail = tl.zeros([BLOCK_M, TAIL_DV], dtype=tl.float32)
    l_i = tl.zeros([BLOCK_M], dtype=tl.float32)
    # Unless GUARDED, every row sees key 0, which is in the first tile walked: m_i is finite from then on.
    m_i = tl.full([BLOCK_M], float("-inf"), dtype=tl.float32)

    first, whole_from, whole_to, stop = key_ranges(start_m, seq_q, seq_kv, window, CAUSAL, WINDOWED, BLOCK_M, BLOCK_N)
    if WINDOWED:
        acc, acc_tail, l_i, m_i = walk(
            acc, acc_tail, l_i, m_i, q, q_tail, k_base, v_base, bias_rows, slope, start_m, first, whole_from,
            seq_q, seq_kv, window, k_stride, v_stride, scale_log2,
            True, CAUSAL, WINDOWED, EVEN_N, GUARDED, HEAD_DIM, HEAD_DIM_V, BLOCK_M, BLOCK_N, BLOCK_D, TAIL_D, BLOCK_DV,
            TAIL_DV, PRELOAD_V, INT8_WEIGHTS, V_TRANSPOSED, PRECISION, IN_FP32, WIDE, bias_stride, AS_READ,
        )  # fmt: skip
    acc, acc_tail, l_i, m_i = walk(
        acc, acc_tail, l_i, m_i, q, q_tail, k_base, v_base, bias_rows, slope, start_m, whole_from, whole_to,
        seq_q, seq_kv, window, k_stride, v_stride, scale_log2,
        False, CAUSAL, WINDOWED, EVEN_N, GUARDED, HEAD_DIM, HEAD_DIM_V, BLOCK_M, BLOCK_N, BLOCK_D, TAIL_D, BLOCK_DV,
        TAIL_DV, PRELOAD_V, INT8_WEIGHTS, V_TRANSPOSED, PRECISION, IN_FP32, WIDE, bias_stride, AS_READ,
    )  # fmt: skip
    if CAUSAL or not EVEN_N:
        acc, acc_tail, l_i, m_i = walk(
            acc, acc_tail, l_i, m_i, q, q_tail, k_base, v_base, bias_rows, slope, start_m, whole_to, stop,
            seq_q, seq_kv, window, k_stride, v_stride, scale_log2,
            True, CAUSAL, WINDOWED, EVEN_N, GUARDED, HEAD_DIM, HEAD_DIM_V, BLOCK_M, BLOCK_N, BLOCK_D, TAIL_D, BLOCK_DV,
            TAIL_DV, PRELOAD_V, INT8_WEIGHTS, V_TRANSPOSED, PRECISION, IN_FP32, WIDE, bias_stride, AS_READ,
        )  # fmt: skip
    return acc, acc_tail, l_i, m_i
