"""The configuration spaces of the kernels over rows."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kernels.configs import Problem, Space

if TYPE_CHECKING:
    from pytest_attnperf.workloads.row_shape import RowProblem

_CONSTANTS = {"BLOCK_R": int, "BLOCK_C": int, "PROGRAMS": int, "STAGES": int}
"""See `tiles`."""

_PROPERTIES = ("columns", "element_bits")
SOFTMAX = Space("softmax", _CONSTANTS, _PROPERTIES)
RMSNORM = Space("rmsnorm", _CONSTANTS, _PROPERTIES)
LAYERNORM = Space("layernorm", _CONSTANTS, _PROPERTIES)


def problem_of(workload: RowProblem) -> Problem:
    """Returns the properties by which a rule is chosen: 'columns' of a row, and 'element_bits'."""
    return {"columns": workload.columns, "element_bits": 8 * workload.element_bytes}
