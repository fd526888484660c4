"""What a results file says of a case, without what is made anew: the parts that `rejudge` puts together."""

from __future__ import annotations

import functools
import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from pytest_attnperf.baselines.store import StoredEntry
from pytest_attnperf.errors import UsageError
from pytest_attnperf.gate.comparable import reasons_not_comparable
from pytest_attnperf.gate.decide import Decision
from pytest_attnperf.gate.policy import Policy
from pytest_attnperf.records import CheckReport, DeviceInfo, Fingerprint, Measurement, ProcessSummary, Verdict
from pytest_attnperf.records.notes import NoteKind, filter_notes, kind_of
from pytest_attnperf.results import CaseResult
from pytest_attnperf.session import plausibility
from pytest_attnperf.session.case_records import (
    apply_decision,
    first_line,
    mark_disappeared,
    note_loosened,
    with_notes,
    with_stored,
)
from pytest_attnperf.session.consistent import list_proof_gaps
from pytest_attnperf.session.settings import Case
from pytest_attnperf.session.unchanged import as_unchanged, reasons_to_time

NOT_COMPARED = frozenset({Verdict.SAME, Verdict.FASTER, Verdict.UNDECIDED, Verdict.NO_BASELINE})
"""Verdicts that give way where the run itself says that it compared what cannot be compared."""

OF_FIGURES = (NoteKind.OTHER_PRODUCT, NoteKind.MACHINE, NoteKind.WORKLOAD, NoteKind.PROCESSES)
"""Reasons of INCOMPARABLE that are in the figures, and are looked for anew."""

NOT_REACHED = "the results file holds nothing of it: its budget ended before it was measured, and nothing is proven"
"""Said of a case that a run within a time has left UNDECIDED unseen."""

MADE_ANEW = frozenset(
    {
        *(NoteKind.LOOSENED, NoteKind.DRIFTED, NoteKind.CREPT, NoteKind.LOCAL, NoteKind.LOCAL_NEW),
        *(NoteKind.SAME_FILES, NoteKind.NEAR_FLOOR, NoteKind.CHANGED, NoteKind.UNCHANGED),
        *(NoteKind.SAME_LAUNCHES, NoteKind.NEEDLESS),
    }
)
"""Notes that are made from figures: those of the file are dropped."""

_ACTIVE = re.compile(r'["`$!\\\x00-\x1f\x7f]')
"""What a shell does not take as it stands between double quotes."""

KEPT = (
    "key",
    "first",
    "second",
    "pairs",
    "against",
    "canary",
    "checks",
    "figures",
    "peak_memory_bytes",
    "fingerprint",
    "config",
    "sources",
    "source_id",
    "pinned",
    "launches",
    "code",
    "breakdown",
    "log",
    "seconds",
    "profile",
)
"""Fields of a CaseResult that are taken from the file; every other is made anew, new ones of a later version too."""


def without_claims(case: CaseResult, policy: Policy) -> CaseResult:
    """What was recorded of a case, under the policy that it is judged by; the verdict is ERROR until one is made."""
    kept: dict[str, Any] = {name: getattr(case, name) for name in KEPT}
    notes = tuple(note for note in case.notes if kind_of(note) not in MADE_ANEW)
    return CaseResult(
        **kept,
        nodeid=plain_nodeid(case.nodeid),
        verdict=Verdict.ERROR,
        summary="",
        notes=notes,
        policy=policy.to_record(),
        reproduce=reproduce_command(case.nodeid),
    )


def plain_nodeid(nodeid: str) -> str:
    """A test's name that can stand between double quotes in a command that a reader may copy: nothing that a shell or
    pytest takes for more than a name, and nothing that is copied otherwise than it is seen."""
    seen = "".join(character if character.isprintable() else "?" for character in _ACTIVE.sub("?", nodeid))
    return f"?{seen[1:]}" if seen.startswith(("-", "@")) else seen


def reproduce_command(nodeid: str) -> str:
    """The command that repeats a case; the file's own could be any."""
    return f'pytest --attnperf "{plain_nodeid(nodeid)}"'


def judge_proof(case: CaseResult, base: CaseResult, found: StoredEntry | None) -> CaseResult | None:
    """ERROR where no check is there, INCORRECT where one is not passed; None where the case is proven right.

    A case that the run says it has not come to stays UNDECIDED: no better than one that the file does not have at all.
    """
    if case.verdict is Verdict.UNDECIDED and not (case.checks or case.first or case.second or case.pairs):
        return replace(base, verdict=Verdict.UNDECIDED, summary=NOT_REACHED, reasons=(NOT_REACHED,))
    wrong = list_proof_gaps(case.checks, None if found is None else found.entry.check.tolerance)
    if not wrong:
        return None
    verdict = Verdict.INCORRECT if case.checks else Verdict.ERROR
    return replace(base, verdict=verdict, summary=str(wrong[0]), reasons=tuple(wrong))


def mark_gone(said: CaseResult, what: str) -> CaseResult:
    """A case that was timed once, and may not cease to be without failing; the measuring run may have said so."""
    for reason in filter_notes(said.reasons, NoteKind.GONE):
        if said.summary == f"{what}: {reason.about}":
            others = tuple(other for other in said.reasons if other != reason)
            said = replace(said, summary=reason.about, reasons=others)
    return mark_disappeared(said, what)


def judge_untimed(case: CaseResult, base: CaseResult, found: StoredEntry | None) -> CaseResult:
    """A case that is proven right and has no time: right where none is stored, and unchanged where its launches,
    configuration, machine and toolchain are those of the stored entry. Everything else was timed once, and fails."""
    right = replace(base, verdict=Verdict.RIGHT, summary=case.summary)
    if found is None:
        return right
    timer = "" if case.fingerprint is None else case.fingerprint.must_match.get("timer", "")
    reasons = reasons_to_time(base, found, timer) if case.unchanged else []
    if case.unchanged and not reasons:
        return with_file_policy(as_unchanged(base, found), case, found)
    said = replace(right, summary="; ".join(reasons), reasons=tuple(reasons)) if reasons else right
    return mark_gone(said, f"not timed any more, but a baseline is stored in {found.path.name}")


def with_file_policy(base: CaseResult, case: CaseResult, found: StoredEntry) -> CaseResult:
    """Notes on what the measuring run let through that the baseline's policy does not: policy and tolerance."""
    unreadable: tuple[str, ...] = ()
    try:
        theirs = Policy.from_record({**found.policy, **case.policy})
    except UsageError as error:
        theirs, unreadable = Policy(), (note_loosened(f"that of the file is none: {error}"),)
    noted = with_notes(base, Case(case.key, case.nodeid, theirs), found)
    return replace(noted, notes=(*noted.notes, *unreadable))


def not_comparable_by_itself(case: CaseResult, result: CaseResult) -> CaseResult:
    """INCOMPARABLE where the run says so for a reason that is not in the figures: code of another tree, a path that
    one process took, a base side that failed. Never in place of a verdict that is worse."""
    own_reason = bool(filter_notes(case.reasons, *OF_FIGURES)) and not case.against
    if case.verdict is not Verdict.INCOMPARABLE or own_reason or result.verdict not in NOT_COMPARED:
        return result
    return replace(result, verdict=Verdict.INCOMPARABLE, summary=case.summary, reasons=case.reasons)


def apply_stored_decision(base: CaseResult, decision: Decision, found: StoredEntry, judged: Case) -> CaseResult:
    """A decision against the stored entry, with what else the entry says."""
    return with_stored(plausibility.with_changes(apply_decision(base, decision), found.entry.launches), judged, found)


def with_jump_note(result: CaseResult) -> CaseResult:
    """A note where a case is so much faster that the measuring run had to look again: what it saw is not recorded."""
    if not plausibility.is_jump(result) or not result.ratio:
        return result
    note = f"{1 / result.ratio:.3g} times faster than stored: that it was right again on new inputs is not recorded"
    return replace(result, notes=(*result.notes, note))


def device_of(fingerprint: Fingerprint, device: DeviceInfo) -> DeviceInfo:
    """The run's device with the compute units of the case's fingerprint, which the baseline's must match."""
    units = fingerprint.must_match.get("compute_units", "")
    return replace(device, compute_units=int(units)) if units.isascii() and units.isdigit() else device


def list_differences(case: CaseResult, found: StoredEntry) -> list[str]:
    """Why the case and the stored entry may not be compared; empty when they may."""
    assert case.fingerprint is not None
    assert case.figures is not None
    first, definition = case.first[0], case.figures.definition
    return reasons_not_comparable(
        found.entry, found.fingerprint, case.fingerprint, timer=first.timer, definition=definition,
        settings=first.settings, checks=case.checks,
    )  # fmt: skip


def make_measurement(case: CaseResult, processes: Sequence[ProcessSummary]) -> Measurement:
    """Processes of a case that is proven right. A file holds the checks of a case, not those of each process."""
    proof: CheckReport = functools.reduce(CheckReport.merge_with, case.checks)
    return Measurement(tuple(processes), (proof,) * len(processes), case.peak_memory_bytes)


def mark_unjudgeable(base: CaseResult, error: Exception) -> CaseResult:
    """A case that cannot be judged."""
    return replace(base, verdict=Verdict.ERROR, summary=first_line(error), reasons=(str(error),))
