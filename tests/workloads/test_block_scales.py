"""Weights with a scale for each block: what is stored is the nearest, and each element has its own block's scale."""

from __future__ import annotations

import pytest

from pytest_attnperf.workloads.block_scales import BLOCK, count_blocks, dequantise_blocks, quantise_blocks

torch = pytest.importorskip("torch")


@pytest.mark.parametrize("shape", [(128, 128), (576, 300), (1, 129), (300, 64)])
def test_each_element_has_the_scale_of_its_block(shape: tuple[int, int]) -> None:
    """Written out by element, as DeepSeek's `weight_dequant` indexes them, also where blocks at the end are smaller."""
    generator = torch.Generator().manual_seed(1)
    stored = torch.randn(shape, generator=generator).to(torch.float8_e4m3fn)
    scale = torch.rand(count_blocks(shape), generator=generator) + 0.5
    expected = stored.double().clone()
    for i in range(shape[0]):
        for j in range(0, shape[1], BLOCK):
            expected[i, j : j + BLOCK] *= scale[i // BLOCK, j // BLOCK].double()
    assert torch.equal(dequantise_blocks(stored, scale, torch.float64), expected)
    for dtype in (torch.float16, torch.bfloat16):
        in_fp32 = (stored.float() * (expected / stored.double().where(stored.double() != 0, 1.0)).float()).to(dtype)
        found = dequantise_blocks(stored, scale, dtype)
        assert torch.equal(found, torch.where(stored.float() == 0, found, in_fp32))


def test_a_block_is_scaled_by_its_own_largest() -> None:
    """Blocks a thousand times apart are each within half a step of fp8; a block of zeros has scale 1."""
    weight = torch.randn(200, 300, generator=torch.Generator().manual_seed(2))
    weight[:128, :128] *= 1000.0
    weight[128:, 256:] = 0.0
    stored, scale = quantise_blocks(weight)
    assert (stored.dtype, scale.dtype, scale.shape) == (torch.float8_e4m3fn, torch.float32, (2, 3))
    assert float(scale[1, 2]) == 1.0
    back = dequantise_blocks(stored, scale, torch.float64)
    for rows, columns in (
        (slice(0, 128), slice(0, 128)),
        (slice(128, 200), slice(0, 128)),
        (slice(0, 128), slice(256, 300)),
    ):
        block, error = weight[rows, columns].double(), (back - weight.double())[rows, columns].abs()
        # Half a step of e4m3 is 2^-4 of a value, or of the smallest normal one, 2^-6 of the scale.
        least = float(block.abs().max()) / 448.0 * 2.0**-6
        assert bool((error <= block.abs().clamp(min=least) * 2.0**-4 * 1.001).all())
    assert float(back[:128, :128].abs().max()) == pytest.approx(float(weight[:128, :128].abs().max()), rel=1e-6)
