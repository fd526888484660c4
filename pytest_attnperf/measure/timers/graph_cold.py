"""Times replays of a graph whose calls rotate over copies of their inputs, so that no call finds its own in a cache.

Flushing a cache between calls would add another kernel to every block, and torch's flush of what it calls L2 does not
flush MI300's last-level cache. Here every call reads memory that was last read a whole round ago, and a round reads
twice as much as the cache holds (`copies`).

A block is a whole number of rounds, at least one: a replayed part of a round would find its copies still cached. So a
block may be longer than requested, and its time is the mean over all copies, wherever they are in memory. Only the
inputs are cold: every call writes its results to the same memory, and a kernel's code and constants stay in place.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from pytest_attnperf.measure.timers.capture import capture_graph, warm_up_for_capture
from pytest_attnperf.measure.timers.pair_clocks import Stamps
from pytest_attnperf.measure.timers.replay import CAPTURES, ReplayTimer, is_long_enough
from pytest_attnperf.measure.timers.stream import side_stream
from pytest_attnperf.measure.timers.timer import MAX_CALLS_PER_BLOCK, Call, Timer, TimerMaterial, count_calls_per_block


class GraphColdTimer(ReplayTimer):
    """Times rounds over `others`, the same call on other copies of its inputs, and the call itself, which ends a round.

    others   at most MAX_CALLS_PER_BLOCK - 1; together with the call they exceed the last-level cache
    note     says if that cache's size is an assumption
    """

    name = "graph_cold"
    cache_state = "cold"

    def __init__(self, others: Sequence[Call], note: str = "", stamps: Stamps | None = None) -> None:
        super().__init__(stamps)
        self.note = note
        self._others = tuple(others)
        self._first: Any = None

    @classmethod
    def make(cls, given: TimerMaterial) -> Timer:
        """Returns a timer, not prepared yet, over copies from `given`. Raises CaseFailedError if it can make none."""
        own = given.make_copies()
        return cls(own.calls, own.note, given.stamps())

    def prepare(self, call: Call, block_us: float) -> None:
        """Captures one round (a call on each copy), measures its time, and captures rounds that fill `block_us`.

        Raises CaptureFailedError if the call cannot be captured.
        """
        stream = side_stream()
        calls = (*self._others, call)
        warm_up_for_capture(CallRounds(calls), stream)
        rounds = 1
        for _ in range(CAPTURES):
            self.close()
            taking_turns = CallRounds(calls)
            self.calls_per_block = rounds * len(calls)
            self._graph, self._result = capture_graph(taking_turns, self.calls_per_block, stream)
            self._first = taking_turns.first
            self.call_us = self._estimate_us()
            rounds = count_rounds_per_block(block_us, self.call_us, len(calls))
            if is_long_enough(rounds * len(calls), self.calls_per_block):
                break

    def run_first(self, *, poisoned: bool = True) -> Any:
        """Runs as `run_once`, but returns the result of the block's first call, the one on the first of `others`.

        If the backend writes every result to one buffer of its own, it holds the last call's result by then.
        """
        self.run_once(poisoned=poisoned)
        return self._first

    def close(self) -> None:
        """Frees the graph and its memory."""
        self._first = None
        super().close()

    def _static_results(self) -> Any:
        return self._first, self._result


class CallRounds:
    """Makes the calls in turn, round after round; keeps the very first result, so that it can be judged."""

    def __init__(self, calls: Sequence[Call]) -> None:
        self.first: Any = None
        self._calls = calls
        self._made = 0

    def __call__(self) -> Any:
        """Makes the next of the calls in order, after the last the first again; returns its result."""
        result = self._calls[self._made % len(self._calls)]()
        if not self._made:
            self.first = result
        self._made += 1
        return result


def count_rounds_per_block(block_us: float, call_us: float, copies: int) -> int:
    """Returns how many rounds (a call on each copy) fill a block: at least 1, at most MAX_CALLS_PER_BLOCK calls."""
    wanted = math.ceil(count_calls_per_block(block_us, call_us) / copies)
    return max(1, min(wanted, MAX_CALLS_PER_BLOCK // copies))
