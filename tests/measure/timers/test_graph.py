from __future__ import annotations

import math

import pytest
import torch

from pytest_attnperf.measure.timers.graph import GraphTimer

pytestmark = pytest.mark.gpu


def _matmul(size: int) -> tuple[torch.Tensor, GraphTimer]:
    left = torch.randn(size, size, device="cuda", dtype=torch.float16)
    right = torch.randn(size, size, device="cuda", dtype=torch.float16)
    timer = GraphTimer()
    timer.prepare(lambda: left @ right, 1000.0)
    return left, timer


def test_blocks_have_the_length_asked_for() -> None:
    """A block of short calls takes about the time asked for, measured by the graph's own time per call."""
    _, timer = _matmul(512)
    per_call_us = sorted(timer.measure(9))[4]
    timer.close()
    assert timer.calls_per_block > 20
    assert 500 < per_call_us * timer.calls_per_block < 2000


def test_a_long_call_is_a_block_of_its_own() -> None:
    """A call longer than the block is captured once and replayed."""
    _, timer = _matmul(8192)
    [per_call_us] = timer.measure(1)
    timer.close()
    assert timer.calls_per_block == 1
    assert per_call_us > 1000


def test_many_small_kernels_are_timed_without_launches() -> None:
    """The time per call of a tiny kernel is a few microseconds, below what launching it from Python takes."""
    value = torch.ones(1024, device="cuda")
    timer = GraphTimer()
    timer.prepare(lambda: value * 2, 1000.0)
    times = timer.measure(20)
    timer.close()
    assert len(times) == 20
    assert all(0.3 < time_us < 6 for time_us in times)


def test_run_once_reads_the_inputs_of_now_and_rewrites_the_output() -> None:
    """A replay computes from what stands in the captured memory now, over outputs that were NaN before."""
    left, timer = _matmul(512)
    left.zero_()
    result = timer.run_once()
    zeros = bool((result == 0).all())
    timer.close()
    assert zeros


def test_a_replay_that_writes_nothing_shows_nan() -> None:
    """A call that computes only while it is not being captured leaves the NaN it was given."""
    out = torch.zeros(1024, device="cuda")
    other = torch.ones(1024, device="cuda")

    def call() -> torch.Tensor:
        if not torch.cuda.is_current_stream_capturing():
            out.fill_(1.0)
        other.add_(0)  # an empty graph is refused by some drivers
        return out

    timer = GraphTimer()
    timer.prepare(call, 1000.0)
    value = float(timer.run_once()[0])
    timer.close()
    assert math.isnan(value)


def test_close_frees_the_graphs_memory() -> None:
    """After close the memory of the captured outputs is free again."""
    value = torch.ones(1 << 22, device="cuda")
    torch.cuda.synchronize()
    before = torch.cuda.memory_allocated()
    timer = GraphTimer()
    timer.prepare(lambda: value * 2, 1000.0)
    held = torch.cuda.memory_allocated()
    timer.close()
    torch.cuda.empty_cache()
    assert held - before >= (1 << 24) - 4096  # something small of before may have been freed meanwhile
    assert torch.cuda.memory_allocated() - before < 1 << 20
