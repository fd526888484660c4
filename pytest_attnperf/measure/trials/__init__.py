"""Trials of a case: its proof again, each time under one changed circumstance (see `records.trials`).

A trial is a module with `run_trial(case)` and a line in TRIALS. Trials come after the last timed call, because they
allocate memory and prepare the backend again.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from pytest_attnperf.errors import AttnperfError, CaseFailedError, UnsupportedError
from pytest_attnperf.measure import flight_recorder
from pytest_attnperf.measure.out_of_memory import run_guarded
from pytest_attnperf.measure.timers.capture import first_line
from pytest_attnperf.records import SECONDS_DIGITS, CheckReport
from pytest_attnperf.records.listing import import_listed_function
from pytest_attnperf.records.trials import DECLARED, INVARIANCE, TrialEnding, TrialResult

if TYPE_CHECKING:
    from pytest_attnperf.backends import Backend, Prepared
    from pytest_attnperf.correctness.judge import Judge
    from pytest_attnperf.measure.proving import Prover
    from pytest_attnperf.workloads.base import Workload

TRIALS = {
    "guards": "pytest_attnperf.measure.trials.guards",
    "layouts": "pytest_attnperf.measure.trials.layouts",
    "jitter": "pytest_attnperf.measure.trials.jitter",
}
"""Trial -> the module whose `run_trial(case)` yields its `Tried`."""


ASKED = {INVARIANCE: "pytest_attnperf.measure.trials.invariance"}
"""Trials that are no part of `ALL`, because most backends do not promise what they look for: module as in TRIALS."""

ALWAYS = ("guards",)
"""Trials of every run that does not ask for others; nightly runs take all."""

ALL, NONE = "all", "none"


@dataclass(frozen=True)
class Tried:
    """One result of a trial, with the report of the calls that it judged."""

    result: TrialResult
    report: CheckReport = field(default_factory=CheckReport)


@dataclass(frozen=True)
class TrialCase:
    """The proven case that trials prove again.

    prepared   as it was timed; a trial may use its call and its inputs' shapes, and leaves its inputs as they are
    """

    prover: Prover
    prepared: Prepared

    @property
    def backend(self) -> Backend:
        """The case's backend."""
        return self.prover.backend

    @property
    def workload(self) -> Workload:
        """The case's workload."""
        return self.prover.workload

    @property
    def device(self) -> str:
        """torch's name of the device: 'cuda' or 'cpu'."""
        return self.prover.device.torch_device

    def make_judge(self, prepared: Prepared) -> Judge:
        """Makes a judge of calls on the inputs of `prepared`, which share the references of the case."""
        return self.prover.make_judge(prepared)

    def judge_call(self, name: str, prepared: Prepared, run: Callable[[], object] | None = None) -> CheckReport:
        """Judges one call, `run` or else that of `prepared`, on the inputs of the planted check. Problems of the report
        begin with `name`."""
        judge = self.make_judge(prepared)
        return judge.check_call(name, run or prepared.run, seed=self.prover.seeds.check, planted=True)

    def attempt(self, result: TrialResult, work: Callable[[], Tried | CheckReport]) -> Tried:
        """Returns what `work` returns: a `Tried`, or a report that makes `result` RIGHT or WRONG.

        LEFT_OUT if memory does not suffice or the workload does not fit, REFUSED if the backend raises. Raises
        RuntimeError, which names the trial, if the device does not answer any more.
        """
        try:
            with flight_recorder.launch(f"a trial ({result.name}) of {self.prover.case}"):
                found = run_guarded(work, result.name, lambda: None)
                self.wait()
        except CaseFailedError as error:
            if not error.out_of_memory:
                raise
            return Tried(replace(result, ending=TrialEnding.LEFT_OUT, why="memory does not suffice"))
        except Exception as error:
            self._require_healthy(result, error)
            ours = isinstance(error, AttnperfError) and not isinstance(error, UnsupportedError)
            ending = TrialEnding.LEFT_OUT if ours else TrialEnding.REFUSED
            return Tried(replace(result, ending=ending, why=f"{type(error).__name__}: {first_line(error)}"))
        return found if isinstance(found, Tried) else as_tried(result, found)

    def _require_healthy(self, result: TrialResult, error: Exception) -> None:
        """Raises RuntimeError with the text of `error` if no work can be done on the device any more."""
        try:
            self.wait()
        except RuntimeError:
            raise RuntimeError(f"in a trial ({result.name}): {error}") from error

    def wait(self) -> None:
        """Waits until a GPU has done all queued work."""
        if self.device != "cpu":
            import torch

            torch.cuda.synchronize()


def as_tried(result: TrialResult, report: CheckReport) -> Tried:
    """Returns `result` with the report: WRONG, with its first problem, if the report has one."""
    if report.right:
        return Tried(result, report)
    why = report.problems[0] if report.problems else "nothing was compared"
    return Tried(replace(result, ending=TrialEnding.WRONG, why=why), report)


def run_trials(names: Sequence[str], case: TrialCase) -> CheckReport:
    """Runs the trials `names`, one after the other; returns their results, and a problem for each that was WRONG.

    A right report has figures only of calls whose results were compared. Its inputs are those of the planted check.
    """
    started, report = time.perf_counter(), CheckReport()
    for tried in _run_each(names, case):
        result, found = tried.result, tried.report
        wrong = result.ending is TrialEnding.WRONG
        problems = found.problems or ((result.why,) if wrong else ())
        figures = found.figures if wrong else ()  # the largest errors that are told are those of the case as it is
        report = report.merge_with(CheckReport(figures=figures, problems=problems, trials=(result,)))
    spent = round(time.perf_counter() - started, SECONDS_DIGITS)
    notes = (*report.notes, *_note_unproven(report)) if DECLARED in names and case.backend.invariant else report.notes
    return replace(report, seconds=spent, parts={"trials": spent}, notes=notes)


def _note_unproven(report: CheckReport) -> tuple[str, ...]:
    """Returns a note that `invariant=True` was not proven, and why, if no part of the case could be compared."""
    parts = [result for result in report.trials if result.trial == INVARIANCE]
    if any(result.ulps is not None for result in parts):
        return ()
    why = next((result.why for result in parts if result.why), "nothing was compared")
    return (f"invariant=True is not proven: {why}",)


def _run_each(names: Sequence[str], case: TrialCase) -> Iterator[Tried]:
    declared = (INVARIANCE,) if DECLARED in names and case.backend.invariant else ()
    for name in dict.fromkeys((*(name for name in names if name != DECLARED), *declared)):
        module = {**TRIALS, **ASKED}[name]
        run = import_listed_function(module, "run_trial", __file__, f'"{module}"')
        yield from run(case)
