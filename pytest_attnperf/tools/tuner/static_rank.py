"""An order in which to time candidates of a GPU that is not here, from their code objects alone. Nothing is timed.

What a code object cannot say (how well loads are hidden, how many workgroups a problem gives, caches) decides most
close races, so this is an order for trying, no verdict. First comes what costs most when it is wrong:

1. spills: registers kept in memory, and private memory per lane, by powers of two; up to 15 registers are none;
2. the share of matrix instructions among all instructions of loops, in steps of 5 %: more is better. Instructions count
   alike whatever they multiply, which flatters small ones: on Hopper a tile of 32 rows by HMMA beside one by HGMMA;
3. LDS instructions per matrix instruction in loops, in steps of a quarter: fewer is better;
4. waves per SIMD up to `WAVES_ENOUGH`: one wave hides nothing, more than a few hide little more;
5. registers: fewer leave room;
6. the size of the code, and the candidate's name, so that the order is always the same.

Where a figure is not known (code that was not disassembled), the candidate comes behind those where it is.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias

from pytest_attnperf.tuning_records import Candidate, StaticFigures

WAVES_ENOUGH = 2
"""Attention and GEMM kernels of both vendors are written for one to two waves per SIMD with all registers."""

SPILLS_STEP = 16
SHARE_STEP = 0.05
LDS_STEP = 0.25

NVIDIA_WAVES_ENOUGH = 3
"""Hopper's kernels: two consumer warp groups and a producer are three warps per sub-partition."""

UNKNOWN = float("inf")

Score: TypeAlias = tuple[float | str, ...]


def rank(static: Mapping[Candidate, StaticFigures], arch: str) -> list[Candidate]:
    """Candidates, what to time first in front."""
    enough = NVIDIA_WAVES_ENOUGH if arch.startswith("sm_") else WAVES_ENOUGH
    return sorted(static, key=lambda candidate: (*score(static[candidate], enough), candidate.id))


def score(figures: StaticFigures, waves_enough: int = WAVES_ENOUGH) -> Score:
    """What candidates are compared by, smaller first; the steps of the module's text in order."""
    occupancy = UNKNOWN if figures.occupancy is None else -min(float(figures.occupancy), float(waves_enough))
    return (
        float((max(figures.spills or 0, figures.scratch_bytes // 4) // SPILLS_STEP).bit_length()),
        _matrix_share(figures),
        _lds_per_matrix(figures),
        occupancy,
        float(figures.registers),
        float(figures.code_bytes),
    )


def _matrix_share(figures: StaticFigures) -> float:
    if figures.matrix is None or not figures.loop_instructions:
        return UNKNOWN
    return -round(figures.matrix / figures.loop_instructions / SHARE_STEP)


def _lds_per_matrix(figures: StaticFigures) -> float:
    if not figures.matrix or figures.loop_lds is None:
        return UNKNOWN
    return round(figures.loop_lds / figures.matrix / LDS_STEP)
