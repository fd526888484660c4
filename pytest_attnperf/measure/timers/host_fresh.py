"""The host's clock around calls that each get inputs of their own, made ready before the block and outside its time.

For calls that overwrite their inputs, and for backward passes, whose forward pass comes before. On a GPU, the same for
calls that wait for the device themselves, where no other clock sees all that a caller waits for.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pytest_attnperf.measure import clocks
from pytest_attnperf.measure.timers.base import Call, Setup, Timer, TimerMaterial
from pytest_attnperf.measure.timers.host import HostTimer

FRESH_MOST = 64
"""Inputs made ready at once: all are in memory together."""


class HostFreshTimer(HostTimer):
    """Blocks of `work(*setup())`, with every setup before the first call.

    wait   waits for the device; called before each reading of the clock
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
        """As `TimerKind.make`."""
        parts = given.require_parts()
        return cls(parts.setup, parts.work)

    def run_once(self, *, poisoned: bool = True) -> Any:
        """One call on inputs made ready for it, finished."""
        result = super().run_once(poisoned=poisoned)
        self._wait()
        return result

    def _calls_us(self, calls: int) -> float:
        """Microseconds that `calls` calls take together, and the device with them."""
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
    """On a GPU: calls that wait for the device, until it has done all of a block."""

    name = "host_sync"
    on_cpu = False
    waits = True
    note = "timed by the host's clock, launches and waiting included: the call waits for the device (host_sync)"

    @classmethod
    def make(cls, given: TimerMaterial) -> Timer:
        """As `TimerKind.make`."""
        import torch

        parts = given.require_parts()
        return cls(parts.setup, parts.work, torch.cuda.synchronize)
