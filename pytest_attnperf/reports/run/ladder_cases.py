"""Which cases of a run stand in the ladder: per workload its backends in canonical order, and what they are held to."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from pytest_attnperf.errors import UnknownNameError, UsageError
from pytest_attnperf.records import Verdict
from pytest_attnperf.results import CaseResult, RunResult

NO_FIGURES = frozenset({Verdict.INCORRECT, Verdict.SUSPICIOUS, Verdict.ERROR, Verdict.UNSUPPORTED, Verdict.WORSE})
"""Verdicts that stand in the table instead of a time."""


@dataclass(frozen=True)
class Ladder:
    """One workload. Times in microseconds per call, None where the backend has none.

    cases          to show, in canonical order
    base_us        of the backend that speedups are over
    against_name   the backend that speeds are relative to, and `against_us` its time
    """

    title: str
    cases: tuple[CaseResult, ...]
    base_us: float | None
    against_name: str
    against_us: float | None


@dataclass(frozen=True)
class Selection:
    """What to show.

    base        backend that speedups are over; only workloads that have it are shown
    against     backend that speeds are relative to
    backends    the only ones to show, empty for all
    workloads   the only ones to show, empty for all
    """

    base: str
    against: str
    backends: tuple[str, ...] = ()
    workloads: tuple[str, ...] = ()


def is_timed(case: CaseResult) -> bool:
    """Whether the case has a time that says something."""
    return case.median_us is not None and case.verdict not in NO_FIGURES


def build_ladders(run: RunResult, chosen: Selection, where: str) -> list[Ladder]:
    """The ladder of every chosen workload, suite and label, in canonical order.

    where   names the results in errors

    Raises UsageError where the results hold no such backend or workload, no time, or several architectures.
    """
    _refuse_unknown(run, chosen, where)
    _refuse_mixed(run.cases, where)
    groups: dict[tuple[str, str, str], list[CaseResult]] = {}
    for case in run.cases:
        groups.setdefault((case.key.suite, case.key.workload, case.key.label), []).append(case)
    found = [
        ladder
        for (_, workload, label), cases in groups.items()
        if not chosen.workloads or workload in chosen.workloads
        if (ladder := _make_ladder(f"{workload}/{label}" if label else workload, cases, chosen)) is not None
    ]
    if not found:
        raise UsageError(
            f"{where}: no workload among those chosen has the base backend {chosen.base!r} and a backend to show; "
            f"it has: {', '.join(_workloads_with(run.cases, chosen.base))}"
        )
    if not any(is_timed(case) for ladder in found for case in ladder.cases):
        raise UsageError(
            f"{where} holds no time of these backends (mode {run.mode!r}): a ladder needs a run that measures, "
            "pytest --attnperf on a GPU"
        )
    return found


def refuse_unknown_backends(run: RunResult, names: Iterable[str]) -> None:
    """Raise UnknownNameError, listing the backends of the run, for the first of these that it does not have."""
    backends = {case.key.backend for case in run.cases}
    for name in names:
        if name not in backends:
            raise UnknownNameError("backend", name, backends)


def _make_ladder(title: str, cases: Sequence[CaseResult], chosen: Selection) -> Ladder | None:
    times = {case.key.backend: case.median_us if is_timed(case) else None for case in cases}
    shown = tuple(case for case in cases if not chosen.backends or case.key.backend in chosen.backends)
    if chosen.base not in times or not shown:
        return None
    return Ladder(title, shown, times[chosen.base], chosen.against, times.get(chosen.against))


def _refuse_unknown(run: RunResult, chosen: Selection, where: str) -> None:
    backends = {case.key.backend for case in run.cases}
    if not backends:
        raise UsageError(f"{where} holds no case; a ladder is made of a run of the suites: pytest --attnperf suites/")
    if chosen.base not in backends:
        raise UsageError(
            f"{where} has no case of the base backend {chosen.base!r}; choose one by --base: "
            f"{', '.join(sorted(backends))}"
        )
    refuse_unknown_backends(run, chosen.backends)
    workloads = {case.key.workload for case in run.cases}
    for name in chosen.workloads:
        if name not in workloads:
            raise UnknownNameError("workload", name, workloads)


def _refuse_mixed(cases: Sequence[CaseResult], where: str) -> None:
    """Times of several machines do not belong into one table."""
    machines = dict.fromkeys(
        f"{case.fingerprint.must_match.get('arch', '?')}/{case.fingerprint.must_match.get('product', '?')}"
        for case in cases
        if case.fingerprint is not None
    )
    if len(machines) > 1:
        raise UsageError(f"{where} holds cases of {' and '.join(machines)}; a ladder compares times of one machine")


def _workloads_with(cases: Sequence[CaseResult], backend: str) -> list[str]:
    return list(dict.fromkeys(case.key.workload for case in cases if case.key.backend == backend))
