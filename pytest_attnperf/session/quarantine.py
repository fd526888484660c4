"""A quarantined case: its verdict stands and does not fail the test until a date; after it, the test fails."""

from __future__ import annotations

from dataclasses import replace
from datetime import date

from pytest_attnperf.gate.policy import Policy
from pytest_attnperf.records import Verdict
from pytest_attnperf.records.notes import Note, NoteKind, reworded
from pytest_attnperf.results import EXPIRED, CaseResult

ABOUT_TIMES = frozenset(
    {Verdict.SLOWER, Verdict.UNDECIDED, Verdict.INCOMPARABLE, Verdict.ENVIRONMENT, Verdict.NO_BASELINE}
)
"""Verdicts that a quarantine keeps from failing: what a known, slow or noisy case is. A case that is wrong, broken or
implausible, or has ceased to be supported, is none of that, and fails as ever."""

NOT_SLOWER = frozenset({Verdict.SAME, Verdict.FASTER})


def under_quarantine(result: CaseResult, policy: Policy, today: date) -> CaseResult:
    """The result of a gating run as its policy's quarantine leaves it; as it is without one.

    A case of which nothing is proven, as where a budget ended before it was run, is not held: it may be wrong.
    The last day of a quarantine belongs to it. From the next day on the test fails whatever is found, also by SAME and
    by UNSUPPORTED: a date that did nothing would never be looked at again. The verdict stays what it is in any case.
    """
    if not policy.quarantine:
        return result
    if today > date.fromisoformat(policy.quarantine_until):
        return _expired(result, policy)
    if result.verdict in ABOUT_TIMES and result.checks:
        return replace(result, fails=False, quarantined=f"{policy.quarantine} until {policy.quarantine_until}")
    if result.verdict in NOT_SLOWER and not result.fails:
        said = f"quarantined until {policy.quarantine_until}, and not slower: drop the quarantine"
        return replace(result, notes=(*result.notes, Note(NoteKind.NEEDLESS, said)))
    return result


def _expired(result: CaseResult, policy: Policy) -> CaseResult:
    text = f"{EXPIRED} on {policy.quarantine_until}: {policy.quarantine}; mend it, or extend the date"
    first = next((reason for reason in result.reasons if reason == result.summary), result.summary)
    said = (reworded(first, f"{result.verdict.value}: {first}"),) if first else ()
    others = tuple(reason for reason in result.reasons if reason != result.summary)
    return replace(result, fails=True, summary=text, reasons=(Note(NoteKind.EXPIRED, text), *said, *others))
