from __future__ import annotations

import time

from pytest_attnperf.measure.timers.base import WARM_UP_CALLS
from pytest_attnperf.measure.warm_up import warm_device, warm_up


def test_a_slow_call_is_warmed_up_three_times() -> None:
    """At least three calls run, even when the first one alone takes the time."""
    calls: list[int] = []

    def slow() -> None:
        calls.append(1)
        time.sleep(0.002)

    warm_up(slow, "cpu", seconds=0.001)
    assert len(calls) == WARM_UP_CALLS


def test_a_fast_call_fills_the_time() -> None:
    """A short call is repeated until the time is over."""
    calls: list[int] = []
    begin = time.monotonic()
    warm_up(lambda: calls.append(1), "cpu", seconds=0.01)
    assert time.monotonic() - begin >= 0.01
    assert len(calls) > WARM_UP_CALLS


def test_the_device_is_warmed_once_per_process() -> None:
    """The second case of a process does not wait for the clock again."""
    warm_device("cpu")
    before = warm_device.cache_info().hits
    warm_device("cpu")
    assert warm_device.cache_info().hits == before + 1
