"""Clocks that measure times, captured before any user code is imported, and compared with each other.

The plugin imports this module when pytest starts. A conftest or suite that later replaces `time.perf_counter_ns`
changes nothing here. A second clock, which the kernel keeps itself, shows whether the first was changed.
"""

from __future__ import annotations

import functools
import statistics
import time
from collections import deque
from collections.abc import Callable

from pytest_attnperf.errors import CaseFailedError

Clock = Callable[[], int]
"""Returns nanoseconds since some moment."""

first: Clock = time.perf_counter_ns
second: Clock = (
    functools.partial(time.clock_gettime_ns, time.CLOCK_MONOTONIC_RAW)
    if hasattr(time, "CLOCK_MONOTONIC_RAW")
    else time.monotonic_ns
)
"""Not corrected while it runs, so it differs from the first by at most 500 in a million (adjtimex)."""

BLOCKS_LEAST, BLOCKS_KEPT = 5, 31
"""A single block may be interrupted between two readings; half of several blocks are not."""

APART = 1.05
"""A larger median ratio of the second clock to the first cannot come from interruptions."""

BETWEEN_NS = 2000
"""Upper limit of the time between two consecutive readings."""


class TwoClocks:
    """Times spans with one clock, and compares it with another.

    clock_ns    the clock that gives the times
    other_ns    the clock to compare with; default: the second clock, or `clock_ns` if that is not the first
    waited_ns   how long this thread has waited for a core, to be subtracted from a span; None to keep it
    """

    def __init__(self, clock_ns: Clock = first, other_ns: Clock | None = None, waited_ns: Clock | None = None) -> None:
        self._clock_ns = clock_ns
        self._other_ns = other_ns or (second if clock_ns is first else clock_ns)
        self._waited_ns = waited_ns
        self._ratios: deque[float] = deque(maxlen=BLOCKS_KEPT)
        self._began = (0, 0)
        self._before = (0, 0)

    def begin(self) -> None:
        """Reads perf_counter and CLOCK_MONOTONIC_RAW at a span's start; only the timed code may run before `end`."""
        if self._waited_ns is not None:
            self._before = self._clock_ns(), self._waited_ns()
        other_ns = self._other_ns()
        self._began = self._clock_ns(), other_ns

    def end(self) -> float:
        """Returns microseconds since `begin` without waits for a CPU. Raises CaseFailedError if the clocks disagree."""
        now_ns = self._clock_ns()
        other_ns = self._other_ns() - self._began[1] - BETWEEN_NS
        span_ns = now_ns - self._began[0]
        self._ratios.append(max(0, other_ns) / max(1, span_ns))
        if len(self._ratios) >= BLOCKS_LEAST and (apart := statistics.median(self._ratios)) > APART:
            raise CaseFailedError(
                f"two clocks of this machine disagree: blocks are {apart:.3g} times as long by CLOCK_MONOTONIC_RAW as "
                "by perf_counter; something replaces perf_counter or changes its rate, so no time is stored. Remove "
                "what does (a conftest, a suite or a library), or measure on another machine"
            )
        return max(1, span_ns - self._waited_inside_ns(span_ns)) / 1000

    def _waited_inside_ns(self, span_ns: int) -> int:
        """Returns the ns that the thread waited for a CPU within the span, without waits while the clocks were read."""
        if self._waited_ns is None:
            return 0
        waited_ns = self._waited_ns() - self._before[1]
        asking_ns = self._clock_ns() - self._before[0] - span_ns
        return max(0, waited_ns - asking_ns)
