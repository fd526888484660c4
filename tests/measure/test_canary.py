from __future__ import annotations

import statistics

import pytest
import torch

from pytest_attnperf.errors import CaseFailedError
from pytest_attnperf.measure import canary as module
from pytest_attnperf.measure.canary import SIZES, take_canary
from pytest_attnperf.measure.timers import choose_timer
from pytest_attnperf.measure.timers.timer import Call, Timer


def test_the_canary_on_a_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """GEMM and copy are timed by the product's own choice of timer, in a fixed number of blocks of fixed length."""
    asked: list[tuple[str, float]] = []

    def recording(torch_device: str, call: Call, block_us: float) -> Timer:
        asked.append((torch_device, block_us))
        return choose_timer(torch_device, call, block_us)

    monkeypatch.setattr(module, "choose_timer", recording)
    samples = take_canary("cpu")
    assert asked == [("cpu", 600.0)] * 2
    assert set(samples) == {"gemm", "copy"}
    for taken in samples.values():
        assert taken.timer == "host"
        assert len(taken.block_us) == SIZES["cpu"].blocks
        assert statistics.median(taken.block_us) > 0


def test_the_canary_is_what_stored_ones_are() -> None:
    """Sizes and seed are fixed, because stored canaries of other sizes would be other canaries."""
    gpu, cpu = SIZES["cuda"], SIZES["cpu"]
    assert (gpu.gemm_size, gpu.gemm_dtype, gpu.copy_bytes, gpu.blocks) == (4096, "float16", 268_435_456, 20)
    assert (cpu.gemm_size, cpu.gemm_dtype, cpu.copy_bytes, cpu.blocks) == (256, "float32", 4_194_304, 15)
    assert (module.BLOCK_US, module.REST_SECONDS, module.SEED) == (600.0, 0.1, 20_240_229)


def test_the_values_are_the_same_every_time() -> None:
    """Two canaries multiply the same two different matrices of normal random numbers."""
    first, second = (module._make_gemm(SIZES["cpu"], "cpu")() for _ in range(2))
    assert first.shape == (256, 256)
    assert torch.equal(first, second)
    # The variance of a sum of 256 products of two independent normal numbers; of a square it would have a trace.
    assert 0.9 < float(first.var()) / 256 < 1.1
    assert abs(float(first.diagonal().mean())) < 5


def test_the_copy_moves_its_bytes() -> None:
    """The copy reads and writes 4 MiB of values that are not all the same."""
    copied = module._make_copy(SIZES["cpu"], "cpu")()
    assert copied.numel() * copied.element_size() == SIZES["cpu"].copy_bytes
    assert 0.9 < float(copied.var()) < 1.1


def test_a_gpu_without_memory_for_it_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    """Running out of memory is the canary's own error, marked as such."""

    def too_large(size: object, torch_device: str) -> object:
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 256.00 MiB")

    monkeypatch.setattr(module, "_make_copy", too_large)
    with pytest.raises(CaseFailedError, match=r"out of memory: the canary: .*256\.00 MiB.* free the device") as caught:
        take_canary("cpu")
    assert caught.value.out_of_memory


@pytest.mark.gpu
def test_the_canary_on_a_gpu() -> None:
    """Both are replayed from a graph in 20 blocks that agree to 5 %, and no memory stays behind but the library's."""
    take_canary("cuda")
    before = torch.cuda.memory_allocated()
    samples = take_canary("cuda")
    assert torch.cuda.memory_allocated() <= before
    for taken in samples.values():
        assert (taken.timer, len(taken.block_us)) == ("graph", 20)
        fast, middle, slow = statistics.quantiles(taken.block_us, n=4)
        assert (slow - fast) / middle < 0.05
    bytes_per_us = 2 * SIZES["cuda"].copy_bytes / statistics.median(samples["copy"].block_us)
    assert 1e5 < bytes_per_us < 2e7, "between 0.1 and 20 TB/s"
