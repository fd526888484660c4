"""Cases whose stages are timed, and cases that are only proven, judged over an in-memory pool (see conftest.py)."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from pytest_attnperf.records import CheckReport, Verdict
from pytest_attnperf.session.settings import Case, RunMode
from pytest_attnperf.testing.fake.device import FakeSubject

if TYPE_CHECKING:
    from tests.session.conftest import Bench

STAGES = {"project": 60.0, "split": 0.0, "attention": 38.0}
NOT_TIMED = "not timed: its test sets timed=False"


@pytest.fixture
def broken_down(bench: Bench) -> Case:
    """The case, whose test asks for its stages."""
    return replace(bench.case, breakdown=True)


@pytest.fixture
def proven_only(bench: Bench) -> Case:
    """The case, whose test wants it proven and not timed."""
    return replace(bench.case, timed=False)


@pytest.fixture
def profiled(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Whether each check was made under a profiler."""
    seen: list[bool] = []
    check = FakeSubject.check

    def noting(self: FakeSubject, *, profiled: bool = False, repeats: int = 0) -> CheckReport:
        seen.append(profiled)
        return check(self, repeats=repeats)

    monkeypatch.setattr(FakeSubject, "check", noting)
    return seen


def test_a_gate_tells_the_stages(stored: Bench, broken_down: Case) -> None:
    """The first look's process times the stages, and the verdict is what it would be without them."""
    result = stored.judge(case=broken_down, stages=STAGES)
    assert result.verdict is Verdict.SAME
    assert result.breakdown is not None
    assert [stage.name for stage in result.breakdown.stages] == list(STAGES)
    assert result.breakdown.sum_us == pytest.approx(98.0, rel=0.01)
    assert stored.judge(stages=STAGES).breakdown is None


def test_stages_are_told_beside_a_baseline_recorded_here(bench: Bench, broken_down: Case) -> None:
    """With --attnperf-record-local, too; the processes of the recording are asked for times only."""
    asked: dict[str, Any] = {"settings": {"record_local": True}, "stages": STAGES}
    result = bench.judge(case=broken_down, **asked)
    assert result.breakdown is not None


@pytest.mark.parametrize("mode", [RunMode.CHECK, RunMode.UPDATE, RunMode.CALIBRATE])
def test_other_modes_do_not_ask(
    bench: Bench, broken_down: Case, mode: RunMode, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Stages are never timed where nothing is gated, nor in a recording."""
    monkeypatch.delattr(FakeSubject, "measure_stages")
    assert bench.judge(mode, case=broken_down, stages=STAGES).breakdown is None


def test_the_second_look_does_not_ask(stored: Bench, broken_down: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only the first process of a suspect times stages."""
    seen: list[float] = []
    stages = FakeSubject.measure_stages
    monkeypatch.setattr(FakeSubject, "measure_stages", lambda self, us: (seen.append(us), stages(self, us))[1])
    assert stored.judge(case=broken_down, time_us=120.0, stages=STAGES).verdict is Verdict.SLOWER
    assert len(seen) == 1


def test_a_stage_that_cannot_be_timed_is_a_note(stored: Bench, broken_down: Case) -> None:
    """The case keeps its verdict, and says why its stages are missing."""
    result = stored.judge(case=broken_down, fault="stage")
    assert (result.verdict, result.breakdown) == (Verdict.SAME, None)
    assert result.notes == ("stages were not timed: stage 'rope': graph capture failed (scripted)",)


def test_a_stage_that_goes_through_the_host_is_incorrect(stored: Bench, broken_down: Case) -> None:
    """A crossing is found in the stage that makes it, and fails the case."""
    result = stored.judge(case=broken_down, fault="crossing")
    assert (result.verdict, result.fails) == (Verdict.INCORRECT, True)
    assert "stage 'rope': the call copied 64 bytes between host and device" in result.summary


@pytest.mark.parametrize(("mode", "place"), [(RunMode.GATE, 0), (RunMode.UPDATE, 100), (RunMode.CALIBRATE, 100)])
def test_a_case_that_is_only_proven(
    bench: Bench, proven_only: Case, profiled: list[bool], mode: RunMode, place: int
) -> None:
    """It is right, says why it has no time, and keeps the profiler out of a process that others are timed in."""
    result = bench.judge(mode, case=proven_only)
    assert (result.verdict, result.fails, result.median_us) == (Verdict.RIGHT, False, None)
    assert result.summary == (f"{NOT_TIMED}; nothing is recorded" if mode is RunMode.UPDATE else NOT_TIMED)
    assert result.notes == (result.summary,)
    assert bench.pool.visited == [place]
    assert profiled == [False]


def test_a_run_that_times_nothing_looks_closer(bench: Bench, proven_only: Case, profiled: list[bool]) -> None:
    """Without --attnperf such a case is checked like any other, under a profiler, and needs no word on its time."""
    result = bench.judge(RunMode.CHECK, case=proven_only)
    assert (result.verdict, result.summary, result.notes) == (Verdict.RIGHT, "right; not timed", ())
    assert profiled == [True]


def test_a_wrong_case_that_is_only_proven(bench: Bench, proven_only: Case) -> None:
    """It fails like any other."""
    result = bench.judge(case=proven_only, fault="wrong")
    assert (result.verdict, result.fails) == (Verdict.INCORRECT, True)
    assert NOT_TIMED not in result.summary


def test_a_case_may_not_cease_to_be_timed(stored: Bench, proven_only: Case) -> None:
    """Where a time is stored the test fails: nothing would ever be held against it again."""
    result = stored.judge(case=proven_only)
    assert (result.verdict, result.fails) == (Verdict.RIGHT, True)
    assert result.summary == f"not timed any more, but a baseline is stored in prefill.json: {NOT_TIMED}"
    assert stored.judge(RunMode.UPDATE, case=proven_only).fails is False


def test_an_unsupported_case_that_is_only_proven(stored: Bench, proven_only: Case) -> None:
    """It may not call itself unsupported either where a time is stored."""
    result = stored.judge(case=proven_only, supported=["no such head"])
    assert (result.verdict, result.fails) == (Verdict.UNSUPPORTED, True)
