"""Times a block of eager calls that each get their own inputs with events, for calls that cannot be captured."""

from __future__ import annotations

from typing import Any

from pytest_attnperf.measure.timers.event import EventTimer
from pytest_attnperf.measure.timers.host_fresh import FRESH_MOST
from pytest_attnperf.measure.timers.pair_clocks import Stamps
from pytest_attnperf.measure.timers.stream import event_pair, hold_stream
from pytest_attnperf.measure.timers.timer import Call, Setup, Timer, TimerMaterial


class EventFreshTimer(EventTimer):
    """Times `work(*setup())` as `EventTimer` does, with every setup before the first call of a block."""

    name = "event_fresh"
    in_parts = True
    calls_most = FRESH_MOST

    def __init__(self, setup: Setup, work: Call, why: str = "", stamps: Stamps | None = None) -> None:
        super().__init__(why, stamps)
        self._setup = setup
        self._work = work

    @classmethod
    def make(cls, given: TimerMaterial) -> Timer:
        """Returns a timer, not prepared yet, with `given`'s call parts, clock stamps and reason for using no graph."""
        parts = given.require_parts()
        return cls(parts.setup, parts.work, given.why, given.stamps())

    def _pair_us(self) -> float:
        import torch

        self.last = None
        self._clocks.begin()
        self._clocks.stamp()
        self._queue_calls(self._make_ready())
        ready = self._make_ready()
        torch.cuda.synchronize()
        start, end = event_pair()
        hold_stream(self.calls_per_block * self._launch_us + self._clocks.host_us)
        start.record()
        self._queue_calls(ready)
        end.record()
        return self._finish_block(start, end)

    def _make_ready(self) -> list[tuple[Any, ...]]:
        return [self._setup() for _ in range(self.calls_per_block)]

    def _queue_calls(self, ready: list[tuple[Any, ...]]) -> None:
        *others, own = ready
        for taken in others:
            self._work(*taken)
        self.last = self._work(*own)
