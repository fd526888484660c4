from __future__ import annotations

import math
import random
import time

import pytest
import torch

from pytest_attnperf.errors import UsageError
from pytest_attnperf.measure.gpu_timer import TimerResult, gpu_timer
from pytest_attnperf.records import Samples


def test_a_cpu_function_is_timed_by_the_host() -> None:
    """Tensors on the CPU choose the host's clock, and exactly the blocks asked for come back."""
    tensor = torch.ones(1000)
    timed = gpu_timer(torch.add, tensor, tensor, blocks=5, block_us=200.0)
    assert (len(timed.block_us), timed.timer) == (5, "host")
    assert timed.samples.calls_per_block > 1
    assert all(time_us > 0 for time_us in timed.block_us)


def test_the_time_is_per_call() -> None:
    """A function that sleeps 5 ms takes 5 ms per call, however many calls a block holds."""
    timed = gpu_timer(lambda _: time.sleep(0.005), torch.ones(1), blocks=3, block_us=25_000.0)
    assert timed.samples.calls_per_block <= 5
    assert 5000 <= min(timed.block_us) < 15_000


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
    timed = gpu_timer(torch.matmul, matrix, matrix, blocks=10)
    assert timed.timer == "graph"
    assert 50 < sorted(timed.block_us)[5] < 20_000


def result_of(*block_us: float, note: str = "") -> TimerResult:
    """A result with these blocks."""
    return TimerResult(Samples(block_us, 185, "graph", note=note))


def test_the_result_reads_as_one_line() -> None:
    """Median, interval, blocks, calls and timer, and a note where there is one; per call, in microseconds."""
    timed = result_of(*(5.40 + 0.01 * step for step in range(5)))
    assert repr(timed) == (
        "5.420 us per call (5.400 us to 5.440 us in this process; 5 blocks of 185 calls, graph timer)"
    )
    assert repr(result_of(5.0, note="not captured")).endswith("graph timer; not captured)")
    assert (timed.median_us, timed.min_us, timed.timer, timed.note) == (5.42, 5.40, "graph", "")


def test_the_interval_holds_the_median_as_often_as_it_says() -> None:
    """Of intervals over 30 skewed blocks at least 95 % hold the true median, and they are no wider than needed: the
    next narrower ones hold it less often."""
    draw, runs, held, inner = random.Random(3), 4000, 0, 0
    for _ in range(runs):
        timed = result_of(*(draw.expovariate(1.0) + 1 for _ in range(30)))
        low, high = timed.interval_us
        ordered = sorted(timed.block_us)
        held += low <= 1 + math.log(2) <= high
        at = ordered.index(low) + 1
        inner += ordered[at] <= 1 + math.log(2) <= ordered[-1 - at]
    assert held / runs >= 0.95
    assert inner / runs < 0.95


def test_few_blocks_give_their_extremes() -> None:
    """Fewer than six blocks cannot bound a median at 95 %: the fastest and the slowest are given."""
    assert result_of(1.0, 2.0, 9.0).interval_us == (1.0, 9.0)
    assert result_of(7.0).interval_us == (7.0, 7.0)
