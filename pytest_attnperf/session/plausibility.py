"""Times that are too good: below the device's floor, several times faster than stored, or fast on repeated inputs only.

A wrong measurement and a kernel that skips work look alike: faster than before. What is asked of such a case is more
than of others, and a case that cannot answer is SUSPICIOUS.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from pytest_attnperf.correctness.what_ran import differences
from pytest_attnperf.environment.device_specs import DeviceSpec
from pytest_attnperf.records import Launch, Rotation, Verdict
from pytest_attnperf.results import CaseResult
from pytest_attnperf.roofline.floors import floor as floor_of
from pytest_attnperf.roofline.floors import judge_time

NEAR_FLOOR = "near the floor:"
"""Begins a note that the run repeats as a warning."""

CHANGED = "what ran has changed since the baseline"
"""Begins a note that the run repeats: a change of kernels concerns cases that pass, too."""

JUMP = 3.0
"""So many times faster than stored is checked again: few honest changes of one kernel bring so much."""

REMEMBERS = 4.0
"""So many times slower when the inputs change before every call is no honest kernel: writing them may move others out
of the last-level cache, which is at most 3.2 times as fast as memory (MI300X: 17.2 against 5.3 TB/s)."""

CHANGES_SHOWN = 5


def by_floor(base: CaseResult, spec: DeviceSpec | None) -> CaseResult:
    """SUSPICIOUS when faster than the device's floor; a note when so close to it that one should look twice."""
    if base.median_us is None or base.figures is None or spec is None:
        return base
    floor = floor_of(base.figures, spec)
    if floor is None:
        return base
    plausibility = judge_time(base.median_us, floor)
    if plausibility.kind == "impossible":
        return suspicious(base, plausibility.text)
    if plausibility.kind == "near_floor":
        return replace(base, notes=(*base.notes, f"{NEAR_FLOOR} {plausibility.text}"))
    return base


def is_jump(base: CaseResult) -> bool:
    """Whether the case is JUMP times faster than stored, or more."""
    return base.ratio is not None and base.ratio * JUMP <= 1


def by_rotation(base: CaseResult, rotation: Rotation | None) -> CaseResult:
    """SUSPICIOUS when the time holds only while every call gets the inputs of the one before."""
    if rotation is None or rotation.rotating_us <= REMEMBERS * rotation.same_us:
        return base
    return suspicious(
        base,
        f"remembers its results: {rotation.same_us:.4g} us per call while the inputs stay the same, "
        f"{rotation.rotating_us:.4g} us when they change before every call; the time is not that of the work",
    )


def by_jump(base: CaseResult, rotation: Rotation | None) -> CaseResult:
    """A jump that was right again on new inputs: SUSPICIOUS if it remembers results, else a note that says so."""
    judged = by_rotation(base, rotation)
    if judged.verdict is Verdict.SUSPICIOUS or rotation is None or not base.ratio:
        return judged
    note = (
        f"{1 / base.ratio:.3g} times faster than stored: right again on new inputs in another process, and "
        f"{rotation.rotating_us:.4g} us a call when they change before every call"
    )
    return replace(base, notes=(*base.notes, note))


def with_changes(base: CaseResult, stored: Sequence[Launch]) -> CaseResult:
    """Notes on what ran against what ran when the baseline was recorded, where both are known."""
    if not stored or not base.launches:
        return base
    changes = differences(base.launches, stored)
    if changes:
        more = f"; and {len(changes) - CHANGES_SHOWN} more" if len(changes) > CHANGES_SHOWN else ""
        text = f"{CHANGED}: {'; '.join(changes[:CHANGES_SHOWN])}{more}"
    elif base.verdict is Verdict.SLOWER:
        text = "the same work was launched as when the baseline was recorded: the code of a kernel, or the machine"
    else:
        return base
    return replace(base, notes=(*base.notes, text))


def suspicious(base: CaseResult, text: str) -> CaseResult:
    """The case, SUSPICIOUS for this reason."""
    return replace(base, verdict=Verdict.SUSPICIOUS, summary=text, reasons=(text,))
