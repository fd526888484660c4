"""Times of backends -> points: one workload each, with every backend that was proven right and timed the same way.

Cases of a results file -> times that may be chosen from: only what was proven right and timed.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pytest_attnperf.errors import UsageError, WorkloadError
from pytest_attnperf.records import CaseKey, ProcessSummary, Verdict
from pytest_attnperf.records.notes import NoteKind, filter_notes
from pytest_attnperf.results import CaseResult, RunResult
from pytest_attnperf.tools.dispatch.features import WorkloadShape, parse_shape

TIMED = frozenset(
    {
        Verdict.SAME,
        Verdict.FASTER,
        Verdict.SLOWER,
        Verdict.UNDECIDED,
        Verdict.NO_BASELINE,
        Verdict.INCOMPARABLE,
        Verdict.MOVED,
        Verdict.DRIFT,
        Verdict.STALE,
        Verdict.RECORDED,
    }
)
"""Verdicts on a time that is right in itself, however it stands to its baseline; one of another tree's code is not."""


@dataclass(frozen=True)
class BackendTime:
    """One backend's time of one workload: of a result proven right, or as published.

    backend      its name, with '/label' where the case has one: what a table chooses
    median_us    microseconds per call, median of `processes` where there are some
    source       where it stands, for messages
    recorded     when, as text that sorts by time; '' where that is not known
    processes    empty where only a figure was published
    conditions   what must be the same for two times to be compared, e.g. {'timer': 'graph'}
    definition   the workload's fields, for families that are not built in
    """

    backend: str
    workload: str
    median_us: float
    source: str = ""
    recorded: str = ""
    processes: tuple[ProcessSummary, ...] = ()
    conditions: Mapping[str, str] = field(default_factory=dict)
    definition: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class LeftOut:
    """A case that no decision was made from, and why."""

    backend: str
    workload: str
    why: str


@dataclass(frozen=True)
class WorkloadPoint:
    """One workload: its shape, its size along the shape's axis, and the backends' times, fastest first."""

    shape: WorkloadShape
    size: int
    workload: str
    times: tuple[BackendTime, ...]

    @property
    def fastest(self) -> BackendTime:
        """The shortest time, whether or not it can be told from the next."""
        return self.times[0]

    def find_time(self, backend: str) -> BackendTime | None:
        """The time of one backend, None where it was not measured."""
        return next((timed for timed in self.times if timed.backend == backend), None)


def make_points(cases: Iterable[BackendTime]) -> tuple[list[WorkloadPoint], list[LeftOut]]:
    """Points in order of family, shape and size, and what was left out of them.

    Of a case that is there twice the newest is taken (of equal ages the later one). Where conditions differ within a
    workload, those of most backends are kept. Raises UsageError for a time that is not finite and positive.
    """
    left_out: list[LeftOut] = []
    by_place: dict[tuple[WorkloadShape, int], dict[str, BackendTime]] = {}
    for timed in cases:
        _require_time(timed)
        try:
            place = parse_shape(timed.workload, timed.definition)
        except WorkloadError as error:
            left_out.append(LeftOut(timed.backend, timed.workload, str(error)))
            continue
        backends = by_place.setdefault(place, {})
        earlier = backends.get(timed.backend)
        if earlier is None:
            backends[timed.backend] = timed
            continue
        kept, dropped = (timed, earlier) if timed.recorded >= earlier.recorded else (earlier, timed)
        backends[timed.backend] = kept
        left_out.append(LeftOut(timed.backend, timed.workload, _describe_repeat(kept, dropped)))
    points = []
    for (shape, size), backends in by_place.items():
        comparable, others = _split_comparable(list(backends.values()))
        left_out += others
        times = tuple(sorted(comparable, key=lambda timed: (timed.median_us, timed.backend)))
        points.append(WorkloadPoint(shape, size, times[0].workload, times))
    return sorted(points, key=lambda point: (point.shape.order, point.size)), left_out


def _require_time(timed: BackendTime) -> None:
    for us in (timed.median_us, *(process.median_us for process in timed.processes)):
        if not (math.isfinite(us) and us > 0):
            raise UsageError(
                f"{timed.source}: {timed.backend} on {timed.workload!r} holds a time of {us} us; a time is finite and "
                "positive. Make the file again"
            )


def _describe_repeat(kept: BackendTime, dropped: BackendTime) -> str:
    when = f" of {kept.recorded}" if kept.recorded else ""
    return f"measured twice: that of {kept.source}{when} is taken, that of {dropped.source} is not"


def _split_comparable(cases: Sequence[BackendTime]) -> tuple[list[BackendTime], list[LeftOut]]:
    """The cases of the conditions that most backends share, and the others with what differs."""
    by_conditions: dict[tuple[tuple[str, str], ...], list[BackendTime]] = {}
    for timed in cases:
        by_conditions.setdefault(tuple(sorted(timed.conditions.items())), []).append(timed)
    kept = max(by_conditions.values(), key=lambda group: (len(group), max(timed.recorded for timed in group)))
    left_out = [
        LeftOut(timed.backend, timed.workload, f"INCOMPARABLE with the others: {_describe_difference(timed, kept[0])}")
        for group in by_conditions.values()
        if group is not kept
        for timed in group
    ]
    return kept, left_out


def _describe_difference(timed: BackendTime, other: BackendTime) -> str:
    names = sorted(timed.conditions.keys() | other.conditions.keys())
    differing = (name for name in names if timed.conditions.get(name) != other.conditions.get(name))
    return "; ".join(
        f"{name} is {timed.conditions.get(name, 'absent')}, of the others {other.conditions.get(name, 'absent')}"
        for name in differing
    )


def choice_name(key: CaseKey) -> str:
    """What a table calls the backend of a case: a label makes it another choice."""
    return f"{key.backend}/{key.label}" if key.label else key.backend


def split_timed_cases(run: RunResult, source: str) -> tuple[list[BackendTime], list[LeftOut]]:
    """The cases of a run that count, and the others with the reason."""
    timed: list[BackendTime] = []
    left_out: list[LeftOut] = []
    for case in run.cases:
        why = _reason_left_out(case)
        if why:
            left_out.append(LeftOut(choice_name(case.key), case.key.workload, why))
        else:
            timed.append(_make_backend_time(case, run.started, source))
    return timed, left_out


def compute_median(processes: Iterable[ProcessSummary]) -> float:
    """Median of the processes' medians, in microseconds per call."""
    return statistics.median(process.median_us for process in processes)


def _make_backend_time(case: CaseResult, started: str, source: str) -> BackendTime:
    processes = _choose_processes(case)
    return BackendTime(
        backend=choice_name(case.key),
        workload=case.key.workload,
        median_us=compute_median(processes),
        source=source,
        recorded=started,
        processes=processes,
        conditions=case.fingerprint.must_match if case.fingerprint else {},
        definition=case.figures.definition if case.figures else {},
    )


def _choose_processes(case: CaseResult) -> tuple[ProcessSummary, ...]:
    """Of the second look where there was one: a case that got one was selected for its first look's size."""
    return case.second or case.first


def _reason_left_out(case: CaseResult) -> str:
    if case.verdict not in TIMED:
        return f"{case.verdict.value}: {case.summary}" if case.summary else case.verdict.value
    if filter_notes(case.reasons, NoteKind.FOREIGN):
        return f"{case.verdict.value}: {case.summary}"
    if not case.checks or not all(check.right for check in case.checks):
        return f"{case.verdict.value}, but no check of its output passed"
    processes = _choose_processes(case)
    if not processes:
        return f"{case.verdict.value}, but no process was timed"
    timers = sorted({process.timer for process in processes})
    return f"its processes were timed by {' and by '.join(timers)}" if len(timers) > 1 else ""
