"""The configuration space of flash attention over packed sequences."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kernels.configs import Problem, Space
from kernels.triton.prefill.space import CONSTANTS
from pytest_attnperf.workloads.base import DTYPE_BYTES

if TYPE_CHECKING:
    from pytest_attnperf.workloads.varlen import Varlen

SPACE = Space("varlen_forward", CONSTANTS, ("head_dim", "causal", "element_bits", "plain"))
"""plain: no window and no ALiBi."""


def problem_of(workload: Varlen) -> Problem:
    """Returns the properties, name -> value, by which a rule is chosen."""
    return {
        "head_dim": workload.head_dim,
        "causal": workload.causal,
        "element_bits": DTYPE_BYTES[workload.dtype] * 8,
        "plain": not (workload.window or workload.alibi),
    }
