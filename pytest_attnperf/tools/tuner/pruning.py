"""Excludes candidates whose code objects show that they cannot run, or are not worth timing. The default is never
excluded.

Rules that compare use the default's own objects, build by build: what the default does, too, is no fault. If a
candidate was not compiled or its objects cannot be read, it is kept.

Also ranks candidates without their GPU, finds repeats of one program, and finds candidates with little private memory.
The rank is an order for trying, not a verdict. A code object does not show how many workgroups a problem gives, or what
caches hold. For CDNA2 to CDNA4, whose key loops `codeobject.issue_model` estimates (+-30 %), the criterion is the
fewest estimated cycles per key without spills: any spill comes behind, by powers of two. Cycles per key and row are
compared as the share of the matrix units' peak: a key of a row costs all candidates equally many operations.

Elsewhere, and between equals, the criteria are, most costly first:
1. spills: registers kept in memory, and private memory per lane, by powers of two; up to 15 registers count as none;
2. the share of matrix instructions among all instructions of loops, in steps of 5 %: more is better. All matrix
   instructions count alike, which favours small ones: on Hopper a tile of 32 rows by HMMA over one by HGMMA;
3. LDS instructions per matrix instruction in loops, in steps of a quarter: fewer is better;
4. waves per SIMD up to `WAVES_ENOUGH`: one wave hides no latency, more than a few hide little more;
5. registers: fewer is better;
6. the size of the code, then the candidate's name, so that the order is always the same.
If a figure is not known (code that was not disassembled), the candidate comes after those whose figure is known.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from pytest_attnperf.codeobject.arch import lds_limit_bytes
from pytest_attnperf.codeobject.issue_model import ESTIMATED
from pytest_attnperf.codeobject.nvidia_occupancy import nvidia_occupancy_of
from pytest_attnperf.codeobject.occupancy import occupancy_of
from pytest_attnperf.errors import CodeObjectError, UsageError
from pytest_attnperf.kernel_builds import KernelBuild, TritonSource
from pytest_attnperf.records.code import KernelCode, Occupancy
from pytest_attnperf.tools.tuner.compiling import CompiledCandidate
from pytest_attnperf.tuning_records import Candidate, Excluded, StaticFigures, Value

COMPILE = "compile"
CODE_OBJECT = "code object"

REASONS_SHOWN = 6

WAVES_ENOUGH = 2
"""Waves per SIMD that suffice: attention and GEMM kernels are written for one to two waves with all registers."""

SPILLS_STEP = 16
SHARE_STEP = 0.05
LDS_STEP = 0.25

NVIDIA_WAVES_ENOUGH = 3
"""Warps per sub-partition that suffice on Hopper: two consumer warp groups and a producer."""

UNKNOWN = float("inf")

Score: TypeAlias = tuple[float | str, ...]

SAME_CODE = "same code"

LIGHT_SCRATCH_BYTES = 128
"""Most private memory per lane of a kernel that is tried before others. On an H200 the fastest of 152 configurations of
a flash kernel had 48 bytes, and every one with more than 128 took at least twice its time."""


@dataclass(frozen=True)
class PruneRules:
    """Limits beyond which a code object is not worth timing. Timing costs only a second, so only clearly bad ones are
    excluded.

    A few spilled registers may lie outside of all loops and cost nothing.
    spill_registers   spilled registers allowed beyond the default's; at least `spill_factor` times the default's
    scratch_bytes     private memory per lane allowed beyond the default's; at least `spill_factor` times the default's
    """

    spill_registers: int = 16
    scratch_bytes: int = 64
    spill_factor: float = 1.5


def static_figures(codes: Sequence[KernelCode]) -> StaticFigures:
    """Returns the worst value of each figure over several kernels; matrix and LDS instructions are summed.

    Raises ValueError for no kernels."""
    if not codes:
        raise ValueError("figures need at least one kernel, got none")
    occupancies = [found.waves_per_simd for code in codes if (found := _possible_occupancy(code)) is not None]
    decoded = not any(code.undecoded or not code.instructions for code in codes)
    return StaticFigures(
        registers=max(code.unified_vgprs for code in codes),
        spills=max((code.vgpr_spills for code in codes if code.vgpr_spills is not None), default=None),
        scratch_bytes=max(code.scratch_bytes for code in codes),
        lds_bytes=max(code.lds_bytes for code in codes),
        occupancy=min(occupancies) if len(occupancies) == len(codes) else None,
        matrix=sum(code.in_loops.get("matrix", 0) for code in codes) if decoded else None,
        code_bytes=max(code.code_bytes for code in codes),
        loop_instructions=sum(sum(code.in_loops.values()) for code in codes) if decoded else None,
        loop_lds=sum(_count_lds_instructions(code) for code in codes) if decoded else None,
        peak_share=min((code.key_loop.peak_share for code in codes if code.key_loop), default=None),
        repeated=max((code.key_loop.repeated for code in codes if code.key_loop), default=1.0),
    )


def prune_candidates(
    candidates: Iterable[Candidate],
    compiled: Mapping[str, CompiledCandidate],
    default: Candidate,
    rules: PruneRules = PruneRules(),
) -> tuple[list[Candidate], list[Excluded]]:
    """Returns the candidates worth timing, including the default, and the others with their reasons.

    `compiled` is by candidate id; a candidate that is not in it is kept. Raises UsageError, with the reasons counted,
    if only the default is left of several."""
    known = compiled.get(default.id, CompiledCandidate()).codes
    kept, excluded = [], []
    for candidate in candidates:
        found = compiled.get(candidate.id, CompiledCandidate())
        fault = None if candidate.id == default.id else _find_fault(found, known, rules)
        if fault is None:
            kept.append(candidate)
        else:
            static = static_figures(found.codes) if found.codes else None
            excluded.append(Excluded(candidate, *fault, static))
    if excluded and not any(candidate.id != default.id for candidate in kept):
        raise UsageError(
            f"no candidate is worth timing: {_describe_excluded(excluded)}; only the default is left, so there "
            f"is nothing to "
            "tune. Widen the space, or try another default"
        )
    return kept, excluded


def _find_fault(found: CompiledCandidate, default: Sequence[KernelCode], rules: PruneRules) -> tuple[str, str] | None:
    """Returns stage ('compile' or 'code object') and reason for excluding a candidate; None if it is worth timing."""
    if found.failure:
        return COMPILE, f"does not compile: {found.failure}"
    for index, code in enumerate(found.codes):
        own = default[index] if len(default) == len(found.codes) else None
        for rule in _RULES:
            if reason := rule(code, own, rules):
                return CODE_OBJECT, reason
    return None


def _reason_too_much_lds(code: KernelCode, default: KernelCode | None, rules: PruneRules) -> str:
    try:
        limit = lds_limit_bytes(code.arch)
    except CodeObjectError:
        return ""
    if code.lds_bytes <= limit:
        return ""
    return f"{code.lds_bytes:,} bytes of LDS, and a workgroup of {code.arch} can have {limit:,}: no launch succeeds"


def _reason_fits_nowhere(code: KernelCode, default: KernelCode | None, rules: PruneRules) -> str:
    try:
        found = _compute_occupancy(code)
    except CodeObjectError as error:
        return f"no launch succeeds: {error}"
    if found is None or found.fits:
        return ""
    return f"no workgroup of {code.workgroup} threads with {code.unified_vgprs} registers each fits: no launch succeeds"


def _reason_spills(code: KernelCode, default: KernelCode | None, rules: PruneRules) -> str:
    if default is None or code.vgpr_spills is None or default.vgpr_spills is None:
        return ""
    borne = max(default.vgpr_spills + rules.spill_registers, int(default.vgpr_spills * rules.spill_factor))
    if code.vgpr_spills <= borne:
        return ""
    return f"{code.vgpr_spills} registers are spilled to memory; the default spills {default.vgpr_spills}"


def _reason_scratch(code: KernelCode, default: KernelCode | None, rules: PruneRules) -> str:
    if default is None:
        return ""
    borne = max(default.scratch_bytes + rules.scratch_bytes, int(default.scratch_bytes * rules.spill_factor))
    if code.scratch_bytes <= borne:
        return ""
    return f"{code.scratch_bytes} bytes of private memory per lane (spills); the default has {default.scratch_bytes}"


def _reason_no_matrix(code: KernelCode, default: KernelCode | None, rules: PruneRules) -> str:
    if default is None or code.undecoded or not code.instructions:
        return ""
    if not default.instructions.get("matrix", 0) or code.instructions.get("matrix", 0):
        return ""
    return f"no matrix instruction; the default has {default.instructions['matrix']}"


_Rule = Callable[[KernelCode, "KernelCode | None", PruneRules], str]
_RULES: tuple[_Rule, ...] = (
    _reason_too_much_lds,
    _reason_fits_nowhere,
    _reason_spills,
    _reason_scratch,
    _reason_no_matrix,
)


def _compute_occupancy(code: KernelCode) -> Occupancy | None:
    """Returns how many waves fit a SIMD (on NVIDIA warps a sub-partition); None if the architecture is not known."""
    return occupancy_of(code) or nvidia_occupancy_of(code)


def _possible_occupancy(code: KernelCode) -> Occupancy | None:
    """Returns how many waves fit a SIMD; None if the architecture is not known, or for resources that no kernel of it
    can have."""
    try:
        return _compute_occupancy(code)
    except CodeObjectError:
        return None


def _count_lds_instructions(code: KernelCode) -> int:
    return sum(count for name, count in code.in_loops.items() if name.startswith(("lds_read", "lds_write")))


def _describe_excluded(excluded: Sequence[Excluded]) -> str:
    """Returns '15 excluded: 12 (does not compile: ...); 3 (...)': the most frequent kinds of reason, each with one
    example."""
    kinds = Counter(_kind_of_reason(one) for one in excluded)
    examples = {_kind_of_reason(one): one.reason for one in reversed(excluded)}
    told = [f"{count} ({examples[kind]})" for kind, count in kinds.most_common(REASONS_SHOWN)]
    return f"{len(excluded)} excluded: " + "; ".join(told)


def _kind_of_reason(one: Excluded) -> str:
    """Returns an exclusion's stage and the part of its reason before the first ':', with digits removed, so that
    exclusions that differ only in figures count as one kind."""
    return one.stage + "".join(letter for letter in one.reason.partition(":")[0] if not letter.isdigit())


def rank(static: Mapping[Candidate, StaticFigures], arch: str) -> list[Candidate]:
    """Returns the candidates in the order in which to time them: by `score`, most promising first, then by id."""
    enough = NVIDIA_WAVES_ENOUGH if arch.startswith("sm_") else WAVES_ENOUGH
    return sorted(static, key=lambda candidate: (*score(static[candidate], enough), candidate.id))


def describe_criterion(static: Iterable[StaticFigures]) -> str:
    """Returns what `rank` orders these by, as text for a summary."""
    if any(figures.peak_share is not None for figures in static):
        return f"fewest cycles per key without spills, {ESTIMATED}"
    return "spills, share of matrix instructions, LDS instructions, waves per SIMD, registers"


def score(figures: StaticFigures, waves_enough: int = WAVES_ENOUGH) -> Score:
    """Returns a candidate's sort key, smaller is better: spills, estimated cycles per key, share of matrix
    instructions, LDS instructions per matrix instruction, waves per SIMD up to `waves_enough`, registers, code size."""
    step = SPILLS_STEP if figures.peak_share is None else 1
    occupancy = UNKNOWN if figures.occupancy is None else -min(float(figures.occupancy), float(waves_enough))
    return (
        float((max(figures.spills or 0, figures.scratch_bytes // 4) // step).bit_length()),
        UNKNOWN if figures.peak_share is None else -figures.peak_share,
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


def split_repeats(
    candidates: Sequence[Candidate],
    compiled: Mapping[str, CompiledCandidate],
    builds: Mapping[str, Sequence[KernelBuild]],
    default: Candidate,
) -> tuple[list[Candidate], list[Excluded]]:
    """Returns the candidates that are different programs, including the default, and the repeats, each with a reason
    that names the candidate whose program it repeats.

    Two are the same if every kernel has the same machine code, workgroup and LDS, and their other values can only
    affect the compiler (see `_launch_values`): the compiler may give equal code for different options. A candidate
    whose code is not known is kept. `compiled` and `builds` are by candidate id."""
    kept: list[Candidate] = []
    excluded: list[Excluded] = []
    first: dict[tuple[object, ...], Candidate] = {}
    for candidate in sorted(candidates, key=lambda one: one.id != default.id):
        found = compiled.get(candidate.id, CompiledCandidate())
        program = _program_key(candidate, found, builds.get(candidate.id, ()))
        if program and program in first:
            excluded.append(Excluded(candidate, SAME_CODE, f"the machine code of {first[program].id}"))
        else:
            kept.append(candidate)
            if program:
                first[program] = candidate
    order = {candidate.id: at for at, candidate in enumerate(candidates)}
    return sorted(kept, key=lambda one: order[one.id]), excluded


def find_light_candidates(candidates: Sequence[Candidate], static: Mapping[str, StaticFigures]) -> frozenset[str]:
    """Returns the ids of candidates whose kernels have at most LIGHT_SCRATCH_BYTES of private memory per thread; all
    ids if no candidate is known to have so little."""
    found = {
        candidate.id
        for candidate in candidates
        if candidate.id in static and static[candidate.id].scratch_bytes <= LIGHT_SCRATCH_BYTES
    }
    return frozenset(found or {candidate.id for candidate in candidates})


def _program_key(candidate: Candidate, found: CompiledCandidate, builds: Sequence[KernelBuild]) -> tuple[object, ...]:
    """Returns a key that is equal for candidates with equal programs and launches; empty if a kernel's code is not
    known."""
    if not found.codes or not all(code.isa_hash for code in found.codes):
        return ()
    codes = tuple((code.name, code.isa_hash, code.workgroup, code.lds_bytes) for code in found.codes)
    return (*codes, candidate.label, _launch_values(candidate, builds))


def _launch_values(candidate: Candidate, builds: Sequence[KernelBuild]) -> frozenset[tuple[str, Value]]:
    """Returns the candidate's (name, value) pairs that may change the launch, e.g. a tile size that determines the
    grid. Compiler options and boolean switches of the kernel cannot change it, and are left out."""
    sources = [build.source for build in builds if isinstance(build.source, TritonSource)]
    options = {name for source in sources for name in source.options}
    constants = {name for source in sources for name in source.constants}
    return frozenset(
        (name, value)
        for name, value in candidate.values.items()
        if name not in options and not (name in constants and isinstance(value, bool))
    )
