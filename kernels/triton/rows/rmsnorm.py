"""RMSNorm over rows, optionally of a sum with a residual: the kernel and its launcher.

A row that fits the registers of one program is read once. A longer one is walked over twice; the second walk reads the
sum with the residual where the first has stored it. What is kept meanwhile:

    acc   (BLOCK_R, BLOCK_C)    sum of the squares of each lane's elements, fp32
"""

# mypy: disable-error-code="untyped-decorator, no-untyped-def"
# Parameters of a jit function are tensors or compile-time constants as its caller decides; mypy cannot say which.

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import triton
import triton.language as tl

from kernels.triton.launch_checks import require_floats, require_same
from kernels.triton.rows.tiles import load_again, load_rows, place, programs_of, tile_of

if TYPE_CHECKING:
    import torch


@triton.jit
def _whole_rows(
    x_ptr, residual_ptr, weight_ptr, out_ptr, sum_ptr, block, rows, columns, eps,
    RESIDUAL: tl.constexpr, BLOCK_R: tl.constexpr, BLOCK_C: tl.constexpr, PROGRAMS: tl.constexpr,
):  # fmt: skip
    """RMSNorm of a block of rows that a program holds."""
    at = tl.arange(0, BLOCK_C)
    first, offsets, mask = place(block, 0, rows, columns, BLOCK_R, BLOCK_C, INSIDE=True)
    x = load_rows(x_ptr, residual_ptr, sum_ptr, first, offsets, mask, RESIDUAL)
    scale = tl.rsqrt(tl.sum(x * x, 1) / columns + eps)
    # Under a condition, if one that holds, no loop loads ahead: weights stay in the first-level cache, not in stages.
    if PROGRAMS == 0 or block * BLOCK_R < rows:
        weight = tl.load(weight_ptr + at, mask=at < columns, other=0.0).to(tl.float32)
        tl.store(
            out_ptr + first + offsets, (x * scale[:, None] * weight[None, :]).to(out_ptr.dtype.element_ty), mask=mask
        )


@triton.jit
def _walk_1(
    x_ptr, residual_ptr, sum_ptr, block, start, rows, columns, acc,
    RESIDUAL: tl.constexpr, BLOCK_R: tl.constexpr, BLOCK_C: tl.constexpr,
):  # fmt: skip
    """`acc` with the squares of one more tile."""
    first, offsets, mask = place(block, start, rows, columns, BLOCK_R, BLOCK_C)
    x = load_rows(x_ptr, residual_ptr, sum_ptr, first, offsets, mask, RESIDUAL, KEEP=True)
    return acc + x * x


@triton.jit
def _walk_2(
    x_ptr, weight_ptr, out_ptr, sum_ptr, block, start, rows, columns, scale,
    RESIDUAL: tl.constexpr, BLOCK_R: tl.constexpr, BLOCK_C: tl.constexpr,
):  # fmt: skip
    """Write a tile of the result."""
    first, offsets, mask = place(block, start, rows, columns, BLOCK_R, BLOCK_C)
    at = start + tl.arange(0, BLOCK_C)
    weight = tl.load(weight_ptr + at, mask=at < columns, other=0.0).to(tl.float32)
    x = load_again(x_ptr, sum_ptr, first, offsets, mask, RESIDUAL)
    out = (x * scale[:, None] * weight[None, :]).to(out_ptr.dtype.element_ty)
    # Written past the cache, which is to keep the rows that are read again.
    tl.store(out_ptr + first + offsets, out, mask=mask, cache_modifier=".cs")


@triton.jit
def rmsnorm_kernel(
    x_ptr, residual_ptr, weight_ptr, out_ptr, sum_ptr,  # (R, C), (R, C), (C,), (R, C), (R, C)
    rows, columns, eps,
    RESIDUAL: tl.constexpr, ONE_PASS: tl.constexpr, BLOCK_R: tl.constexpr, BLOCK_C: tl.constexpr,
    PROGRAMS: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    """RMSNorm of blocks of BLOCK_R rows. Grid: (one program per block, or fewer with PROGRAMS,).

    All tensors are contiguous; residual and sum are given with RESIDUAL.
    """
    program = tl.program_id(0)
    programs = tl.num_programs(0)
    blocks = tl.cdiv(rows, BLOCK_R)
    tiles = tl.cdiv(columns, BLOCK_C)
    ahead: tl.constexpr = STAGES if x_ptr.dtype.element_ty.primitive_bitwidth == 16 else 1

    if ONE_PASS and PROGRAMS == 0:
        _whole_rows(
            x_ptr, residual_ptr, weight_ptr, out_ptr, sum_ptr, program, rows, columns, eps,
            RESIDUAL, BLOCK_R, BLOCK_C, PROGRAMS,
        )  # fmt: skip
    elif ONE_PASS:
        for block in tl.range(program, blocks, programs, num_stages=1 if RESIDUAL else ahead):
            _whole_rows(
                x_ptr, residual_ptr, weight_ptr, out_ptr, sum_ptr, block, rows, columns, eps,
                RESIDUAL, BLOCK_R, BLOCK_C, PROGRAMS,
            )  # fmt: skip
    elif PROGRAMS == 0:
        acc = tl.zeros([BLOCK_R, BLOCK_C], dtype=tl.float32)
        for number in tl.range(0, tiles, num_stages=ahead):
            start = number * BLOCK_C
            acc = _walk_1(x_ptr, residual_ptr, sum_ptr, program, start, rows, columns, acc, RESIDUAL, BLOCK_R, BLOCK_C)
        scale = tl.rsqrt(tl.sum(acc, 1) / columns + eps)
        tl.debug_barrier()  # the sums that other threads stored are read below
        for number in tl.range(0, tiles, num_stages=ahead):
            start = (tiles - 1 - number) * BLOCK_C
            _walk_2(
                x_ptr, weight_ptr, out_ptr, sum_ptr, program, start, rows, columns, scale, RESIDUAL, BLOCK_R, BLOCK_C
            )
    else:
        scale = tl.zeros([BLOCK_R], dtype=tl.float32)
        for block in tl.range(program, blocks + programs, programs):
            before = tl.where(block < programs, blocks, block - programs)  # past the end, where there is none
            acc = tl.zeros([BLOCK_R, BLOCK_C], dtype=tl.float32)
            for number in tl.range(0, tiles, num_stages=ahead):
                start = number * BLOCK_C
                acc = _walk_1(
                    x_ptr, residual_ptr, sum_ptr, block, start, rows, columns, acc, RESIDUAL, BLOCK_R, BLOCK_C
                )
                start = (tiles - 1 - number) * BLOCK_C
                _walk_2(
                    x_ptr, weight_ptr, out_ptr, sum_ptr, before, start, rows, columns, scale, RESIDUAL, BLOCK_R, BLOCK_C
                )
            scale = tl.rsqrt(tl.sum(acc, 1) / columns + eps)
            tl.debug_barrier()  # the sums that other threads stored are read in the next turn


def rmsnorm(
    x: torch.Tensor,
    weight: torch.Tensor,
    residual: torch.Tensor | None = None,
    *,
    eps: float,
    config: Mapping[str, Any],
) -> tuple[torch.Tensor, torch.Tensor | None]:
    """Returns (norm of x or of x + residual, that sum or None): x, residual (R, C), weight (C,), contiguous, one dtype.

    `config` holds BLOCK_R, BLOCK_C, PROGRAMS and STAGES (see `tiles`), and the compiler's options. Results are
    (R, C) in x's dtype, one of fp32, fp16 and bf16. Raises UsageError for other tensors.
    """
    import torch

    require_floats("rmsnorm", "x", x, dims=2)
    rows, columns = x.shape
    require_same("rmsnorm", "weight", weight, x, shape=(columns,))
    if residual is not None:
        require_same("rmsnorm", "residual", residual, x)
    out = torch.empty_like(x)
    summed = torch.empty_like(x) if residual is not None else None
    tile = tile_of(columns, config)
    rmsnorm_kernel[(programs_of(x, tile),)](
        x, residual, weight, out, summed, rows, columns, eps, RESIDUAL=residual is not None, **tile
    )
    return out, summed
