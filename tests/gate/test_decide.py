from __future__ import annotations

import dataclasses

import pytest

from pytest_attnperf.gate.canary_drift import CanaryReading, CanaryShift
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


def settle(
    new_us: float,
    noise: NoiseEstimate | None = QUIET,
    changes: tuple[str, ...] = (),
    canary: CanaryShift | None = None,
    policy: Policy | None = None,
) -> Decision:
    """A second look of three processes at a compute-bound case, after a first look that saw 9 % slower."""
    base, first, second = measured(BASE_US, 7), measured(109.0, 1), measured(new_us)
    policy = policy or Policy()
    return second_look(base, first, second, noise, policy, 100, changes, canary=canary, bound="compute")


def gemm(ratio: float) -> CanaryShift:
    """A canary whose GEMM takes this many times as long as stored."""
    return CanaryShift((CanaryReading("gemm", ratio, 0.01), CanaryReading("copy", 0.9999, 0.01)))


@pytest.mark.parametrize(
    ("new_us", "verdict", "again"),
    [
        (100.0, Verdict.SAME, False),
        (102.0, Verdict.SAME, False),
        (102.01, Verdict.UNDECIDED, True),
        (102.7, Verdict.SLOWER, True),
        (97.5, Verdict.SAME, False),
        (97.3, Verdict.FASTER, False),
    ],
)
def test_first_look_settles_all_but_slower(new_us: float, verdict: Verdict, again: bool) -> None:
    """Up to and with what is allowed it is SAME, beyond it a second look is asked for; FASTER needs none."""
    decision = screen(new_us)
    assert (decision.verdict, decision.needs_second_look) == (verdict, again)
    assert decision.threshold == pytest.approx(1.0267, abs=1e-4)


def test_gray_zone_of_a_first_look_is_undecided() -> None:
    """Beyond the user's threshold but within the noise the first look says UNDECIDED and asks for a second."""
    decision = screen(105.0, LOUD)
    assert (decision.verdict, decision.needs_second_look) == (Verdict.UNDECIDED, True)
    assert decision.threshold is not None
    assert decision.threshold > 1.05


@pytest.mark.parametrize(("new_us", "verdict"), [(5.5, "SAME"), (5.53, "SLOWER"), (4.6, "SAME")])
def test_the_floor_in_microseconds_holds_for_short_kernels(new_us: float, verdict: str) -> None:
    """10 % of a 5 us kernel is half a microsecond, which is not enough to be slower or faster."""
    decision = first_look(measured(5.0, 7), measured(new_us), QUIET, Policy(), cases=100)
    assert decision.verdict == verdict


def test_a_loud_case_must_be_faster_by_more_than_its_noise() -> None:
    """5 % less time is SAME when chance alone could have done it."""
    assert screen(95.0, LOUD).verdict == Verdict.SAME
    assert screen(80.0, LOUD).verdict == Verdict.FASTER


@pytest.mark.parametrize(
    ("noise", "floor_us", "new_us", "verdict"),
    [(0.5, 0.5, 0.1, "FASTER"), (0.5, 0.5, 60.0, "SAME"), (0.003, 60.0, 0.1, "FASTER"), (0.003, 300.0, 1.0, "FASTER")],
)
def test_a_limit_above_100_percent_leaves_room_to_be_faster(
    noise: float, floor_us: float, new_us: float, verdict: str
) -> None:
    """A case that takes a thousandth of its time is FASTER, however loud or short; within the noise it is SAME."""
    estimate, policy = NoiseEstimate(noise, 600, "pooled"), Policy(floor_us=floor_us)
    decision = screen(new_us, estimate, policy)
    assert decision.threshold is not None
    assert decision.threshold > 1.5
    assert decision.verdict == verdict


def test_same_says_how_near_it_is() -> None:
    """Faster than is allowed to be slower is not called within that."""
    assert screen(99.0).summary.endswith("; within 2 %")
    assert screen(95.0, LOUD).summary.endswith("; faster, but by less than the 8.5 % needed to be certain")


def test_slower_is_said_with_its_figures() -> None:
    """SLOWER prints the second look's size, its interval, both times, the threshold, and where that comes from."""
    decision = settle(105.0)
    assert decision.verdict == Verdict.SLOWER
    assert decision.summary == (
        "+5.0 % (+4.5 % to +5.5 %): 105.0 us against 100.0 us stored, beyond the 2.5 % threshold in two looks"
    )
    assert decision.reasons == (
        "threshold 2.5 %: policy 2 % or 0.5 us = 0.5 %, plus 0.47 % for the interval; at least 0.9 % for noise",
        "noise: 0.3 % per process (pooled over 100 cases), 7 stored and 3 new, z 3.7",
        "the first look saw +9.0 %",
        "this look would have detected a slowdown of 3.1 % 99 % of the time",
    )
    assert decision.ratio == 1.05


def test_the_second_look_decides_alone() -> None:
    """However large the first look was, a second one within the threshold is SAME, and says so."""
    decision = settle(101.0)
    assert decision.verdict == Verdict.SAME
    assert decision.summary.endswith("101.0 us against 100.0 us stored; the first look was not confirmed")
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
        (105.0, "7 fresh processes instead of 3 would decide it"),
        (103.0, "51 stored and 51 fresh processes would decide it"),
        (102.01, "even 200 processes per side would not decide it: find the source of the noise"),
    ],
)
def test_undecided_says_what_would_decide_it(new_us: float, advice: str) -> None:
    """Between the user's threshold and the noise the number of processes that would tell is given."""
    decision = settle(new_us, LOUD)
    assert decision.verdict == Verdict.UNDECIDED
    assert decision.summary.endswith(advice)
    assert "more than the 2 % allowed, but less than the " in decision.summary


def test_hopeless_noise_is_said() -> None:
    """Where no number of processes would help, the advice is to find the noise: less than ten times is not seen."""
    decision = settle(103.0, NoiseEstimate(0.9, 600, "made up"))
    assert decision.summary.endswith("even 200 processes per side would not decide it: find the source of the noise")
    assert decision.detection_limit is not None
    assert decision.detection_limit > 10


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


def test_a_slowdown_that_the_canary_shares_is_the_machines() -> None:
    """SLOWER becomes ENVIRONMENT when the fixed GEMM is slower by as much, and the summary says so."""
    decision = settle(105.0, canary=gemm(1.031))
    assert decision.verdict == Verdict.ENVIRONMENT
    assert decision.summary.endswith(
        "105.0 us against 100.0 us stored, but the canary GEMM is 3.1 % slower, too: the machine slowed down, not "
        "the code"
    )
    assert "only measuring both revisions interleaved can separate the code from the machine" in decision.reasons


def test_a_canary_that_moved_less_does_not_excuse_the_code() -> None:
    """A case that is slower than threshold and canary together stays SLOWER, with both figures."""
    decision = settle(108.0, canary=gemm(1.031))
    assert decision.verdict == Verdict.SLOWER
    assert (
        "the canary GEMM is 3.1 % slower than stored (gemm +3.1 %, copy -0.0 %): corrected for that, the case is +4.8 %"
        in decision.reasons
    )


def test_a_canary_that_stayed_is_said() -> None:
    """SLOWER with an unmoved canary says so; without a stored canary nothing is said."""
    assert "the canary did not move (gemm +0.1 %, copy -0.0 %)" in settle(105.0, canary=gemm(1.001)).reasons
    assert settle(105.0, canary=gemm(1.001)).verdict == Verdict.SLOWER
    assert not any("canary" in reason for reason in settle(105.0).reasons)


def test_a_canary_never_turns_another_verdict() -> None:
    """SAME and UNDECIDED stay what they are, however far the canary moved, and a toolchain change is named first."""
    assert settle(101.0, canary=gemm(1.2)).verdict == Verdict.SAME
    assert settle(105.0, LOUD, canary=gemm(1.2)).verdict == Verdict.UNDECIDED
    both = settle(105.0, changes=("torch: 2.11 here, 2.10 stored",), canary=gemm(1.2))
    assert "but the toolchain changed" in both.summary


def test_cycles_explain_a_compute_bound_slowdown_and_do_not_excuse_it() -> None:
    """With clocks on both sides a line says how far the case moved in cycles; the verdict is that of time."""

    def clocked(median_us: float, processes: int, mhz: float) -> Measurement:
        plain = measured(median_us, processes)
        timed = tuple(dataclasses.replace(process, clock_mhz=mhz) for process in plain.processes)
        return dataclasses.replace(plain, processes=timed)

    base, first, second = clocked(100.0, 7, 1800.0), clocked(104.0, 1, 1720.0), clocked(104.5, 3, 1722.6)
    decision = second_look(base, first, second, QUIET, Policy(), 100, bound="compute")
    assert decision.verdict == Verdict.SLOWER
    assert "in cycles +0.0 %: the clock was 4.3 % lower" in decision.reasons
    assert not any("cycles" in reason for reason in second_look(base, first, second, QUIET, Policy(), 100).reasons)


def test_a_threshold_tighter_than_the_noise_is_said_by_the_second_look() -> None:
    """A user who asks for half a percent is told that noise alone makes more."""
    reasons = settle(100.0, policy=Policy(threshold_percent=0.4)).reasons
    assert "threshold 0.5 % is tighter than the 0.9 % of noise here: slowdowns between them are UNDECIDED" in reasons
    assert not any("tighter" in reason for reason in settle(100.0).reasons)
