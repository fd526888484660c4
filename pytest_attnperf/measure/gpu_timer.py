"""Times one function, without a suite, a check or a gate."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from pytest_attnperf.correctness.poison import tensors_in
from pytest_attnperf.errors import UsageError
from pytest_attnperf.measure.rejection import CompileWatch
from pytest_attnperf.measure.sampling import sample_blocks
from pytest_attnperf.measure.stopping import StoppingRule
from pytest_attnperf.measure.timers import choose_timer
from pytest_attnperf.measure.warm_up import warm_device, warm_up
from pytest_attnperf.records import Samples


def gpu_timer(
    fn: Callable[..., Any],
    *args: Any,
    blocks: int = 30,
    block_us: float = 1000.0,
    device: str | None = None,
) -> Samples:
    """Times `blocks` blocks of about `block_us` microseconds of calls; returns microseconds per call of `fn(*args)`.

    It uses the timers of a gated case: a replayed graph on a GPU, events if `fn` cannot be captured (`note` says why),
    the host's clock on a CPU. It does not check the result, and one process does not predict the next. So use it to
    explore, never to gate; `attnperf.gate(...)` does both.

    device   'cuda' or 'cpu'; default: 'cuda' if any tensor in `args` is there, else 'cpu'

    Raises UsageError if neither `device` nor a tensor says where `fn` runs, CaseFailedError if every block compiles.
    """
    torch_device = device if device is not None else _device_of(args)
    if torch_device not in ("cuda", "cpu"):
        raise UsageError(f"gpu_timer: device {device!r} is unknown; known: 'cuda' (AMD GPUs, too), 'cpu'")
    call = functools.partial(fn, *args)
    warm_device(torch_device)
    warm_up(call, torch_device)
    timer = choose_timer(torch_device, call, block_us)
    try:
        with CompileWatch() as watch:
            return sample_blocks(timer, StoppingRule(blocks, blocks), watch)
    finally:
        timer.close()


def _device_of(args: tuple[Any, ...]) -> str:
    devices = {tensor.device.type for tensor in tensors_in(args)}
    if not devices:
        raise UsageError(
            "gpu_timer found no tensor among the arguments, so it cannot know where the function runs (a GPU's work "
            "has not finished when a call returns); pass the tensors as arguments, or device='cuda' or device='cpu'"
        )
    return "cuda" if "cuda" in devices else "cpu"
