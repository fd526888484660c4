"""The frame of trials: how each way in which a trial can end is told."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from pytest_attnperf.errors import CaseFailedError, UnsupportedError, WorkloadError
from pytest_attnperf.measure import trials
from pytest_attnperf.measure.trials import ALWAYS, TRIALS, TrialCase, Tried, run_trials
from pytest_attnperf.records import CheckReport, ErrorFigures
from pytest_attnperf.records.listing import import_listed_function
from pytest_attnperf.records.trials import DECLARED, TrialEnding, TrialResult

RIGHT = CheckReport(figures=(ErrorFigures("trial", "out", 0.1, 1.0, 0.1, 1.0),))
WRONG = CheckReport(figures=RIGHT.figures, problems=("a, b: 'out' is off", "a, b: more"))


def make_case(device: str = "cpu") -> TrialCase:
    """A case without a backend, for trials that call none."""
    prover: Any = SimpleNamespace(case="mine on w", device=SimpleNamespace(torch_device=device))
    prepared: Any = SimpleNamespace()
    return TrialCase(prover, prepared)


def raising(error: BaseException) -> Callable[[], CheckReport]:
    """Work that fails."""

    def work() -> CheckReport:
        raise error

    return work


@pytest.mark.parametrize(
    ("work", "ending", "why"),
    [
        (lambda: RIGHT, TrialEnding.RIGHT, ""),
        (lambda: WRONG, TrialEnding.WRONG, "a, b: 'out' is off"),
        (CheckReport, TrialEnding.WRONG, "nothing was compared"),
        (raising(ValueError("strides\nand more")), TrialEnding.REFUSED, "ValueError: strides"),
        (raising(UnsupportedError("no strides")), TrialEnding.REFUSED, "UnsupportedError: no strides"),
        (raising(WorkloadError("does not fit")), TrialEnding.LEFT_OUT, "WorkloadError: does not fit"),
        (raising(MemoryError("8 GiB")), TrialEnding.LEFT_OUT, "memory does not suffice"),
        (raising(torch.OutOfMemoryError("8 GiB")), TrialEnding.LEFT_OUT, "memory does not suffice"),
    ],
)
def test_how_an_attempt_ends(work: Callable[[], CheckReport], ending: TrialEnding, why: str) -> None:
    """By its report, or by what it raises: only a wrong result is WRONG."""
    tried = make_case().attempt(TrialResult("a", "b"), work)
    assert (tried.result.ending, tried.result.why) == (ending, why)


def test_a_case_that_may_not_go_on_is_no_refusal() -> None:
    """Another failure of the case itself is passed on."""
    with pytest.raises(CaseFailedError, match="compiles in every block"):
        make_case().attempt(TrialResult("a"), raising(CaseFailedError("compiles in every block")))


def test_a_broken_device_is_no_refusal(monkeypatch: pytest.MonkeyPatch) -> None:
    """An illegal address ends the case, and its error names the trial."""

    def synchronize() -> None:
        raise RuntimeError("CUDA error: an illegal memory access was encountered")

    monkeypatch.setattr(torch.cuda, "synchronize", synchronize)
    with pytest.raises(RuntimeError, match=r"in a trial \(a, b\): CUDA error: an illegal memory access"):
        make_case("cuda").attempt(
            TrialResult("a", "b"), raising(RuntimeError("CUDA error: an illegal memory access was encountered"))
        )


def test_results_of_all_trials_are_one_report(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every result is kept; figures and problems are those of wrong ones."""

    def run_trial(case: TrialCase) -> Iterator[Tried]:
        yield case.attempt(TrialResult("a", "b"), lambda: RIGHT)
        yield case.attempt(TrialResult("a", "c"), lambda: WRONG)
        yield case.attempt(TrialResult("a", "d"), raising(ValueError("no")))

    monkeypatch.setattr(trials, "import_listed_function", lambda *_: run_trial)
    report = run_trials(["guards"], make_case())
    assert [result.ending.value for result in report.trials] == ["right", "wrong", "refused"]
    assert report.problems == WRONG.problems
    assert report.figures == WRONG.figures
    assert report.parts.keys() == {"trials"}


@pytest.mark.parametrize(
    ("result", "notes"),
    [
        (TrialResult("invariance", "alone", ulps=0.0), ()),
        (
            TrialResult("invariance", "", TrialEnding.LEFT_OUT, "its calls write to their inputs"),
            ("invariant=True is not proven: its calls write to their inputs",),
        ),
        (
            TrialResult("invariance", "alone", TrialEnding.REFUSED, "ValueError: one row"),
            ("invariant=True is not proven: ValueError: one row",),
        ),
    ],
)
def test_a_declaration_that_nothing_was_compared_for_is_told(
    result: TrialResult, notes: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A note says that `invariant=True` is not proven, and why; none where a part was compared."""
    monkeypatch.setattr(trials, "import_listed_function", lambda *_: lambda case: iter([Tried(result)]))
    prover: Any = SimpleNamespace(backend=SimpleNamespace(invariant=True))
    prepared: Any = SimpleNamespace()
    assert run_trials([DECLARED], TrialCase(prover, prepared)).notes == notes


@pytest.mark.parametrize("name", TRIALS)
def test_every_listed_trial_exists(name: str) -> None:
    """Its module has `run_trial`; those of every run are listed."""
    assert callable(import_listed_function(TRIALS[name], "run_trial", trials.__file__, f'"{TRIALS[name]}"'))
    assert set(ALWAYS) <= TRIALS.keys()
