"""One part of many, for split latent attention of few rows.

`mla_combine_kernel` walks over the parts of a row one after another, in the few programs that its product with W_UV^T
fills. A short batch is cut into a hundred parts and more, and then takes longer there than with its keys. So a kernel
with a program for each row merges them first, where a configuration asks for it (MERGE_PARTS).
"""

# mypy: disable-error-code="untyped-decorator, no-untyped-def"
# Parameters of a jit function are tensors or compile-time constants as its caller decides; mypy cannot say which.

from __future__ import annotations

import triton
import triton.language as tl


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
