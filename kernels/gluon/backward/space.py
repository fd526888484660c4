"""The configuration space of `gluon.flash_backward`. No Triton is imported."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from kernels.configs import Problem, Space

if TYPE_CHECKING:
    from pytest_attnperf.workloads.backward import Backward
    from pytest_attnperf.workloads.varlen_backward import VarlenBackward

SINCE = {"sm_90": (3, 6)}
"""Architecture with a kernel -> the oldest Triton, (major, minor), that compiles it: each release was tried."""

HEAD_DIMS = (64, 128, 256)
"""A tile's rows are copied whole, in powers of two."""

SPACE = Space(
    "backward",
    {"BLOCK_M": int, "BLOCK_N": int, "SLOTS": int, "PAIRS": int},
    ("head_dim", "causal"),
    folder=Path(__file__).parents[1] / "configs",
    options=frozenset({"num_warps"}),
)


def problem_of(workload: Backward | VarlenBackward) -> Problem:
    """Returns the properties, name -> value, by which a rule of SPACE is chosen."""
    return {"head_dim": workload.head_dim, "causal": workload.causal}
