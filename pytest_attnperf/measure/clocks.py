"""The clocks that times are taken with, held from before any user's code is imported, and compared with each other.

The plugin imports this module when pytest starts. What a conftest or a suite puts in place of `time.perf_counter_ns`
later changes nothing here; and a second clock, kept by the kernel for itself, says where the first is not what it was.
"""

from __future__ import annotations

import functools
import statistics
import time
from collections import deque
from collections.abc import Callable

from pytest_attnperf.errors import CaseFailedError

Clock = Callable[[], int]
"""Nanoseconds since some moment."""

first: Clock = time.perf_counter_ns
second: Clock = (
    functools.partial(time.clock_gettime_ns, time.CLOCK_MONOTONIC_RAW)
    if hasattr(time, "CLOCK_MONOTONIC_RAW")
    else time.monotonic_ns
)
"""Not corrected while it runs, so that it differs from the first by at most 500 in a million (adjtimex)."""

BLOCKS_LEAST, BLOCKS_KEPT = 5, 31
"""A single block may be interrupted between two readings; half of several are not."""

APART = 1.05
"""So many times as long by the second clock as by the first is no interruption in half of the blocks."""

BETWEEN_NS = 2000
"""Two readings, one right after the other, take less."""


class TwoClocks:
    """Times spans by one clock, and looks at another.

    clock_ns    what times are taken with
    other_ns    what they are compared with; by default the second clock, or `clock_ns` where that is not the first
    waited_ns   how long this thread has waited for a core so far: no part of a span; None where that is part of it
    """

    def __init__(self, clock_ns: Clock = first, other_ns: Clock | None = None, waited_ns: Clock | None = None) -> None:
        self._clock_ns = clock_ns
        self._other_ns = other_ns or (second if clock_ns is first else clock_ns)
        self._waited_ns = waited_ns
        self._ratios: deque[float] = deque(maxlen=BLOCKS_KEPT)
        self._began = (0, 0)
        self._before = (0, 0)

    def begin(self) -> None:
        """Begin a span; nothing but what is timed may stand before `end`."""
        if self._waited_ns is not None:
            self._before = self._clock_ns(), self._waited_ns()
        other_ns = self._other_ns()
        self._began = self._clock_ns(), other_ns

    def end(self) -> float:
        """Microseconds since `begin`. Raises CaseFailedError where the other clock has passed through more time."""
        now_ns = self._clock_ns()
        other_ns = self._other_ns() - self._began[1] - BETWEEN_NS
        span_ns = now_ns - self._began[0]
        self._ratios.append(max(0, other_ns) / max(1, span_ns))
        if len(self._ratios) >= BLOCKS_LEAST and (apart := statistics.median(self._ratios)) > APART:
            raise CaseFailedError(
                f"two clocks of this machine disagree: blocks are {apart:.3g} times as long by CLOCK_MONOTONIC_RAW as "
                "by perf_counter; something stands in place of the clock, or changes its rate, and no time is stored"
            )
        return max(1, span_ns - self._waited_inside_ns(span_ns)) / 1000

    def _waited_inside_ns(self, span_ns: int) -> int:
        """What the thread waited within the span. What it may have waited while this was asked for is taken off."""
        if self._waited_ns is None:
            return 0
        waited_ns = self._waited_ns() - self._before[1]
        asking_ns = self._clock_ns() - self._before[0] - span_ns
        return max(0, waited_ns - asking_ns)
