"""Times the canary: fixed work of torch's own beside the cases, which separates a machine shift from a code change.

It runs no code under test, so if the canary moved, the machine did. The GEMM depends on the compute clock and the power
that the card may draw, the copy on the memory clock. Sizes, values and blocks never change, because a canary is
compared with one stored months before. Other sizes or values (which draw other switching power) give another canary.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pytest_attnperf.measure.out_of_memory import free_cached_memory, run_guarded
from pytest_attnperf.measure.rejection import CompileWatch
from pytest_attnperf.measure.sampling import sample_blocks
from pytest_attnperf.measure.stopping import StoppingRule
from pytest_attnperf.measure.timers import choose_timer
from pytest_attnperf.measure.warm_up import warm_device, warm_up
from pytest_attnperf.records import Samples

if TYPE_CHECKING:
    import torch

GEMM = "gemm"
COPY = "copy"

BLOCK_US = 600.0
REST_SECONDS = 0.1
"""As before a case: a power-capped GPU holds its full clock for about 20 ms after a rest."""

SEED = 20_240_229
_BYTES_PER_F32 = 4


@dataclass(frozen=True)
class CanarySize:
    """`gemm_size` is of square matrices, `copy_bytes` are read once and written once, `blocks` are measured of each."""

    gemm_size: int
    gemm_dtype: str
    copy_bytes: int
    blocks: int


SIZES = {
    "cuda": CanarySize(4096, "float16", 256 << 20, blocks=20),
    "cpu": CanarySize(256, "float32", 4 << 20, blocks=15),
}
"""By torch's device. Source and target of a 256 MiB copy do not fit together into any last-level cache."""


def take_canary(torch_device: str) -> dict[str, Samples]:
    """Times a fixed GEMM and a fixed copy on 'cuda' (both vendors) or 'cpu'; returns their blocks by 'gemm' and 'copy'.

    It replays graphs on a GPU and uses the host's clock on a CPU. The device is warmed once per process, and rests
    before each. This takes about half a second on a warm GPU. Afterwards the memory returns to the GPU.

    Raises CaseFailedError if the GPU has too little memory (it needs about 0.6 GiB).
    """

    def time_both() -> dict[str, Samples]:
        size = SIZES[torch_device]
        warm_device(torch_device)
        return {
            GEMM: _time_call(_make_gemm(size, torch_device), size, torch_device),
            COPY: _time_call(_make_copy(size, torch_device), size, torch_device),
        }

    samples = run_guarded(time_both, "the canary", lambda: None)
    free_cached_memory()
    return samples


def _time_call(call: Callable[[], torch.Tensor], size: CanarySize, torch_device: str) -> Samples:
    warm_up(call, torch_device)
    timer = choose_timer(torch_device, call, BLOCK_US)
    try:
        time.sleep(REST_SECONDS)
        with CompileWatch() as watch:
            return sample_blocks(timer, StoppingRule(size.blocks, size.blocks), watch)
    finally:
        timer.close()


def _make_gemm(size: CanarySize, torch_device: str) -> Callable[[], torch.Tensor]:
    """Returns a function that multiplies two matrices of normal random numbers, whose bits switch as in real data."""
    import torch

    shape = (size.gemm_size, size.gemm_size)
    dtype: torch.dtype = getattr(torch, size.gemm_dtype)
    generator = torch.Generator(torch_device).manual_seed(SEED)
    left, right = (torch.randn(shape, generator=generator, device=torch_device, dtype=dtype) for _ in range(2))
    return lambda: left @ right


def _make_copy(size: CanarySize, torch_device: str) -> Callable[[], torch.Tensor]:
    import torch

    generator = torch.Generator(torch_device).manual_seed(SEED)
    source = torch.randn(size.copy_bytes // _BYTES_PER_F32, generator=generator, device=torch_device)
    target = torch.empty_like(source)
    return lambda: target.copy_(source)
