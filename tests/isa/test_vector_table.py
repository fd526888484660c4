from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from fractions import Fraction
from random import Random

import numpy as np
import pytest

from pytest_attnperf.isa.vector_table import COMPARISONS, OPERATIONS
from tests.isa.formats import F32, FORMATS
from tests.isa.one_wave import make_wave, run, set_vector, vector
from tests.isa.operand_sets import draw_set
from tests.isa.statements import PAIRS, STATEMENTS, signed

FAST, SOAK = 4, 80
"""Batches of 64 drawn operand sets: 256 each, and more than 5,000 in the soak."""

batches = pytest.mark.parametrize("count", [FAST, pytest.param(SOAK, marks=pytest.mark.soak)])

TABLE = OPERATIONS

TRANSCENDENTAL: dict[str, Callable[[float], float]] = {
    "v_exp_f32": lambda a: math.inf if a >= 128 else 2.0**a,
    "v_log_f32": lambda a: math.log2(a) if a > 0 else -math.inf if a == 0 else math.nan,
    "v_rcp_f32": lambda a: 1 / a if a else math.copysign(math.inf, a),
    "v_rcp_iflag_f32": lambda a: 1 / a if a else math.copysign(math.inf, a),
    "v_rsq_f32": lambda a: 1 / math.sqrt(a) if a > 0 else math.copysign(math.inf, a) if a == 0 else math.nan,
    "v_sqrt_f32": lambda a: math.sqrt(a) if a >= 0 else math.nan,
}


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
    once; a result of 16 bits clears the upper half of its register."""
    stated = STATEMENTS[name]
    for operands, bits in executed(name, stated.result, stated.sources, count):
        shown = (name, [hex(one) for one in operands], hex(bits), stated.compute(*operands))
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


def as_float(bits: int) -> float:
    """The value of 32 bits."""
    if F32.is_nan(bits):
        return math.nan
    return math.copysign(math.inf if F32.is_infinite(bits) else float(F32.value(bits)), -1 if bits >> 31 else 1)


@batches
@pytest.mark.parametrize("name", TRANSCENDENTAL)
def test_transcendental_functions_within_one_ulp(name: str, count: int) -> None:
    """The result is within 1 ulp; denormal sources and results count as zeros."""
    for (operand,), bits in executed(name, "f32", ("f32",), count):
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


def test_all_operations_have_a_statement() -> None:
    """No operation of the tables is without a statement or a test of its own, with the same types, and no relation
    without a comparison."""
    stated = {name: (one.result, one.sources) for name, one in STATEMENTS.items()}
    missing = TABLE.keys() - stated.keys() - TRANSCENDENTAL.keys()
    assert not missing
    different = {name for name, one in TABLE.items() if name in stated and stated[name] != (one.result, one.sources)}
    assert not different
    assert COMPARISONS.keys() == {*INTEGER_RELATIONS, *FLOAT_RELATIONS}
