"""Makes points of backends' times: one workload with every backend that was proven right and timed the same way.

Also chooses, from a results file, the cases that may be used: only those that were proven right and timed.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pytest_attnperf.errors import UsageError, WorkloadError
from pytest_attnperf.gate.recount import deciding_processes
from pytest_attnperf.records import TIMED, CaseKey, ProcessSummary
from pytest_attnperf.records.notes import NoteKind, filter_notes
from pytest_attnperf.results import CaseResult, RunResult
from pytest_attnperf.tools.dispatch.features import WorkloadShape, parse_shape


@dataclass(frozen=True)
class BackendTime:
    """One backend's time of one workload: measured and proven right, or published.

    backend      its name, with '/label' if the case has one: what a table chooses
    median_us    microseconds per call, median of `processes` if there are some
    source       the file that holds it, for messages
    recorded     when it was measured, as text that sorts by time; '' if not known
    processes    empty if only a figure was published
    conditions   what must be equal before two times are compared, e.g. {'timer': 'graph'}
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
    """A case that no decision uses, and why."""

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
        """The shortest time of all backends, even if the difference from the next one is not detectable."""
        return self.times[0]

    def find_time(self, backend: str) -> BackendTime | None:
        """Returns the time of one backend, None if it was not measured."""
        return next((timed for timed in self.times if timed.backend == backend), None)


def make_points(cases: Iterable[BackendTime]) -> tuple[list[WorkloadPoint], list[LeftOut]]:
    """Returns one point per workload, in order of family, shape and size, and the times that were left out, with
    reasons.

    If a backend was timed twice, takes the newest time (of equal ages the later one). If times of a workload were taken
    under different `conditions`, such as timers, keeps only those under the most frequent ones. Raises UsageError for a
    time that is not finite and positive."""
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
    return f"measured twice: the time of {kept.source}{when} is used, that of {dropped.source} is not"


def _split_comparable(cases: Sequence[BackendTime]) -> tuple[list[BackendTime], list[LeftOut]]:
    """Returns the times of one workload whose `conditions` are the most frequent, and the other times, each with the
    conditions that differ."""
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
    """Returns the name that a table uses for a case's backend: the backend, with '/label' if the case has a label."""
    return f"{key.backend}/{key.label}" if key.label else key.backend


def split_timed_cases(run: RunResult, source: str) -> tuple[list[BackendTime], list[LeftOut]]:
    """Returns the cases of a run that were proven right and timed by one timer, and the other cases with the reason."""
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
    """Returns the median of the processes' medians, in microseconds per call."""
    return statistics.median(process.median_us for process in processes)


def _make_backend_time(case: CaseResult, started: str, source: str) -> BackendTime:
    processes = deciding_processes(case)
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


def _reason_left_out(case: CaseResult) -> str:
    if case.verdict not in TIMED:
        return f"{case.verdict.value}: {case.summary}" if case.summary else case.verdict.value
    if filter_notes(case.reasons, NoteKind.FOREIGN):
        return f"{case.verdict.value}: {case.summary}"
    if not case.checks or not all(check.right for check in case.checks):
        return f"{case.verdict.value}, but no check of its output passed"
    processes = deciding_processes(case)
    if not processes:
        return f"{case.verdict.value}, but no process was timed"
    timers = sorted({process.timer for process in processes})
    return f"its processes were timed by {' and by '.join(timers)}" if len(timers) > 1 else ""
