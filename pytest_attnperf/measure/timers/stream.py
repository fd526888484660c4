"""Queues what a GPU's stream needs around timed work: a pair of events, and a kernel that holds the stream.

The hold keeps the GPU busy while the host queues the timed work. Without it the gaps between launches are timed, too:
below about 100 us an event pair then measures the host. The idea is NVBench's blocking kernel. This one waits for a
time instead of a flag, so that a call that synchronises inside a block cannot deadlock.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch

MAX_HOLD_US = 50_000.0
"""Longest hold: the host limits a call whose launch takes longer anyway."""

_CALIBRATION_CYCLES = 2_000_000
_MARGIN = 1.5


@functools.cache
def side_stream() -> torch.cuda.Stream:
    """Returns the process's only stream for captures: the default one refuses them, and each takes cuBLAS workspace."""
    stream: torch.cuda.Stream = _torch_cuda().Stream()
    return stream


def run_and_wait(call: Callable[[], Any]) -> Any:
    """Makes one eager call, waits for the GPU and returns the call's result."""
    result = call()
    _torch_cuda().synchronize()
    return result


def event_pair() -> tuple[Any, Any]:
    """Makes two events that record time; they are not recorded yet."""
    cuda = _torch_cuda()
    return cuda.Event(enable_timing=True), cuda.Event(enable_timing=True)


def elapsed_us(start: Any, end: Any) -> float:
    """Returns the microseconds between two finished events; events give milliseconds at 0.5 us resolution."""
    return float(start.elapsed_time(end)) * 1000


def hold_stream(launch_us: float) -> None:
    """Queues a kernel that spins for 1.5 times `launch_us`, the time that the host needs to queue the next work."""
    idle_stream(min(MAX_HOLD_US, launch_us * _MARGIN))


def idle_stream(idle_us: float) -> None:
    """Queues a kernel of one thread that spins for about `idle_us`: the device draws almost no power meanwhile."""
    _torch_cuda()._sleep(max(1, int(idle_us * _cycles_per_us())))


@functools.cache
def _cycles_per_us() -> float:
    """Measures the spin cycles per microsecond on this GPU at its current clock, so `warm_device` must come first.

    The clock later changes by about 20 %; the margin of a hold covers that.
    """
    cuda = _torch_cuda()
    start, end = event_pair()
    cuda._sleep(1)  # loads the kernel
    cuda.synchronize()
    start.record()
    cuda._sleep(_CALIBRATION_CYCLES)
    end.record()
    end.synchronize()
    return _CALIBRATION_CYCLES / elapsed_us(start, end)


def _torch_cuda() -> Any:
    """Returns torch.cuda untyped, because its events and `_sleep` have types in some torch versions only."""
    import torch

    return torch.cuda
