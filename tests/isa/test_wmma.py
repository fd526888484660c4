from __future__ import annotations

import struct
from fractions import Fraction

import numpy as np
import pytest

from pytest_attnperf.isa.faults import ExecutionFault, UnknownInstructionError
from pytest_attnperf.isa.memory import Array
from pytest_attnperf.isa.wave import Wave
from tests.isa.formats import Format
from tests.isa.one_wave import make_wave, run, set_vector
from tests.isa.semantics import as_half, signed

PAIRS = [(f"f32_16x16x16_{kind}", arch) for kind in ("f16", "bf16") for arch in ("gfx1100", "gfx1201")]
PAIRS += [(f"{kind}_16x16x16_{kind}", arch) for kind in ("f16", "bf16") for arch in ("gfx1100", "gfx1201")]
PAIRS += [("i32_16x16x16_iu8", arch) for arch in ("gfx1100", "gfx1201")]
PAIRS += [(f"f32_16x16x16_{a}_{b}", "gfx1201") for a in ("fp8", "bf8") for b in ("fp8", "bf8")]

WIDTHS = {"f16": 16, "bf16": 16, "fp8": 8, "bf8": 8, "i8": 8, "u8": 8}


def place_of_factor(i: int, k: int, bits: int, arch: str, size: int) -> tuple[int, int, list[int]]:
    """Register, lowest bit and lanes of A[i][k] or B[k][i], as AMD's matrix instruction calculator prints them."""
    per_register = 32 // bits
    if arch == "gfx1100":
        return k // per_register, bits * (k % per_register), list(range(i, size, 16))
    if bits == 16:
        lane = 16 * (k // 4 % 2) + i + (32 * (k // 8 % 2) if size == 64 else 0)
        return (k // 2 % 2) + (2 * (k // 8) if size == 32 else 0), 16 * (k % 2), [lane]
    if size == 32:
        return k // 4 % 2, 8 * (k % 4), [16 * (k // 8) + i]
    return 0, 8 * (k % 4), [32 * (k // 4 % 2) + 16 * (k // 8 % 2) + i]


def place_of_result(i: int, j: int, arch: str, size: int, packed: bool) -> tuple[int, int, int]:
    """Register, lowest bit and lane of D[i][j]; two of 16 bits share a register on gfx12."""
    if arch == "gfx1100":
        groups = size // 16
        return i // groups, 0, 16 * i % size + j
    value = i % (256 // size)
    lane = 16 * (i // 8) + j + (32 * (i // 4 % 2) if size == 64 else 0)
    return (value // 2, 16 * (value % 2), lane) if packed else (value, 0, lane)


def code_of(value: int, kind: str) -> int:
    """The bits of a small integer."""
    if kind in ("i8", "u8"):
        return value % 256
    if kind == "f16":
        return int(struct.unpack("<H", struct.pack("<e", value))[0])
    if kind == "bf16":
        return int(struct.unpack("<I", struct.pack("<f", value))[0]) >> 16
    return Format(8, {"fp8": 3, "bf8": 2}[kind]).encode(Fraction(value))


def number_of(bits: int, kind: str) -> float:
    """The number that 32 or 16 bits of a result are."""
    if kind == "i32":
        return signed(bits)
    if kind == "f16":
        return as_half(bits)
    return float(struct.unpack("<f", struct.pack("<I", bits << (16 if kind == "bf16" else 0)))[0])


def fill(wave: Wave, first: int, matrix: Array, kind: str, arch: str) -> int:
    """Writes a factor, rows by inner places, into registers; returns how many."""
    bits = WIDTHS[kind]
    words = np.zeros((16, wave.size), np.uint64)
    for i in range(16):
        for k in range(16):
            register, shift, lanes = place_of_factor(i, k, bits, arch, wave.size)
            for lane in lanes:
                words[register, lane] |= np.uint64(code_of(int(matrix[i, k]), kind) << shift)
    count = 16 * bits // 32 if arch == "gfx1100" else 256 // wave.size * bits // 32
    for register in range(count):
        set_vector(wave, first + register, words[register].astype(np.uint32))
    return count


@pytest.mark.parametrize("size", [32, 64])
@pytest.mark.parametrize(("name", "arch"), PAIRS)
def test_products(name: str, arch: str, size: int) -> None:
    """D = A B + C of small integers, exact, equals a sum over the inner dimension, in both sizes of wave, for every
    type and both layouts; EXEC is ignored, and a half of a register that is no result stays."""
    random = np.random.default_rng(len(name) + size)
    result, _, elements = name.split("_", 2)
    kinds = ("i8", "u8") if elements == "iu8" else (*elements.split("_"), *elements.split("_"))[:2]
    low, high = (-4, 5) if elements != "iu8" else (0, 100)
    a, b, c = (random.integers(low, high, (16, 16)) for _ in range(3))
    a = a - high // 2 if elements == "iu8" else a
    wave = make_wave(size=size)
    narrow = result.endswith("16")
    packed = narrow and arch == "gfx1201"
    counts = fill(wave, 0, a, kinds[0], arch), fill(wave, 8, b.T, kinds[1], arch)
    results = 256 // size // (2 if packed else 1)
    addend = np.full((results, size), 0xABCD0000 if narrow and not packed else 0, np.uint32)
    for i in range(16):
        for j in range(16):
            register, shift, lane = place_of_result(i, j, arch, size, packed)
            code = int(c[i, j]) % 2**32 if result == "i32" else code_of(int(c[i, j]), "f16")
            if result in ("f32", "bf16"):
                code = int(np.float32(c[i, j]).view(np.uint32)) >> (16 if narrow else 0)
            addend[register, lane] |= np.uint32(code << shift)
    for register in range(results):
        set_vector(wave, 16 + register, addend[register])
        set_vector(wave, 24 + register, np.full(size, 0xABCD0000, np.uint32))
    spans = [f"v[{at}:{at + count - 1}]" if count > 1 else f"v{at}" for at, count in zip((0, 8), counts, strict=True)]
    sign = " neg_lo:[1,0,0]" if elements == "iu8" else ""
    wave.set_exec(0)
    text = f"v_wmma_{name} v[24:{23 + results}], {spans[0]}, {spans[1]}, v[16:{15 + results}]{sign}"
    run(wave, text, arch=arch)
    expected = a @ b + c
    for i in range(16):
        for j in range(16):
            register, shift, lane = place_of_result(i, j, arch, size, packed)
            bits = int(wave.vectors[24 + register, lane])
            assert number_of(bits >> shift & (0xFFFF if narrow else 0xFFFFFFFF), result) == expected[i, j], (i, j)
            assert not narrow or packed or bits >> 16 == 0xABCD


def test_upper_halves_as_results() -> None:
    """On gfx11 op_sel chooses the half of C and D: two products share registers."""
    wave = make_wave(size=32)
    one = np.eye(16, dtype=np.int64)
    fill(wave, 0, one, "f16", "gfx1100")
    fill(wave, 8, one, "f16", "gfx1100")
    for register in range(16, 24):
        set_vector(wave, register, [0x4000_3C00] * 32)
    run(wave, "v_wmma_f16_16x16x16_f16 v[16:23], v[0:7], v[8:15], v[16:23] op_sel:[0,0,1]")
    assert {hex(one) for one in wave.vectors[16:24].reshape(-1).tolist()} == {"0x40003c00", "0x42003c00"}


def test_integers_wrap_or_are_limited() -> None:
    """The sum of 32 bits wraps around, and is limited to its range with clamp."""
    for clamp, expected in (("", -(2**31)), (" clamp", 2**31 - 1)):
        wave = make_wave(size=32)
        one = np.eye(16, dtype=np.int64)
        for first in (0, 8):
            fill(wave, first, one, "u8", "gfx1100")
        for register in range(16, 24):
            set_vector(wave, register, [0x7FFFFFFF] * 32)
        run(wave, f"v_wmma_i32_16x16x16_iu8 v[16:23], v[0:3], v[8:11], v[16:23]{clamp}")
        assert int(wave.i32[16, 0]) == expected


def test_lanes_that_hold_another_copy_are_a_fault() -> None:
    """On gfx11 lanes 0 to 15 and 16 to 31 must hold the same factor."""
    wave = make_wave(size=32)
    for first in (0, 8):
        fill(wave, first, np.ones((16, 16), np.int64), "f16", "gfx1100")
    wave.vectors[3, 20] = 0
    with pytest.raises(ExecutionFault, match=r"v\[0:7\], of which lanes 16 and on hold another copy"):
        run(wave, "v_wmma_f32_16x16x16_f16 v[24:31], v[0:7], v[8:15], 0")


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("v_wmma_i32_16x16x16_iu4 v[24:31], v[0:1], v[8:9], 0", "matrix instruction"),
        ("v_wmma_f32_16x16x16_fp8_fp8 v[24:31], v[0:1], v[8:9], 0", "matrix instruction"),
        ("v_wmma_f32_16x16x16_f16 v[24:31], v[0:3], v[8:11], 0", "8 vector registers"),
        ("v_wmma_f32_16x16x16_f16 v[24:31], v[0:7], v[8:15], 0 neg_lo:[1,0,0]", "'neg_lo'"),
        ("v_wmma_i32_16x16x16_iu8 v[24:31], v[0:3], v[8:11], 0 neg_lo:[0,0,1]", "neg_lo of the addend"),
    ],
)
def test_what_is_unknown_is_named(text: str, named: str) -> None:
    """Other types and modifiers, gfx12's on gfx11, and wrong numbers of registers."""
    with pytest.raises(UnknownInstructionError, match=named):
        run(make_wave(size=32), text)
