"""Times calls that rotate over copies of their inputs with the host's clock, for CPUs (see `graph_cold`)."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

from pytest_attnperf.measure import clocks
from pytest_attnperf.measure.timers.host import HostTimer
from pytest_attnperf.measure.timers.timer import Call, Timer, TimerMaterial


class HostColdTimer(HostTimer):
    """Times rounds over `others`, the same call on other copies of its inputs, and the call itself.

    Every block continues where the previous one stopped, so it need not be a whole number of rounds.

    note   says if the size of the last-level cache is an assumption
    """

    name = "host_cold"
    cache_state = "cold"

    def __init__(
        self,
        others: Sequence[Call],
        note: str = "",
        clock_ns: clocks.Clock = clocks.first,
        other_ns: clocks.Clock | None = None,
    ) -> None:
        super().__init__(clock_ns, other_ns)
        self.note = note
        self._others = tuple(others)
        self._own: Call | None = None

    @classmethod
    def make(cls, given: TimerMaterial) -> Timer:
        """Returns a timer, not prepared yet, over copies from `given`. Raises CaseFailedError if it can make none."""
        own = given.make_copies()
        return cls(own.calls, own.note)

    def prepare(self, call: Call, block_us: float) -> None:
        """Warms up and chooses the length of a block, with calls that rotate over the copies and the call itself."""
        self._own = call
        calls = itertools.cycle((*self._others, call))
        super().prepare(lambda: next(calls)(), block_us)

    def run_once(self, *, poisoned: bool = True) -> Any:
        """Makes one call on the case's own inputs, not on a copy, and returns its result."""
        assert self._own is not None, "prepare() comes first"
        return self._own()

    def close(self) -> None:
        """Drops the call and its copies."""
        self._own = None
        self._others = ()
        super().close()
