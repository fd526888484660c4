"""The second kernel of flash decoding: joins what the splits of a sequence have stored.

Split i of a row holds m_i, l_i and acc_i (see `decode`). With m the largest of all m_i and of the sink's logit, the
weight of a split is w_i = 2^(m_i - m), the denominator l = sum of w_i l_i plus 2^(sink - m), and out the sum of
w_i acc_i over l. The sink has no value and is added here, once.
"""

# mypy: disable-error-code="untyped-decorator, no-untyped-def"
# Parameters of a jit function are tensors or compile-time constants as its caller decides; mypy cannot say which.

from __future__ import annotations

import triton
import triton.language as tl

from kernels.triton.primitives import LN_2, LOG2_E


@triton.jit
def first_key_walked(length, QUERIES: tl.constexpr, WINDOW: tl.constexpr, BLOCK_N: tl.constexpr):
    """Where the splits of a sequence begin: the tile with the first key that any of its tokens sees."""
    first = length * 0
    if WINDOW > 0:
        first = tl.maximum(length - QUERIES - WINDOW + 1, 0) // BLOCK_N * BLOCK_N
    return first


@triton.jit
def decode_reduce_kernel(
    acc_ptr, max_ptr, sum_ptr,  # (B, Q, H, splits, D), 2 x (B, Q, H, splits), fp32
    seq_lens_ptr, sinks_ptr,  # (B,) int32, (H,) fp32 or None
    out_ptr, lse_ptr,  # (B, Q, H, D), (B, H, Q) fp32 or None
    heads, splits, split_keys,
    QUERIES: tl.constexpr, WINDOW: tl.constexpr, SINKS: tl.constexpr, WITH_LSE: tl.constexpr,
    HEAD_DIM: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_D: tl.constexpr, BLOCK_SPLITS: tl.constexpr,
):  # fmt: skip
    """One row of the result: one token of one head. Grid: (B * Q * H,).

    m_i, l_i and acc (BLOCK_D,) are the running values of the row over the splits joined so far.
    """
    row = tl.program_id(0)
    head = row % heads
    token = row // heads % QUERIES
    batch = row // heads // QUERIES
    length = tl.load(seq_lens_ptr + batch)
    written = tl.cdiv(length - first_key_walked(length, QUERIES, WINDOW, BLOCK_N), split_keys)

    offs_s = tl.arange(0, BLOCK_SPLITS)
    offs_d = tl.arange(0, BLOCK_D)
    in_head = offs_d < HEAD_DIM
    slots = row.to(tl.int64) * splits + offs_s  # (BLOCK_SPLITS,)
    m_i = tl.full((), float("-inf"), dtype=tl.float32)
    l_i = tl.full((), 0.0, dtype=tl.float32)
    if SINKS:
        m_i = tl.load(sinks_ptr + head) * LOG2_E
        l_i = tl.full((), 1.0, dtype=tl.float32)
    acc = tl.zeros([BLOCK_D], dtype=tl.float32)
    for start in tl.range(0, written, BLOCK_SPLITS):
        stored = start + offs_s < written
        row_max = tl.load(max_ptr + slots + start, mask=stored, other=float("-inf"))
        row_sum = tl.load(sum_ptr + slots + start, mask=stored, other=0.0)
        part = tl.load(
            acc_ptr + (slots + start)[:, None] * HEAD_DIM + offs_d[None, :],
            mask=stored[:, None] & in_head[None, :], other=0.0,
        )  # fmt: skip
        m_new = tl.maximum(m_i, tl.max(row_max, 0))
        # A token sees no key of a split that lies before its window: its maximum there is -inf, its weight 0.
        m_finite = tl.where(m_new == float("-inf"), 0.0, m_new)
        weight = tl.exp2(row_max - m_finite)  # (BLOCK_SPLITS,)
        rescale = tl.exp2(m_i - m_finite)
        l_i = l_i * rescale + tl.sum(weight * row_sum, 0)
        acc = acc * rescale + tl.sum(weight[:, None] * part, 0)
        m_i = m_new

    tl.store(out_ptr + row.to(tl.int64) * HEAD_DIM + offs_d, (acc / l_i).to(out_ptr.dtype.element_ty), mask=in_head)
    if WITH_LSE:
        tl.store(lse_ptr + (batch * heads + head) * QUERIES + token, (m_i + tl.log2(l_i)) * LN_2)
