"""Joins several runs, of one or more machines and architectures, with each case once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pytest_attnperf.records import Verdict
from pytest_attnperf.records.code import CodeResult
from pytest_attnperf.reports.run.overview import format_device, rank_verdict
from pytest_attnperf.reports.text.figures import one_line
from pytest_attnperf.results import CaseResult, RunResult


@dataclass(frozen=True)
class Shown:
    """A case, and the run that it is shown from. `device` is e.g. 'sm_90/h200', '' if nothing was measured."""

    run: RunResult
    case: CaseResult
    device: str


@dataclass(frozen=True)
class Joined:
    """The content of a report.

    runs      in the order of their start; `sources` are their files, in the same order
    cases     each (device, case) once, in the order of runs, then of cases
    code      each compiled kernel once
    notes     decisions made while joining, a line each
    failed_by why the whole fails even if no case does, as under --strict
    """

    runs: tuple[RunResult, ...]
    sources: tuple[str, ...]
    cases: tuple[Shown, ...]
    code: tuple[CodeResult, ...] = ()
    notes: tuple[str, ...] = ()
    failed_by: tuple[str, ...] = ()

    @property
    def devices(self) -> tuple[str, ...]:
        """Names of all devices, such as 'sm_90/h200', each once, in the order of `runs`."""
        return tuple(dict.fromkeys(device for run in self.runs if (device := format_device(run))))

    @property
    def has_failed(self) -> bool:
        """Whether any case or compiled kernel failed its test."""
        return any(shown.case.fails for shown in self.cases) or any(result.fails for result in self.code)


def join_runs(runs: Sequence[tuple[str, RunResult]]) -> Joined:
    """Returns one report's content from runs, given as (file name, run).

    If a case occurs twice on one device, the worse verdict is shown, or the later of two equal ones. So no repetition
    hides a failure. A note reports it.
    """
    ordered = sorted(runs, key=lambda pair: pair[1].started)
    cases: dict[tuple[str, str], tuple[Shown, str]] = {}
    code: dict[str, tuple[CodeResult, str]] = {}
    notes: list[str] = []
    for source, run in ordered:
        device = format_device(run)
        for case in run.cases:
            _keep_case(cases, Shown(run, case, device), source, notes)
        for result in run.code:
            _keep_code(code, result, source, notes)
    return Joined(
        runs=tuple(run for _, run in ordered),
        sources=tuple(source for source, _ in ordered),
        cases=tuple(shown for shown, _ in cases.values()),
        code=tuple(result for result, _ in code.values()),
        notes=tuple(notes),
    )


def join_single(run: RunResult, source: str = "") -> Joined:
    """Returns the content of a report on one run, whose file is `source`."""
    return join_runs([(source, run)])


def _keep_case(cases: dict[tuple[str, str], tuple[Shown, str]], shown: Shown, source: str, notes: list[str]) -> None:
    key = (shown.device, str(shown.case.key))
    before = cases.get(key)
    if before is None:
        cases[key] = shown, source
        return
    worse = _is_worse(shown.case.verdict, shown.case.fails, before[0].case.verdict, before[0].case.fails)
    where = f" on {shown.device}" if shown.device else ""
    notes.append(
        _describe_duplicate(f"{key[1]}{where}", (before[1], before[0].case.verdict), (source, shown.case.verdict))
    )
    if worse:
        cases[key] = shown, source


def _keep_code(code: dict[str, tuple[CodeResult, str]], result: CodeResult, source: str, notes: list[str]) -> None:
    key = str(result.key)
    before = code.get(key)
    if before is None:
        code[key] = result, source
        return
    notes.append(_describe_duplicate(key, (before[1], before[0].verdict), (source, result.verdict)))
    if _is_worse(result.verdict, result.fails, before[0].verdict, before[0].fails):
        code[key] = result, source


def _is_worse(new: Verdict, new_fails: bool, old: Verdict, old_fails: bool) -> bool:
    """Returns whether the later result (`new`) replaces `old`: it is worse (failing first, then by verdict) or as
    bad."""
    return (not new_fails, rank_verdict(new)) <= (not old_fails, rank_verdict(old))


def _describe_duplicate(what: str, *found: tuple[str, Verdict]) -> str:
    said = " and ".join(f"{verdict.value} in {one_line(source) or 'a run'}" for source, verdict in found)
    return f"{one_line(what, 400)} occurs twice, {said}: the worse one is shown, or the later of two equal ones"
