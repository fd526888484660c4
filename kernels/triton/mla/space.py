"""The configuration spaces of the latent attention kernels, and the architectures that they exclude."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kernels.configs import Problem, Space
from pytest_attnperf.errors import UsageError
from pytest_attnperf.workloads.base import DTYPE_BYTES

if TYPE_CHECKING:
    from pytest_attnperf.workloads.mla import Mla

PREFILL = Space(
    "mla",
    {"BLOCK_M": int, "BLOCK_N": int, "BLOCK_D": int, "RELOAD": bool, "GRID_CU_MULTIP": int},
    ("latent_dim", "element_bits"),
    defaults={"GRID_CU_MULTIP": 0},
)
"""One kernel, for more than 8 queries per sequence; its blocks of rows are tokens of one head. GRID_CU_MULTIP: a
persistent grid of that many programs per compute unit; 0 for a program per block of rows."""

DECODE = Space(
    "mla_decode",
    {
        "BLOCK_M": int,
        "BLOCK_N": int,
        "BLOCK_T": int,
        "BLOCK_K": int,
        "BLOCK_V": int,
        "PROGRAMS": int,
        "MERGE_PARTS": int,
    },
    ("latent_dim", "element_bits", "rows"),
    defaults={"MERGE_PARTS": 0},
)
"""Three kernels, for up to 8 queries per sequence; rows are the (token, head) pairs of a sequence. MERGE_PARTS: with
more parts than these a fourth merges them; 0: never."""


def prefill_problem(workload: Mla) -> Problem:
    """Returns the properties by which a rule of PREFILL is chosen. Raises UsageError for a workload that DECODE's
    kernels compute."""
    if workload.is_decode:
        raise UsageError(
            f"{workload.id} has {workload.seq_q} queries per sequence, which mla_decode computes and not mla; choose "
            "workloads of more than 8 with --workload"
        )
    return {"latent_dim": workload.latent_dim, "element_bits": DTYPE_BYTES[workload.dtype] * 8}


def decode_problem(workload: Mla) -> Problem:
    """Returns the properties by which a rule of DECODE is chosen."""
    bits = DTYPE_BYTES[workload.dtype] * 8
    return {"latent_dim": workload.latent_dim, "element_bits": bits, "rows": workload.seq_q * workload.heads}


def too_few_registers(arch: str) -> list[str]:
    """Returns why the kernels are not offered on RDNA; empty for every other architecture.

    Compiled by Triton 3.9 in the smallest tiles, the attention kernels with a latent dimension of 512 spilled 120 to
    250 registers on gfx1201 and 820 to 1,400 on gfx1100.
    """
    if not arch.startswith(("gfx11", "gfx12")):
        return []
    return [
        f"{arch} has only 256 vector registers per wave; every wave holds a whole operand of 512 latent dimensions, "
        "which spills hundreds of registers"
    ]
