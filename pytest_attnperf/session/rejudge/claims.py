"""Handles what a results file states of a case but does not recompute, for `rejudge.timed_cases`."""

from __future__ import annotations

import functools
import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from pytest_attnperf.baselines.store import StoredEntry
from pytest_attnperf.errors import UsageError
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
"""Verdicts that INCOMPARABLE replaces where the run itself states that its sides cannot be compared."""

OF_FIGURES = (NoteKind.OTHER_PRODUCT, NoteKind.MACHINE, NoteKind.WORKLOAD, NoteKind.PROCESSES)
"""Reasons of INCOMPARABLE that follow from the figures, and are recomputed."""

NOT_REACHED = "the results file has no data of it: the run's budget ended before it was measured, so nothing is proven"
"""Reason of a case that a run with a time budget left UNDECIDED without measuring it."""

MADE_ANEW = frozenset(
    {
        *(NoteKind.LOOSENED, NoteKind.DRIFTED, NoteKind.CREPT, NoteKind.LOCAL, NoteKind.LOCAL_NEW),
        *(NoteKind.SAME_FILES, NoteKind.NEAR_FLOOR, NoteKind.CHANGED, NoteKind.UNCHANGED),
        *(NoteKind.SAME_LAUNCHES, NoteKind.NEEDLESS),
    }
)
"""Kinds of notes that are recomputed from figures: those of the file are dropped."""

_ACTIVE = re.compile(r'["`$!\\\x00-\x1f\x7f]')
"""Characters that a shell changes between double quotes."""

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
    "cost_limits",
    "costly",
    "launches",
    "code",
    "breakdown",
    "log",
    "seconds",
    "profile",
)
"""Fields of a CaseResult that are taken from the file; all others, also those of later versions, are recomputed."""


def without_claims(case: CaseResult, policy: Policy) -> CaseResult:
    """Returns the case of a results file with only its data (the fields KEPT), not its verdict, and with `policy`; the
    verdict is ERROR until it is judged again."""
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
    """Returns a test's name that is safe between double quotes in a command that a reader may copy.

    Replaces characters that a shell interprets or that do not print, and a first character that pytest interprets."""
    seen = "".join(character if character.isprintable() else "?" for character in _ACTIVE.sub("?", nodeid))
    return f"?{seen[1:]}" if seen.startswith(("-", "@")) else seen


def reproduce_command(nodeid: str) -> str:
    """Returns 'pytest --attnperf "<nodeid>"' with a safe name. The command in the results file is not trusted."""
    return f'pytest --attnperf "{plain_nodeid(nodeid)}"'


def judge_proof(case: CaseResult, base: CaseResult, found: StoredEntry | None) -> CaseResult | None:
    """Returns ERROR if the file has no check, INCORRECT if one is not passed; None if the case is proven right.

    A case that the run did not reach stays UNDECIDED: no better than one that the file does not have at all.
    """
    if case.verdict is Verdict.UNDECIDED and not (case.checks or case.first or case.second or case.pairs):
        return replace(base, verdict=Verdict.UNDECIDED, summary=NOT_REACHED, reasons=(NOT_REACHED,))
    wrong = list_proof_gaps(case.checks, None if found is None else found.entry.check.tolerance)
    if not wrong:
        return None
    verdict = Verdict.INCORRECT if case.checks else Verdict.ERROR
    return replace(base, verdict=verdict, summary=str(wrong[0]), reasons=tuple(wrong))


def mark_gone(said: CaseResult, what: str) -> CaseResult:
    """Returns the result as failing because the case was timed before, as `what` says; removes an equal statement that
    the file already has."""
    for reason in filter_notes(said.reasons, NoteKind.GONE):
        if said.summary == f"{what}: {reason.about}":
            others = tuple(other for other in said.reasons if other != reason)
            said = replace(said, summary=reason.about, reasons=others)
    return mark_disappeared(said, what)


def judge_untimed(case: CaseResult, base: CaseResult, found: StoredEntry | None) -> CaseResult:
    """Returns the result of a case that is proven right and has no time.

    RIGHT if no entry is stored. RIGHT and `unchanged` if its launches, configuration, machine and toolchain equal the
    stored entry's. Else it fails, because it was timed before."""
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
    """Adds notes on settings and tolerances of the run that are looser than the baseline's."""
    unreadable: tuple[str, ...] = ()
    try:
        theirs = Policy.from_record({**found.policy, **case.policy})
    except UsageError as error:
        theirs, unreadable = Policy(), (note_loosened(f"the file's policy is invalid: {error}"),)
    noted = with_notes(base, Case(case.key, case.nodeid, theirs), found)
    return replace(noted, notes=(*noted.notes, *unreadable))


def not_comparable_by_itself(case: CaseResult, result: CaseResult) -> CaseResult:
    """Returns INCOMPARABLE if the file's verdict is that, for a reason that its figures do not show (code of another
    tree ran, one process took another code path, the base side failed); else `result`. Keeps a worse verdict."""
    own_reason = bool(filter_notes(case.reasons, *OF_FIGURES)) and not case.against
    if case.verdict is not Verdict.INCOMPARABLE or own_reason or result.verdict not in NOT_COMPARED:
        return result
    return replace(result, verdict=Verdict.INCOMPARABLE, summary=case.summary, reasons=case.reasons)


def apply_stored_decision(base: CaseResult, decision: Decision, found: StoredEntry, judged: Case) -> CaseResult:
    """Returns the result with the decision, and with notes on creep, paths and launches compared with the entry."""
    return with_stored(plausibility.with_changes(apply_decision(base, decision), found.entry.launches), judged, found)


def with_jump_note(result: CaseResult) -> CaseResult:
    """Adds a note to a case at least JUMP times as fast as stored: the file cannot prove that it was measured again."""
    if not plausibility.is_jump(result) or not result.ratio:
        return result
    note = f"{1 / result.ratio:.3g} times faster than stored: whether it was right again on new inputs is not recorded"
    return replace(result, notes=(*result.notes, note))


def device_of(fingerprint: Fingerprint, device: DeviceInfo) -> DeviceInfo:
    """Returns `device` with the number of compute units that the case's fingerprint states, if it states one."""
    units = fingerprint.must_match.get("compute_units", "")
    return replace(device, compute_units=int(units)) if units.isascii() and units.isdigit() else device


def make_measurement(case: CaseResult, processes: Sequence[ProcessSummary]) -> Measurement:
    """Returns these processes of a proven case as a measurement; each has all checks of the case."""
    proof: CheckReport = functools.reduce(CheckReport.merge_with, case.checks)
    return Measurement(tuple(processes), (proof,) * len(processes), case.peak_memory_bytes)


def mark_unjudgeable(base: CaseResult, error: Exception) -> CaseResult:
    """Returns the case as ERROR, with the error's text as reason."""
    return replace(base, verdict=Verdict.ERROR, summary=first_line(error), reasons=(str(error),))
