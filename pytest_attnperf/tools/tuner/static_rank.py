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

What code objects say of candidates among each other: which are the same program, and which look light.

Unlike `pruning`, nothing here says that a candidate is bad.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeAlias

from pytest_attnperf.kernel_builds import KernelBuild, TritonSource
from pytest_attnperf.tools.tuner.compiling import CompiledCandidate
from pytest_attnperf.tuning_records import Candidate, Excluded, StaticFigures, Value

WAVES_ENOUGH = 2
"""Attention and GEMM kernels of both vendors are written for one to two waves per SIMD with all registers."""

SPILLS_STEP = 16
SHARE_STEP = 0.05
LDS_STEP = 0.25

NVIDIA_WAVES_ENOUGH = 3
"""Hopper's kernels: two consumer warp groups and a producer are three warps per sub-partition."""

UNKNOWN = float("inf")

Score: TypeAlias = tuple[float | str, ...]

SAME_CODE = "same code"

LIGHT_SCRATCH_BYTES = 128
"""Private memory per lane below which a kernel is tried before others. On an H200 the fastest of 152 configurations of
a flash kernel had 48 bytes, and every one with more than 128 took at least twice its time."""


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


def without_repeats(
    candidates: Sequence[Candidate],
    compiled: Mapping[str, CompiledCandidate],
    builds: Mapping[str, Sequence[KernelBuild]],
    default: Candidate,
) -> tuple[list[Candidate], list[Excluded]]:
    """Candidates that are different programs, the default among them, and the others with the one they repeat.

    Two are the same where every kernel has the same machine code, workgroup and LDS, and what they differ in can reach
    nothing but the compiler (see `_launched`): one that loads values ahead anyway makes the same of an option that asks
    for it. One whose code is not known is kept. `compiled` and `builds` are by candidate id.
    """
    kept: list[Candidate] = []
    excluded: list[Excluded] = []
    first: dict[tuple[object, ...], Candidate] = {}
    for candidate in sorted(candidates, key=lambda one: one.id != default.id):
        found = compiled.get(candidate.id, CompiledCandidate())
        program = _program(candidate, found, builds.get(candidate.id, ()))
        if program and program in first:
            excluded.append(Excluded(candidate, SAME_CODE, f"the machine code of {first[program].id}"))
        else:
            kept.append(candidate)
            if program:
                first[program] = candidate
    order = {candidate.id: at for at, candidate in enumerate(candidates)}
    return sorted(kept, key=lambda one: order[one.id]), excluded


def light(candidates: Sequence[Candidate], static: Mapping[str, StaticFigures]) -> frozenset[str]:
    """Ids of candidates that keep next to nothing in private memory; all where nothing is known of any."""
    found = {
        candidate.id
        for candidate in candidates
        if candidate.id in static and static[candidate.id].scratch_bytes <= LIGHT_SCRATCH_BYTES
    }
    return frozenset(found or {candidate.id for candidate in candidates})


def _program(candidate: Candidate, found: CompiledCandidate, builds: Sequence[KernelBuild]) -> tuple[object, ...]:
    """What a candidate's kernels and their launch are told apart by; empty where a kernel is not known."""
    if not found.codes or not all(code.isa_hash for code in found.codes):
        return ()
    codes = tuple((code.name, code.isa_hash, code.workgroup, code.lds_bytes) for code in found.codes)
    return (*codes, candidate.label, _launched(candidate, builds))


def _launched(candidate: Candidate, builds: Sequence[KernelBuild]) -> frozenset[tuple[str, Value]]:
    """Values that may change how the code is launched: a number of programs leaves the code alone, and a size of tiles
    makes the grid. Options of the compiler and switches of the kernel, which are no number, cannot.
    """
    sources = [build.source for build in builds if isinstance(build.source, TritonSource)]
    options = {name for source in sources for name in source.options}
    constants = {name for source in sources for name in source.constants}
    return frozenset(
        (name, value)
        for name, value in candidate.values.items()
        if name not in options and not (name in constants and isinstance(value, bool))
    )
