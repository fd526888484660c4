"""Time in kernels alone: what torch's profiler says that the kernels, copies and memory sets of a call took.

A graph's time per call holds the gaps between its kernels, too. The difference to this timer's shows them, and shows
what launches cost that a graph would hide. Like every number it is comparable with numbers of the same timer only.
Work that runs side by side counts in full.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import Any

from pytest_attnperf.errors import CaseFailedError
from pytest_attnperf.measure import trace
from pytest_attnperf.measure.timers.base import WARM_UP_CALLS, Call, TimerKind, count_calls_per_block
from pytest_attnperf.measure.timers.stream import hold_stream

MAX_PROFILED_CALLS = 100
"""Calls per block: every kernel of both blocks becomes an event that is written, read and sorted."""

_ESTIMATE_CALLS = 5
_HOLD_KERNEL = "spin_kernel"
"""Part of the name of the kernel that `torch.cuda._sleep` launches, on CUDA and ROCm alike."""


class ProfilerTimer(TimerKind):
    """Profiles an unmeasured and a measured block together and adds up what ran in the second.

    A process in which it was used may not be timed by any other timer afterwards (see `trace`).
    """

    name = "profiler"
    note = "time in kernels, copies and memory sets alone, without the gaps between them"

    def __init__(self) -> None:
        self.calls_per_block = 1
        self._call: Call | None = None
        self._launch_us = 0.0

    def prepare(self, call: Call, block_us: float) -> None:
        """Warm up, profile a few calls, and choose the length of a block.

        Raises CaseFailedError when the profiler sees no work.
        """
        import torch

        self._call = call
        for _ in range(WARM_UP_CALLS):
            call()
        hold_stream(1.0)  # a process's first hold is calibrated by others, which must not be in a profile
        torch.cuda.synchronize()
        begin = time.perf_counter()
        for _ in range(_ESTIMATE_CALLS):
            call()
        self._launch_us = (time.perf_counter() - begin) * 1e6 / _ESTIMATE_CALLS
        self.calls_per_block = _ESTIMATE_CALLS
        [call_us] = self.measure(1)
        self.calls_per_block = min(MAX_PROFILED_CALLS, count_calls_per_block(block_us, call_us))

    def measure(self, pairs: int) -> list[float]:
        """Microseconds of GPU work per call of each measured block; one profile per pair.

        Raises CaseFailedError when the profiler sees no work.
        """
        return [sum_measured_us(trace.profile_events(self._run_pair)) / self.calls_per_block for _ in range(pairs)]

    def run_once(self, *, poisoned: bool = True) -> Any:
        """One eager call, finished."""
        import torch

        assert self._call is not None, "prepare() comes first"
        result = self._call()
        torch.cuda.synchronize()
        return result

    def close(self) -> None:
        """Let go of the call."""
        self._call = None

    def _run_pair(self) -> None:
        """Each block behind a hold: the second hold also marks where the measured one begins."""
        call = self._call
        assert call is not None, "prepare() comes first"
        for _ in range(2):
            hold_stream(self.calls_per_block * self._launch_us)
            for _ in range(self.calls_per_block):
                call()


def sum_measured_us(events: Iterable[dict[str, Any]]) -> float:
    """Microseconds of GPU work behind the second hold, together; `events` are those of a Chrome trace.

    Raises CaseFailedError when there are not two holds, or nothing ran behind the second.
    """
    work = sorted((event for event in events if event.get("cat") in trace.KINDS), key=lambda event: float(event["ts"]))
    holds = [index for index, event in enumerate(work) if _HOLD_KERNEL in event["name"]]
    if len(holds) != 2:
        raise CaseFailedError(
            f"the profiler saw {len(holds)} of the 2 kernels named {_HOLD_KERNEL!r} that mark a block, among "
            f"{len(work)} events of GPU work: it lost events, or names them otherwise here; use another timer"
        )
    measured = work[holds[1] + 1 :]
    if not measured:
        raise CaseFailedError(
            "the profiler saw no kernel, copy or memory set in a whole block of calls: the call does nothing on the "
            "GPU, or its work is hidden from the profiler; use another timer"
        )
    return sum(float(event["dur"]) for event in measured)
