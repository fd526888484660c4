"""Measures time in kernels alone: the kernels, copies and memory sets of a call by torch's profiler.

A graph's time per call includes the gaps between its kernels. The difference between the two timers shows these gaps,
and the cost of launches that a graph would hide. Its numbers are only comparable with numbers of this timer. Parallel
work counts in full.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import Any

from pytest_attnperf.errors import CaseFailedError
from pytest_attnperf.measure import trace
from pytest_attnperf.measure.timers.stream import hold_stream, run_and_wait
from pytest_attnperf.measure.timers.timer import WARM_UP_CALLS, Call, TimerKind, count_calls_per_block

MAX_PROFILED_CALLS = 100
"""Calls per block: every kernel of both blocks becomes an event that is written, read and sorted."""

_ESTIMATE_CALLS = 5
_HOLD_KERNEL = "spin_kernel"
"""Part of the name of the kernel that `torch.cuda._sleep` launches, on CUDA and ROCm alike."""


class ProfilerTimer(TimerKind):
    """Profiles an unmeasured and a measured block together and sums what ran in the second.

    After it was used, no other timer may time in this process (see `trace`).
    """

    name = "profiler"
    note = "time in kernels, copies and memory sets alone, without the gaps between them"

    def __init__(self) -> None:
        self.calls_per_block = 1
        self._call: Call | None = None
        self._launch_us = 0.0

    def prepare(self, call: Call, block_us: float) -> None:
        """Warms up, profiles a few calls, and chooses the length of a block.

        Raises CaseFailedError if the profiler sees no work.
        """
        import torch

        self._call = call
        for _ in range(WARM_UP_CALLS):
            call()
        hold_stream(1.0)  # the first hold in a process makes others to calibrate, which must not be profiled
        torch.cuda.synchronize()
        begin = time.perf_counter()
        for _ in range(_ESTIMATE_CALLS):
            call()
        self._launch_us = (time.perf_counter() - begin) * 1e6 / _ESTIMATE_CALLS
        self.calls_per_block = _ESTIMATE_CALLS
        [call_us] = self.measure(1)
        self.calls_per_block = min(MAX_PROFILED_CALLS, count_calls_per_block(block_us, call_us))

    def measure(self, pairs: int) -> list[float]:
        """Returns microseconds of GPU work per call of each measured block; makes one profile per pair.

        Raises CaseFailedError if the profiler sees no work.
        """
        return [sum_measured_us(trace.profile_events(self._run_pair)) / self.calls_per_block for _ in range(pairs)]

    def run_once(self, *, poisoned: bool = True) -> Any:
        """Makes one eager call, waits for the GPU and returns the call's result; `poisoned` changes nothing here."""
        assert self._call is not None, "prepare() comes first"
        return run_and_wait(self._call)

    def close(self) -> None:
        """Forgets the call."""
        self._call = None

    def _run_pair(self) -> None:
        """Runs an unmeasured and a measured block, each behind a kernel that holds the stream while calls are queued.
        In the profile the second such kernel marks the start of the measured block."""
        call = self._call
        assert call is not None, "prepare() comes first"
        for _ in range(2):
            hold_stream(self.calls_per_block * self._launch_us)
            for _ in range(self.calls_per_block):
                call()


def sum_measured_us(events: Iterable[dict[str, Any]]) -> float:
    """Returns the total microseconds of GPU work after the second kernel that holds the stream, which marks the block.

    events   of a Chrome trace
    Raises CaseFailedError if there are not two holds, or nothing ran after the second.
    """
    work = sorted((event for event in events if event.get("cat") in trace.KINDS), key=lambda event: float(event["ts"]))
    holds = [index for index, event in enumerate(work) if _HOLD_KERNEL in event["name"]]
    if len(holds) != 2:
        raise CaseFailedError(
            f"the profiler saw {len(holds)} of the 2 kernels named {_HOLD_KERNEL!r} that mark a block, among "
            f"{len(work)} events of GPU work: it lost events, or uses other names here; use another timer"
        )
    measured = work[holds[1] + 1 :]
    if not measured:
        raise CaseFailedError(
            "the profiler saw no kernel, copy or memory set in a whole block of calls: the call does nothing on the "
            "GPU, or its work is hidden from the profiler; use another timer"
        )
    return sum(float(event["dur"]) for event in measured)
