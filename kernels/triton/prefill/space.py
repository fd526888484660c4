"""The configuration spaces of the flash attention kernels, and the fp8 formats that they multiply."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kernels.configs import AMD_OPTIONS, Problem, Space
from pytest_attnperf.workloads.base import DTYPE_BYTES

if TYPE_CHECKING:
    from pytest_attnperf.workloads.prefill import Prefill

CONSTANTS = {"BLOCK_M": int, "BLOCK_N": int, "PRELOAD_V": bool, "GROUP_HEADS": int}
PROPERTIES = ("head_dim", "causal", "element_bits", "plain", "int8", "rows")
"""head_dim: the larger of D and Dv. element_bits: of k and v. plain: no window, ALiBi, bias, and D = Dv. int8: 'none',
or for int8 keys 'pv8', 'pv16' or 'kv8'. rows: B * H * Sq, the work to distribute over multiprocessors."""

FURTHER = AMD_OPTIONS | {"XCDS", "AS_READ"}
"""XCDS: XCDs for which blocks are ordered, so that the query heads of a K/V head share an L2 cache; 8 on CDNA3 and
CDNA4, left out elsewhere. AS_READ: 1 loads tiles the way round in which products
read them, see `tiles.load_key_columns`."""

SPACE = Space("prefill_forward", CONSTANTS, PROPERTIES, further=FURTHER)
PERSISTENT = Space("prefill_persistent", {**CONSTANTS, "PROGRAMS_PER_SM": int}, PROPERTIES, further=FURTHER)
OCP = frozenset({"f8e4m3", "f8e5m2"})
FNUZ = frozenset({"f8e4m3fnuz", "f8e5m2fnuz"})
FLOAT_8 = {"sm_89": OCP, "sm_90": OCP, "gfx942": FNUZ, "gfx950": OCP, "gfx1200": OCP, "gfx1201": OCP}
"""fp8 formats by the architecture whose matrix units multiply them: AMD's instruction set guides of CDNA3 ("MI300"),
CDNA4 and RDNA4, and NVIDIA's PTX manual (mma with .e4m3 and .e5m2)."""


def problem_of(workload: Prefill) -> Problem:
    """Returns the properties, name -> value, by which the rules of SPACE and of PERSISTENT are chosen."""
    plain = not (workload.window or workload.alibi or workload.bias) and workload.head_dim == workload.head_dim_v
    return {
        "head_dim": max(workload.head_dim, workload.head_dim_v),
        "causal": workload.causal,
        "element_bits": DTYPE_BYTES[workload.dtype] * 8,
        "plain": plain,
        "int8": (workload.int8 or "pv8") if workload.dtype == "i8" else "none",
        "rows": workload.batch * workload.heads * workload.seq_q,
    }
