from __future__ import annotations

import statistics
import time
from array import array

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_attnperf.records.profiles import Spread
from pytest_attnperf.tools.profilers.spreads import add_spreads, compute_spread, join_durations

durations = st.lists(st.integers(0, 10**12), min_size=2, max_size=40)


@given(durations)
@settings(max_examples=60, deadline=None)
def test_spread_is_that_of_the_statistics_module(values: list[int]) -> None:
    """Median, quartiles and standard deviation are those of `statistics`, in any order; sums are exact."""
    spread = compute_spread(array("q", values))
    assert (spread.calls, spread.total_ns) == (len(values), sum(values))
    assert (spread.min_ns, spread.max_ns) == (min(values), max(values))
    quartiles = statistics.quantiles(values, n=4, method="inclusive")
    assert [spread.q1_ns, spread.median_ns, spread.q3_ns] == pytest.approx(quartiles, rel=1e-12)
    assert spread.stddev_ns == pytest.approx(statistics.stdev(values), rel=1e-9, abs=1e-9)


def test_nothing_and_one_duration() -> None:
    """Without durations nothing is known; one duration is its own quartiles and has no deviation."""
    assert compute_spread([]) == Spread(0, 0)
    assert compute_spread([7]) == Spread(1, 7, 7.0, 7.0, 7.0, 7, 7, None)


def test_deviation_keeps_its_digits() -> None:
    """Large equal durations deviate by nothing, and a nanosecond among them is not lost."""
    assert compute_spread([10**15] * 9).stddev_ns == 0
    assert compute_spread([10**15, 10**15 + 1]).stddev_ns == pytest.approx(0.5**0.5, rel=1e-12)


def test_a_million_durations_take_about_a_second() -> None:
    """A million durations in disorder are summed up in a few seconds of one core at most."""
    values = array("q", (i * 7919 % 1_000_003 for i in range(1_000_000)))
    began = time.process_time()
    assert compute_spread(values).calls == 1_000_000
    assert time.process_time() - began < 3


def test_spreads_added_know_no_median() -> None:
    """Of two stats rows the calls, the total and the extremes add up, and nothing else is made up."""
    rows = [Spread(2, 30, min_ns=10, max_ns=20, stddev_ns=7.0), Spread(0, 0), Spread(1, 5, min_ns=5, max_ns=5)]
    assert add_spreads(rows) == Spread(3, 35, min_ns=5, max_ns=20)
    assert add_spreads(rows[:2]) == rows[0]
    assert add_spreads([*rows, Spread(1, 1)]) == Spread(4, 36)
    assert add_spreads([]) == Spread(0, 0)


def test_joined_keeps_every_duration() -> None:
    """Durations of several sizes become one column, in their order."""
    assert list(join_durations([[3, 1], [2]])) == [3, 1, 2]
