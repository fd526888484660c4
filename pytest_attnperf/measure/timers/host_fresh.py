"""The host's clock around calls that each get inputs of their own, made ready before the block and outside its time.

For calls that overwrite their inputs, and for backward passes, whose forward pass comes before. On a GPU, the same for
calls that wait for the device themselves, where no other clock sees all that a caller waits for.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from pytest_attnperf.measure.timers.base import Call
from pytest_attnperf.measure.timers.host import HostTimer

FRESH_MOST = 64
"""Inputs made ready at once: all are in memory together."""

Setup = Callable[[], tuple[Any, ...]]
"""Makes what one call takes, untimed."""


class HostFreshTimer(HostTimer):
    """Blocks of `work(*setup())`, with every setup before the first call.

    wait   waits for the device; called before each reading of the clock
    """

    name = "host_fresh"
    calls_most = FRESH_MOST

    def __init__(
        self,
        setup: Setup,
        work: Call,
        wait: Callable[[], None] = lambda: None,
        clock_ns: Callable[[], int] = time.perf_counter_ns,
    ) -> None:
        super().__init__(clock_ns)
        self._setup = setup
        self._work = work
        self._wait = wait

    def run_once(self, *, poisoned: bool = True) -> Any:
        """One call on inputs made ready for it, finished."""
        result = super().run_once(poisoned=poisoned)
        self._wait()
        return result

    def _calls_us(self, calls: int) -> float:
        """Microseconds that `calls` calls take together, and the device with them."""
        work, clock_ns = self._work, self._clock_ns
        ready = [self._setup() for _ in range(calls)]
        self._wait()
        begin_ns = clock_ns()
        for taken in ready:
            work(*taken)
        self._wait()
        return (clock_ns() - begin_ns) / 1000


class HostSyncTimer(HostFreshTimer):
    """On a GPU: calls that wait for the device, until it has done all of a block."""

    name = "host_sync"
    note = "timed by the host's clock, launches and waiting included: the call waits for the device (host_sync)"
