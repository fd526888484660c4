"""The configuration space of `gluon.flash`, and the architectures that it has a kernel for. No Triton is imported."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from kernels.configs import Problem, Space

if TYPE_CHECKING:
    from pytest_attnperf.workloads.prefill import Prefill

SINCE = {"gfx950": (3, 8), "sm_90": (3, 6)}
"""Architecture with a kernel -> the oldest Triton, (major, minor), that compiles it: each release was tried."""

HEAD_DIMS = (64, 128, 256)
"""Of the tiles. Smaller heads are read with zeros behind them."""

SPACE = Space(
    "prefill",
    {"BLOCK_M": int, "BLOCK_N": int},
    ("head_dim",),
    folder=Path(__file__).parents[1] / "configs",
    options=frozenset({"num_warps"}),
)


def tile_head_dim(head_dim: int) -> int:
    """Returns the head dimension of the tiles that hold one of at most HEAD_DIMS[-1]."""
    return next(tile for tile in HEAD_DIMS if head_dim <= tile)


def head_dim_reasons(who: str, head_dim: int) -> list[str]:
    """Returns why a head dimension cannot be computed; empty if it can."""
    if head_dim > HEAD_DIMS[-1]:
        return [f"{who} takes head dimensions to {HEAD_DIMS[-1]}, the largest of its tiles, not {head_dim}"]
    return []


def problem_of(workload: Prefill) -> Problem:
    """Returns the property, name -> value, by which a rule of SPACE is chosen."""
    return {"head_dim": workload.head_dim}
