"""Times replays of a graph that holds a whole block: no launch gap is timed, whatever the host does. CUDA and HIP."""

from __future__ import annotations

from pytest_attnperf.measure.timers.capture import capture_graph, warm_up_for_capture
from pytest_attnperf.measure.timers.replay import CAPTURES, ReplayTimer, is_long_enough
from pytest_attnperf.measure.timers.stream import side_stream
from pytest_attnperf.measure.timers.timer import Call, Timer, TimerMaterial, count_calls_per_block


class GraphTimer(ReplayTimer):
    """Repeats the same call: its inputs are in the last-level cache as far as they fit."""

    name = "graph"
    substitute = "event"

    @classmethod
    def make(cls, given: TimerMaterial) -> Timer:
        """Returns a GraphTimer, not prepared yet, with the clock stamps of `given`."""
        return cls(given.stamps())

    def prepare(self, call: Call, block_us: float) -> None:
        """Captures one call, measures its time in replays, and captures blocks of about `block_us`.

        A graph of one short call is slower per call than a block, because its launch takes time; so the length is
        refined. Raises CaptureFailedError if the call cannot be captured.
        """
        stream = side_stream()
        warm_up_for_capture(call, stream)
        wanted = 1
        for _ in range(CAPTURES):
            self.close()
            self._graph, self._result = capture_graph(call, wanted, stream)
            self.calls_per_block = wanted
            self.call_us = self._estimate_us()
            wanted = count_calls_per_block(block_us, self.call_us)
            if is_long_enough(wanted, self.calls_per_block):
                break

    def make_twin(self, call: Call) -> GraphTimer:
        """Returns a timer for `call`, the same work on other tensors, with as many calls per block as this one.
        The call is made once and then captured."""
        other = GraphTimer(self._clocks.stamps)
        other.calls_per_block, other.call_us = self.calls_per_block, self.call_us
        other._replay_host_us = self._replay_host_us
        call()
        other._graph, other._result = capture_graph(call, self.calls_per_block, side_stream())
        return other
