"""Which words stand for which verdict, and what is added to all of them: a quarantine, and a file that contradicts
itself."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from pytest_attnperf.records import Verdict
from pytest_attnperf.records.notes import NoteKind, of_kind
from pytest_attnperf.reports.explain import by_proof, by_time
from pytest_attnperf.reports.explain.facts import Told, Words
from pytest_attnperf.reports.text.figures import one_line

LINK_LIMIT = 300

BY_VERDICT: dict[Verdict, Callable[[Told], Words]] = {
    Verdict.SAME: by_time.same,
    Verdict.FASTER: by_time.faster,
    Verdict.SLOWER: by_time.slower,
    Verdict.UNDECIDED: by_time.undecided,
    Verdict.ENVIRONMENT: by_time.environment,
    Verdict.RECORDED: by_time.recorded,
    Verdict.RIGHT: by_time.right,
    Verdict.INCORRECT: by_proof.incorrect,
    Verdict.SUSPICIOUS: by_proof.suspicious,
    Verdict.ERROR: by_proof.error,
    Verdict.UNSUPPORTED: by_proof.unsupported,
    Verdict.INCOMPARABLE: by_proof.incomparable,
    Verdict.NO_BASELINE: by_proof.no_baseline,
    Verdict.WORSE: by_time.slower,
}
"""WORSE is said of compiled kernels, and of a case only by a file that nobody's run has written."""


def words_of(told: Told) -> Words:
    """The explanation of a case in plain words."""
    said = BY_VERDICT[told.case.verdict](told)
    contradicted = told.facts.contradicted
    before = [f"This file contradicts itself, so believe none of it: {text}." for text in contradicted[:1]]
    return replace(said, sentences=(*before, *_quarantine(told), *said.sentences))


def _quarantine(told: Told) -> list[str]:
    case = told.case
    if case.quarantined:
        return [
            f"The case is quarantined ({one_line(case.quarantined, LINK_LIMIT)}): what follows stands, and does "
            "not fail "
            "the test until that date."
        ]
    if of_kind(case.reasons, NoteKind.EXPIRED):
        return [
            f"The test fails because its {one_line(case.summary, LINK_LIMIT)}. It fails whatever the time says, "
            "because "
            "a date that did nothing would never be looked at again."
        ]
    return []
