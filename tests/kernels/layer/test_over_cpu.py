"""A GPU's attention layer beside the CPU's, which the published report targets and did not measure: 2 to 5 times."""

from __future__ import annotations

import statistics

import pytest

import kernels
from kernels.layer.layer import Layer
from kernels.layer.layers import PLAIN, layers_over
from pytest_attnperf.backends import Registry
from pytest_attnperf.environment.device import identify_device
from pytest_attnperf.measure.timers import choose_timer
from pytest_attnperf.measure.warm_up import warm_device, warm_up
from pytest_attnperf.workloads.block import Block
from suites.block_workloads import BASELINE

SPEEDUP_LEAST = 2.0
"""The lower end of the report's target."""

PROMPT = Block.parse_line("s=512,e=4096,h=32,hk=8,d=128,f16")
"""A prompt of Llama 3 8B's layer (arXiv:2407.21783, table 3)."""

BLOCKS, BLOCK_US = 7, 2000.0
CPU_DTYPES = ("f32", "f16")
"""The faster one counts: a CPU without half-precision products is slow in f16."""


def made() -> dict[str, Layer]:
    """Every layer of this repository, by name."""
    registry = Registry()
    kernels.register(registry)
    return {layer.name: layer for layer in layers_over(registry)}


def median_us(layer: Layer, block: Block, device: str) -> float:
    """Microseconds per call by the usual timer of the device, warm; median of blocks."""
    prepared = layer.prepare(block, block.make_inputs(1, device, planted=False))
    warm_device(device)
    warm_up(prepared.run, device)
    timer = choose_timer(device, prepared.run, BLOCK_US)
    try:
        return statistics.median(timer.measure(1)[0] for _ in range(BLOCKS))
    finally:
        timer.close()


def cpu_us(block: Block) -> float:
    """The CPU's plain layer in its faster dtype."""
    return min(median_us(PLAIN, Block(**{**vars(block), "dtype": dtype}), "cpu") for dtype in CPU_DTYPES)


def test_both_dtypes_of_the_cpu_are_timed() -> None:
    """The CPU's side of the comparison runs here: a time, of the faster dtype."""
    pytest.importorskip("torch")
    assert 0 < cpu_us(Block.parse_line("s=4,h=2,d=16,f16")) < 1e6


@pytest.mark.gpu
@pytest.mark.parametrize("block", [*BASELINE, PROMPT], ids=lambda block: block.id)
@pytest.mark.parametrize("name", ["layer.plain", "layer.triton.flash"])
def test_a_gpu_is_at_least_twice_as_fast(name: str, block: Block) -> None:
    """The report's target, 2 to 5 times the CPU, is reached at its lower end, for its shape and for a model's layer."""
    layer = made()[name]
    if reasons := layer.unsupported_reasons(block, identify_device("cuda")):
        pytest.skip("; ".join(reasons))
    assert cpu_us(block) >= SPEEDUP_LEAST * median_us(layer, block, "cuda")
