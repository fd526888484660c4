"""Calls before anything counts: once per process (clocks), once per case (caches, plans)."""

from __future__ import annotations

import functools
import sys
import time

from pytest_attnperf.errors import CaseFailedError
from pytest_attnperf.measure import clocks
from pytest_attnperf.measure.rejection import CompileWatch
from pytest_attnperf.measure.timers.timer import WARM_UP_CALLS, Call

GPU_SECONDS = 0.5
"""An idle GPU needs some tenths of a second of work to reach its clock under load."""

CPU_SECONDS = 0.05
CASE_SECONDS = 0.02

MAX_UNSETTLED_CALLS = 50
"""Most calls that may compile or tune something; a case with more never settles."""


@functools.cache
def warm_device(torch_device: str) -> None:
    """Multiplies matrices until the device runs at its working clock; once per process and device ('cuda' or 'cpu')."""
    import torch

    on_gpu = torch_device == "cuda"
    size = 4096 if on_gpu else 256
    matrix = torch.randn(size, size, device=torch_device, dtype=torch.float16 if on_gpu else torch.float32)
    warm_up(lambda: matrix @ matrix, torch_device, GPU_SECONDS if on_gpu else CPU_SECONDS)
    if on_gpu:
        time.sleep(GPU_SECONDS)  # the products heat the GPU and lower its clock: the first case must not see that


def warm_up(call: Call, torch_device: str, seconds: float = CASE_SECONDS) -> float:
    """Calls for at least `seconds`, and until three calls in a row compiled and tuned nothing; waits for each call.

    Returns the microseconds of the fastest call. Raises CaseFailedError if more than MAX_UNSETTLED_CALLS calls compiled
    or tuned something.
    """
    import torch

    deadline = time.monotonic() + seconds
    calls = quiet = unsettled = 0
    fastest_ns = sys.maxsize
    with CompileWatch() as watch:
        while quiet < WARM_UP_CALLS or time.monotonic() < deadline:
            before, started_ns = watch.count, clocks.first()
            call()
            if torch_device == "cuda":
                torch.cuda.synchronize()
            fastest_ns = min(fastest_ns, clocks.first() - started_ns)
            calls += 1
            if watch.count == before:
                quiet += 1
                continue
            quiet, unsettled = 0, unsettled + 1
            if unsettled > MAX_UNSETTLED_CALLS:
                raise CaseFailedError(
                    f"never settles: {unsettled} of {calls} calls on the same inputs compiled or tuned something "
                    f"({watch.description}), so no time would be the kernel's; fix the shapes, dtypes or Python "
                    "values that change from call to call, or compile for them in prepare()"
                )
    return fastest_ns / 1e3
