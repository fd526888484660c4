"""Replays of a graph that holds a whole block: no launch gap is timed, whatever the host does. CUDA and HIP alike."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from pytest_attnperf.correctness import poison
from pytest_attnperf.measure import graph_nodes
from pytest_attnperf.measure.timers.base import Call, calls_per_block
from pytest_attnperf.measure.timers.capture import capture, warm_up_for_capture
from pytest_attnperf.measure.timers.stream import elapsed_us, event_pair, hold_stream, side_stream

if TYPE_CHECKING:
    import torch

_CAPTURES = 3
"""Captures until the block has its length: one call, then blocks sized by the time per call of the graph before."""

_ENOUGH = (0.8, 1.25)
"""A block is accepted when the calls wanted are within these multiples of the calls it holds."""

_ESTIMATE_REPLAYS = 3


class GraphTimer:
    """One graph of `calls_per_block` calls, replayed. The result of the last call stays in the same memory.

    call_us   microseconds per call of the last estimate, known after `prepare`
    """

    name = "graph"
    cache_state = "hot"
    note = ""
    replays = True
    max_pairs = 64

    def __init__(self) -> None:
        self.calls_per_block = 1
        self.call_us = 0.0
        self._graph: torch.cuda.CUDAGraph | None = None
        self._result: Any = None
        self._replay_host_us = 0.0

    def prepare(self, call: Call, block_us: float) -> None:
        """Capture one call, learn its time from replays, and capture blocks of about `block_us`.

        A graph of one short call is slower per call than a block (its launch shows), so the length is refined.
        Raises CaptureFailedError when the call cannot be captured.
        """
        stream = side_stream()
        warm_up_for_capture(call, stream)
        wanted = 1
        for _ in range(_CAPTURES):
            self.close()
            self._graph, self._result = capture(call, wanted, stream)
            self.calls_per_block = wanted
            self.call_us = self._estimate_us()
            wanted = calls_per_block(block_us, self.call_us)
            if _ENOUGH[0] <= wanted / self.calls_per_block <= _ENOUGH[1]:
                break

    def twin(self, call: Call) -> GraphTimer:
        """A timer of the same length for the same work on other tensors; warmed up and captured once."""
        other = GraphTimer()
        other.calls_per_block, other.call_us = self.calls_per_block, self.call_us
        other._replay_host_us = self._replay_host_us
        call()
        other._graph, other._result = capture(call, self.calls_per_block, side_stream())
        return other

    def measure(self, pairs: int) -> list[float]:
        """Queue all pairs back to back behind a held stream, then wait once; microseconds per call."""
        import torch

        graph = self._captured()
        events = [event_pair() for _ in range(pairs)]
        hold_stream(2 * pairs * self._replay_host_us)
        for start, end in events:
            graph.replay()
            start.record()
            graph.replay()
            end.record()
        torch.cuda.synchronize()
        return [elapsed_us(start, end) / self.calls_per_block for start, end in events]

    def content(self) -> graph_nodes.GraphContent:
        """What the graph holds, all its calls together. Raises UnreadableGraphError."""
        return graph_nodes.content(self._captured())

    def run_once(self, *, poisoned: bool = True) -> Any:
        """Fill the static result with NaN unless told not to, replay the block once, and give that result."""
        import torch

        graph = self._captured()
        for tensor in poison.tensors_in(self._result) if poisoned else ():
            poison.fill(tensor)
        graph.replay()
        torch.cuda.synchronize()
        return self._result

    def close(self) -> None:
        """Free the graph and its memory."""
        self._result = None
        if self._graph is not None:
            self._graph.reset()
        self._graph = None

    def _captured(self) -> torch.cuda.CUDAGraph:
        assert self._graph is not None, "prepare() comes first"
        return self._graph

    def _estimate_us(self) -> float:
        """Microseconds per call over a few replays; learns beside it how long the host takes to queue a replay."""
        import torch

        graph = self._captured()
        start, end = event_pair()
        graph.replay()  # the first replay uploads the graph
        torch.cuda.synchronize()
        begin = time.perf_counter()
        graph.replay()
        self._replay_host_us = (time.perf_counter() - begin) * 1e6
        torch.cuda.synchronize()
        hold_stream((1 + _ESTIMATE_REPLAYS) * self._replay_host_us)
        graph.replay()
        start.record()
        for _ in range(_ESTIMATE_REPLAYS):
            graph.replay()
        end.record()
        torch.cuda.synchronize()
        return elapsed_us(start, end) / (_ESTIMATE_REPLAYS * self.calls_per_block)
