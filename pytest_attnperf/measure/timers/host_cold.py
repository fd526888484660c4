"""The host's clock around calls that go round over copies of their inputs, for CPUs (see `graph_cold`)."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

from pytest_attnperf.measure import clocks
from pytest_attnperf.measure.timers.base import Call, Timer, TimerMaterial
from pytest_attnperf.measure.timers.host import HostTimer


class HostColdTimer(HostTimer):
    """Rounds over `others`, the same call on other copies of its inputs, and the call itself.

    Every block goes on where the one before it stopped, so that it need not be a whole number of rounds.

    note   how it is known how large the last-level cache is, where it is not
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
        """As `TimerKind.make`."""
        own = given.make_copies()
        return cls(own.calls, own.note)

    def prepare(self, call: Call, block_us: float) -> None:
        """As `HostTimer.prepare`, with calls that take turns."""
        self._own = call
        calls = itertools.cycle((*self._others, call))
        super().prepare(lambda: next(calls)(), block_us)

    def run_once(self, *, poisoned: bool = True) -> Any:
        """One call on the case's own inputs."""
        assert self._own is not None, "prepare() comes first"
        return self._own()

    def close(self) -> None:
        """Let go of the call and its copies."""
        self._own = None
        self._others = ()
        super().close()
