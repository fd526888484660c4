"""Candidates whose code objects say that they cannot run, or cannot be worth a time. The default is never thrown out.

A rule that compares looks at the default's own objects, build by build: what the default does, too, is no fault. Where
a candidate was not compiled, or its objects cannot be read, nothing is known and nothing is thrown out.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from pytest_attnperf.codeobject.arch import lds_limit_bytes
from pytest_attnperf.codeobject.nvidia_occupancy import nvidia_occupancy_of
from pytest_attnperf.codeobject.occupancy import occupancy_of
from pytest_attnperf.errors import CodeObjectError, UsageError
from pytest_attnperf.records.code import KernelCode, Occupancy
from pytest_attnperf.tools.tuner.compiling import CompiledCandidate
from pytest_attnperf.tuning_records import Candidate, Excluded, StaticFigures

COMPILE = "compile"
CODE_OBJECT = "code object"

REASONS_SHOWN = 6


@dataclass(frozen=True)
class PruneRules:
    """What makes a code object not worth timing. A time costs a second: only what is clearly bad is thrown out.

    A few spilled registers may lie outside every loop and cost nothing.

    spill_registers   spilled registers beyond the default's that are borne, and `spill_factor` times the default's
    scratch_bytes     private memory per lane beyond the default's that is borne, and `spill_factor` times the default's
    """

    spill_registers: int = 16
    scratch_bytes: int = 64
    spill_factor: float = 1.5


def static_figures(codes: Sequence[KernelCode]) -> StaticFigures:
    """The worst of several kernels in each figure; matrix and LDS instructions are those of all.

    Raises ValueError for no kernels.
    """
    if not codes:
        raise ValueError("figures of no kernels were asked for")
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
        loop_lds=sum(_lds(code) for code in codes) if decoded else None,
    )


def prune(
    candidates: Iterable[Candidate],
    compiled: Mapping[str, CompiledCandidate],
    default: Candidate,
    rules: PruneRules = PruneRules(),
) -> tuple[list[Candidate], list[Excluded]]:
    """Those worth timing, the default among them, and the others with their reasons.

    compiled   by candidate id; one that is not there is kept

    Raises UsageError, with the reasons counted, where the default alone is left of several.
    """
    known = compiled.get(default.id, CompiledCandidate()).codes
    kept, excluded = [], []
    for candidate in candidates:
        found = compiled.get(candidate.id, CompiledCandidate())
        fault = None if candidate.id == default.id else _fault(found, known, rules)
        if fault is None:
            kept.append(candidate)
        else:
            static = static_figures(found.codes) if found.codes else None
            excluded.append(Excluded(candidate, *fault, static))
    if excluded and not any(candidate.id != default.id for candidate in kept):
        raise UsageError(
            f"no candidate is worth timing: {_counted(excluded)}; only the default is left, so there is nothing to "
            "tune. Widen the space, or try another default"
        )
    return kept, excluded


def _fault(found: CompiledCandidate, default: Sequence[KernelCode], rules: PruneRules) -> tuple[str, str] | None:
    """Stage and reason, None where nothing speaks against it."""
    if found.failure:
        return COMPILE, f"does not compile: {found.failure}"
    for index, code in enumerate(found.codes):
        own = default[index] if len(default) == len(found.codes) else None
        for rule in _RULES:
            if reason := rule(code, own, rules):
                return CODE_OBJECT, reason
    return None


def _too_much_lds(code: KernelCode, default: KernelCode | None, rules: PruneRules) -> str:
    try:
        limit = lds_limit_bytes(code.arch)
    except CodeObjectError:
        return ""
    if code.lds_bytes <= limit:
        return ""
    return f"{code.lds_bytes:,} bytes of LDS, and a workgroup of {code.arch} can have {limit:,}: no launch succeeds"


def _fits_nowhere(code: KernelCode, default: KernelCode | None, rules: PruneRules) -> str:
    try:
        found = _occupancy(code)
    except CodeObjectError as error:
        return f"no launch succeeds: {error}"
    if found is None or found.fits:
        return ""
    return f"no workgroup of {code.workgroup} threads with {code.unified_vgprs} registers each fits: no launch succeeds"


def _spills(code: KernelCode, default: KernelCode | None, rules: PruneRules) -> str:
    if default is None or code.vgpr_spills is None or default.vgpr_spills is None:
        return ""
    borne = max(default.vgpr_spills + rules.spill_registers, int(default.vgpr_spills * rules.spill_factor))
    if code.vgpr_spills <= borne:
        return ""
    return f"{code.vgpr_spills} registers are spilled to memory; of the default {default.vgpr_spills}"


def _scratch(code: KernelCode, default: KernelCode | None, rules: PruneRules) -> str:
    if default is None:
        return ""
    borne = max(default.scratch_bytes + rules.scratch_bytes, int(default.scratch_bytes * rules.spill_factor))
    if code.scratch_bytes <= borne:
        return ""
    return f"{code.scratch_bytes} bytes of private memory per lane (spills); of the default {default.scratch_bytes}"


def _without_matrix(code: KernelCode, default: KernelCode | None, rules: PruneRules) -> str:
    if default is None or code.undecoded or not code.instructions:
        return ""
    if not default.instructions.get("matrix", 0) or code.instructions.get("matrix", 0):
        return ""
    return f"no matrix instruction; the default has {default.instructions['matrix']}"


_Rule = Callable[[KernelCode, "KernelCode | None", PruneRules], str]
_RULES: tuple[_Rule, ...] = (_too_much_lds, _fits_nowhere, _spills, _scratch, _without_matrix)


def _occupancy(code: KernelCode) -> Occupancy | None:
    """In waves per SIMD, on NVIDIA warps per sub-partition; None where the architecture is not known."""
    return occupancy_of(code) or nvidia_occupancy_of(code)


def _possible_occupancy(code: KernelCode) -> Occupancy | None:
    """The same; None also of what no kernel of the architecture can have."""
    try:
        return _occupancy(code)
    except CodeObjectError:
        return None


def _lds(code: KernelCode) -> int:
    return sum(count for name, count in code.in_loops.items() if name.startswith(("lds_read", "lds_write")))


def _counted(excluded: Sequence[Excluded]) -> str:
    """'15 thrown out: 12 (does not compile: ...); 3 (...)', the most frequent kinds first, each with one reason."""
    kinds = Counter(_kind(one) for one in excluded)
    examples = {_kind(one): one.reason for one in reversed(excluded)}
    told = [f"{count} ({examples[kind]})" for kind, count in kinds.most_common(REASONS_SHOWN)]
    return f"{len(excluded)} thrown out: " + "; ".join(told)


def _kind(one: Excluded) -> str:
    """The reason without its figures."""
    return one.stage + "".join(letter for letter in one.reason.partition(":")[0] if not letter.isdigit())
