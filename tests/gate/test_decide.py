from __future__ import annotations

import dataclasses

import pytest

from pytest_attnperf.gate.decide import Decision, first_look, second_look
from pytest_attnperf.gate.policy import Policy
from pytest_attnperf.records import CheckReport, ErrorFigures, Measurement, ProcessSummary, Verdict
from pytest_attnperf.stats.noise import NoiseEstimate

RIGHT = CheckReport(figures=(ErrorFigures("fresh", "out", 0.1, 1.0, 0.1, 1.0),))
QUIET = NoiseEstimate(0.003, 600, "pooled over 100 cases")
LOUD = NoiseEstimate(0.02, 600, "pooled over 100 cases")
BASE_US = 100.0


def measured(median_us: float, processes: int = 3) -> Measurement:
    """A right case whose processes all have this median."""
    one = ProcessSummary(median_us, median_us, median_us, (median_us,), 20, "graph")
    return Measurement((one,) * processes, (RIGHT,) * processes)


def screen(new_us: float, noise: NoiseEstimate | None = QUIET, policy: Policy | None = None) -> Decision:
    """A first look of one process against seven stored ones at 100 us, in a suite of 100 cases."""
    return first_look(measured(BASE_US, 7), measured(new_us, 1), noise, policy or Policy(), cases=100)


def settle(new_us: float, noise: NoiseEstimate | None = QUIET, changes: tuple[str, ...] = ()) -> Decision:
    """A second look of three processes, after a first look that saw 9 % slower."""
    return second_look(measured(BASE_US, 7), measured(109.0, 1), measured(new_us), noise, Policy(), 100, changes)


@pytest.mark.parametrize(
    ("new_us", "verdict", "again"),
    [
        (100.0, Verdict.SAME, False),
        (102.0, Verdict.SAME, False),
        (102.01, Verdict.SLOWER, True),
        (98.0, Verdict.SAME, False),
        (97.9, Verdict.FASTER, False),
    ],
)
def test_first_look_settles_all_but_slower(new_us: float, verdict: Verdict, again: bool) -> None:
    """Up to and with the threshold it is SAME, beyond it a second look is asked for; FASTER needs none."""
    decision = screen(new_us)
    assert (decision.verdict, decision.needs_second_look) == (verdict, again)
    assert decision.threshold == 1.02


def test_gray_zone_of_a_first_look_is_undecided() -> None:
    """Beyond the user's threshold but within the noise the first look says UNDECIDED and asks for a second."""
    decision = screen(105.0, LOUD)
    assert (decision.verdict, decision.needs_second_look) == (Verdict.UNDECIDED, True)
    assert decision.threshold is not None
    assert decision.threshold > 1.05


@pytest.mark.parametrize(("new_us", "verdict"), [(5.5, "SAME"), (5.51, "SLOWER"), (4.6, "SAME")])
def test_the_floor_in_microseconds_holds_for_short_kernels(new_us: float, verdict: str) -> None:
    """10 % of a 5 us kernel is half a microsecond, which is not enough to be slower or faster."""
    decision = first_look(measured(5.0, 7), measured(new_us), QUIET, Policy(), cases=100)
    assert decision.verdict == verdict


def test_a_loud_case_must_be_faster_by_more_than_its_noise() -> None:
    """5 % less time is SAME when chance alone could have done it."""
    assert screen(95.0, LOUD).verdict == Verdict.SAME
    assert screen(80.0, LOUD).verdict == Verdict.FASTER


def test_slower_is_said_with_its_figures() -> None:
    """SLOWER prints the second look's size, its interval, both times, the threshold, and where that comes from."""
    decision = settle(105.0)
    assert decision.verdict == Verdict.SLOWER
    assert decision.summary == (
        "+5.0 % (+4.5 % to +5.5 %): 105 us against 100 us stored, beyond the 2 % threshold in two looks"
    )
    assert decision.reasons == (
        "threshold 2 %: the largest of policy 2 %, 0.5 us = 0.5 %, and noise 0.9 %",
        "noise: 0.3 % per process (pooled over 100 cases), 7 stored and 3 new, z 3.7",
        "the first look saw +9.0 %",
        "a slowdown of 2.6 % would have been noticed by this look 99 % of the time",
    )
    assert decision.ratio == 1.05


def test_the_second_look_decides_alone() -> None:
    """However large the first look was, a second one within the threshold is SAME, and says so."""
    decision = settle(101.0)
    assert decision.verdict == Verdict.SAME
    assert decision.summary.endswith("101 us against 100 us stored; the first look was not confirmed")
    assert settle(80.0).verdict == Verdict.SAME


def test_a_changed_toolchain_is_not_blamed_on_the_code() -> None:
    """Slower beyond the threshold while the toolchain differs is ENVIRONMENT, with every change named."""
    decision = settle(105.0, changes=("torch: 2.11 here, 2.10 stored", "driver: 580 here, 570 stored"))
    assert decision.verdict == Verdict.ENVIRONMENT
    assert "but the toolchain changed: torch: 2.11 here, 2.10 stored; driver: 580 here, 570 stored" in decision.summary
    assert settle(101.0, changes=("torch: 2.11 here, 2.10 stored",)).verdict == Verdict.SAME


@pytest.mark.parametrize(
    ("new_us", "advice"),
    [
        (105.0, "6 fresh processes instead of 3 would decide it"),
        (103.0, "19 stored and 19 fresh processes would decide it"),
        (102.01, "43 stored and 43 fresh processes would decide it"),
    ],
)
def test_undecided_says_what_would_decide_it(new_us: float, advice: str) -> None:
    """Between the user's threshold and the noise the number of processes that would tell is given."""
    decision = settle(new_us, LOUD)
    assert decision.verdict == Verdict.UNDECIDED
    assert decision.summary.endswith(advice)
    assert "more than the 2 % allowed, less than the " in decision.summary


def test_hopeless_noise_is_said() -> None:
    """Where no number of processes would help, the advice is to find the noise, and nothing would be detected."""
    decision = settle(103.0, NoiseEstimate(0.9, 600, "made up"))
    assert decision.summary.endswith("not even 200 processes a side would decide it: find where the noise comes from")
    assert decision.detection_limit == float("inf")
    assert decision.reasons[-1].startswith("no slowdown would have been noticed")


def test_unknown_noise_decides_nothing() -> None:
    """Without two stored processes of any case there is no threshold: UNDECIDED, with what to do."""
    for decision in (screen(150.0, None), settle(150.0, None)):
        assert (decision.verdict, decision.needs_second_look) == (Verdict.UNDECIDED, False)
        assert (decision.threshold, decision.interval, decision.detection_limit) == (None, None, None)
        assert "no case timed by 'graph' has two stored processes" in decision.summary
        assert "--update-baselines" in decision.reasons[0]


def test_a_tighter_rate_or_a_larger_suite_widens_the_threshold() -> None:
    """The noise threshold follows the suite's false-alarm rate and the number of cases it is shared by."""
    policy = Policy(threshold_percent=0, floor_us=0)
    rare = dataclasses.replace(policy, suite_false_alarm_rate=0.0001)
    one = first_look(measured(100.0, 7), measured(100.0, 1), QUIET, policy, cases=1).threshold
    many = first_look(measured(100.0, 7), measured(100.0, 1), QUIET, policy, cases=200).threshold
    tight = first_look(measured(100.0, 7), measured(100.0, 1), QUIET, rare, cases=200).threshold
    assert one is not None
    assert many is not None
    assert tight is not None
    assert one < many < tight
