"""Times replays of a graph whose calls each read their own inputs, which another graph prepares just before.

A call that overwrites its inputs cannot be repeated on them, and a backward pass consumes what its forward left. So two
graphs are captured: one prepares every call's inputs, by copying or by the forward pass, and one holds the calls. They
are replayed one after the other, and only the second is timed. The first graph has written what a call reads, so it is
in the cache as far as the inputs of a whole block fit.
"""

from __future__ import annotations

from typing import Any

from pytest_attnperf.measure.timers.capture import capture_graph, warm_up_for_capture
from pytest_attnperf.measure.timers.host_fresh import FRESH_MOST
from pytest_attnperf.measure.timers.pair_clocks import Stamps
from pytest_attnperf.measure.timers.replay import CAPTURES, ReplayTimer, is_long_enough
from pytest_attnperf.measure.timers.stream import elapsed_us, event_pair, hold_stream, side_stream
from pytest_attnperf.measure.timers.timer import Call, Setup, Timer, TimerMaterial, count_calls_per_block

MEMORY_SHARE = 4
"""The inputs of a block may use this part of free memory."""


class GraphFreshTimer(ReplayTimer):
    """Times blocks of `work(*setup())`; setups and calls have one graph each."""

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
        """Returns a GraphFreshTimer, not prepared yet, with the parts of the call and the clock stamps of `given`."""
        parts = given.require_parts()
        return cls(parts.setup, parts.work, given.stamps())

    def prepare(self, call: Call, block_us: float) -> None:
        """Captures one call, measures its time and its memory, and captures blocks of about `block_us`.

        call   a setup and its call, for the warm-up

        Raises CaptureFailedError if either cannot be captured.
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
        """Queues all pairs of blocks behind a kernel that holds the stream, and waits once at the end.
        Returns microseconds per call of each measured block, without the time to prepare inputs."""
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
        """Frees both graphs and their memory."""
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
        self._before.replay()  # a backward pass may read what its forward left, while it is captured
        waiting = iter(ready)
        self._graph, self._result = capture_graph(lambda: self._work(*next(waiting)), self.calls_per_block, stream)

    def _replay(self) -> None:
        """Prepares every call's inputs, then replays the block."""
        self._before.replay()
        self._require_graph().replay()

    def _lead_in(self) -> None:
        """Prepares every call's inputs."""
        self._before.replay()


def _count_allocated_bytes() -> int:
    import torch

    return torch.cuda.memory_allocated()


def _count_affordable(bytes_each: int) -> int:
    """Returns how many calls with inputs of `bytes_each` fit into a quarter of free GPU memory: 1 to 64."""
    import torch

    if bytes_each <= 0:
        return FRESH_MOST
    return max(1, min(FRESH_MOST, torch.cuda.mem_get_info()[0] // MEMORY_SHARE // bytes_each))
