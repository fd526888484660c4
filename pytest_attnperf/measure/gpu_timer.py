"""Times one function, without a suite, a check or a gate."""

from __future__ import annotations

import functools
import statistics
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from pytest_attnperf.correctness.poison import tensors_in
from pytest_attnperf.errors import UsageError
from pytest_attnperf.measure.rejection import CompileWatch
from pytest_attnperf.measure.sampling import sample_blocks
from pytest_attnperf.measure.stopping import StoppingRule
from pytest_attnperf.measure.timers import choose_timer
from pytest_attnperf.measure.warm_up import warm_device, warm_up
from pytest_attnperf.records import Samples
from pytest_attnperf.records.call_fit import find_misfit
from pytest_attnperf.records.time_units import format_time, format_times
from pytest_attnperf.stats.quantiles import binomial_at_most

ONE_SIDED = 0.025


@dataclass(frozen=True, repr=False)
class TimerResult:
    """Times of one function in one process, in microseconds per call. `samples` are its blocks.

    Another process of the same code may differ by more than `interval_us` says, so compare two results of one process
    only, and gate with `attnperf.gate`.
    """

    samples: Samples

    @property
    def block_us(self) -> tuple[float, ...]:
        """The time of each block, per call, in measured order."""
        return self.samples.block_us

    @property
    def median_us(self) -> float:
        """The median of the blocks."""
        return statistics.median(self.block_us)

    @property
    def min_us(self) -> float:
        """The fastest block."""
        return min(self.block_us)

    @property
    def interval_us(self) -> tuple[float, float]:
        """The 95 % interval of the median in this process, between two of its blocks, whatever their distribution (the
        sign test's; the fastest and the slowest block if there are fewer than six)."""
        ordered, count = sorted(self.block_us), len(self.block_us)
        outside = 0
        while 2 * (outside + 1) < count and binomial_at_most(outside, count, 0.5) <= ONE_SIDED:
            outside += 1
        at = max(0, outside - 1)
        return ordered[at], ordered[count - 1 - at]

    @property
    def timer(self) -> str:
        """Name of the timer that was chosen, e.g. 'graph'."""
        return self.samples.timer

    @property
    def note(self) -> str:
        """Why another timer than a replayed graph was taken, or another remark; '' without one."""
        return self.samples.note

    def __repr__(self) -> str:
        """Returns e.g. '5.420 us per call (5.400 us to 5.450 us in this process; 30 blocks of 185 calls, ...)'."""
        low, high = self.interval_us
        note = f"; {self.note}" if self.note else ""
        return (
            f"{format_time(self.median_us)} per call ({format_times((low, high), ' to ')} in this process; "
            f"{len(self.block_us)} blocks of {self.samples.calls_per_block} calls, {self.timer} timer{note})"
        )


def gpu_timer(
    fn: Callable[..., Any],
    *args: Any,
    blocks: int = 30,
    block_us: float = 1000.0,
    device: str | None = None,
) -> TimerResult:
    """Times `blocks` blocks of about `block_us` microseconds of calls of `fn(*args)`; returns its median, interval and
    blocks in microseconds per call.

    It uses the timers of a gated case: a replayed graph on a GPU, events if `fn` cannot be captured (`note` says why),
    the host's clock on a CPU. It does not check the result, and one process does not predict the next. So use it to
    explore, never to gate; `attnperf.gate(...)` does both.

    device   'cuda' or 'cpu'; default: 'cuda' if any tensor in `args` is there, else 'cpu'

    Raises UsageError for arguments that nothing can be timed with, CaseFailedError if every block compiles.
    """
    _require_arguments(fn, args, blocks, block_us)
    torch_device = device if device is not None else _device_of(args)
    _require_device(torch_device)
    call = functools.partial(fn, *args)
    warm_device(torch_device)
    warm_up(call, torch_device)
    timer = choose_timer(torch_device, call, block_us)
    try:
        with CompileWatch() as watch:
            return TimerResult(sample_blocks(timer, StoppingRule(blocks, blocks), watch))
    finally:
        timer.close()


def _require_arguments(fn: object, args: tuple[Any, ...], blocks: object, block_us: object) -> None:
    """Raises UsageError for an `fn` that cannot be called with `args`, and for limits that are no positive numbers."""
    if not callable(fn):
        raise UsageError(
            f"gpu_timer: fn is a {type(fn).__name__}, but must be a function, which is called many times: pass it and "
            "its tensors, gpu_timer(fn, a, b), and not its result"
        )
    if misfit := find_misfit(fn, *args):
        raise UsageError(f"gpu_timer: fn {misfit}; pass its arguments one by one, gpu_timer(fn, a, b)")
    if isinstance(blocks, bool) or not isinstance(blocks, int) or blocks < 1:
        raise UsageError(f"gpu_timer: blocks is {blocks!r}, but must be a whole number of at least 1, e.g. blocks=30")
    if isinstance(block_us, bool) or not isinstance(block_us, (int, float)) or not block_us > 0:
        raise UsageError(f"gpu_timer: block_us is {block_us!r}, but must be microseconds above 0, e.g. block_us=1000")


def _require_device(device: str) -> None:
    """Raises UsageError for an unknown device, and for 'cuda' where torch finds no GPU."""
    import torch

    if device not in ("cuda", "cpu"):
        raise UsageError(f"gpu_timer: device {device!r} is unknown; known: 'cuda' (AMD GPUs, too), 'cpu'")
    if device == "cuda" and not torch.cuda.is_available():
        raise UsageError("gpu_timer: device='cuda', but torch finds no GPU here; attnperf doctor says why, 'cpu' works")


def _device_of(args: tuple[Any, ...]) -> str:
    devices = {tensor.device.type for tensor in tensors_in(args)}
    if not devices:
        raise UsageError(
            "gpu_timer found no tensor among the arguments, so it cannot know where the function runs (a GPU's work "
            "has not finished when a call returns); pass the tensors as arguments, or device='cuda' or device='cpu'"
        )
    return "cuda" if "cuda" in devices else "cpu"
