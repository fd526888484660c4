"""Times are taken with a clock that nobody has replaced, and another one agrees."""

from __future__ import annotations

import random
import time

import pytest

from pytest_attnperf.errors import CaseFailedError
from pytest_attnperf.measure import clocks
from pytest_attnperf.measure.clocks import BLOCKS_LEAST, TwoClocks
from pytest_attnperf.measure.timers.host import HostTimer


class Scripted:
    """Two clocks that pass through spans of given lengths."""

    def __init__(self) -> None:
        self.first_ns = self.second_ns = 1_000_000_000
        self.both = TwoClocks(lambda: self.first_ns, lambda: self.second_ns)

    def span(self, first_us: float, second_us: float) -> float:
        """What is measured of one span."""
        self.both.begin()
        self.first_ns += int(first_us * 1000)
        self.second_ns += int(second_us * 1000)
        return self.both.end()


def test_clocks_that_agree_give_the_first_ones_time() -> None:
    """A reading that is interrupted now and then, and spans as short as a reading, are no disagreement."""
    clock, chance = Scripted(), random.Random(1)
    for number in range(200):
        us = chance.choice((0.3, 2.0, 1000.0))
        interrupted = 5000.0 if number % 3 == 0 else 0.0
        assert clock.span(us, us + 1.0 + interrupted) == pytest.approx(us)


@pytest.mark.parametrize("rate", [0.0, 0.1, 0.5, 0.9])
def test_a_clock_that_runs_slow_is_told(rate: float) -> None:
    """As soon as there are enough spans to tell it from an interruption, also for a clock that stands still."""
    clock = Scripted()
    for _ in range(BLOCKS_LEAST - 1):
        clock.span(1000.0 * rate, 1000.0)
    with pytest.raises(CaseFailedError, match="two clocks of this machine disagree: blocks are"):
        clock.span(1000.0 * rate, 1000.0)


def test_a_clock_that_is_replaced_later_times_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """`time.perf_counter_ns` of a suite's own making changes no time: the package holds the first one."""
    monkeypatch.setattr(time, "perf_counter_ns", lambda: 0)
    timer = HostTimer()
    timer.prepare(lambda: time.sleep(0.0005), 1000.0)
    assert min(timer.measure(7)) > 400


def test_a_clock_that_is_replaced_in_the_package_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the first clock is not what it was, the second says so."""
    real = clocks.first
    timer = HostTimer(lambda: real() // 10, clocks.second)
    with pytest.raises(CaseFailedError, match="two clocks"):
        timer.prepare(lambda: time.sleep(0.0005), 4000.0)
        timer.measure(BLOCKS_LEAST)
