"""The configuration space of `gluon.flash_backward`. No Triton is imported."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from kernels.configs import Problem, Space
from kernels.gluon.prefill.space import tile_head_dim

if TYPE_CHECKING:
    from pytest_attnperf.workloads.backward import Backward
    from pytest_attnperf.workloads.varlen_backward import VarlenBackward

SINCE = {"sm_90": (3, 6)}
"""Architecture with a kernel -> the oldest Triton, (major, minor), that compiles it: each release was tried."""

SPACE = Space(
    "backward",
    {"BLOCK_M": int, "BLOCK_N": int, "SLOTS": int, "PAIRS": int},
    ("head_dim", "causal"),
    folder=Path(__file__).parents[1] / "configs",
    options=frozenset({"num_warps"}),
)


def problem_of(workload: Backward | VarlenBackward) -> Problem:
    """Returns the properties, name -> value, by which a rule of SPACE is chosen."""
    return {"head_dim": tile_head_dim(workload.head_dim), "causal": workload.causal}
