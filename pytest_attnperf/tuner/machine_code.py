"""What code objects say of candidates among each other: which are the same program, and which look light.

Unlike `pruning`, nothing here says that a candidate is bad.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pytest_attnperf.tuner.compiling import CompiledCandidate
from pytest_attnperf.tuning_records import Candidate, Excluded, StaticFigures

SAME_CODE = "same code"

LIGHT_SCRATCH_BYTES = 128
"""Private memory per lane below which a kernel is tried before others. On an H200 the fastest of 152 configurations of
a flash kernel had 48 bytes, and every one with more than 128 took at least twice its time."""


def without_repeats(
    candidates: Sequence[Candidate], compiled: Mapping[str, CompiledCandidate], default: Candidate
) -> tuple[list[Candidate], list[Excluded]]:
    """Candidates that are different programs, the default among them, and the others with the one they repeat.

    Two are the same where every kernel has the same machine code, workgroup and LDS: a compiler that loads values ahead
    anyway makes the same of an option that asks for it. One whose code is not known is kept.
    """
    kept: list[Candidate] = []
    excluded: list[Excluded] = []
    first: dict[tuple[object, ...], Candidate] = {}
    for candidate in sorted(candidates, key=lambda one: one.id != default.id):
        program = _program(compiled.get(candidate.id, CompiledCandidate()))
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


def _program(found: CompiledCandidate) -> tuple[object, ...]:
    """What a candidate's kernels are told apart by; empty where one of them is not known."""
    if not found.codes or not all(code.isa_hash for code in found.codes):
        return ()
    return tuple((code.name, code.isa_hash, code.workgroup, code.lds_bytes) for code in found.codes)
