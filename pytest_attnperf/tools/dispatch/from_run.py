"""Cases of a results file -> times that may be chosen from: only what was proven right and timed."""

from __future__ import annotations

import statistics
from collections.abc import Iterable

from pytest_attnperf.records import CaseKey, ProcessSummary, Verdict
from pytest_attnperf.records.notes import NoteKind, of_kind
from pytest_attnperf.results import CaseResult, RunResult
from pytest_attnperf.tools.dispatch.points import LeftOut, Timed

TIMED = frozenset(
    {
        Verdict.SAME,
        Verdict.FASTER,
        Verdict.SLOWER,
        Verdict.UNDECIDED,
        Verdict.NO_BASELINE,
        Verdict.INCOMPARABLE,
        Verdict.RECORDED,
    }
)
"""Verdicts on a time that is right in itself, however it stands to its baseline; one of another tree's code is not."""


def choice_name(key: CaseKey) -> str:
    """What a table calls the backend of a case: a label makes it another choice."""
    return f"{key.backend}/{key.label}" if key.label else key.backend


def timed_cases(run: RunResult, source: str) -> tuple[list[Timed], list[LeftOut]]:
    """The cases of a run that count, and the others with the reason."""
    timed: list[Timed] = []
    left_out: list[LeftOut] = []
    for case in run.cases:
        why = _why_not(case)
        if why:
            left_out.append(LeftOut(choice_name(case.key), case.key.workload, why))
        else:
            timed.append(_timed(case, run.started, source))
    return timed, left_out


def median_of(processes: Iterable[ProcessSummary]) -> float:
    """Median of the processes' medians, in microseconds per call."""
    return statistics.median(process.median_us for process in processes)


def _timed(case: CaseResult, started: str, source: str) -> Timed:
    processes = _processes(case)
    return Timed(
        backend=choice_name(case.key),
        workload=case.key.workload,
        median_us=median_of(processes),
        source=source,
        recorded=started,
        processes=processes,
        conditions=case.fingerprint.must_match if case.fingerprint else {},
        definition=case.figures.definition if case.figures else {},
    )


def _processes(case: CaseResult) -> tuple[ProcessSummary, ...]:
    """Of the second look where there was one: a case that got one was selected for its first look's size."""
    return case.second or case.first


def _why_not(case: CaseResult) -> str:
    if case.verdict not in TIMED:
        return f"{case.verdict.value}: {case.summary}" if case.summary else case.verdict.value
    if of_kind(case.reasons, NoteKind.FOREIGN):
        return f"{case.verdict.value}: {case.summary}"
    if not case.checks or not all(check.right for check in case.checks):
        return f"{case.verdict.value}, but no check of its output passed"
    processes = _processes(case)
    if not processes:
        return f"{case.verdict.value}, but no process was timed"
    timers = sorted({process.timer for process in processes})
    return f"its processes were timed by {' and by '.join(timers)}" if len(timers) > 1 else ""
