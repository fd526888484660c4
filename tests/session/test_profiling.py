"""Cases that are profiled, judged over an in-memory pool (see conftest.py)."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from pytest_attnperf.baselines.ceilings_store import CEILINGS_SCHEMA, CeilingsStore, StoredCeilings
from pytest_attnperf.errors import WorkerError
from pytest_attnperf.records import DeviceInfo, Launch, Verdict, WorkloadFigures
from pytest_attnperf.records.profiles import CaseProfile, KernelShape, LiveKernel
from pytest_attnperf.records.rooflines import BoundClass, DeviceCeilings
from pytest_attnperf.results import CaseResult
from pytest_attnperf.session.profiling import PROFILE_PLACE, bound_of, launches_of
from pytest_attnperf.session.settings import Case, RunMode
from pytest_attnperf.testing.fake.device import FakeSubject

NOT_PROFILED = "not profiled:"

if TYPE_CHECKING:
    from tests.session.conftest import Bench

H200 = DeviceInfo("cuda", "sm_90", "h200", "NVIDIA H200", 132)
ASKED: dict[str, Any] = {"settings": {"profile": True}}


def test_a_gated_case_is_profiled_elsewhere_after_its_verdict(stored: Bench) -> None:
    """In a place of its own, behind the first look; verdict and time are what they would be without."""
    plain = stored.judge()
    result = stored.judge(**ASKED, profile={"flash": 60_000, "cast": 30_000})
    assert stored.pool.visited == [0, PROFILE_PLACE]
    assert (result.verdict, result.median_us, result.notes) == (Verdict.SAME, plain.median_us, ())
    assert result.profile is not None
    assert [kernel.shape.name for kernel in result.profile.kernels] == ["flash", "cast"]
    assert result.profile.bound is not None
    assert plain.profile is None


def test_the_class_is_by_the_gated_time(stored: Bench) -> None:
    """The profiler's durations are twice as long here, and nothing is concluded from them."""
    bound = stored.judge(**ASKED, profile={"flash": 200_000}).profile.bound  # type: ignore[union-attr]
    assert bound is not None
    assert bound.point is not None
    assert bound.point.time_us == pytest.approx(100.0, rel=0.02)


def test_a_slower_case_is_profiled_behind_its_second_look(stored: Bench) -> None:
    """What became slower is what one wants to see."""
    result = stored.judge(**ASKED, time_us=120.0)
    assert (result.verdict, result.fails) == (Verdict.SLOWER, True)
    assert stored.pool.visited == [0, 1, 2, 3, PROFILE_PLACE]
    assert result.profile is not None


def test_a_run_that_only_checks_profiles_and_decides_nothing(bench: Bench) -> None:
    """No time was taken, and a profiler's durations do not stand in for it."""
    result = bench.judge(RunMode.CHECK, **ASKED)
    assert (result.verdict, bench.pool.visited) == (Verdict.RIGHT, [0, PROFILE_PLACE])
    assert result.profile is not None
    assert result.profile.bound is not None
    assert result.profile.bound.bound is BoundClass.UNDECIDED
    assert result.profile.bound.reason.startswith("no time was taken")
    assert "--attnperf" in result.profile.bound.decide


@pytest.mark.parametrize(
    ("script", "verdict"),
    [
        ({"fault": "wrong"}, Verdict.INCORRECT),
        ({"fault": "prepare"}, Verdict.ERROR),
        ({"supported": ["no such head"]}, Verdict.UNSUPPORTED),
    ],
)
def test_what_is_not_right_is_not_profiled(bench: Bench, script: dict[str, Any], verdict: Verdict) -> None:
    """Nor is another process asked."""
    if verdict is Verdict.ERROR:
        script = {"by_place": {0: {"error": WorkerError("worker0-1 died")}}}
        bench.pool.by_place = script.pop("by_place")
    result = bench.judge(RunMode.CHECK, **ASKED, **script)
    assert (result.verdict, result.profile, result.notes) == (verdict, None, ())
    assert bench.pool.visited == [0]


def test_a_case_that_is_only_proven_is_not_profiled(bench: Bench) -> None:
    """Its test says that its time is of no interest."""
    result = bench.judge(case=replace(bench.case, timed=False), **ASKED)
    assert (result.profile, bench.pool.visited) == (None, [0])


def test_a_case_whose_time_says_nothing_is_not_asked(bench: Bench) -> None:
    """As of Triton's interpreter: the note says why, and no process is started for it."""
    result = bench.judge(RunMode.CHECK, **ASKED, not_timed="interpreted: its time says nothing")
    assert bench.pool.visited == [0]
    assert result.notes[1] == f"{NOT_PROFILED} interpreted: its time says nothing"


@pytest.mark.parametrize(
    ("script", "said"),
    [
        ({"fault": "unprofiled"}, "torch's profiler saw no kernel, copy or memory set in 5 calls (scripted)"),
        ({"error": WorkerError("worker990-4 died (signal 6)", "log")}, "worker990-4 died (signal 6)"),
        (
            {"fault": "wrong"},
            "the case ended as incorrect in the process that was to profile it: check: out: max error is "
            "40.0x the budget at (0, 1, 2, 3): got 0.5, expected 0.25",
        ),
        ({"not_timed": "interpreted"}, "interpreted"),
    ],
)
def test_a_profile_that_fails_is_a_note(stored: Bench, script: dict[str, Any], said: str) -> None:
    """One line, and never another verdict."""
    stored.pool.by_place = {PROFILE_PLACE: script}
    result = stored.judge(**ASKED)
    assert (result.verdict, result.fails, result.profile) == (Verdict.SAME, False, None)
    assert result.notes == (f"{NOT_PROFILED} {said}",)


def test_nobody_asks_unless_told(stored: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """No profiler comes near a run without the option."""
    monkeypatch.delattr(FakeSubject, "profile")
    assert stored.judge().profile is None
    assert stored.pool.visited == [0]


def _profile(*kernels: LiveKernel) -> CaseProfile:
    return CaseProfile(calls=2, kernels=kernels, profiler_ns=4000)


def _gated(case: Case, median_us: float) -> CaseResult:
    figures = WorkloadFigures(8e9, 4e6, "f16", "hot")
    return CaseResult(case.key, case.nodeid, Verdict.SAME, "", median_us=median_us, figures=figures)


def test_peaks_and_stored_ceilings_are_used(bench: Bench) -> None:
    """8 GFLOP in 10 us reach three quarters of an H200's peak, and all of what this one was measured to reach."""
    profile = _profile(LiveKernel(KernelShape("flash"), (12_000, 12_000)))
    found = bound_of(_gated(bench.case, 10.0), profile, H200, bench.store)
    assert found.point is not None
    assert found.point.share == pytest.approx(0.747, abs=0.003)
    assert found.bound is BoundClass.COMPUTE
    measured = DeviceCeilings("sm_90", "h200", 132, flops_per_s={"f16": 8e14}, processes=3)
    store = CeilingsStore(*bench.store.roots)
    store.write(bench.store.roots[1], StoredCeilings(CEILINGS_SCHEMA, measured))
    found = bound_of(_gated(bench.case, 10.0), profile, H200, bench.store)
    assert found.point is not None
    assert "measured" in {ceiling.kind for ceiling in found.point.ceilings}


def test_unsound_ceilings_leave_the_profile(bench: Bench) -> None:
    """What binds the case is then open, and the file is named."""
    path = Path(bench.store.roots[0], "sm_90", "h200", "ceilings", "132.json")
    path.parent.mkdir(parents=True)
    path.write_text("{")
    found = bound_of(_gated(bench.case, 12.0), _profile(), H200, bench.store)
    assert found.bound is BoundClass.UNDECIDED
    assert found.reason.startswith("the stored ceilings cannot be used: ")
    assert str(path) in found.reason


@pytest.mark.parametrize(
    "figures", [{"copy_bytes_per_s": 4.3e13}, {"read_bytes_per_s": 9e12}, {"flops_per_s": {"f16": 2e15}}]
)
def test_ceilings_above_the_peak_bind_nothing(bench: Bench, figures: dict[str, Any]) -> None:
    """No device reaches ten times its data sheet: a share of such a figure would say anything."""
    measured = DeviceCeilings("sm_90", "h200", 132, **figures, processes=3)
    CeilingsStore(*bench.store.roots).write(bench.store.roots[1], StoredCeilings(CEILINGS_SCHEMA, measured))
    found = bound_of(_gated(bench.case, 10.0), _profile(), H200, bench.store)
    assert found.bound is BoundClass.UNDECIDED
    assert "of H200 SXM" in found.reason


def test_launches_are_those_of_one_call() -> None:
    """Operators of a CPU are no launches."""
    twice = LiveKernel(KernelShape("split"), (1, 1, 1, 1))
    copy = LiveKernel(KernelShape("Memcpy DtoD", "copy", bytes=64), (1, 1))
    assert launches_of(_profile(twice, copy)) == (Launch("split", calls=2.0), Launch("Memcpy DtoD", "copy", calls=1.0))
    assert launches_of(_profile(LiveKernel(KernelShape("aten::mm", "operator"), (1, 1)))) is None
    sized = KernelShape("flash", workgroup=(128, 1, 1), grid_items=(1280, 4, 1), lds_bytes=1024)
    (launch,) = launches_of(_profile(LiveKernel(sized, (1, 1)))) or ()
    assert (launch.grid, launch.block, launch.shared_bytes) == ((10, 4, 1), (128, 1, 1), 1024)
