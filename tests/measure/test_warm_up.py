from __future__ import annotations

import time
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from pytest_attnperf.errors import CaseFailedError
from pytest_attnperf.measure.timers.timer import WARM_UP_CALLS
from pytest_attnperf.measure.warm_up import MAX_UNSETTLED_CALLS, warm_device, warm_up

pytest_plugins = ["tests.measure.fake_autotuners"]

X = SimpleNamespace(dtype="torch.float16")


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


def test_calls_go_on_until_nothing_is_tuned(triton_tuner: Callable[..., Any]) -> None:
    """After the last call that tuned something, three more follow that do not, however long that takes."""
    tuner, sizes = triton_tuner(), [1, 1, 2, 1, 3]
    called: list[int] = []

    def call() -> None:
        called.append(sizes[len(called)] if len(called) < len(sizes) else 1)
        tuner.run(X, called[-1])

    warm_up(call, "cpu", seconds=0.0)
    assert called == [*sizes, *[1] * WARM_UP_CALLS]


def test_a_case_that_never_settles(triton_tuner: Callable[..., Any]) -> None:
    """Tuning in every call ends in an error that says how often, of what, and what to do."""
    tuner, sizes = triton_tuner(), iter(range(1000))
    times = MAX_UNSETTLED_CALLS + 1
    text = (
        rf"never settles: {times} of {times} calls on the same inputs compiled or tuned something "
        rf"\({2 * times} x configuration of the autotuned kernel tuned\), .*; fix the shapes, dtypes or Python values"
    )
    with pytest.raises(CaseFailedError, match=text):
        warm_up(lambda: tuner.run(X, next(sizes)), "cpu", seconds=0.0)
