from __future__ import annotations

import pytest

from pytest_attnperf.gate.limits import (
    Limits,
    describe_cycles,
    format_percent,
    format_signed,
    tolerated_ratio,
)
from pytest_attnperf.gate.policy import Policy
from pytest_attnperf.records import Verdict
from pytest_attnperf.stats.comparison import Comparison
from pytest_attnperf.stats.noise import NoiseEstimate


def limits(ratio: float, tolerated: float = 1.02, noise: float = 0.01) -> Limits:
    """A look at this ratio."""
    comparison = Comparison(ratio, (ratio - 0.005, ratio + 0.005), 0.003, noise)
    return Limits(100.0, 100 * ratio, comparison, tolerated, NoiseEstimate(0.003, 40, "made up"), 3.1)


def test_the_limit_is_beyond_tolerance_and_noise() -> None:
    """From the limit on the interval lies above the tolerance; noise that is larger raises the limit."""
    assert limits(1.0).limit == pytest.approx(1.02 / 0.995)
    assert limits(1.0, noise=0.03).limit == 1.03


def test_the_tolerance_is_the_larger_of_percent_and_floor() -> None:
    """2 % of 100 us is more than half a microsecond, of 10 us it is less."""
    assert (tolerated_ratio(Policy(), 100.0), tolerated_ratio(Policy(), 10.0)) == (1.02, 1.05)


def test_a_decision_carries_the_error_it_was_made_with() -> None:
    """Standard error and degrees of freedom are kept for findings over the whole suite."""
    decision = limits(1.05).make_decision(Verdict.SLOWER, "slower", ["why"])
    assert (decision.standard_error, decision.degrees_of_freedom) == (0.003, 40)
    assert decision.reasons == ("why", "this look would have detected a slowdown of 3.2 % 99 % of the time")


def test_a_threshold_tighter_than_the_noise_is_said() -> None:
    """The user's threshold and the noise are both named; a threshold that noise does not reach needs no word."""
    assert limits(1.0, tolerated=1.005, noise=0.013).tighter_than_noise() == [
        "threshold 0.5 % is tighter than the 1.3 % of noise here: slowdowns between them are UNDECIDED"
    ]
    assert limits(1.0).tighter_than_noise() == []


@pytest.mark.parametrize(
    ("ratio", "base", "new", "said"),
    [
        (1.045, 1800.0, 1724.4, "in cycles +0.1 %: the clock was 4.2 % lower"),
        (1.02, 1800.0, 1800.1, "in cycles +2.0 %: the clock was the same"),
        (1.0, 1800.0, 1818.0, "in cycles +1.0 %: the clock was 1.0 % higher"),
    ],
)
def test_cycles_are_time_times_clock(ratio: float, base: float, new: float, said: str) -> None:
    """The change in cycles is that of time, times that of the median clock."""
    assert describe_cycles(ratio, [base] * 3, [new, new, 5000.0], "compute") == [said]


@pytest.mark.parametrize(
    ("base", "new", "bound"),
    [
        ([1800.0], [1800.0], "memory"),
        ([1800.0], [1800.0], ""),
        ([1800.0, None], [1800.0], "compute"),
        ([1800.0], [None], "compute"),
        ([1800.0], [1800.0, None], "compute"),
        ([1800.0], [], "compute"),
    ],
)
def test_cycles_need_every_clock_and_a_compute_bound(
    base: list[float | None], new: list[float | None], bound: str
) -> None:
    """Another bound, or one unit without its clock, gives no line."""
    assert describe_cycles(1.05, base, new, bound) == []


def test_figures_are_rounded_for_reading() -> None:
    """Percentages have two digits, signed ones a fixed number of decimals."""
    assert (format_percent(0.0134), format_percent(0.134), format_signed(-0.0134), format_signed(0.0134, 2)) == (
        "1.3 %",
        "13 %",
        "-1.3 %",
        "+1.34 %",
    )
