"""Replays of a graph whose calls each read inputs of their own, which another graph has made ready just before.

A call that overwrites its inputs cannot be repeated on them, and a backward pass consumes what its forward left. So
two graphs are captured: one that makes every call's inputs ready, by copying or by the forward pass, and one that holds
the calls. Both are replayed, one behind the other, and only the second is timed. What a call reads was written by the
first graph, so that it is in the cache as far as all of a block fits there.
"""

from __future__ import annotations

from typing import Any

from pytest_attnperf.measure.timers.base import Call, Setup, Timer, TimerMaterial, count_calls_per_block
from pytest_attnperf.measure.timers.capture import capture_graph, warm_up_for_capture
from pytest_attnperf.measure.timers.host_fresh import FRESH_MOST
from pytest_attnperf.measure.timers.pair_clocks import Stamps
from pytest_attnperf.measure.timers.replay import CAPTURES, ReplayTimer, is_long_enough
from pytest_attnperf.measure.timers.stream import elapsed_us, event_pair, hold_stream, side_stream

MEMORY_SHARE = 4
"""The inputs of a block may take this part of the memory that is free."""

_ESTIMATE_REPLAYS = 3


class GraphFreshTimer(ReplayTimer):
    """Blocks of `work(*setup())`: setups and calls in a graph each."""

    name = "graph_fresh"
    in_parts = True
    substitute = "event_fresh"

    def __init__(self, setup: Setup, work: Call, stamps: Stamps | None = None) -> None:
        super().__init__(stamps)
        self._setup = setup
        self._work = work
        self._before: Any = None
        self._ready: list[tuple[Any, ...]] = []

    @classmethod
    def make(cls, given: TimerMaterial) -> Timer:
        """As `TimerKind.make`."""
        parts = given.require_parts()
        return cls(parts.setup, parts.work, given.stamps())

    def prepare(self, call: Call, block_us: float) -> None:
        """Capture one call, learn its time and its memory, and capture blocks of about `block_us`.

        call   a setup and its call, to warm up by

        Raises CaptureFailedError when either cannot be captured.
        """
        stream = side_stream()
        warm_up_for_capture(call, stream)
        wanted, most = 1, FRESH_MOST
        for _ in range(CAPTURES):
            self.close()
            bytes_before, self.calls_per_block = _count_allocated_bytes(), wanted
            self._capture_graphs(stream)
            most = min(most, _count_affordable((_count_allocated_bytes() - bytes_before) // wanted))
            self.call_us = self._estimate_us()
            wanted = min(most, count_calls_per_block(block_us, self.call_us))
            if is_long_enough(wanted, self.calls_per_block):
                break

    def measure(self, pairs: int) -> list[float]:
        """Queue all pairs back to back behind a held stream, then wait once; microseconds per call."""
        import torch

        graph, clocks = self._require_graph(), self._clocks
        events = [event_pair() for _ in range(pairs)]
        clocks.begin()
        hold_stream(4 * pairs * self._replay_host_us + 2 * pairs * clocks.host_us)
        for start, end in events:
            clocks.stamp()
            self._before.replay()
            graph.replay()
            self._before.replay()
            start.record()
            graph.replay()
            end.record()
            clocks.stamp()
        torch.cuda.synchronize()
        self.clock_mhz = clocks.read_clocks(pairs)
        return [elapsed_us(start, end) / self.calls_per_block for start, end in events]

    def close(self) -> None:
        """Free both graphs and their memory."""
        super().close()
        self._ready = []
        if self._before is not None:
            self._before.reset()
        self._before = None

    def _capture_graphs(self, stream: Any) -> None:
        self._ready = ready = []

        def make_ready() -> None:
            ready.append(self._setup())

        self._before, _ = capture_graph(make_ready, self.calls_per_block, stream)
        self._before.replay()  # backward passes may look at what they were left, while they are captured
        waiting = iter(ready)
        self._graph, self._result = capture_graph(lambda: self._work(*next(waiting)), self.calls_per_block, stream)

    def _replay(self) -> None:
        """Make every call's inputs ready, then replay the block."""
        self._before.replay()
        self._require_graph().replay()

    def _estimate_us(self) -> float:
        """Microseconds per call over a few replays, each on inputs made ready anew."""
        import time

        import torch

        self._replay()  # the first replay uploads the graphs
        torch.cuda.synchronize()
        begin = time.perf_counter()
        self._replay()
        self._replay_host_us = (time.perf_counter() - begin) * 1e6
        torch.cuda.synchronize()
        pairs = [event_pair() for _ in range(_ESTIMATE_REPLAYS)]
        hold_stream(len(pairs) * self._replay_host_us)
        for start, end in pairs:
            self._before.replay()
            start.record()
            self._require_graph().replay()
            end.record()
        torch.cuda.synchronize()
        return sum(elapsed_us(start, end) for start, end in pairs) / (len(pairs) * self.calls_per_block)


def _count_allocated_bytes() -> int:
    import torch

    return torch.cuda.memory_allocated()


def _count_affordable(bytes_each: int) -> int:
    """How many calls' inputs fit into a share of what is free; at least one."""
    import torch

    if bytes_each <= 0:
        return FRESH_MOST
    return max(1, min(FRESH_MOST, torch.cuda.mem_get_info()[0] // MEMORY_SHARE // bytes_each))
