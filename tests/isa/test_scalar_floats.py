from __future__ import annotations

import math
from collections.abc import Callable
from random import Random

import pytest

from pytest_attnperf.isa.faults import UnknownInstructionError
from tests.isa.one_wave import make_wave, run
from tests.isa.semantics import WORD, as_float, fused
from tests.isa.statements import STATEMENTS

EDGES = (0, 1, 0x3F800000, 0xBF800000, 0x7F800000, 0x7FC00000, 0x80000000, 0x7F7FFFFF, 0x00800000, 0x4F800000, WORD)

NAMES = {
    **{f"s_{name}": f"v_{name}" for name in ("add_f32", "sub_f32", "mul_f32", "cvt_f32_u32", "cvt_f32_i32")},
    **{f"s_{name}": f"v_{name}" for name in ("cvt_u32_f32", "cvt_i32_f32")},
    "s_max_num_f32": "v_max_f32",
    "s_min_num_f32": "v_min_f32",
}
"""Name -> the vector instruction of the same semantics."""


def draw(random: Random, count: int) -> list[int]:
    """Bits of 32-bit operands: edges, and at random."""
    return [random.choice(EDGES) if random.random() < 0.4 else random.getrandbits(32) for _ in range(count)]


@pytest.mark.parametrize("count", [200, pytest.param(5000, marks=pytest.mark.soak)])
@pytest.mark.parametrize("name", NAMES)
def test_float_arithmetic(name: str, count: int) -> None:
    """Every scalar float instruction gives the bits of the exact result, rounded once, and leaves SCC."""
    random = Random(name)
    stated = STATEMENTS[NAMES[name]]
    sources, compute = len(stated.sources), stated.compute
    for _ in range(count):
        operands = draw(random, sources)
        wave = make_wave(size=32)
        for place, bits in enumerate(operands):
            wave.write_scalar(place, bits)
        run(wave, f"{name} s9, " + ", ".join(f"s{place}" for place in range(sources)), arch="gfx1201")
        found, expected = wave.read_scalar(9), compute(*operands)
        shown = (name, [hex(one) for one in operands], hex(found))
        assert math.isnan(as_float(found)) if expected is None else found == expected & WORD, shown
        assert wave.scc is None


@pytest.mark.parametrize(
    ("text", "places"),
    [
        ("s_fmac_f32 s0, s1, s2", (1, 2, 0)),
        ("s_fmamk_f32 s0, s1, 0x40490fdb, s2", (1, None, 2)),
        ("s_fmaak_f32 s0, s1, s2, 0x40490fdb", (1, 2, None)),
    ],
)
def test_fused_products(text: str, places: tuple[int | None, ...]) -> None:
    """a * b + c is rounded once; the addend is the destination, a register or the literal."""
    random = Random(text)
    for _ in range(200):
        operands = draw(random, 3)
        wave = make_wave(size=32)
        for place, bits in enumerate(operands):
            wave.write_scalar(place, bits)
        run(wave, text, arch="gfx1201")
        expected = fused(*(0x40490FDB if place is None else operands[place] for place in places))
        found = wave.read_scalar(0)
        assert math.isnan(as_float(found)) if expected is None else found == expected


RELATIONS: dict[str, Callable[[float, float], bool]] = {
    "lt": lambda a, b: a < b,
    "eq": lambda a, b: a == b,
    "ge": lambda a, b: a >= b,
    "lg": lambda a, b: a < b or a > b,
    "neq": lambda a, b: a != b,
    "nlt": lambda a, b: not a < b,
    "u": lambda a, b: math.isnan(a) or math.isnan(b),
}


@pytest.mark.parametrize("name", RELATIONS)
def test_comparisons(name: str) -> None:
    """SCC says whether the comparison holds; a NaN is unordered."""
    for a in EDGES:
        for b in EDGES:
            wave = make_wave(size=32)
            wave.write_scalar(0, a)
            run(wave, f"s_cmp_{name}_f32 s0, {b:#x}", arch="gfx1201")
            assert wave.scc == RELATIONS[name](as_float(a), as_float(b)), (hex(a), hex(b))


def test_rounding_to_integers() -> None:
    """Toward zero, up, down, and to nearest even."""
    wave = make_wave(size=32)
    wave.write_scalar(0, 0xC0200000)
    found = []
    for name in ("trunc", "ceil", "floor", "rndne"):
        run(wave, f"s_{name}_f32 s1, s0", arch="gfx1201")
        found.append(as_float(wave.read_scalar(1)))
    assert found == [-2, -2, -3, -2]


def test_64_bits_without_carry() -> None:
    """Sums, differences and products of 64 bits wrap around and leave SCC."""
    random = Random(1)
    for _ in range(100):
        a, b = random.getrandbits(64), random.getrandbits(64)
        wave = make_wave(size=32)
        wave.write_scalar_pair(0, a)
        wave.write_scalar_pair(2, b)
        for name, expected in (("s_add_nc_u64", a + b), ("s_sub_nc_u64", a - b), ("s_mul_u64", a * b)):
            run(wave, f"{name} s[4:5], s[0:1], s[2:3]", arch="gfx1201")
            assert wave.read_scalar_pair(4) == expected % 2**64
        run(wave, "s_add_nc_u64 s[4:5], s[0:1], -1", arch="gfx1201")
        assert wave.read_scalar_pair(4) == (a - 1) % 2**64
        assert wave.scc is None


def test_single_bits() -> None:
    """s_bitset1 sets and s_bitset0 clears the bit that the low five bits of the source say."""
    wave = make_wave(size=32)
    wave.write_scalar(0, 0x0F)
    run(wave, "s_bitset1_b32 s0, 36", "s_bitset0_b32 s0, 1")
    assert wave.read_scalar(0) == 0x1D


def test_what_is_unknown_is_named() -> None:
    """gfx12's s_max_f32 would propagate a NaN, and other fused forms are unknown."""
    for text, named in (("s_max_f32 s0, s1, s2", "opcode"), ("s_add_f32 s0, |s1|, s2", "source modifier")):
        with pytest.raises(UnknownInstructionError, match=named):
            run(make_wave(size=32), text, arch="gfx1201")
