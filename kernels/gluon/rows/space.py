"""The configuration spaces of `gluon.softmax`, `gluon.rmsnorm` and `gluon.layernorm`. No Triton is imported."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from kernels.configs import Problem, Space

if TYPE_CHECKING:
    from pytest_attnperf.workloads.row_shape import RowProblem

SINCE = {"sm_90": (3, 6)}
"""Architecture with a kernel -> the oldest Triton, (major, minor), that compiles it."""

VECTOR_BYTES = 16
"""Rows are copied in pieces of this size."""

ROW_BYTES = (2**15, 2**18)
"""Bytes of the shortest and the longest row: shorter ones fit the registers of one program of triton.*; longer ones
would need clusters of more than 8 CTAs, which is the most that CUDA promises everywhere."""

_CONSTANTS = {"SHARE": int, "SLICE": int, "SLOTS": int, "HOLD": bool, "TURNS": int}
"""See `kernels.gluon.rows.sm_90`; TURNS is how many rows a cluster does."""

_PROPERTIES = ("columns", "element_bits", "residual")
_FOLDER = Path(__file__).parents[1] / "configs"
_OPTIONS = frozenset({"num_warps"})

SOFTMAX = Space("softmax", _CONSTANTS, _PROPERTIES, folder=_FOLDER, options=_OPTIONS)
RMSNORM = Space("rmsnorm", _CONSTANTS, _PROPERTIES, folder=_FOLDER, options=_OPTIONS)
LAYERNORM = Space("layernorm", _CONSTANTS, _PROPERTIES, folder=_FOLDER, options=_OPTIONS)


def problem_of(workload: RowProblem) -> Problem:
    """Returns the properties by which a rule is chosen: 'columns' of a row, 'element_bits', and 'residual'."""
    return {
        "columns": workload.columns,
        "element_bits": 8 * workload.element_bytes,
        "residual": bool(getattr(workload, "residual", False)),
    }
