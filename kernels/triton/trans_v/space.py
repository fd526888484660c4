"""The configuration space of the kernel over transposed values."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kernels.configs import Problem, Space
from kernels.triton.prefill.space import FURTHER

if TYPE_CHECKING:
    from pytest_attnperf.workloads.prefill import Prefill

HEAD_DIMS = (64, 128)
"""Of the tiles. A smaller head dimension is padded to the next one."""

SPACE = Space("trans_v", {"BLOCK_M": int, "BLOCK_N": int, "PRELOAD_V": bool}, ("head_dim", "causal"), further=FURTHER)


def problem_of(workload: Prefill) -> Problem:
    """Returns the properties by which a rule is chosen; the head dimension is that of the tiles."""
    return {"head_dim": tile_head_dim(workload.head_dim), "causal": workload.causal}


def tile_head_dim(head_dim: int) -> int:
    """Returns the head dimension of the tiles that hold one of at most HEAD_DIMS[-1]."""
    return next((tile for tile in HEAD_DIMS if head_dim <= tile), head_dim)
