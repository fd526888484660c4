from __future__ import annotations

import numpy as np
import pytest

from pytest_attnperf.isa.faults import ExecutionFault
from pytest_attnperf.isa.memory import Array
from tests.isa.one_wave import make_wave, run, set_vector

SHAPES = [
    ("v_mfma_f32_4x4x4_16b_f16", 4, 4, 16, "f16"),
    ("v_mfma_f32_16x16x4_4b_f16", 16, 4, 4, "f16"),
    ("v_mfma_f32_32x32x4bf16_1k", 32, 4, 2, "bf16"),
    ("v_mfma_f32_32x32x1_2b_f32", 32, 1, 2, "f32"),
    ("v_mfma_f32_16x16x16_f16", 16, 16, 1, "f16"),
    ("v_mfma_f32_16x16x16_bf16", 16, 16, 1, "bf16"),
    ("v_mfma_f32_16x16x16bf16_1k", 16, 16, 1, "bf16"),
    ("v_mfma_f32_32x32x8f16", 32, 8, 1, "f16"),
    ("v_mfma_f32_32x32x8_bf16", 32, 8, 1, "bf16"),
    ("v_mfma_f32_16x16x32_f16", 16, 32, 1, "f16"),
    ("v_mfma_f32_16x16x32_bf16", 16, 32, 1, "bf16"),
    ("v_mfma_f32_32x32x16_f16", 32, 16, 1, "f16"),
    ("v_mfma_f32_32x32x16_bf16", 32, 16, 1, "bf16"),
    ("v_mfma_f32_16x16x4_f32", 16, 4, 1, "f32"),
    ("v_mfma_f32_32x32x2_f32", 32, 2, 1, "f32"),
]


def registers_of(matrix: Array, element: str) -> Array:
    """Small integers (64, per lane) as registers (per lane registers, 64)."""
    if element == "f32":
        return np.ascontiguousarray(matrix.astype(np.float32)).view(np.uint32).T
    halves = matrix.astype(np.float16).view(np.uint16)
    if element == "bf16":
        halves = (matrix.astype(np.float32).view(np.uint32) >> np.uint32(16)).astype(np.uint16)
    return np.ascontiguousarray(halves).view(np.uint32).T


def loop_product(side: int, inner: int, a: Array, b: Array, c: Array, blocks: int) -> Array:
    """The result per register and lane, element by element. Places as AMD's matrix instruction calculator prints them:
    A[i][k] of block b in lane i + side * (b + blocks * (k / per lane)), element k % per lane; B alike; D[i][j] of 4 x 4
    in lane j + 4 b, register i, of the others in lane j + side * (i / 4 % groups), register i % 4 + 4 * (i / (4
    groups))."""
    per_lane = inner * side * blocks // 64
    rows_at_once = 64 // side
    result = c.copy()
    for block in range(blocks):
        for i in range(side):
            for j in range(side):
                lane = j + 4 * block if side == 4 else j + side * (i // 4 % rows_at_once)
                register = i if side == 4 else i % 4 + 4 * (i // (4 * rows_at_once)) + block * side * side // 64
                for k in range(inner):
                    at = side * (block + blocks * (k // per_lane))
                    result[register, lane] += a[i + at, k % per_lane] * b[j + at, k % per_lane]
    return result


@pytest.mark.parametrize(("name", "side", "inner", "blocks", "element"), SHAPES)
def test_products(name: str, side: int, inner: int, blocks: int, element: str) -> None:
    """D = A B + C of small integers, exact, equals a loop over rows, columns and the inner dimension."""
    random = np.random.default_rng(side * inner)
    per_lane, results = inner * side * blocks // 64, side * side * blocks // 64
    a, b = (random.integers(-4, 5, (64, per_lane)) for _ in range(2))
    c = random.integers(-4, 5, (results, 64))
    wave = make_wave()
    left, right = registers_of(a, element), registers_of(b, element)
    count = len(left)
    for first, rows in ((0, left), (8, right), (16, c.astype(np.float32).view(np.uint32))):
        for place, row in enumerate(rows):
            set_vector(wave, first + place, row.copy())
    spans = [f"v[{at}:{at + count - 1}]" if count > 1 else f"v{at}" for at in (0, 8)]
    run(wave, "s_mov_b64 exec, 0", f"{name} v[64:{63 + results}], {spans[0]}, {spans[1]}, v[16:{15 + results}]")
    assert (wave.f32[64 : 64 + results] == loop_product(side, inner, a, b, c, blocks)).all()


def test_unwritten_operands_are_faults() -> None:
    """A product of a register that nothing wrote in some lane."""
    wave = make_wave()
    for number in (0, 1, 2):
        set_vector(wave, number, np.zeros(64, np.uint32))
    run(wave, "s_mov_b64 exec, 1", "v_mov_b32_e32 v3, 0")
    with pytest.raises(ExecutionFault, match="lane 1 of v3"):
        run(wave, "v_mfma_f32_16x16x16_f16 v[8:11], v[0:1], v[2:3], 0")
