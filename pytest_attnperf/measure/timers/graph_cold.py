"""Replays of a graph whose calls go round over copies of their inputs, so that no call finds its own in a cache.

Flushing a cache between calls would put another kernel into every block, and MI300's last-level cache is not flushed
by what torch calls its L2. Here every call reads memory that was last read a whole round ago, and a round reads twice
as much as the cache holds (`copies`).

A block is a whole number of rounds, and at least one: part of a round, replayed, would find its copies where it left
them. A block may therefore be longer than asked for, and its time is the mean over all copies, wherever in memory they
lie. What is cold are the inputs: results are written to the same memory by every call, and a kernel's own code and
constants stay where they are.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from pytest_attnperf.measure.timers.base import MAX_CALLS_PER_BLOCK, Call, Timer, TimerMaterial, count_calls_per_block
from pytest_attnperf.measure.timers.capture import capture_graph, warm_up_for_capture
from pytest_attnperf.measure.timers.pair_clocks import Stamps
from pytest_attnperf.measure.timers.replay import CAPTURES, ReplayTimer, is_long_enough
from pytest_attnperf.measure.timers.stream import side_stream


class GraphColdTimer(ReplayTimer):
    """Rounds over `others`, the same call on other copies of its inputs, and the call itself, which ends each round.

    others   at most MAX_CALLS_PER_BLOCK - 1; they and the call together outgrow the last-level cache
    note     how it is known how much that is, where it is not
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
        """As `TimerKind.make`."""
        own = given.make_copies()
        return cls(own.calls, own.note, given.stamps())

    def prepare(self, call: Call, block_us: float) -> None:
        """Capture one round, learn its time from replays, and capture as many rounds as fill `block_us`.

        Raises CaptureFailedError when the call cannot be captured.
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
        """As `run_once`, but give the result of the first call of the block: the one on the first of `others`.

        Where the backend writes every result to one buffer of its own, that holds the last call's.
        """
        self.run_once(poisoned=poisoned)
        return self._first

    def close(self) -> None:
        """Free the graph and its memory."""
        self._first = None
        super().close()

    def _static_results(self) -> Any:
        return self._first, self._result


class CallRounds:
    """The calls one after the other, round and round; keeps the result of the very first, so that it can be judged."""

    def __init__(self, calls: Sequence[Call]) -> None:
        self.first: Any = None
        self._calls = calls
        self._made = 0

    def __call__(self) -> Any:
        """The next call."""
        result = self._calls[self._made % len(self._calls)]()
        if not self._made:
            self.first = result
        self._made += 1
        return result


def count_rounds_per_block(block_us: float, call_us: float, copies: int) -> int:
    """Rounds over `copies` that fill a block: at least 1, and no more than MAX_CALLS_PER_BLOCK calls allow."""
    wanted = math.ceil(count_calls_per_block(block_us, call_us) / copies)
    return max(1, min(wanted, MAX_CALLS_PER_BLOCK // copies))
