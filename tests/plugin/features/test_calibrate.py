"""`--attnperf-calibrate=N`, typed as a user types it, on the fake device."""

from __future__ import annotations

import pytest

from pytest_attnperf.errors import UsageError
from pytest_attnperf.gate.policy import Policy
from pytest_attnperf.plugin.features.calibrating import policy_of
from pytest_attnperf.testing.project import WORKLOAD, FakeProject


def test_a_calibration_says_what_the_gate_would_make_of_it(attnperf_project: FakeProject) -> None:
    """Twelve processes give the table, what it is worth, and the threshold that noise does not let a case keep."""
    attnperf_project.suite([WORKLOAD], settings=", suite='tight', threshold=0.1, floor_us=0", name="test_tight.py")
    attnperf_project.backend("fake.a", time_us=100)
    result = attnperf_project.run("--attnperf-calibrate=12")
    assert result.ret == 0, result.stdout.str()
    result.assert_outcomes(passed=2)
    result.stdout.fnmatch_lines(
        [
            "case * sd *95 % *noise 1st *noise 2nd *suspect *SLOWER *least threshold",
            f"prefill/fake.a/{WORKLOAD} * %",
            f"tight/fake.a/{WORKLOAD} * %",
            "1000 deals of 12 processes are 1 independent suite run:*",
            "of 1000 resampled suite runs over unchanged code *% were red",
            f"tight/fake.a/{WORKLOAD}: its threshold is smaller than the noise of *",
            "2 right, not gated on fake/fake1",
        ]
    )
    result.stdout.no_fnmatch_line("prefill/*: its threshold is smaller*")
    run = attnperf_project.results()
    assert (run["mode"], run["gated"], run["baseline_paths"]) == ("calibrate", 0, [])
    assert [(case["verdict"], len(case["first"])) for case in run["cases"]] == [("RIGHT", 12)] * 2
    assert not (attnperf_project.path / "baselines").exists()
    assert not (attnperf_project.path / ".attnperf" / "local").exists()


def test_a_calibration_starts_no_other_process(attnperf_project: FakeProject) -> None:
    """Two processes are two: none is started only to be asked what it runs on."""
    attnperf_project.backend("fake.a", time_us=100)
    attnperf_project.run("--attnperf-calibrate=2")
    assert len(list((attnperf_project.path / ".attnperf" / "logs").glob("*/worker*.log"))) == 2


def test_too_few_processes_for_decisions(attnperf_project: FakeProject) -> None:
    """Three processes give standard deviations, a dash for every decision, and how many would be needed."""
    attnperf_project.backend("fake.a", time_us=100)
    result = attnperf_project.run("--attnperf-calibrate=3", "--attnperf-second-look=4")
    assert result.ret == 0, result.stdout.str()
    result.stdout.re_match_lines([r"prefill/fake\.a/\S+ +\d\.\d\d % +\d\.\d\d %\.\.\d\.\d\d %( +-){5}"])
    result.stdout.fnmatch_lines(
        ["3 processes give standard deviations only: a decision needs 12 different ones (7 stored, 1 and 4 new)"]
    )
    result.stdout.no_fnmatch_line("*resampled suite runs*")


def test_what_is_not_right_is_not_calibrated(attnperf_project: FakeProject) -> None:
    """A wrong case fails as ever and has no line in the table; without any right case there is no table."""
    attnperf_project.backend("fake.a", fault="wrong")
    result = attnperf_project.run("--attnperf-calibrate=2")
    result.assert_outcomes(failed=1)
    result.stdout.no_fnmatch_line("*least threshold*")


def test_stored_baselines_are_left_alone(attnperf_project: FakeProject) -> None:
    """A calibration beside a stored baseline changes no byte of it."""
    attnperf_project.backend("fake.a", time_us=100)
    attnperf_project.store_baselines()
    before = attnperf_project.baseline().read_bytes()
    attnperf_project.backend("fake.a", time_us=120)
    assert attnperf_project.run("--attnperf-calibrate=2").ret == 0
    assert attnperf_project.baseline().read_bytes() == before


@pytest.mark.parametrize("text", ["1", "0", "many", "2.5"])
def test_a_count_that_is_none_is_refused(attnperf_project: FakeProject, text: str) -> None:
    """One process has no spread: a usage error that says what was given, and nothing is measured."""
    attnperf_project.backend("fake.a", time_us=100)
    result = attnperf_project.run(f"--attnperf-calibrate={text}")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines([f"*--attnperf-calibrate='{text}' *a whole number*"])
    assert not (attnperf_project.path / ".attnperf").exists()


def test_a_policy_comes_back_from_its_record() -> None:
    """What a result stores of its policy is that policy again; what no policy can have is named."""
    policy = Policy(threshold_percent=3, creep_percent=7)
    assert policy_of(policy.to_record()) == policy
    with pytest.raises(UsageError, match=r"policy record \{'speed': 1\}: .*'speed'"):
        policy_of({"speed": 1})
