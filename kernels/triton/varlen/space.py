"""The configuration spaces of flash attention over packed sequences."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kernels.configs import Problem, Space
from kernels.triton.prefill.space import CONSTANTS, FURTHER
from pytest_attnperf.workloads.base import DTYPE_BYTES

if TYPE_CHECKING:
    from pytest_attnperf.workloads.varlen import Varlen

PROPERTIES = ("head_dim", "causal", "element_bits", "plain", "bias", "int8")
"""element_bits: of k and v. plain: no window, ALiBi, bias. int8: 'none', or for int8 keys 'pv8', 'pv16' or 'kv8'."""

SPACE = Space("varlen_forward", CONSTANTS, PROPERTIES, further=FURTHER)
PERSISTENT = Space("varlen_persistent", {**CONSTANTS, "PROGRAMS_PER_SM": int}, PROPERTIES)


def problem_of(workload: Varlen) -> Problem:
    """Returns the properties, name -> value, by which the rules of SPACE and of PERSISTENT are chosen."""
    return {
        "head_dim": workload.head_dim,
        "causal": workload.causal,
        "element_bits": DTYPE_BYTES[workload.dtype] * 8,
        "plain": not (workload.window or workload.alibi or workload.bias),
        "bias": workload.bias,
        "int8": (workload.int8 or "pv8") if workload.dtype == "i8" else "none",
    }
