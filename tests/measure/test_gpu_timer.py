from __future__ import annotations

import time

import pytest
import torch

from pytest_attnperf.errors import UsageError
from pytest_attnperf.measure.gpu_timer import gpu_timer


def test_a_cpu_function_is_timed_by_the_host() -> None:
    """Tensors on the CPU choose the host's clock, and exactly the blocks asked for come back."""
    tensor = torch.ones(1000)
    samples = gpu_timer(torch.add, tensor, tensor, blocks=5, block_us=200.0)
    assert (len(samples.block_us), samples.timer) == (5, "host")
    assert samples.calls_per_block > 1
    assert all(time_us > 0 for time_us in samples.block_us)


def test_the_time_is_per_call() -> None:
    """A function that sleeps 5 ms takes 5 ms per call, however many calls a block holds."""
    samples = gpu_timer(lambda _: time.sleep(0.005), torch.ones(1), blocks=3, block_us=25_000.0)
    assert samples.calls_per_block <= 5
    assert 5000 <= min(samples.block_us) < 15_000


def test_tensors_inside_arguments_are_found() -> None:
    """A tensor in a list or dictionary says where the function runs as well as one on its own."""
    assert gpu_timer(lambda batch: batch["q"][0] + 1, {"q": [torch.ones(1)]}, blocks=1, block_us=50.0).timer == "host"


def test_without_a_tensor_the_device_must_be_said() -> None:
    """A function whose tensors are hidden is refused, because the host's clock would time a launch."""
    with pytest.raises(UsageError, match=r"found no tensor among the arguments.*pass the tensors as arguments, or dev"):
        gpu_timer(lambda: None)
    assert gpu_timer(lambda: None, blocks=1, block_us=50.0, device="cpu").timer == "host"


def test_an_unknown_device_is_refused() -> None:
    """A device that is neither 'cuda' nor 'cpu' is named with what exists."""
    with pytest.raises(UsageError, match=r"device 'rocm' is unknown; known: 'cuda' \(AMD GPUs, too\), 'cpu'"):
        gpu_timer(lambda: None, device="rocm")


@pytest.mark.gpu
def test_a_gpu_function_is_timed_by_replays() -> None:
    """Tensors on a GPU choose the graph, and the time of a 4096 x 4096 fp16 product is plausible."""
    matrix = torch.randn(4096, 4096, device="cuda", dtype=torch.float16)
    samples = gpu_timer(torch.matmul, matrix, matrix, blocks=10)
    assert samples.timer == "graph"
    assert 50 < sorted(samples.block_us)[5] < 20_000
