"""Times a block of eager calls with a pair of events behind a held stream, for calls that cannot be captured."""

from __future__ import annotations

import time
from typing import Any

from pytest_attnperf.measure.timers.pair_clocks import PairClocks, Stamps
from pytest_attnperf.measure.timers.stream import elapsed_us, event_pair, hold_stream, run_and_wait
from pytest_attnperf.measure.timers.timer import (
    WARM_UP_CALLS,
    Call,
    Timer,
    TimerKind,
    TimerMaterial,
    count_calls_per_block,
)

MAX_QUEUED_CALLS = 100
"""Calls per block. A GPU's launch queue holds about 1,000 kernels. If it is full, the host waits, and the gaps between
launches become part of the time. Two blocks of 100 calls leave room for five kernels a call.
"""

_ESTIMATE_CALLS = 5


class EventTimer(TimerKind):
    """Times launches and kernels as the GPU sees them. `why` says why it is no graph, and becomes part of the note.

    stamps   read the clock; None if nothing can
    last     the result of the last block's last call
    """

    name = "event"
    calls_most = MAX_QUEUED_CALLS

    def __init__(self, why: str = "", stamps: Stamps | None = None) -> None:
        self.calls_per_block = 1
        self.last: Any = None
        self._clocks = PairClocks(stamps)
        self._why = why
        self._call: Call | None = None
        self._launch_us = 0.0
        self._blocks = 0
        self._exposed_blocks = 0

    @classmethod
    def make(cls, given: TimerMaterial) -> Timer:
        """Returns an EventTimer, not prepared yet, with `given`'s clock stamps and reason for using no graph."""
        return cls(given.why, given.stamps())

    @property
    def note(self) -> str:
        """Why no graph is used, and in how many blocks the GPU started before the host had queued the whole block."""
        exposed = (
            f"launches may be timed with the kernels in {self._exposed_blocks} of {self._blocks} blocks"
            if self._exposed_blocks
            else ""
        )
        return "; ".join(part for part in (self._why, exposed) if part)

    def prepare(self, call: Call, block_us: float) -> None:
        """Warms up, measures the host's and the GPU's time per call, and chooses the length of a block."""
        import torch

        self._call = call
        for _ in range(WARM_UP_CALLS):
            call()
        torch.cuda.synchronize()
        begin = time.perf_counter()
        for _ in range(_ESTIMATE_CALLS):
            call()
        self._launch_us = (time.perf_counter() - begin) * 1e6 / _ESTIMATE_CALLS
        torch.cuda.synchronize()
        self.calls_per_block = _ESTIMATE_CALLS
        [call_us] = self.measure(1)
        self.calls_per_block = min(self.calls_most, count_calls_per_block(block_us, call_us))
        self._blocks = self._exposed_blocks = 0

    def measure(self, pairs: int) -> list[float]:
        """Returns microseconds per call of each measured block; synchronises once per pair."""
        times_us: list[float] = []
        clock_mhz: list[float] = []
        for _ in range(pairs):
            times_us.append(self._pair_us() / self.calls_per_block)
            clock_mhz += self._clocks.read_clocks(1)
        self.clock_mhz = tuple(clock_mhz) if len(clock_mhz) == pairs else ()
        return times_us

    def run_once(self, *, poisoned: bool = True) -> Any:
        """Makes one eager call, waits for the GPU and returns the call's result; `poisoned` changes nothing here."""
        assert self._call is not None, "prepare() comes first"
        return run_and_wait(self._call)

    def close(self) -> None:
        """Forgets the call and its last result."""
        self._call = self.last = None

    def _pair_us(self) -> float:
        call, self.last = self._call, None
        assert call is not None, "prepare() comes first"
        start, end = event_pair()
        self._clocks.begin()
        hold_stream(2 * self.calls_per_block * self._launch_us + self._clocks.host_us)
        self._clocks.stamp()
        for _ in range(self.calls_per_block):
            call()
        start.record()
        for _ in range(self.calls_per_block - 1):
            call()
        self.last = call()
        end.record()
        return self._finish_block(start, end)

    def _finish_block(self, start: Any, end: Any) -> float:
        """Counts the queued block, also as exposed if the GPU began it already; waits for it and returns its us."""
        import torch

        self._blocks += 1
        self._exposed_blocks += bool(start.query())
        self._clocks.stamp()
        torch.cuda.synchronize()
        return elapsed_us(start, end)
