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

ROW_BYTES = {"softmax": (2**16, 2**19), "rmsnorm": (2**16, 2**19), "layernorm": (2**14, 2**19)}
"""Kernel -> bytes of rows that are too short, for which triton.* is as fast or faster, and of the longest row.

LayerNorm gains from shorter rows than the others, because weight and bias, too, come from the L2 cache for every row.
The longest is that of 16 CTAs, the most that a cluster can have, with 32 KiB each.
"""

_CONSTANTS = {"SHARE": int, "SLICE": int, "SLOTS": int, "TURNS": int, "STREAM": bool, "maxnreg": int}
"""See `kernels.gluon.rows.sm_90`, and:

    TURNS     most rows for a cluster, unless there are fewer clusters than fit the device; 0 for as many as fit
    maxnreg   most registers of a thread, for Triton's compiler; 0 for as many as it likes
"""

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
