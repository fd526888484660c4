"""Chooses the cases of a ladder: the backends of each workload in canonical order, and what they are compared with."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from pytest_attnperf.errors import UnknownNameError, UsageError
from pytest_attnperf.records import Verdict
from pytest_attnperf.results import CaseResult, RunResult

NO_FIGURES = frozenset({Verdict.INCORRECT, Verdict.SUSPICIOUS, Verdict.ERROR, Verdict.UNSUPPORTED, Verdict.WORSE})
"""Verdicts that the table shows instead of a time."""


@dataclass(frozen=True)
class Ladder:
    """One workload. Times are in microseconds per call, None if the backend has none.

    cases          to show, in canonical order
    base_us        of the backend that speedups are over
    against_name   the backend that speeds are relative to; `against_us` is its time
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
    backends    show only these; empty shows all
    workloads   show only these; empty shows all
    """

    base: str
    against: str
    backends: tuple[str, ...] = ()
    workloads: tuple[str, ...] = ()


def is_timed(case: CaseResult) -> bool:
    """Returns whether the case has a time, and no verdict that makes it meaningless (such as INCORRECT)."""
    return case.median_us is not None and case.verdict not in NO_FIGURES


def build_ladders(run: RunResult, chosen: Selection, where: str) -> list[Ladder]:
    """Returns a ladder (backends of one workload, compared) per chosen workload, suite and label, in canonical order.

    where   names the results in errors

    Raises UsageError if the results lack such a backend or workload, have no times, or mix architectures.
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
            f"workloads with {chosen.base!r}: {', '.join(_workloads_with(run.cases, chosen.base))}"
        )
    if not any(is_timed(case) for ladder in found for case in ladder.cases):
        raise UsageError(
            f"{where} holds no time of these backends (mode {run.mode!r}): a ladder needs a run that measures, "
            "pytest --attnperf on a GPU"
        )
    return found


def refuse_unknown_backends(run: RunResult, names: Iterable[str]) -> None:
    """Raises UnknownNameError for the first name that is not a backend of the run. The message lists the backends."""
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
        raise UsageError(f"{where} holds no case; a ladder needs a run of the suites: pytest --attnperf suites/")
    if chosen.base not in backends:
        raise UsageError(
            f"{where} has no case of the base backend {chosen.base!r}; choose one by --over: "
            f"{', '.join(sorted(backends))}"
        )
    refuse_unknown_backends(run, chosen.backends)
    workloads = {case.key.workload for case in run.cases}
    for name in chosen.workloads:
        if name not in workloads:
            raise UnknownNameError("workload", name, workloads)


def _refuse_mixed(cases: Sequence[CaseResult], where: str) -> None:
    """Raises UsageError if cases are of several machines (arch/product): their times do not belong in one table."""
    machines = dict.fromkeys(
        f"{case.fingerprint.must_match.get('arch', '?')}/{case.fingerprint.must_match.get('product', '?')}"
        for case in cases
        if case.fingerprint is not None
    )
    if len(machines) > 1:
        raise UsageError(f"{where} holds cases of {' and '.join(machines)}; a ladder compares times of one machine")


def _workloads_with(cases: Sequence[CaseResult], backend: str) -> list[str]:
    return list(dict.fromkeys(case.key.workload for case in cases if case.key.backend == backend))
