"""Shared by the kernels over rows (softmax, RMSNorm, LayerNorm): the tile of a launch, and rows plus a residual.

A configuration gives the tile of its largest rows, BLOCK_R rows of BLOCK_C columns. Shorter rows take as many columns
as they need, in powers of two, and more rows, so that a program always holds the same number of elements. Rows of more
than BLOCK_C columns are read twice in tiles of BLOCK_C: forwards for the row's divisor, then backwards for the result,
because a cache still holds the tiles that were read last.

    PROGRAMS    0: one program for every BLOCK_R rows. Otherwise that many programs per multiprocessor, p of P doing
                blocks p, p + P, p + 2 P ..., each of which walks over a block for the second time while it walks over
                the next for the first, so that memory is read and written at any time. The tiles of two such walks
                are as many as those of one row: while one grows in the cache, the other shrinks
    STAGES      stages of the loop that loads: over blocks where a program holds them, else over tiles. 1 loads what is
                needed next into registers; more have STAGES - 1 buffers in shared memory, of which one is worked on, so
                that from 3 on another is loaded meanwhile. Elements of 32 bits, and whole rows with a residual,
                are never staged: they would take twice the memory
"""

# mypy: disable-error-code="untyped-decorator, no-untyped-def"
# Parameters of a jit function are tensors or compile-time constants as its caller decides; mypy cannot say which.

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import triton
import triton.language as tl

from kernels.configs import pad_size

if TYPE_CHECKING:
    import torch


def tile_of(columns: int, config: Mapping[str, Any]) -> dict[str, Any]:
    """Returns `config`, a launch's constants and options, with BLOCK_R, BLOCK_C and ONE_PASS for rows of `columns`."""
    block_c = min(config["BLOCK_C"], pad_size(columns))
    block_r = config["BLOCK_R"] * (config["BLOCK_C"] // block_c)
    return {**config, "BLOCK_R": block_r, "BLOCK_C": block_c, "ONE_PASS": columns <= block_c}


def programs_of(x: torch.Tensor, tile: Mapping[str, Any]) -> int:
    """Returns the number of programs for x (R, C) in tiles of `tile_of`; the interpreter has one multiprocessor."""
    import torch

    blocks = int(triton.cdiv(x.shape[0], tile["BLOCK_R"]))
    if not tile["PROGRAMS"]:
        return blocks
    multiprocessors = torch.cuda.get_device_properties(x.device).multi_processor_count if x.is_cuda else 1
    return min(blocks, int(tile["PROGRAMS"]) * multiprocessors)


@triton.jit
def place(block, start, rows, columns, BLOCK_R: tl.constexpr, BLOCK_C: tl.constexpr, INSIDE: tl.constexpr = False):
    """Of a tile of a block of rows, from column `start` on: where it begins, offsets from there, and their mask.

    The first is one number, int64, so that a loop keeps one and not one for every element; the others are
    (BLOCK_R, BLOCK_C). INSIDE says that the block's first row is one of the tensor's.
    """
    row = tl.arange(0, BLOCK_R).to(tl.int64)[:, None]  # (BLOCK_R, 1)
    offs_c = tl.arange(0, BLOCK_C)[None, :]
    first_row = tl.full([], BLOCK_R, dtype=tl.int64) * block
    mask = start + offs_c < columns
    if BLOCK_R > 1 or not INSIDE:
        mask = (first_row + row < rows) & mask
    return first_row * columns + start, row * columns + offs_c, mask


@triton.jit
def load_rows(x_ptr, residual_ptr, sum_ptr, first, offsets, mask, RESIDUAL: tl.constexpr, KEEP: tl.constexpr = False):
    """A tile of x in fp32, 0 where the mask is false; with RESIDUAL of x + residual, rounded as it is stored in sum.

    With KEEP, what is read again is to stay in the cache.
    """
    keep: tl.constexpr = "evict_last" if KEEP and not RESIDUAL else ""
    x = tl.load(x_ptr + first + offsets, mask=mask, other=0.0, eviction_policy=keep).to(tl.float32)
    if RESIDUAL:
        residual = tl.load(residual_ptr + first + offsets, mask=mask, other=0.0).to(tl.float32)
        summed = (x + residual).to(sum_ptr.dtype.element_ty)
        tl.store(sum_ptr + first + offsets, summed, mask=mask)
        x = summed.to(tl.float32)
    return x


@triton.jit
def load_again(x_ptr, sum_ptr, first, offsets, mask, RESIDUAL: tl.constexpr):
    """The tile that `load_rows` gave, in the second walk over a row."""
    if RESIDUAL:
        return tl.load(sum_ptr + first + offsets, mask=mask, other=0.0, eviction_policy="evict_first").to(tl.float32)
    return tl.load(x_ptr + first + offsets, mask=mask, other=0.0, eviction_policy="evict_first").to(tl.float32)
