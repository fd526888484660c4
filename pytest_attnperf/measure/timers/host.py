"""The host's clock, for devices on which a call has finished when it returns: CPUs."""

from __future__ import annotations

from itertools import repeat
from typing import Any

from pytest_attnperf.measure import clocks
from pytest_attnperf.measure.timers.base import MAX_CALLS_PER_BLOCK, WARM_UP_CALLS, Call, calls_per_block

_ESTIMATE_SHARE = 0.2
"""The time per call is estimated from a run of at least this share of a block."""


class HostTimer:
    """Blocks of calls between two readings of a clock (see `clocks.TwoClocks`).

    last   what the last call of the last block returned
    """

    name = "host"
    cache_state = "hot"
    note = ""
    replays = False
    max_pairs = 1
    clock_mhz: tuple[float, ...] = ()
    calls_most = MAX_CALLS_PER_BLOCK

    def __init__(self, clock_ns: clocks.Clock = clocks.first, other_ns: clocks.Clock | None = None) -> None:
        self.calls_per_block = 1
        self.last: Any = None
        self._clocks = clocks.TwoClocks(clock_ns, other_ns)
        self._call: Call | None = None

    def prepare(self, call: Call, block_us: float) -> None:
        """Warm up, then double the number of calls until they take a fifth of a block."""
        self._call = call
        for _ in range(WARM_UP_CALLS):
            call()
        calls, took_us = 1, self._calls_us(1)
        while took_us < block_us * _ESTIMATE_SHARE and 2 * calls <= self.calls_most:
            calls *= 2
            took_us = self._calls_us(calls)
        self.calls_per_block = min(self.calls_most, calls_per_block(block_us, took_us / calls))

    def measure(self, pairs: int) -> list[float]:
        """Microseconds per call of each measured block."""
        per_call_us = []
        for _ in range(pairs):
            self._calls_us(self.calls_per_block)
            per_call_us.append(self._calls_us(self.calls_per_block) / self.calls_per_block)
        return per_call_us

    def run_once(self, *, poisoned: bool = True) -> Any:
        """One call."""
        assert self._call is not None, "prepare() comes first"
        return self._call()

    def close(self) -> None:
        """Let go of the call."""
        self._call = self.last = None

    def _calls_us(self, calls: int) -> float:
        """Microseconds that `calls` calls take together; nothing but the calls stands between the two readings."""
        call, self.last = self._call, None
        assert call is not None, "prepare() comes first"
        self._clocks.begin()
        for _ in repeat(None, calls - 1):
            call()
        self.last = call()
        return self._clocks.end()
