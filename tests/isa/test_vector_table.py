from __future__ import annotations

import math
import struct
from collections.abc import Callable, Iterator
from fractions import Fraction
from random import Random

import numpy as np
import pytest

from pytest_attnperf.isa.vector_table import COMPARISONS, OPERATIONS
from tests.isa.one_wave import make_wave, run, set_vector, vector
from tests.isa.semantics import FLOATS, HALVES, INTEGERS, WORD, as_float, as_half, signed

EDGES = (
    0, 1, 2, 31, 32, 0x7FFF, 0x8000, 0xFFFF, 0x10000, 0x7FFFFF, 0x800000, 0xFFFFFF, 0x1000000, 0x7FFFFFFF, 0x80000000,
    0x80000001, WORD, 0x3F800000, 0xBF800000, 0x7F800000, 0xFF800000, 0x7FC00000, 0x7F7FFFFF, 0x00800000, 0x807FFFFF,
    0x38800000, 0x387FE000, 0x477FF000, 0x477FE000, 0x4F000000, 0x4F800000, 0xCF000000, 0x3F7FFFFF, 0x4B800001,
)  # fmt: skip
"""Integers at the ends of ranges; floats: one, infinity, NaN, largest, smallest, denormal, limits of fp16 and int32."""

FAST, SOAK = 4, 80
"""Batches of 64 drawn operand sets: 256 each, and more than 5,000 in the soak."""

batches = pytest.mark.parametrize("count", [FAST, pytest.param(SOAK, marks=pytest.mark.soak)])


def draw(random: Random, sources: int) -> list[list[int]]:
    """64 operand sets: edges, bits at random, and floats of like exponents, whose sums cancel and round."""

    def one() -> int:
        kind = random.random()
        if kind < 0.3:
            return random.choice(EDGES)
        if kind < 0.5:
            return struct.unpack("<I", struct.pack("<f", random.choice((-1, 1)) * random.uniform(0.4, 3)))[0]
        return random.getrandbits(32)

    return [[one() for _ in range(64)] for _ in range(sources)]


def executed(name: str, sources: int, count: int, result: str = "v9") -> Iterator[tuple[list[int], int]]:
    """Operands of a lane and the bits that the interpreter computes of them."""
    random = Random(name)
    encoding = {1: "_e32", 2: "_e64", 3: ""}[sources] if not name.startswith("v_perm") else ""
    for _ in range(count):
        wave, drawn = make_wave(), draw(random, sources)
        for place, values in enumerate(drawn):
            set_vector(wave, place, values)
        run(wave, f"{name}{encoding} {result}, " + ", ".join(f"v{place}" for place in range(sources)))
        for lane, bits in enumerate(vector(wave, result).tolist()):
            yield [values[lane] for values in drawn], bits


@batches
@pytest.mark.parametrize("name", INTEGERS)
def test_integers(name: str, count: int) -> None:
    """Every integer instruction agrees with Python's integers."""
    sources, compute = INTEGERS[name]
    for operands, bits in executed(name, sources, count):
        assert bits == compute(*operands) & WORD, (name, [hex(one) for one in operands])


@batches
@pytest.mark.parametrize("name", FLOATS)
def test_floats_are_rounded_once(name: str, count: int) -> None:
    """Every float instruction gives the bits of the exact result rounded to nearest even, denormals and zeros' signs
    included; NaN where the exact result is none."""
    sources, compute = FLOATS[name]
    for operands, bits in executed(name, sources, count):
        expected = compute(*operands)
        shown = (name, [hex(one) for one in operands], hex(bits))
        assert math.isnan(as_float(bits)) if expected is None else bits == expected, shown


@batches
@pytest.mark.parametrize("name", HALVES)
def test_conversions_to_half(name: str, count: int) -> None:
    """A conversion to fp16 rounds once and clears the upper half of the register."""
    sources, compute = HALVES[name]
    for operands, bits in executed(name, sources, count):
        expected = compute(*operands)
        assert bits >> 16 == 0
        assert math.isnan(as_half(bits)) if expected is None else bits == expected, (hex(operands[0]), hex(bits))


TRANSCENDENTAL: dict[str, Callable[[float], float]] = {
    "v_exp_f32": lambda a: math.inf if a >= 128 else 2.0**a,
    "v_log_f32": lambda a: math.log2(a) if a > 0 else -math.inf if a == 0 else math.nan,
    "v_rcp_f32": lambda a: 1 / a if a else math.copysign(math.inf, a),
    "v_rsq_f32": lambda a: 1 / math.sqrt(a) if a > 0 else math.copysign(math.inf, a) if a == 0 else math.nan,
    "v_sqrt_f32": lambda a: math.sqrt(a) if a >= 0 else math.nan,
}


@batches
@pytest.mark.parametrize("name", TRANSCENDENTAL)
def test_transcendental_functions_within_one_ulp(name: str, count: int) -> None:
    """The result is within 1 ulp; denormal sources and results count as zeros."""
    for (operand,), bits in executed(name, 1, count):
        source, found = as_float(operand), as_float(bits)
        if math.isnan(source) or (math.isinf(source) and name in ("v_exp_f32", "v_sqrt_f32", "v_log_f32", "v_rsq_f32")):
            continue
        source = math.copysign(0.0, source) if abs(source) < 2.0**-126 else source
        expected = TRANSCENDENTAL[name](source)
        if math.isnan(expected) or math.isinf(expected):
            assert math.isnan(found) if math.isnan(expected) else found == expected, (hex(operand), found)
        elif abs(expected) < 2.0**-126:
            assert abs(found) <= 2.0**-126
        elif abs(expected) < 2.0**128:
            ulp = 2.0 ** (math.frexp(expected)[1] - 24)
            assert abs(Fraction(found) - Fraction(expected)) <= Fraction(ulp), (hex(operand), found, expected)


@batches
def test_division_sequence_is_correctly_rounded(count: int) -> None:
    """The compiler's sequence of v_div_scale, v_rcp, v_fma, v_div_fmas and v_div_fixup gives the quotient of float32,
    rounded once, also where it or an operand is at the ends of the range."""
    random = Random(5)
    for _ in range(count):
        wave, (numerators, denominators) = make_wave(), draw(random, 2)
        set_vector(wave, 0, numerators)
        set_vector(wave, 1, denominators)
        run(
            wave,
            "v_div_scale_f32 v2, s[2:3], v1, v1, v0",
            "v_div_scale_f32 v3, vcc, v0, v1, v0",
            "v_rcp_f32_e32 v4, v2",
            "v_fma_f32 v5, -v2, v4, 1.0",
            "v_fma_f32 v4, v5, v4, v4",
            "v_mul_f32_e32 v6, v3, v4",
            "v_fma_f32 v7, -v2, v6, v3",
            "v_fma_f32 v6, v7, v4, v6",
            "v_fma_f32 v7, -v2, v6, v3",
            "v_div_fmas_f32 v7, v7, v4, v6",
            "v_div_fixup_f32 v9, v7, v1, v0",
        )
        with np.errstate(all="ignore"):
            over = np.array(numerators, np.uint32).view(np.float32) / np.array(denominators, np.uint32).view(np.float32)
            found = vector(wave, "v9").view(np.float32)
            # Results below the normal numbers are rounded twice, by the last fma and its scale: one step is allowed.
            tiny = np.abs(over) < 2.0**-125
            near = tiny & (np.abs(found - over) <= 2.0**-149)
        same = (found == over) | (np.isnan(found) & np.isnan(over)) | near
        assert same.all(), (numerators[int(np.argmin(same))], denominators[int(np.argmin(same))])


@batches
@pytest.mark.parametrize("kind", ["f32", "i32", "u32", "u16"])
def test_comparisons(kind: str, count: int) -> None:
    """Every comparison sets a lane's bit where Python's comparison holds; a NaN is unordered."""
    convert = {"f32": as_float, "i32": signed, "u32": int, "u16": lambda bits: bits & 0xFFFF}[kind]
    names = ("lt", "eq", "le", "gt", "ge", "lg", "o", "u", "nge", "nlg", "ngt", "nle", "neq", "nlt")
    expected: dict[str, Callable[[float, float], bool]] = {
        "lt": lambda a, b: a < b, "eq": lambda a, b: a == b, "le": lambda a, b: a <= b, "gt": lambda a, b: a > b,
        "ge": lambda a, b: a >= b, "lg": lambda a, b: a < b or a > b, "ne": lambda a, b: a != b,
        "o": lambda a, b: not (math.isnan(a) or math.isnan(b)), "u": lambda a, b: math.isnan(a) or math.isnan(b),
    }  # fmt: skip
    random = Random(kind)
    for _ in range(count):
        wave, (left, right) = make_wave(), draw(random, 2)
        set_vector(wave, 0, left)
        set_vector(wave, 1, right)
        for name in names if kind == "f32" else ("lt", "eq", "le", "gt", "ge", "ne"):
            run(wave, f"v_cmp_{name}_{kind}_e64 s[4:5], v0, v1")
            found = wave.read_scalar_pair(4)
            negated = name not in expected
            test = expected["lg" if name == "nlg" else name.removeprefix("n") if negated else name]
            for lane, (a, b) in enumerate(zip(left, right, strict=True)):
                assert (found >> lane & 1) == (test(convert(a), convert(b)) != negated), (name, hex(a), hex(b))


def test_more_float_functions() -> None:
    """Sine and cosine of turns, mantissa and exponent, the middle of three (the smallest number beside a NaN), and the
    class of a number."""
    values = np.array([0.25, -0.125, 1.5, -6.0, 2.0**-140, math.inf, -math.inf, math.nan] * 8, np.float32)
    wave = make_wave()
    set_vector(wave, 0, values)
    set_vector(wave, 1, np.full(64, 1.0, np.float32))
    set_vector(wave, 2, np.full(64, -2.0, np.float32))
    run(wave, "v_sin_f32_e32 v3, v0", "v_cos_f32_e32 v4, v0", "v_frexp_mant_f32_e32 v5, v0")
    run(wave, "v_frexp_exp_i32_f32_e32 v6, v0", "v_med3_f32 v7, v0, v1, v2")
    found = {at: vector(wave, f"v{at}") for at in (3, 4, 5, 6, 7)}
    for lane, value in enumerate(values[:8].tolist()):
        sine, cosine, mantissa, middle = (float(found[at].view(np.float32)[lane]) for at in (3, 4, 5, 7))
        if math.isfinite(value):
            assert sine == pytest.approx(math.sin(2 * math.pi * value), abs=1e-6)
            assert cosine == pytest.approx(math.cos(2 * math.pi * value), abs=1e-6)
            assert (mantissa, int(found[6].view(np.int32)[lane])) == math.frexp(value)
        else:
            assert found[6][lane] == 0
        assert middle == (-2.0 if math.isnan(value) else sorted((value, 1.0, -2.0))[1])


@pytest.mark.parametrize(
    ("value", "place"),
    [(0x7F800001, 0), (0x7FC00000, 1), (0xFF800000, 2), (0xBF800000, 3), (0x80000001, 4), (0x80000000, 5), (0, 6),
     (1, 7), (0x3F800000, 8), (0x7F800000, 9)],
)  # fmt: skip
def test_classes_of_numbers(value: int, place: int) -> None:
    """V_CMP_CLASS_F32 finds each of the ten classes, and no other one."""
    wave = make_wave()
    set_vector(wave, 0, [value] * 64)
    set_vector(wave, 1, [1 << lane % 10 for lane in range(64)])
    run(wave, "v_cmp_class_f32_e64 s[4:5], v0, v1")
    assert wave.read_scalar_pair(4) == sum(1 << lane for lane in range(64) if lane % 10 == place)


def test_integer_clamp() -> None:
    """Sums and differences with clamp stay within their range."""
    wave = make_wave()
    set_vector(wave, 0, [0xFFFFFFF0] * 64)
    set_vector(wave, 1, [0x7FFFFFF0] * 64)
    run(wave, "v_add_u32_e64 v2, v0, v1 clamp", "v_sub_u32_e64 v3, v1, v0 clamp", "v_add_i32 v4, v1, v1 clamp")
    assert [int(vector(wave, name)[0]) for name in ("v2", "v3", "v4")] == [WORD, 0, 0x7FFFFFFF]


def test_all_operations_are_tested_or_listed() -> None:
    """An operation without a statement in `semantics` is in this list, which says where it is tested or why not."""
    elsewhere = {
        "v_mov_b32", "v_mov_b64", "v_lshl_add_u64", "v_lshlrev_b64", "v_lshrrev_b64", "v_ashrrev_i64",  # test_vector
        "v_cvt_pk_bf16_f32", "v_cvt_f32_bf16", "v_max3_f32", "v_min3_f32", "v_med3_f32",
        "v_rndne_f32", "v_floor_f32", "v_ceil_f32", "v_trunc_f32", "v_ldexp_f32", "v_rcp_iflag_f32",
        "v_sin_f32", "v_cos_f32", "v_frexp_mant_f32", "v_frexp_exp_i32_f32",  # test_more_float_functions
        "v_div_fixup_f32",  # the division sequence above
    }  # fmt: skip
    stated = INTEGERS.keys() | FLOATS.keys() | HALVES.keys() | TRANSCENDENTAL.keys()
    assert OPERATIONS.keys() - stated == elsewhere
    assert {"lt", "eq", "o", "u"} <= COMPARISONS.keys()
