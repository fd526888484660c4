"""The configuration space of the kernel over transposed values."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kernels.configs import Problem, Space
from kernels.triton.prefill.space import FURTHER

if TYPE_CHECKING:
    from pytest_attnperf.workloads.prefill import Prefill

SPACE = Space("trans_v", {"BLOCK_M": int, "BLOCK_N": int, "PRELOAD_V": bool}, ("head_dim", "causal"), further=FURTHER)


def problem_of(workload: Prefill) -> Problem:
    """Returns the properties by which a rule is chosen."""
    return {"head_dim": workload.head_dim, "causal": workload.causal}
