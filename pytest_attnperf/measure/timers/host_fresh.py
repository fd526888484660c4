"""Times calls that each get their own inputs, prepared before the block and not timed, with the host's clock.

It is for calls that overwrite their inputs, and for backward passes, which need a forward pass first. On a GPU it is
for calls that wait for the device, because no other clock sees all that a caller waits for.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pytest_attnperf.measure import clocks
from pytest_attnperf.measure.timers.host import HostTimer
from pytest_attnperf.measure.timers.timer import Call, Setup, Timer, TimerMaterial

FRESH_MOST = 64
"""Inputs prepared at once: all of them are in memory together."""


class HostFreshTimer(HostTimer):
    """Times blocks of `work(*setup())`, with every setup before the first call.

    wait   waits for the device; called before each clock reading
    """

    name = "host_fresh"
    in_parts = True
    calls_most = FRESH_MOST

    def __init__(
        self,
        setup: Setup,
        work: Call,
        wait: Callable[[], None] = lambda: None,
        clock_ns: clocks.Clock = clocks.first,
        other_ns: clocks.Clock | None = None,
    ) -> None:
        super().__init__(clock_ns, other_ns)
        self._setup = setup
        self._work = work
        self._wait = wait

    @classmethod
    def make(cls, given: TimerMaterial) -> Timer:
        """Returns a timer, not prepared yet, that calls `setup` and `work` of the parts in `given`."""
        parts = given.require_parts()
        return cls(parts.setup, parts.work)

    def run_once(self, *, poisoned: bool = True) -> Any:
        """Makes one call on inputs that are made for it, waits for it, and returns its result."""
        result = super().run_once(poisoned=poisoned)
        self._wait()
        return result

    def _calls_us(self, calls: int) -> float:
        """Returns the total microseconds of `calls` calls, including the device's work."""
        work, self.last = self._work, None
        *ready, own = [self._setup() for _ in range(calls)]
        self._wait()
        self._clocks.begin()
        for taken in ready:
            work(*taken)
        self.last = work(*own)
        self._wait()
        return self._clocks.end()


class HostSyncTimer(HostFreshTimer):
    """Times calls that wait for a GPU, until the GPU has finished the whole block."""

    name = "host_sync"
    on_cpu = False
    waits = True
    note = "timed by the host's clock, launches and waiting included: the call waits for the device (host_sync)"

    @classmethod
    def make(cls, given: TimerMaterial) -> Timer:
        """Returns a timer, not prepared yet, that waits for the GPU before each clock reading."""
        import torch

        parts = given.require_parts()
        return cls(parts.setup, parts.work, torch.cuda.synchronize)
