from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from fractions import Fraction
from random import Random

import numpy as np
import pytest

from pytest_attnperf.isa import vector_table
from pytest_attnperf.isa.double_table import DOUBLE_OPERATIONS
from pytest_attnperf.isa.half_table import HALF_OPERATIONS
from pytest_attnperf.isa.vector_table import COMPARISONS, OPERATIONS
from tests.isa.formats import FORMATS
from tests.isa.one_wave import make_wave, run, set_vector, vector
from tests.isa.operand_sets import draw_set
from tests.isa.semantics import WORD, signed
from tests.isa.statements import KEPT, PAIRS, SATURATING, STATEMENTS

FAST, SOAK = 4, 80
"""Batches of 64 drawn operand sets: 256 each, and more than 5,000 in the soak."""

batches = pytest.mark.parametrize("count", [FAST, pytest.param(SOAK, marks=pytest.mark.soak)])

TABLE = {**OPERATIONS, **HALF_OPERATIONS, **DOUBLE_OPERATIONS}
"""All plain operations."""

BEFORE = 0xABCD1234
"""What stands in the destination."""

FUNCTIONS: dict[str, Callable[[float], float]] = {
    "exp": lambda a: 2.0**a if a < 1024 else math.inf,
    "log": lambda a: math.log2(a) if a > 0 else -math.inf if a == 0 else math.nan,
    "rcp": lambda a: 1 / a if a else math.copysign(math.inf, a),
    "rcp_iflag": lambda a: 1 / a if a else math.copysign(math.inf, a),
    "rsq": lambda a: 1 / math.sqrt(a) if a > 0 else math.copysign(math.inf, a) if a == 0 else math.nan,
    "sqrt": lambda a: math.sqrt(a) if a >= 0 else math.nan,
}
APPROXIMATE = {
    f"v_{name}_{kind}": (function, kind)
    for name, function in FUNCTIONS.items()
    for kind in ("f32", "f16", "f64")
    if (kind != "f64" or name in ("rcp", "rsq", "sqrt")) and (kind == "f32" or name != "rcp_iflag")
}
"""Name -> function and type, of instructions whose result is within 1 ulp."""

ELSEWHERE = {"v_sin_f32", "v_cos_f32"}
"""Tested in `test_more_float_functions`."""


def name_register(kind: str, place: int) -> str:
    """'v0' or 'v[2:3]': every operand has two registers."""
    return f"v[{2 * place}:{2 * place + 1}]" if kind.endswith("64") else f"v{2 * place}"


def executed(
    name: str, result: str, kinds: tuple[str, ...], count: int, modifiers: str = ""
) -> Iterator[tuple[list[int], int]]:
    """Operands of a lane and the bits that the interpreter computes of them."""
    random = Random(name)
    encoding = "_e64" if len(kinds) < 3 else ""
    registers = ", ".join([name_register(result, 4), *(name_register(kind, at) for at, kind in enumerate(kinds))])
    for _ in range(count):
        wave, drawn = make_wave(), draw_set(random, kinds)
        for at, values in enumerate(drawn):
            set_vector(wave, 2 * at, [one & 0xFFFFFFFF for one in values])
            set_vector(wave, 2 * at + 1, [one >> 32 for one in values])
        set_vector(wave, 8, [BEFORE] * 64)
        run(wave, f"{name}{encoding} {registers}{modifiers}")
        low, high = vector(wave, "v8").tolist(), vector(wave, "v9").tolist()
        for lane in range(len(low)):
            yield [values[lane] for values in drawn], low[lane] | (high[lane] << 32 if result.endswith("64") else 0)


def agree(kind: str, bits: int, expected: int | None) -> bool:
    """Whether the bits of a result are those, or both are NaN."""
    width = int(kind[1:])
    form = FORMATS.get(kind)
    if expected is None:
        return form is not None and form.is_nan(bits)
    return bits == expected % (1 << width)


@batches
@pytest.mark.parametrize("name", sorted(STATEMENTS.keys() & TABLE.keys() - PAIRS.keys()))
def test_operations(name: str, count: int) -> None:
    """Every operation gives the bits of its statement: integers modulo their width, floats the exact result rounded
    once; a result of 16 bits clears the upper half of its register, or leaves it as it was."""
    stated = STATEMENTS[name]
    for operands, bits in executed(name, stated.result, stated.sources, count):
        if name in KEPT:
            assert bits >> 16 == BEFORE >> 16
            bits &= 0xFFFF
        shown = (name, [hex(one) for one in operands], hex(bits), stated.compute(*operands))
        assert agree(stated.result, bits, stated.compute(*operands)), shown


@batches
@pytest.mark.parametrize("name", sorted(vector_table.SATURATING))
def test_limited_sums(name: str, count: int) -> None:
    """With clamp, sums and differences are limited to the range of their type."""
    stated = SATURATING[name]
    for operands, bits in executed(name, stated.result, stated.sources, count, " clamp"):
        shown = (name, [hex(one) for one in operands], hex(bits))
        assert agree(stated.result, bits, stated.compute(*operands)), shown


@batches
@pytest.mark.parametrize("name", sorted(PAIRS.keys() & TABLE.keys()))
def test_conversions_to_pairs(name: str, count: int) -> None:
    """Both halves of the result are rounded once; a NaN stays one."""
    stated, form = STATEMENTS[name], PAIRS[name]
    for operands, bits in executed(name, stated.result, stated.sources, count):
        expected = stated.compute(*operands)
        assert expected is not None
        for shift in (0, 16):
            found, wanted = bits >> shift & 0xFFFF, expected >> shift & 0xFFFF
            same = form.is_nan(found) if form.is_nan(wanted) else found == wanted
            assert same, (name, [hex(one) for one in operands], hex(bits), hex(expected))


@batches
@pytest.mark.parametrize("name", APPROXIMATE)
def test_transcendental_functions_within_one_ulp(name: str, count: int) -> None:
    """The result is within 1 ulp; denormal sources and results of float32 count as zeros."""
    function, kind = APPROXIMATE[name]
    form = FORMATS[kind]
    least = Fraction(2) ** (1 - form.bias)
    for (operand,), bits in executed(name, kind, (kind,), count):
        if form.is_nan(operand) or form.is_infinite(operand):
            continue
        shown = (name, hex(operand), hex(bits))
        source = float(form.value(operand)) if operand != form.sign else -0.0
        if kind == "f32" and abs(source) < least:
            source = math.copysign(0.0, source)
        expected = function(source)
        if math.isnan(expected):
            assert form.is_nan(bits), shown
        elif math.isinf(expected):
            assert form.is_infinite(bits), shown
            assert form.is_negative(bits) == (expected < 0), shown
        elif kind == "f32" and abs(expected) < least:
            assert abs(form.value(bits)) <= least, shown
        elif form.is_infinite(form.encode(Fraction(expected))):
            assert form.is_infinite(bits), shown
        else:
            ulp = Fraction(2) ** (max(math.frexp(expected)[1] - 1, 1 - form.bias) - form.mantissa)
            assert abs(form.value(bits) - Fraction(expected)) <= ulp, (shown, expected)


@batches
def test_division_sequence_is_correctly_rounded(count: int) -> None:
    """The compiler's sequence of v_div_scale, v_rcp, v_fma, v_div_fmas and v_div_fixup gives the quotient of float32,
    rounded once, also where it or an operand is at the ends of the range."""
    random = Random(5)
    for _ in range(count):
        wave, (numerators, denominators) = make_wave(), draw_set(random, ("f32", "f32"))
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


ORDERED: dict[str, Callable[[Fraction | float, Fraction | float], bool]] = {
    "lt": lambda a, b: a < b, "eq": lambda a, b: a == b, "le": lambda a, b: a <= b, "gt": lambda a, b: a > b,
    "ge": lambda a, b: a >= b, "lg": lambda a, b: a != b, "ne": lambda a, b: a != b, "o": lambda _a, _b: True,
}  # fmt: skip


def compare(relation: str, kind: str, a: int, b: int) -> bool:
    """What a comparison of two operands says: 'n..' the negation, true for NaN."""
    form = FORMATS.get(kind)
    if relation in ("f", "t", "tru"):
        return relation != "f"
    if form is None:
        width = int(kind[1:])
        return ORDERED[relation](*((signed(one, width) if kind[0] == "i" else one) for one in (a, b)))
    unordered = form.is_nan(a) or form.is_nan(b)
    if relation == "u":
        return unordered
    plain = "lg" if relation == "nlg" else "eq" if relation == "neq" else relation.removeprefix("n")
    negated = relation != "ne" and relation.startswith("n")
    return (not unordered and ORDERED[plain](form.order(a)[0], form.order(b)[0])) != negated


INTEGER_RELATIONS = ("f", "lt", "eq", "le", "gt", "ne", "ge", "t")
FLOAT_RELATIONS = (
    "f", "lt", "eq", "le", "gt", "lg", "ge", "o", "u", "nge", "nlg", "ngt", "nle", "neq", "nlt", "tru",
)  # fmt: skip


@batches
@pytest.mark.parametrize("kind", ["f16", "f32", "f64", "i16", "u16", "i32", "u32", "i64", "u64"])
def test_comparisons(kind: str, count: int) -> None:
    """Every comparison of every type sets a lane's bit where the relation holds; a NaN is unordered, -0 equals +0."""
    random = Random(kind)
    wide = kind.endswith("64")
    sources = "v[0:1], v[2:3]" if wide else "v0, v2"
    for _ in range(count):
        wave, (left, right) = make_wave(), draw_set(random, (kind, kind))
        # A third of the pairs are equal.
        right = [a if random.random() < 0.3 else b for a, b in zip(left, right, strict=True)]
        for at, values in ((0, left), (2, right)):
            set_vector(wave, at, [one & 0xFFFFFFFF for one in values])
            set_vector(wave, at + 1, [one >> 32 for one in values])
        for relation in FLOAT_RELATIONS if kind[0] == "f" else INTEGER_RELATIONS:
            run(wave, f"v_cmp_{relation}_{kind}_e64 s[4:5], {sources}")
            found = wave.read_scalar_pair(4)
            for lane, (a, b) in enumerate(zip(left, right, strict=True)):
                assert (found >> lane & 1) == compare(relation, kind, a, b), (relation, hex(a), hex(b))


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


def test_all_operations_have_a_statement() -> None:
    """No operation of the tables is without a statement or a test of its own, with the same types, and no relation
    without a comparison."""
    stated = {name: (one.result, one.sources) for name, one in STATEMENTS.items()}
    missing = TABLE.keys() - stated.keys() - APPROXIMATE.keys() - ELSEWHERE
    assert not missing
    different = {name for name, one in TABLE.items() if name in stated and stated[name] != (one.result, one.sources)}
    assert not different
    assert vector_table.SATURATING.keys() == SATURATING.keys()
    assert COMPARISONS.keys() == {*INTEGER_RELATIONS, *FLOAT_RELATIONS}
