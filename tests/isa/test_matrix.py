from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from pytest_attnperf.isa.faults import ExecutionFault
from pytest_attnperf.isa.memory import Array
from pytest_attnperf.isa.wave import Wave
from tests.isa.one_wave import make_wave, run, set_vector, vector

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
    ("v_mfma_f32_32x32x2bf16", 32, 2, 2, "bf16"),
    ("v_mfma_f32_16x16x8bf16", 16, 8, 1, "bf16"),
    ("v_mfma_i32_32x32x8i8", 32, 8, 1, "i8"),
    ("v_mfma_i32_16x16x32_i8", 16, 32, 1, "i8"),
    ("v_mfma_i32_32x32x16_i8", 32, 16, 1, "i8"),
    ("v_mfma_i32_4x4x4_16b_i8", 4, 4, 16, "i8"),
    ("v_mfma_i32_16x16x64_i8", 16, 64, 1, "i8"),
    ("v_mfma_f32_16x16x32_fp8_fp8", 16, 32, 1, "fp8"),
    ("v_mfma_f32_32x32x16_fp8_fp8", 32, 16, 1, "fp8"),
]


def registers_of(matrix: Array, element: str) -> Array:
    """Small integers (64, per lane) as registers (per lane registers, 64)."""
    if element == "f32":
        return np.ascontiguousarray(matrix.astype(np.float32)).view(np.uint32).T
    if element == "i8":
        return np.ascontiguousarray(matrix.astype(np.int8)).view(np.uint32).T
    if element == "fp8":
        # 1, 2, 3 and 4 in the format of gfx942, whose bias is 8.
        codes = np.array([0, 0x40, 0x48, 0x4C, 0x50])[np.abs(matrix)] | 0x80 * (matrix < 0)
        return np.ascontiguousarray(codes.astype(np.uint8)).view(np.uint32).T
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
    count, kind = len(left), np.int32 if element == "i8" else np.float32
    for first, rows in ((0, left), (8, right), (16, c.astype(kind).view(np.uint32))):
        for place, row in enumerate(rows):
            set_vector(wave, first + place, row.copy())
    spans = [f"v[{at}:{at + count - 1}]" if count > 1 else f"v{at}" for at in (0, 8)]
    run(wave, "s_mov_b64 exec, 0", f"{name} v[64:{63 + results}], {spans[0]}, {spans[1]}, v[16:{15 + results}]")
    assert (wave.vectors[64 : 64 + results].view(kind) == loop_product(side, inner, a, b, c, blocks)).all()


def test_unwritten_operands_are_faults() -> None:
    """A product of a register that nothing wrote in some lane."""
    wave = make_wave()
    for number in (0, 1, 2):
        set_vector(wave, number, np.zeros(64, np.uint32))
    run(wave, "s_mov_b64 exec, 1", "v_mov_b32_e32 v3, 0")
    with pytest.raises(ExecutionFault, match="lane 1 of v3"):
        run(wave, "v_mfma_f32_16x16x16_f16 v[8:11], v[0:1], v[2:3], 0")


def set_pairs(wave: Wave, first: int, values: Array) -> None:
    """Writes float64 (registers, 64) into pairs of registers."""
    for place, row in enumerate(values.astype(np.float64)):
        words = row.view(np.uint32).reshape(64, 2)
        set_vector(wave, first + 2 * place, words[:, 0].copy())
        set_vector(wave, first + 2 * place + 1, words[:, 1].copy())


@pytest.mark.parametrize(("side", "blocks"), [(16, 1), (4, 4)])
def test_float64_products(side: int, blocks: int) -> None:
    """Float64: lane i + side * (block + blocks * k) has A[i][k], lane j + side * (i % rows) register i / rows D[i][j],
    with AGPRs as the destination and a constant as C."""
    random = np.random.default_rng(side)
    a, b = (random.integers(-9, 10, (1, 64)) for _ in range(2))
    wave = make_wave()
    set_pairs(wave, 0, a)
    set_pairs(wave, 2, b)
    results = side * side * blocks // 64
    name = {16: "v_mfma_f64_16x16x4_f64", 4: "v_mfma_f64_4x4x4_4b_f64"}[side]
    run(wave, f"{name} a[0:{2 * results - 1}], v[0:1], v[2:3], 1.0")
    found = wave.vectors[256 : 256 + 2 * results].reshape(results, 2, 64).transpose(0, 2, 1)
    found = np.ascontiguousarray(found).view(np.float64)[..., 0]
    for block in range(blocks):
        for i in range(side):
            for j in range(side):
                expected = 1 + sum(
                    int(a[0, i + side * (block + blocks * k)]) * int(b[0, j + side * (block + blocks * k)])
                    for k in range(4)
                )
                item, lane = (i // 4, j + 16 * (i % 4)) if side == 16 else (0, j + 4 * (i + 4 * block))
                assert found[item, lane] == expected


@pytest.mark.parametrize("side", [16, 32])
def test_products_with_chosen_formats(side: int) -> None:
    """F8F6F4 with FP8 in A and BF8 in B (gfx950): lane group g has k from 16 g on, and as many half a dimension on."""
    random = np.random.default_rng(side)
    inner, groups, results = 2048 // side, 64 // side, side * side // 64
    a, b = (random.integers(0, 3, (64, 32)) for _ in range(2))
    wave = make_wave()
    for first, values, codes in ((0, a, (0, 0x38, 0xC0)), (8, b, (0, 0xBC, 0x40))):
        # 1 and -2 of FP8, -1 and 2 of BF8.
        words = np.ascontiguousarray(np.array(codes, np.uint8)[values]).view(np.uint32)
        for place in range(8):
            set_vector(wave, first + place, words[:, place].copy())
    name = f"v_mfma_f32_{side}x{side}x{inner}_f8f6f4"
    run(wave, f"{name} v[16:{15 + results}], v[0:7], v[8:15], 0 blgp:1", arch="gfx950")
    left, right = np.array([0, 1, -2])[a], np.array([0, -1, 2])[b]
    for lane in range(0, 64, 5):
        for register in range(results):
            i = register % 4 + 4 * (lane // side) + register // 4 * (4 * groups)
            expected = sum(
                int(left[i + side * (k % (inner // 2) // 16), k % 16 + 16 * (k // (inner // 2))])
                * int(right[lane % side + side * (k % (inner // 2) // 16), k % 16 + 16 * (k // (inner // 2))])
                for k in range(inner)
            )
            assert wave.f32[16 + register, lane] == expected


def test_int8_sums_wrap() -> None:
    """A sum of int8 products beyond 31 bits wraps, as the units drop the carry."""
    wave = make_wave()
    for number in range(4):
        set_vector(wave, number, [0x80808080] * 64)
    run(wave, "v_mov_b32_e32 v4, 0x7fffffff", *(f"v_mov_b32_e32 v{at}, v4" for at in (5, 6, 7)))
    run(wave, "v_mfma_i32_16x16x32_i8 v[8:11], v[0:1], v[2:3], v[4:7]")
    assert vector(wave, "v8").view(np.int32)[0] == 2**31 - 1 + 32 * 128 * 128 - 2**32


def test_broadcasts_of_a_and_b() -> None:
    """CBSZ and ABID give every product the A of one block, BLGP permutes the lanes of B."""
    wave = make_wave()
    a, b = np.arange(64, dtype=np.float32), np.arange(64, 128, dtype=np.float32)
    set_vector(wave, 0, a)
    set_vector(wave, 1, b)
    run(wave, "v_mfma_f32_32x32x1_2b_f32 v[32:63], v0, v1, 0 cbsz:1 abid:1 blgp:3")
    for block in range(2):
        for i, j in ((0, 0), (5, 31), (31, 7)):
            lane, register = j + 32 * (i // 4 % 2), i % 4 + 4 * (i // 8) + 16 * block
            assert wave.f32[32 + register, lane] == a[32 + i] * b[(j + 32 * block + 16) % 64]


@pytest.mark.parametrize(("element", "smallest"), [("f16", 1), ("bf16_1k", 1)])
@pytest.mark.parametrize("arch", ["gfx90a", "gfx942"])
def test_denormals_of_half_products(element: str, smallest: int, arch: str) -> None:
    """gfx90a flushes denormals of float16 and bfloat16 products, gfx942 keeps them."""
    wave = make_wave()
    one = {"f16": 0x3C00, "bf16_1k": 0x3F80}[element]
    for number, bits in enumerate((smallest, smallest, one, one)):
        set_vector(wave, number, [bits | bits << 16] * 64)
    run(wave, f"v_mfma_f32_16x16x16{element} v[4:7], v[0:1], v[2:3], 0", arch=arch)
    value = 2.0**-24 if element == "f16" else 2.0**-133
    assert wave.f32[4, 9] == (0 if arch == "gfx90a" else 16 * value)


@pytest.mark.parametrize("element", ["f16", "bf16", "bf8_fp8"])
def test_products_are_near_the_exact_sum(element: str) -> None:
    """Each result differs from the exact sum of fractions by no more than the roundings of a float32 sum."""
    random = np.random.default_rng(7)
    wave = make_wave()
    words = random.integers(0, 2**32, (4, 64), dtype=np.uint32) & 0xBFFFBFFF if element != "bf8_fp8" else (
        random.integers(0, 2**32, (4, 64), dtype=np.uint32) & 0xBFBFBFBF | 0x01010101
    )  # fmt: skip
    for number, row in enumerate(words):
        set_vector(wave, number, row.copy())
    inner = 32 if element == "bf8_fp8" else 16
    run(wave, f"v_mfma_f32_16x16x{inner}_{element} v[4:7], v[0:1], v[2:3], 1.0")
    kinds = element.split("_") if inner == 32 else [element] * 2
    a, b = (exact_elements(words[2 * at : 2 * at + 2], kinds[at]) for at in range(2))
    per_lane = inner // 4
    for lane in range(0, 64, 7):
        for register in range(4):
            i, j = 4 * (lane // 16) + register, lane % 16
            terms = [
                a[i + 16 * (k // per_lane)][k % per_lane] * b[j + 16 * (k // per_lane)][k % per_lane]
                for k in range(inner)
            ]
            bound = (sum(map(abs, terms)) + 1) * (inner + 1) * Fraction(1, 2**24)
            assert abs(Fraction(float(wave.f32[4 + register, lane])) - sum(terms) - 1) <= bound


def exact_elements(words: Array, kind: str) -> list[list[Fraction]]:
    """The numbers in the registers of each lane, from the fields of their bits; gfx942's biases of 8-bit floats."""
    width, mantissa, bias = {"f16": (16, 10, 15), "bf16": (16, 7, 127), "fp8": (8, 3, 8), "bf8": (8, 2, 16)}[kind]
    lanes = []
    for lane in range(64):
        bits = sum(int(word) << 32 * at for at, word in enumerate(words[:, lane]))
        numbers = []
        for place in range(64 // width):
            code = bits >> width * place & (1 << width) - 1
            exponent, fraction = code >> mantissa & (1 << (width - 1 - mantissa)) - 1, code & (1 << mantissa) - 1
            size = Fraction(fraction + (1 << mantissa if exponent else 0), 1 << mantissa)
            size *= Fraction(2) ** (max(exponent, 1) - bias)
            numbers.append(-size if code >> (width - 1) else size)
        lanes.append(numbers)
    return lanes
