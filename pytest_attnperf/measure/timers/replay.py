"""Shared code of all timers that replay a captured graph, on CUDA and HIP; one graph holds a whole block."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from pytest_attnperf.correctness import poison
from pytest_attnperf.measure import graph_nodes
from pytest_attnperf.measure.timers.pair_clocks import PairClocks, Stamps
from pytest_attnperf.measure.timers.stream import elapsed_us, event_pair, hold_stream
from pytest_attnperf.measure.timers.timer import TimerKind

if TYPE_CHECKING:
    import torch

CAPTURES = 3
"""Most captures until a block has its length: one call or round first, then blocks sized by the last time per call."""

_ENOUGH = (0.8, 1.25)
"""A block is accepted if the wanted number of calls is within these multiples of its own number of calls."""

_ESTIMATE_REPLAYS = 3


def is_long_enough(wanted: int, calls: int) -> bool:
    """Tells whether `wanted` is 0.8 to 1.25 times `calls`: then a block of `calls` calls is not captured again."""
    return _ENOUGH[0] <= wanted / calls <= _ENOUGH[1]


class ReplayTimer(TimerKind):
    """Replays one graph of `calls_per_block` calls. The result of the last call stays in the same memory.

    call_us      microseconds per call of the last estimate, known after `prepare`
    stamps       read the clock; None if nothing can
    before_pair  queues work before each pair of blocks, untimed; None for nothing
    """

    note = ""
    replays = True
    max_pairs = 64

    def __init__(self, stamps: Stamps | None = None) -> None:
        self.calls_per_block = 1
        self.call_us = 0.0
        self.before_pair: Callable[[], None] | None = None
        self._clocks = PairClocks(stamps)
        self._graph: torch.cuda.CUDAGraph | None = None
        self._result: Any = None
        self._replay_host_us = 0.0

    def measure(self, pairs: int) -> list[float]:
        """Queues all pairs of blocks behind a kernel that holds the stream, and waits once at the end.
        Returns microseconds per call of each measured block."""
        import torch

        graph, clocks = self._require_graph(), self._clocks
        events = [event_pair() for _ in range(pairs)]
        clocks.begin()
        hold_stream(2 * pairs * self._replay_host_us + 2 * pairs * clocks.host_us)
        for start, end in events:
            if self.before_pair is not None:
                self.before_pair()
            clocks.stamp()
            graph.replay()
            start.record()
            graph.replay()
            end.record()
            clocks.stamp()
        torch.cuda.synchronize()
        self.clock_mhz = clocks.read_clocks(pairs)
        return [elapsed_us(start, end) / self.calls_per_block for start, end in events]

    def read_graph_content(self) -> graph_nodes.GraphContent:
        """Reads the kernels and copies in the whole block's graph. Raises UnreadableGraphError if it cannot be read."""
        return graph_nodes.read_graph_content(self._require_graph())

    def run_once(self, *, poisoned: bool = True) -> Any:
        """Replays the block once and returns its last result, which is first filled with NaN if `poisoned`."""
        import torch

        for tensor in poison.tensors_in(self._static_results()) if poisoned else ():
            poison.fill(tensor)
        self._replay()
        torch.cuda.synchronize()
        return self._result

    def close(self) -> None:
        """Frees the graph and its memory."""
        self._result = None
        if self._graph is not None:
            self._graph.reset()
        self._graph = None

    def _replay(self) -> None:
        """Queues one replay of the block; a subclass also queues what its inputs need before."""
        self._require_graph().replay()

    def _static_results(self) -> Any:
        """Returns the raw results that every replay writes to the same memory: here that of the last call."""
        return self._result

    def _require_graph(self) -> torch.cuda.CUDAGraph:
        assert self._graph is not None, "prepare() comes first"
        return self._graph

    def _lead_in(self) -> None:
        """Queues what precedes a measured block: an unmeasured one; in a subclass the preparation of its inputs."""
        self._require_graph().replay()

    def _estimate_us(self) -> float:
        """Returns the least microseconds per call of a few replays; also measures how long the host takes to queue one.

        Least, because a host that is interrupted as it queues a replay lets the device idle. Blocks that are sized by
        that were single calls, and a third of their time was the launch.
        """
        import torch

        self._replay()  # the first replay uploads the graph
        torch.cuda.synchronize()
        begin = time.perf_counter()
        self._replay()
        self._replay_host_us = (time.perf_counter() - begin) * 1e6
        events = [event_pair() for _ in range(_ESTIMATE_REPLAYS)]
        for start, end in events:
            torch.cuda.synchronize()
            hold_stream(2 * self._replay_host_us)
            self._lead_in()
            start.record()
            self._require_graph().replay()
            end.record()
        torch.cuda.synchronize()
        return min(elapsed_us(start, end) for start, end in events) / self.calls_per_block
