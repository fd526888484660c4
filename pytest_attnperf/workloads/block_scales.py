"""Weights in f8e4m3 with one fp32 scale for each block of 128 x 128, as DeepSeek-V3 stores them.

Element (i, j) of a weight is stored[i, j] * scale[i // 128, j // 128]; blocks at the end may be smaller
(`weight_dequant` in DeepSeek-V3's `inference/kernel.py`; arXiv:2412.19437, section 3.3.2).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_attnperf.workloads.base import TORCH_DTYPES
from pytest_attnperf.workloads.quantisation import FORMATS

if TYPE_CHECKING:
    import torch

BLOCK = 128
BLOCK_DTYPE = "f8e4m3"
"""Rows and columns that share a scale, and the workload dtype that weights are stored in."""


def count_blocks(shape: tuple[int, int]) -> tuple[int, int]:
    """Returns the shape of the scales of a weight (rows, columns)."""
    return -(-shape[0] // BLOCK), -(-shape[1] // BLOCK)


def quantise_blocks(weight: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Returns (stored, scale) of a weight (N, K) in fp32: `stored` f8e4m3 of its shape, `scale` fp32 of `count_blocks`.
    A scale is the block's largest magnitude / 448, or 1 for a block of zeros; quotients are rounded to nearest."""
    import torch

    rows, columns = count_blocks((weight.shape[0], weight.shape[1]))
    padded = weight.new_zeros(rows * BLOCK, columns * BLOCK)
    padded[: weight.shape[0], : weight.shape[1]] = weight
    limit = FORMATS[BLOCK_DTYPE].largest_finite
    scale = padded.view(rows, BLOCK, columns, BLOCK).abs().amax(dim=(1, 3)) / limit
    scale = torch.where(scale > 0, scale, torch.ones_like(scale))
    quotient = (weight / expand_scales(scale, weight.shape)).clamp_(-limit, limit)
    return quotient.to(getattr(torch, TORCH_DTYPES[BLOCK_DTYPE])), scale


def dequantise_blocks(stored: torch.Tensor, scale: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """Returns the weight (N, K) in `dtype`: stored * scale, in fp32 or, for fp64, in fp64, rounded once."""
    import torch

    wide = torch.promote_types(dtype, torch.float32)
    return (stored.to(wide) * expand_scales(scale.to(wide), stored.shape)).to(dtype)


def expand_scales(scale: torch.Tensor, shape: torch.Size) -> torch.Tensor:
    """Returns the scale of each element of a weight of `shape` (N, K), without waiting for a GPU."""
    rows, columns = scale.shape
    whole = scale[:, None, :, None].expand(rows, BLOCK, columns, BLOCK).reshape(rows * BLOCK, columns * BLOCK)
    return whole[: shape[0], : shape[1]]
