"""Inputs of an attention layer: ordinary ones, and regimes of values that are difficult for a kernel."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from pytest_attnperf.errors import WorkloadError
from pytest_attnperf.workloads import block_planting, paged_cache
from pytest_attnperf.workloads.base import TORCH_DTYPES
from pytest_attnperf.workloads.rope import make_tables

if TYPE_CHECKING:
    import torch

    from pytest_attnperf.backends import Tensors
    from pytest_attnperf.workloads.block import Block

BIAS_STD = 0.25
"""Standard deviation of biases, in units of what they are added to. Larger ones would make all keys of a head alike."""
OVERFLOW_VALUE = 50000.0
OVERFLOW_SPREAD = 2000.0
_OVERFLOW_CHANNEL = 64.0


class BlockInputs(NamedTuple):
    """The inputs of one `Block` by name; b_qkv and b_out are None without a bias. Shapes are those of `Block`."""

    x: torch.Tensor
    w_qkv: torch.Tensor
    w_out: torch.Tensor
    b_qkv: torch.Tensor | None
    b_out: torch.Tensor | None
    k_cache: torch.Tensor
    v_cache: torch.Tensor
    cos: torch.Tensor
    sin: torch.Tensor


@dataclass(frozen=True)
class Regime:
    """Standard deviations of normally distributed values.

    x          of the tokens
    q, k, v    of the parts of x w_qkv^T; the filled rows of the caches have those of k and v
    out        factor of w_out on a vector's standard deviation
    offset     mean of all values, the same for each; see `_offset_values`
    """

    x: float = 1.0
    q: float = 1.0
    k: float = 1.0
    v: float = 1.0
    out: float = 1.0
    offset: float = 0.0


HUGE = {"f16": 6000.0, "bf16": 2.0**100, "f32": 2.0**100}
"""Standard deviation of huge values: 5.5 times it, and sums of that size, are below the largest finite value. In bf16
and f32 weights that bring q and k back to 1 are then still above the smallest normal value."""
REGIMES = {
    "large": ("f32", "f16", "bf16"),
    "tiny": ("f32", "f16", "bf16"),
    "huge": ("f32", "f16", "bf16"),
    "equal": ("f32", "f16", "bf16"),
    "overflow": ("f16",),
}
"""Values that are difficult for a kernel, and the dtypes that they are for:

large      scores have a standard deviation of 40, so one key dominates most rows, and exp(score) overflows fp32
tiny       q, k and v are about twice f16's smallest normal value, 2^-14, in every dtype, and scores nearly 0
huge       x and v are as large as stays finite in every step, see HUGE; q and k are ordinary
equal      the rows of w_qkv and b_qkv that give q are 0, so all scores of a row are equal
overflow   all values are about 50000, so an f16 sum of them overflows before it is divided; w_out is small
"""


def regime_of(name: str, dtype: str) -> Regime:
    """Returns the standard deviations of the regime `name` of REGIMES in a dtype; '' gives ordinary values (all 1)."""
    huge = HUGE[dtype]
    regimes = {
        "": Regime(),
        "large": Regime(q=40.0),
        "tiny": Regime(x=2.0**-6, q=2.0**-13, k=2.0**-13, v=2.0**-13),
        "huge": Regime(x=huge, v=huge),
        "equal": Regime(q=0.0),
        "overflow": Regime(v=OVERFLOW_SPREAD, out=2.0**-8, offset=OVERFLOW_VALUE),
    }
    return regimes[name]


def require_regime(name: str, dtype: str) -> None:
    """Raises WorkloadError for a regime that does not exist, or that is not for this dtype; '' is always valid."""
    if name and name not in REGIMES:
        raise WorkloadError(f"block workload: regime must be one of {', '.join(REGIMES)}, or empty, got {name!r}")
    if name and dtype not in REGIMES[name]:
        raise WorkloadError(
            f"block workload: regime {name!r} is for dtype {', '.join(REGIMES[name])}, got {dtype}: nothing overflows "
            "there"
        )


def make_inputs(block: Block, seed: int, device: str, *, planted: bool) -> Tensors:
    """Makes the inputs of `block` on `device`; with `hostref` drawn on the CPU, so that they are the same everywhere. x
    and the filled rows of the caches are from N(0, 1) (rotated keys are as normal as others), w_qkv from N(0, 1 / E)
    and w_out from N(0, 1 / (H D)), so that q, k and v are N(0, 1); biases are from N(0, BIAS_STD^2)."""
    import torch

    drawn_on = "cpu" if block.hostref else device
    generator = torch.Generator(device=drawn_on).manual_seed(seed)
    dtype: torch.dtype = getattr(torch, TORCH_DTYPES[block.dtype])
    parts = _draw_inputs(block, generator, dtype)
    if planted and not block.regime:
        block_planting.plant_block(block, parts, seed)
    return tuple(tensor.to(device) for tensor in parts if tensor is not None)


def _draw_inputs(block: Block, generator: torch.Generator, dtype: torch.dtype) -> BlockInputs:
    import torch

    regime = regime_of(block.regime, block.dtype)

    def draw_normal(*shape: int, std: float, mean: float = 0.0) -> torch.Tensor:
        drawn = torch.randn(shape, generator=generator, device=generator.device)
        return drawn.mul_(std).add_(mean).to(dtype)

    x = draw_normal(block.batch, block.seq, block.hidden, std=regime.x)
    rows = [("q", block.heads), ("k", block.kv_heads), ("v", block.kv_heads)]
    stds = [(count * block.head_dim, getattr(regime, name)) for name, count in rows]
    per_weight = 1.0 / (regime.x * math.sqrt(block.hidden))
    w_qkv = torch.cat([draw_normal(count, block.hidden, std=std * per_weight) for count, std in stds])
    flat = block.heads * block.head_dim
    w_out = draw_normal(block.hidden, flat, std=regime.out / math.sqrt(flat))
    b_qkv = torch.cat([draw_normal(count, std=std * BIAS_STD) for count, std in stds]) if block.bias else None
    if regime.offset:
        _offset_values(block, x, w_qkv, regime.offset)
    past = (block.batch, block.past, block.kv_heads, block.head_dim)
    k_cache = _make_cache(block, draw_normal(*past, std=regime.k))
    v_cache = _make_cache(block, draw_normal(*past, std=regime.v, mean=regime.offset))
    b_out = draw_normal(block.hidden, std=regime.v * regime.out * BIAS_STD) if block.out_bias else None
    return BlockInputs(
        x, w_qkv, w_out, b_qkv, b_out, k_cache, v_cache, *make_tables(block.room, block.head_dim, x.device)
    )


def _offset_values(block: Block, x: torch.Tensor, w_qkv: torch.Tensor, offset: float) -> None:
    """Gives every element of v the mean `offset`, in place: channel 0 of every token becomes one constant, which only
    the rows of w_qkv for v read."""
    x[..., 0] = _OVERFLOW_CHANNEL
    first = (block.heads + block.kv_heads) * block.head_dim
    w_qkv[:first, 0] = 0.0
    w_qkv[first:, 0] = offset / _OVERFLOW_CHANNEL


def _make_cache(block: Block, filled: torch.Tensor) -> torch.Tensor:
    """Returns a cache (B, room, Hk, D): first `filled` (B, past, Hk, D), then POISON, a large finite value, in all
    other rows."""
    shape = (block.batch, block.room, block.kv_heads, block.head_dim)
    cache = filled.new_full(shape, paged_cache.POISON)
    cache[:, : block.past] = filled
    return cache
