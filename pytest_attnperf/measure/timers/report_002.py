"""Times by the protocol of a published report, so that its figure can be read beside ours. It never gates.

Flash Attention Kernel Benchmark Report, AMD MI300X, 2025-12-30: 10 calls, then 100 timed ones, each waited for, by
`time.perf_counter`; the mean. Launch and waiting of every call are in it, and so is whatever disturbs one of them.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import repeat
from typing import Any

from pytest_attnperf.measure import clocks
from pytest_attnperf.measure.timers.host import HostTimer
from pytest_attnperf.measure.timers.timer import Call, Timer, TimerMaterial

WARM_UP, TIMED = 10, 100
"""Calls of one run of the protocol."""


class Report002Timer(HostTimer):
    """A block is one run of the protocol; its time per call is the protocol's figure.

    wait   waits for the device
    """

    name = "report_002"
    on_cpu = False
    on_any = True
    gates = False
    note = f"mean of {TIMED} calls by the host's clock, each waited for, after {WARM_UP}: a published protocol"

    def __init__(
        self,
        wait: Callable[[], None] = lambda: None,
        clock_ns: clocks.Clock = clocks.first,
        other_ns: clocks.Clock | None = None,
    ) -> None:
        super().__init__(clock_ns, other_ns)
        self._wait = wait

    @classmethod
    def make(cls, given: TimerMaterial) -> Timer:
        """Returns a timer, not prepared yet, that on a GPU waits for it after every call."""
        if given.torch_device == "cpu":
            return cls()
        import torch

        return cls(torch.cuda.synchronize)

    def prepare(self, call: Call, block_us: float) -> None:
        """Keeps the call. A block has as many calls as the protocol, whatever `block_us` is."""
        self._call = call
        self.calls_per_block = TIMED

    def measure(self, pairs: int) -> list[float]:
        """Runs the protocol `pairs` times; returns the mean microseconds per call of each."""
        return [self._run_protocol() / TIMED for _ in range(pairs)]

    def run_once(self, *, poisoned: bool = True) -> Any:
        """Makes one call, waits for it, and returns its result; `poisoned` changes nothing here."""
        result = super().run_once(poisoned=poisoned)
        self._wait()
        return result

    def _run_protocol(self) -> float:
        call, wait, self.last = self._call, self._wait, None
        assert call is not None, "prepare() comes first"
        for _ in repeat(None, WARM_UP):
            call()
            wait()
        self._clocks.begin()
        for _ in repeat(None, TIMED - 1):
            call()
            wait()
        self.last = call()
        wait()
        return self._clocks.end()
