"""Softmax over rows: the kernel and its launcher.

A row that fits the registers of one program is read once. A longer one is walked over in tiles, keeping two running
values (Milakov and Gimelshein 2018, arXiv:1805.02867) for every lane, and then once more for the result:

    m_l   (BLOCK_R, BLOCK_C)    largest of a lane's elements so far, fp32
    l_l   (BLOCK_R, BLOCK_C)    sum of exp(x - m_l) of a lane's elements so far, fp32

When an element raises the maximum, the sum is scaled down by exp(old - new). Lanes are joined at the end of the walk,
so that no tile waits for another warp. Exponentials are powers of two of differences that are multiplied by log2(e)
after they are taken: a product before would round large elements.
"""

# mypy: disable-error-code="untyped-decorator, no-untyped-def"
# Parameters of a jit function are tensors or compile-time constants as its caller decides; mypy cannot say which.

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import triton
import triton.language as tl

from kernels.triton.launch_checks import require_floats
from kernels.triton.primitives import LOG2_E
from kernels.triton.rows.tiles import place, programs_of, tile_of

if TYPE_CHECKING:
    import torch


LOWEST = tl.constexpr(-3.4028234663852886e38)
"""The least finite fp32, the start of running maxima: -inf minus an element of -inf would be NaN."""


@triton.jit
def _whole_rows(x_ptr, out_ptr, block, rows, columns, BLOCK_R: tl.constexpr, BLOCK_C: tl.constexpr):
    """Softmax of a block of rows that a program holds."""
    first, offsets, mask = place(block, 0, rows, columns, BLOCK_R, BLOCK_C, INSIDE=True)
    # Of a row past the end, all elements are -inf, and the result, which is not stored, is NaN.
    x = tl.load(x_ptr + first + offsets, mask=mask, other=float("-inf")).to(tl.float32)
    p = tl.exp2((x - tl.max(x, 1)[:, None]) * LOG2_E)
    p = p * (1.0 / tl.sum(p, 1))[:, None]
    tl.store(out_ptr + first + offsets, p.to(out_ptr.dtype.element_ty), mask=mask)


@triton.jit
def _walk_1(x_ptr, block, start, rows, columns, m_l, l_l, BLOCK_R: tl.constexpr, BLOCK_C: tl.constexpr):
    """m_l and l_l with one more tile: of exp(x - new) and exp(old - new), one is 1 and the other exp(-|x - old|)."""
    first, offsets, mask = place(block, start, rows, columns, BLOCK_R, BLOCK_C)
    x = tl.load(x_ptr + first + offsets, mask=mask, other=0.0, eviction_policy="evict_last").to(tl.float32)
    x = tl.where(mask, x, float("-inf"))
    power = tl.exp2(tl.abs(x - m_l) * -LOG2_E)
    return tl.maximum(m_l, x), tl.where(x > m_l, l_l * power + 1.0, l_l + power)


@triton.jit
def _joined(m_l, l_l):
    """Of all lanes: the maximum of a row, and 1 over the sum of its exponentials."""
    m = tl.max(m_l, 1)
    return m, 1.0 / tl.sum(l_l * tl.exp2((m_l - m[:, None]) * LOG2_E), 1)


@triton.jit
def _walk_2(
    x_ptr, out_ptr, block, start, rows, columns, m, scale, BLOCK_R: tl.constexpr, BLOCK_C: tl.constexpr
):  # fmt: skip
    """Write a tile of the result."""
    first, offsets, mask = place(block, start, rows, columns, BLOCK_R, BLOCK_C)
    x = tl.load(x_ptr + first + offsets, mask=mask, other=0.0, eviction_policy="evict_first").to(tl.float32)
    p = tl.exp2((x - m[:, None]) * LOG2_E) * scale[:, None]
    # Written past the cache, which is to keep the rows that are read again.
    tl.store(out_ptr + first + offsets, p.to(out_ptr.dtype.element_ty), mask=mask, cache_modifier=".cs")


@triton.jit
def softmax_kernel(
    x_ptr, out_ptr,  # (R, C), (R, C)
    rows, columns,
    ONE_PASS: tl.constexpr, BLOCK_R: tl.constexpr, BLOCK_C: tl.constexpr, PROGRAMS: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    """Softmax of blocks of BLOCK_R rows. Grid: (one program per block, or fewer with PROGRAMS,); tensors contiguous."""
    program = tl.program_id(0)
    programs = tl.num_programs(0)
    blocks = tl.cdiv(rows, BLOCK_R)
    tiles = tl.cdiv(columns, BLOCK_C)
    ahead: tl.constexpr = STAGES if x_ptr.dtype.element_ty.primitive_bitwidth == 16 else 1

    if ONE_PASS and PROGRAMS == 0:
        _whole_rows(x_ptr, out_ptr, program, rows, columns, BLOCK_R, BLOCK_C)
    elif ONE_PASS:
        for block in tl.range(program, blocks, programs, num_stages=ahead):
            _whole_rows(x_ptr, out_ptr, block, rows, columns, BLOCK_R, BLOCK_C)
    elif PROGRAMS == 0:
        m_l = tl.full([BLOCK_R, BLOCK_C], LOWEST, dtype=tl.float32)
        l_l = tl.zeros([BLOCK_R, BLOCK_C], dtype=tl.float32)
        for number in tl.range(0, tiles, num_stages=ahead):
            m_l, l_l = _walk_1(x_ptr, program, number * BLOCK_C, rows, columns, m_l, l_l, BLOCK_R, BLOCK_C)
        m, scale = _joined(m_l, l_l)
        for number in tl.range(0, tiles, num_stages=ahead):
            start = (tiles - 1 - number) * BLOCK_C
            _walk_2(x_ptr, out_ptr, program, start, rows, columns, m, scale, BLOCK_R, BLOCK_C)
    else:
        m = tl.zeros([BLOCK_R], dtype=tl.float32)
        scale = tl.zeros([BLOCK_R], dtype=tl.float32)
        for block in tl.range(program, blocks + programs, programs):
            before = tl.where(block < programs, blocks, block - programs)  # past the end, where there is none
            m_l = tl.full([BLOCK_R, BLOCK_C], LOWEST, dtype=tl.float32)
            l_l = tl.zeros([BLOCK_R, BLOCK_C], dtype=tl.float32)
            for number in tl.range(0, tiles, num_stages=ahead):
                m_l, l_l = _walk_1(x_ptr, block, number * BLOCK_C, rows, columns, m_l, l_l, BLOCK_R, BLOCK_C)
                start = (tiles - 1 - number) * BLOCK_C
                _walk_2(x_ptr, out_ptr, before, start, rows, columns, m, scale, BLOCK_R, BLOCK_C)
            m, scale = _joined(m_l, l_l)


def softmax(x: torch.Tensor, *, config: Mapping[str, Any]) -> torch.Tensor:
    """Computes the softmax of every row of x (R, C), contiguous, fp32, fp16 or bf16; returns (R, C) in x's dtype.

    `config` holds BLOCK_R, BLOCK_C, PROGRAMS and STAGES (see `tiles`), and the compiler's options. Raises
    UsageError for another x.
    """
    import torch

    require_floats("softmax", "x", x, dims=2)
    rows, columns = x.shape
    out = torch.empty_like(x)
    tile = tile_of(columns, config)
    softmax_kernel[(programs_of(x, tile),)](x, out, rows, columns, **tile)
    return out
