from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from pytest_attnperf.records import DeviceInfo, Verdict
from pytest_attnperf.reports.run.joined import join_runs, join_single
from pytest_attnperf.results import CaseResult, RunResult

Make = Callable[..., CaseResult]
MakeRun = Callable[..., RunResult]


def test_runs_of_two_devices_are_one_report(case: Make, run: MakeRun) -> None:
    """The same case on two devices is two cases, and neither hides the other."""
    here = run(case())
    there = replace(run(case()), device=DeviceInfo("rocm", "gfx942", "mi300x"))
    joined = join_runs([("a.json", here), ("b.json", there)])
    assert [shown.device for shown in joined.cases] == ["sm_90/h200", "gfx942/mi300x"]
    assert joined.devices == ("sm_90/h200", "gfx942/mi300x")
    assert joined.notes == ()


def test_a_repetition_hides_no_failure(case: Make, run: MakeRun) -> None:
    """A case that failed in one run and passed in a later one of the same device is shown as failed, which is said."""
    failed = run(case(), started="2026-01-01T00:00:00Z")
    passed = run(case(verdict=Verdict.SAME, fails=False), started="2026-01-02T00:00:00Z")
    for order in ([("a", failed), ("b", passed)], [("b", passed), ("a", failed)]):
        joined = join_runs(order)
        assert [shown.case.verdict for shown in joined.cases] == [Verdict.SLOWER]
        assert "twice, SLOWER in a and SAME in b" in joined.notes[0]
    assert joined.has_failed


def test_of_two_equal_results_the_later_is_shown(case: Make, run: MakeRun) -> None:
    """By the start of its run, whatever the order of the files."""
    early = run(case(median_us=1.0), started="2026-01-01T00:00:00Z")
    late = run(case(median_us=2.0), started="2026-01-02T00:00:00Z")
    assert [shown.case.median_us for shown in join_runs([("b", late), ("a", early)]).cases] == [2.0]


def test_a_case_twice_in_one_file(case: Make, run: MakeRun) -> None:
    """The worse one is shown."""
    joined = join_single(
        run(case(verdict=Verdict.SAME, fails=False), case(), case(verdict=Verdict.SAME, fails=False)), "a"
    )
    assert [shown.case.verdict for shown in joined.cases] == [Verdict.SLOWER]
    assert len(joined.notes) == 2
