"""What torchao's Triton kernels for block-scaled fp8 and scaled int8 compute, and how long they take."""

from __future__ import annotations

import pytest
import torch
from foreign import DEVICE, needs_gpu, normal, sizes, uniform

pytest.importorskip("torchao.kernel", reason="torchao is not installed")

from torchao.kernel import blockwise_quantization as blockwise
from torchao.prototype.quantized_training.int8_mm import scaled_int8_mm

pytestmark = needs_gpu("torchao looks for Triton on one, and registers its int8 product for CUDA only")
BLOCK = 128
FP8 = torch.float8_e4m3fn
SHAPES = sizes([(4096, 4096), (1024, 7168)], [(128, 256)])


def in_blocks(x):
    """(rows of blocks, rows, columns of blocks, columns)."""
    return x.float().unflatten(-1, (-1, BLOCK)).unflatten(0, (-1, BLOCK))


def quantised(tiles, dims):
    step = tiles.abs().amax(dims, keepdim=True) / 448
    return (tiles / step).to(torch.float32).to(FP8), step


def with_tops(rows, columns):
    """Every block's largest value is 3.5 times a power of two, its step a power of two: quotients are exact."""
    x = normal(rows, columns).clamp(-3.5, 3.5)
    x[:, ::BLOCK] = 3.5
    powers = torch.randint(-3, 4, (rows // BLOCK, 1, columns // BLOCK, 1), device=DEVICE).to(x.dtype).exp2()
    return (x.unflatten(-1, (-1, BLOCK)).unflatten(0, (-1, BLOCK)) * powers).flatten(2).flatten(0, 1)


def fp8_values(*shape):
    return normal(*shape, dtype=torch.float32, scale=64.0).clamp(-448, 448).to(FP8)


@pytest.mark.parametrize(("rows", "columns"), SHAPES)
def test_activations_to_fp8(attnperf, rows, columns):
    """One scale for 128 neighbours of a row."""

    def reference(x):
        values, step = quantised(x.float().unflatten(-1, (-1, BLOCK)), -1)
        return values.flatten(-2), step.squeeze(-1)

    attnperf.gate(
        "torchao.fp8_blockwise_act_quant",
        blockwise.fp8_blockwise_act_quant,
        reference=reference,
        inputs=lambda: with_tops(rows, columns),
    )


@pytest.mark.parametrize(("rows", "columns"), SHAPES)
def test_weights_to_fp8(attnperf, rows, columns):
    """One scale for each tile of 128 by 128."""

    def reference(x):
        values, step = quantised(in_blocks(x), (1, 3))
        return values.flatten(2).flatten(0, 1), step[:, 0, :, 0]

    attnperf.gate(
        "torchao.fp8_blockwise_weight_quant",
        blockwise.fp8_blockwise_weight_quant,
        reference=reference,
        inputs=lambda: with_tops(rows, columns),
    )


@pytest.mark.parametrize(("rows", "columns"), SHAPES)
def test_weights_from_fp8(attnperf, rows, columns):
    attnperf.gate(
        "torchao.fp8_blockwise_weight_dequant",
        blockwise.fp8_blockwise_weight_dequant,
        reference=lambda x, step: (in_blocks(x) * step[:, None, :, None]).flatten(2).flatten(0, 1),
        inputs=lambda: (
            fp8_values(rows, columns),
            uniform(rows // BLOCK, columns // BLOCK, dtype=torch.float32),
        ),
    )


@pytest.mark.parametrize(("rows", "columns", "depth"), sizes([(2048, 4096, 4096), (100, 4096, 7168)], [(9, 128, 256)]))
def test_product_of_fp8(attnperf, rows, columns, depth):
    """Activations with a scale for 128 neighbours, by weights with one for each tile; the result is bf16."""

    def reference(x, x_step, w, w_step):
        left = (x.float().unflatten(-1, (-1, BLOCK)) * x_step[..., None]).flatten(1)
        right = (in_blocks(w) * w_step[:, None, :, None]).flatten(2).flatten(0, 1)
        product = left @ right.T
        return product if product.dtype == torch.float64 else product.bfloat16()

    attnperf.gate(
        "torchao.blockwise_fp8_gemm",
        blockwise.blockwise_fp8_gemm,
        reference=reference,
        inputs=lambda: (
            fp8_values(rows, depth),
            uniform(rows, depth // BLOCK, dtype=torch.float32),
            fp8_values(columns, depth),
            uniform(columns // BLOCK, depth // BLOCK, dtype=torch.float32),
        ),
    )


def bytes_of(*shape):
    return torch.randint(-128, 128, shape, dtype=torch.int8, device=DEVICE)


@pytest.mark.parametrize(("rows", "columns", "depth"), sizes([(4096, 4096, 4096), (1000, 1000, 1024)], [(9, 16, 32)]))
def test_product_of_int8(attnperf, rows, columns, depth):
    """With a scale for each row and each column."""

    def reference(x, w, row, column):
        return (((x.double() @ w.double()).to(row.dtype)).float() * row.float() * column.float().T).to(row.dtype)

    attnperf.gate(
        "torchao.scaled_int8_mm",
        scaled_int8_mm,
        reference=reference,
        inputs=lambda: (
            bytes_of(rows, depth),
            bytes_of(depth, columns),
            uniform(rows, 1, dtype=torch.float32),
            uniform(columns, 1, dtype=torch.float32),
        ),
    )
