"""Times with the host's clock, for devices on which a call has finished when it returns: CPUs.

It subtracts how long a thread was ready to run while every core ran something else, because no kernel used that time.
Linux counts it per thread (`/proc/thread-self/schedstat`, second number, nanoseconds). On two cores beside two busy
programs a call of 10 ms takes 10 to 90 ms by the clock; without this waiting it repeats to about 15 %.
"""

from __future__ import annotations

import contextlib
import os
import random
import threading
import time
from itertools import repeat
from statistics import median
from typing import Any

from pytest_attnperf.measure import clocks
from pytest_attnperf.measure.timers.timer import (
    MAX_CALLS_PER_BLOCK,
    WARM_UP_CALLS,
    Call,
    TimerKind,
    count_calls_per_block,
)

RUNS = 4
"""Runs of a short block; the fastest counts. Other programs only make a run longer, and rarely all of them."""

RUN_CALLS_LEAST = 8
"""For runs with fewer calls the median counts: if every second call is slow, the fastest has no slow one."""

RUN_LONG_US = 2500.0
"""A longer run is measured once: its waiting for a core is known, and more runs would take too long."""

_ESTIMATE_SHARE = 0.2
"""The time per call is estimated from a run of at least this share of a block."""

_CHANCE = random.SystemRandom()

_read, _thread_ns, _process_ns = os.pread, time.thread_time_ns, time.process_time_ns
"""Captured before any user code is imported, like the clocks."""

_BYTES = 64


def one_or_none() -> int:
    """Returns 1 or 0 at random, independent of every seed; the suite's random numbers do not change."""
    return _CHANCE.getrandbits(1)


class HostTimer(TimerKind):
    """Times blocks of calls between two clock readings (see `clocks.TwoClocks`), without their waiting for a core.

    last     the result of the last block's last call
    on_cpu   whether the CPU does the work: it stops while it waits for a core, and other programs disturb it
    """

    name = "host"
    note = ""
    calls_most = MAX_CALLS_PER_BLOCK
    on_cpu = True

    def __init__(self, clock_ns: clocks.Clock = clocks.first, other_ns: clocks.Clock | None = None) -> None:
        self.calls_per_block = 1
        self.last: Any = None
        self._runs = 1
        waited_ns = Waited() if self.on_cpu and clock_ns is clocks.first else None
        self._clocks = clocks.TwoClocks(clock_ns, other_ns, waited_ns)
        self._call: Call | None = None

    def prepare(self, call: Call, block_us: float) -> None:
        """Warms up and sets `calls_per_block` by the time of calls that together take a fifth of a block."""
        self._call = call
        for _ in range(WARM_UP_CALLS):
            call()
        calls, took_us = 1, self._calls_us(1)
        while took_us < block_us * _ESTIMATE_SHARE and 2 * calls <= self.calls_most:
            calls *= 2
            took_us = self._calls_us(calls)
        call_us = took_us / calls
        self.calls_per_block = min(self.calls_most, count_calls_per_block(block_us, call_us))
        self._runs = RUNS if self.on_cpu and self.calls_per_block * call_us <= RUN_LONG_US else 1

    def measure(self, pairs: int) -> list[float]:
        """Returns microseconds per call of each measured block: of its fastest run, or for few calls the median run.

        A random choice adds one call before each block, so that no pattern of slow calls stays in step with the blocks.
        """
        calls, per_call_us = self.calls_per_block, []
        chosen = min if calls >= RUN_CALLS_LEAST else median
        for _ in range(pairs):
            self._calls_us(calls + one_or_none())
            per_call_us.append(chosen([self._calls_us(calls) for _ in range(self._runs)]) / calls)
        return per_call_us

    def run_once(self, *, poisoned: bool = True) -> Any:
        """Makes one call and returns its result; `poisoned` changes nothing here."""
        assert self._call is not None, "prepare() comes first"
        return self._call()

    def close(self) -> None:
        """Forgets the call and its last result."""
        self._call = self.last = None

    def _calls_us(self, calls: int) -> float:
        """Returns the total microseconds of `calls` calls; only the calls run between the two clock readings."""
        call, self.last = self._call, None
        assert call is not None, "prepare() comes first"
        self._clocks.begin()
        for _ in repeat(None, calls - 1):
            call()
        self.last = call()
        return self._clocks.end()


class Waited:
    """Returns, when called, the nanoseconds that the calling thread has waited for a core, less the CPU time of other
    threads of this process: a thread that waits for its own process's work waits for the kernel under test. 0 if not
    counted.
    """

    def __init__(self) -> None:
        self._file: int | None = None
        self._thread = 0

    def __call__(self) -> int:
        """Returns the ns that this thread waited for a core, less other threads' CPU time so far; 0 if unknown."""
        if self._thread != threading.get_ident():
            self._open_file()
        if self._file is None:
            return 0
        try:
            waited_ns = int(_read(self._file, _BYTES, 0).split()[1])
        except (OSError, ValueError, IndexError):  # the file is of an ended thread, whose number this one has now
            self.close()
            return 0
        return waited_ns - (_process_ns() - _thread_ns())

    def _open_file(self) -> None:
        self.close()
        self._thread = threading.get_ident()
        with contextlib.suppress(OSError):
            self._file = os.open("/proc/thread-self/schedstat", os.O_RDONLY | os.O_CLOEXEC)

    def close(self) -> None:
        """Closes the Linux file with the waiting time, if it is open."""
        if self._file is not None:
            os.close(self._file)
        self._file = None

    def __del__(self) -> None:
        self.close()
