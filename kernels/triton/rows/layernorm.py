"""LayerNorm over rows, optionally of a sum with a residual: the kernel and its launcher.

A row that fits the registers of one program is read once; its variance is the mean of (x - mean)^2. A longer one is
walked over twice; the second walk reads the sum with the residual where the first has stored it. Meanwhile every lane
keeps the mean and the squared differences of its own elements (Welford 1962), which are joined at the end (Chan, Golub
and LeVeque 1979), so that no difference of large sums is ever taken:

    mean_l   (BLOCK_R, BLOCK_C)    mean of a lane's elements so far, fp32
    m2_l     (BLOCK_R, BLOCK_C)    sum of (x - mean_l)^2 of a lane's elements so far, fp32
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
def _store_normalised(
    x, mean, scale, weight_ptr, bias_ptr, out_ptr, at, columns, first, offsets, mask, CACHE: tl.constexpr
):  # fmt: skip
    """Write a tile of the result: (x - mean) * scale * weight + bias. `at` (BLOCK_C,) are its columns."""
    weight = tl.load(weight_ptr + at, mask=at < columns, other=0.0).to(tl.float32)
    bias = tl.load(bias_ptr + at, mask=at < columns, other=0.0).to(tl.float32)
    out = (x - mean[:, None]) * scale[:, None] * weight[None, :] + bias[None, :]
    tl.store(out_ptr + first + offsets, out.to(out_ptr.dtype.element_ty), mask=mask, cache_modifier=CACHE)


@triton.jit
def _whole_rows(
    x_ptr, residual_ptr, weight_ptr, bias_ptr, out_ptr, sum_ptr, block, rows, columns, eps,
    RESIDUAL: tl.constexpr, BLOCK_R: tl.constexpr, BLOCK_C: tl.constexpr, PROGRAMS: tl.constexpr,
):  # fmt: skip
    """LayerNorm of a block of rows that a program holds."""
    at = tl.arange(0, BLOCK_C)
    first, offsets, mask = place(block, 0, rows, columns, BLOCK_R, BLOCK_C, INSIDE=True)
    x = load_rows(x_ptr, residual_ptr, sum_ptr, first, offsets, mask, RESIDUAL)
    mean = tl.sum(x, 1) / columns
    centred = tl.where((at < columns)[None, :], x - mean[:, None], 0.0)
    scale = tl.rsqrt(tl.sum(centred * centred, 1) / columns + eps)
    # Under a condition, if one that holds, no loop loads ahead: weights stay in the first-level cache, not in stages.
    if PROGRAMS == 0 or block * BLOCK_R < rows:
        _store_normalised(x, mean, scale, weight_ptr, bias_ptr, out_ptr, at, columns, first, offsets, mask, CACHE="")


@triton.jit
def _walk_1(
    x_ptr, residual_ptr, sum_ptr, block, number, rows, columns, mean_l, m2_l,
    RESIDUAL: tl.constexpr, BLOCK_R: tl.constexpr, BLOCK_C: tl.constexpr,
):  # fmt: skip
    """mean_l and m2_l with one more tile, that of `number`."""
    first, offsets, mask = place(block, number * BLOCK_C, rows, columns, BLOCK_R, BLOCK_C)
    x = load_rows(x_ptr, residual_ptr, sum_ptr, first, offsets, mask, RESIDUAL, KEEP=True)
    # Of a lane past the end of the row, the difference is 0, and so is what it adds.
    delta = tl.where(mask, x - mean_l, 0.0)
    mean_l += delta * (1.0 / (number + 1))
    return mean_l, m2_l + tl.where(mask, delta * (x - mean_l), 0.0)


@triton.jit
def _joined(mean_l, m2_l, columns, eps, BLOCK_C: tl.constexpr):
    """Of all lanes: the mean of a row, and 1 over its standard deviation."""
    count = ((columns - 1 - tl.arange(0, BLOCK_C)) // BLOCK_C + 1).to(tl.float32)[None, :]  # elements of a lane
    mean = tl.sum(mean_l * count, 1) / columns
    apart = mean_l - mean[:, None]
    return mean, tl.rsqrt(tl.sum(m2_l + apart * apart * count, 1) / columns + eps)


@triton.jit
def _walk_2(
    x_ptr, weight_ptr, bias_ptr, out_ptr, sum_ptr, block, start, rows, columns, mean, scale,
    RESIDUAL: tl.constexpr, BLOCK_R: tl.constexpr, BLOCK_C: tl.constexpr,
):  # fmt: skip
    """Write a tile of the result."""
    first, offsets, mask = place(block, start, rows, columns, BLOCK_R, BLOCK_C)
    x = load_again(x_ptr, sum_ptr, first, offsets, mask, RESIDUAL)
    at = start + tl.arange(0, BLOCK_C)
    # Written past the cache, which is to keep the rows that are read again.
    _store_normalised(x, mean, scale, weight_ptr, bias_ptr, out_ptr, at, columns, first, offsets, mask, CACHE=".cs")


@triton.jit
def layernorm_kernel(
    x_ptr, residual_ptr, weight_ptr, bias_ptr, out_ptr, sum_ptr,  # (R, C), (R, C), (C,), (C,), (R, C), (R, C)
    rows, columns, eps,
    RESIDUAL: tl.constexpr, ONE_PASS: tl.constexpr, BLOCK_R: tl.constexpr, BLOCK_C: tl.constexpr,
    PROGRAMS: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    """LayerNorm of blocks of BLOCK_R rows. Grid: (one program per block, or fewer with PROGRAMS,).

    All tensors are contiguous; residual and sum are given with RESIDUAL.
    """
    program = tl.program_id(0)
    programs = tl.num_programs(0)
    blocks = tl.cdiv(rows, BLOCK_R)
    tiles = tl.cdiv(columns, BLOCK_C)
    ahead: tl.constexpr = STAGES if x_ptr.dtype.element_ty.primitive_bitwidth == 16 else 1

    if ONE_PASS and PROGRAMS == 0:
        _whole_rows(
            x_ptr, residual_ptr, weight_ptr, bias_ptr, out_ptr, sum_ptr, program, rows, columns, eps,
            RESIDUAL, BLOCK_R, BLOCK_C, PROGRAMS,
        )  # fmt: skip
    elif ONE_PASS:
        for block in tl.range(program, blocks, programs, num_stages=1 if RESIDUAL else ahead):
            _whole_rows(
                x_ptr, residual_ptr, weight_ptr, bias_ptr, out_ptr, sum_ptr, block, rows, columns, eps,
                RESIDUAL, BLOCK_R, BLOCK_C, PROGRAMS,
            )  # fmt: skip
    elif PROGRAMS == 0:
        mean_l = tl.zeros([BLOCK_R, BLOCK_C], dtype=tl.float32)
        m2_l = tl.zeros([BLOCK_R, BLOCK_C], dtype=tl.float32)
        for number in tl.range(0, tiles, num_stages=ahead):
            mean_l, m2_l = _walk_1(
                x_ptr, residual_ptr, sum_ptr, program, number, rows, columns, mean_l, m2_l, RESIDUAL, BLOCK_R, BLOCK_C
            )
        mean, scale = _joined(mean_l, m2_l, columns, eps, BLOCK_C)
        tl.debug_barrier()  # the sums that other threads stored are read below
        for number in tl.range(0, tiles, num_stages=ahead):
            start = (tiles - 1 - number) * BLOCK_C
            _walk_2(
                x_ptr, weight_ptr, bias_ptr, out_ptr, sum_ptr, program, start, rows, columns, mean, scale,
                RESIDUAL, BLOCK_R, BLOCK_C,
            )  # fmt: skip
    else:
        mean = tl.zeros([BLOCK_R], dtype=tl.float32)
        scale = tl.zeros([BLOCK_R], dtype=tl.float32)
        for block in tl.range(program, blocks + programs, programs):
            before = tl.where(block < programs, blocks, block - programs)  # past the end, where there is none
            mean_l = tl.zeros([BLOCK_R, BLOCK_C], dtype=tl.float32)
            m2_l = tl.zeros([BLOCK_R, BLOCK_C], dtype=tl.float32)
            for number in tl.range(0, tiles, num_stages=ahead):
                mean_l, m2_l = _walk_1(
                    x_ptr, residual_ptr, sum_ptr, block, number, rows, columns, mean_l, m2_l, RESIDUAL, BLOCK_R, BLOCK_C
                )
                start = (tiles - 1 - number) * BLOCK_C
                _walk_2(
                    x_ptr, weight_ptr, bias_ptr, out_ptr, sum_ptr, before, start, rows, columns, mean, scale,
                    RESIDUAL, BLOCK_R, BLOCK_C,
                )  # fmt: skip
            mean, scale = _joined(mean_l, m2_l, columns, eps, BLOCK_C)
            tl.debug_barrier()  # the sums that other threads stored are read in the next turn


def layernorm(
    x: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor,
    residual: torch.Tensor | None = None,
    *,
    eps: float,
    config: Mapping[str, Any],
) -> tuple[torch.Tensor, torch.Tensor | None]:
    """Returns (norm of x or of x + residual, that sum or None): x, residual (R, C), weight, bias (C,), contiguous, one
    dtype.

    `config` holds BLOCK_R, BLOCK_C, PROGRAMS and STAGES (see `tiles`), and the compiler's options. Results are
    (R, C) in x's dtype, one of fp32, fp16 and bf16. Raises UsageError for other tensors.
    """
    import torch

    require_floats("layernorm", "x", x, dims=2)
    rows, columns = x.shape
    for name, tensor in (("weight", weight), ("bias", bias)):
        require_same("layernorm", name, tensor, x, shape=(columns,))
    if residual is not None:
        require_same("layernorm", "residual", residual, x)
    out = torch.empty_like(x)
    summed = torch.empty_like(x) if residual is not None else None
    tile = tile_of(columns, config)
    layernorm_kernel[(programs_of(x, tile),)](
        x, residual, weight, bias, out, summed, rows, columns, eps, RESIDUAL=residual is not None, **tile
    )
    return out, summed
