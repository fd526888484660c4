"""Every timer, and the rule that chooses one. Which was used, and why not another, is recorded with the samples."""

from __future__ import annotations

from typing import Any

from pytest_attnperf.errors import CaseFailedError
from pytest_attnperf.measure.timers.base import Call, Timer
from pytest_attnperf.measure.timers.capture import CaptureFailedError
from pytest_attnperf.measure.timers.event import EventTimer
from pytest_attnperf.measure.timers.graph import GraphTimer
from pytest_attnperf.measure.timers.host import HostTimer

TIMERS: tuple[type[Any], ...] = (GraphTimer, EventTimer, HostTimer)
"""All timers. Their names are part of what must match between a number and its baseline."""


def choose(torch_device: str, call: Call, block_us: float, cache_state: str = "hot") -> Timer:
    """The timer for a call on 'cuda' (both vendors) or 'cpu', prepared for blocks of about `block_us` microseconds.

    CPU: the host's clock. GPU: a graph; where it cannot be captured, events, and the note says why.
    Raises CaseFailedError for a cache state that no timer here provides: a hot time must not pass for a cold one.
    """
    states = sorted({timer.cache_state for timer in TIMERS})
    if cache_state not in states:
        raise CaseFailedError(
            f"no timer measures with a {cache_state!r} cache; there are timers for: {', '.join(states)}. "
            "Run this workload without --attnperf to check its result only"
        )
    if torch_device == "cpu":
        return _prepared(HostTimer(), call, block_us)
    try:
        return _prepared(GraphTimer(), call, block_us)
    except CaptureFailedError as error:
        why = f"graph capture failed: {error}"
    return _prepared(EventTimer(why), call, block_us)


def _prepared(timer: Timer, call: Call, block_us: float) -> Timer:
    timer.prepare(call, block_us)
    return timer
