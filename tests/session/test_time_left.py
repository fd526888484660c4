"""How long a run still takes: a pure function of what its cases took, how many there are, and how long one goes on."""

from __future__ import annotations

import pytest

from pytest_attnperf.errors import UsageError
from pytest_attnperf.session.time_left import (
    Left,
    Took,
    estimate_time_left,
    format_duration,
    format_time_left,
    parse_seconds,
)


def seconds(left: Left | None) -> float:
    """Of an estimate that there is."""
    assert left is not None
    return left.seconds


def test_nothing_is_said_before_anything_is_known() -> None:
    """Before the first case has ended the time left is unknown, unless the steps of the only one say so."""
    assert estimate_time_left([], {"prefill": 3}, 48.0) is None
    assert estimate_time_left([], {"prefill": 3}, 48.0, step_left=5.0) is None
    assert estimate_time_left([], {"prefill": 1}, 48.0, step_left=60.0) == Left(60.0)
    assert format_time_left(None) == "time left unknown"


def test_a_first_case_alone_says_nothing() -> None:
    """It has paid for the start of workers, so that the next ones say how long the rest takes."""
    first = Took("demo", 52.0)
    assert estimate_time_left([first], {"demo": 55}, 1.0) is None
    assert seconds(estimate_time_left([first, Took("demo", 2.0)], {"demo": 54}, 0.0)) == pytest.approx(108.0)


def test_suites_are_told_apart() -> None:
    """Cheap kernels first say little about the cases behind them; once these have begun the estimate is theirs."""
    cheap = [Took("code_objects", 0.1)] * 100
    assert seconds(estimate_time_left(cheap, {"prefill": 50}, 0.0)) == pytest.approx(50 * 0.1)
    begun = [*cheap, *[Took("prefill", 6.0)] * 10]
    assert seconds(estimate_time_left(begun, {"prefill": 40}, 0.0)) == pytest.approx(40 * 6.0)


def test_what_is_unlike_the_others_has_a_time_of_its_own() -> None:
    """Cases that are only proven do not take what timed ones did; once one of them has ended it says what they take."""
    took, priors = [Took("demo", 20.0)] * 3, {"proven": 2.0}
    assert seconds(estimate_time_left(took, {"proven": 10}, 0.0, priors=priors)) == pytest.approx(20.0)
    took.append(Took("proven", 5.0))
    assert seconds(estimate_time_left(took, {"proven": 9}, 0.0, priors=priors)) == pytest.approx(45.0)


def test_second_looks_are_told_apart() -> None:
    """Second looks take several times as long; as many are expected of the next cases as there were."""
    took = [*[Took("prefill", 2.0)] * 9, Took("prefill", 42.0, twice=True)]
    assert seconds(estimate_time_left(took, {"prefill": 20}, 0.0)) == pytest.approx(20 * (0.9 * 2.0 + 0.1 * 42.0))


def test_a_slow_case_does_not_turn_it_over() -> None:
    """A first case that compiles for two minutes counts little beside those behind it."""
    took = [Took("prefill", 120.0), *[Took("prefill", 2.0)] * 14]
    assert seconds(estimate_time_left(took, {"prefill": 85}, 0.0)) < 85 * 2.0 * 1.4


def test_it_counts_down_with_the_clock() -> None:
    """While a case goes on the rest shrinks by the second, to what the cases behind it take."""
    took = [Took("prefill", 10.0)] * 3
    assert [seconds(estimate_time_left(took, {"prefill": 2}, since)) for since in (0.0, 4.0, 10.0)] == [
        20.0,
        16.0,
        10.0,
    ]


@pytest.mark.parametrize("since", [10.1, 48.0, 3600.0])
def test_what_goes_on_for_longer_than_usual_is_no_zero(since: float) -> None:
    """A case that overruns leaves at least those behind it; of the last one nobody knows when it ends."""
    took = [Took("prefill", 10.0)] * 3
    overrun = estimate_time_left(took, {"prefill": 3}, since)
    assert overrun == Left(20.0, at_least=True)
    assert format_time_left(overrun) == "at least 20 s left"
    assert format_time_left(estimate_time_left(took, {"prefill": 1}, since)) == "time left unknown"


def test_the_steps_of_a_case_say_when_it_ends() -> None:
    """A second look that has taken 2 of 7 processes says of itself how long it takes, however long cases usually do."""
    took = [Took("prefill", 10.0)] * 3
    assert estimate_time_left(took, {"prefill": 3}, 30.0, step_left=50.0) == Left(70.0)


def test_little_is_no_number() -> None:
    """Never 'about 0 s left': ending workers and writing takes seconds beside the last case."""
    assert format_time_left(Left(0.2)) == format_time_left(Left(9.9)) == "less than 10 s left"
    assert format_time_left(Left(9.0, at_least=True)) == "time left unknown"
    assert format_time_left(Left(110.0)) == "about 110 s left"
    assert format_time_left(Left(600.0)) == "about 10 min left"


def test_never_negative() -> None:
    """Suites that have ended, more cases than planned and nothing planned leave 0 seconds at the least."""
    took = [Took("prefill", 100.0), Took("other", 1.0)]
    assert estimate_time_left(took, {}, 5.0) == Left(0.0)
    assert estimate_time_left(took, {"prefill": -2, "": 0}, 5.0) == Left(0.0)
    assert seconds(estimate_time_left(took, {"prefill": -2, "other": 1}, 0.5)) == 0.5


@pytest.mark.parametrize(("text", "seconds"), [("90", 90.0), ("90s", 90.0), ("10m", 600.0), ("1.5h", 5400.0)])
def test_seconds_of(text: str, seconds: float) -> None:
    """Seconds, minutes and hours."""
    assert parse_seconds(text) == seconds


@pytest.mark.parametrize("text", ["", "0", "-5m", "10 days", "m"])
def test_what_is_no_time(text: str) -> None:
    """A text that is no time above 0 is refused under the name of its option, with examples."""
    with pytest.raises(UsageError, match=r"^--attnperf-budget '.*' must be a time above 0, e.g. 90s, 10m or 1h$"):
        parse_seconds(text, "--attnperf-budget")


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.2, "0 s"), (85, "85 s"), (119, "119 s"), (121, "2 min"), (3 * 60, "3 min"), (7199, "120 min"), (9000, "2.5 h")],
)
def test_durations_have_units_that_fit(seconds: float, text: str) -> None:
    """Seconds under two minutes, minutes under two hours, then hours."""
    assert format_duration(seconds) == text
