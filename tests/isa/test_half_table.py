from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from random import Random

import numpy as np
import pytest

from pytest_attnperf.isa.half_table import HALF_OPERATIONS
from tests.isa.one_wave import make_wave, run, set_vector, vector
from tests.isa.semantics import as_float, as_half, signed, to_half_bits

EDGES = (0, 1, 0x8000, 0x8001, 0x3C00, 0xBC00, 0x7BFF, 0x7C00, 0xFC00, 0x7E00, 0x03FF, 0x0400, 0x7FFF, 0xFFFF, 0x0010)


def draw(random: Random) -> int:
    """16 bits twice: edges, floats near 1, or any."""
    half = [
        random.choice((random.choice(EDGES), random.getrandbits(16), 0x3800 + random.getrandbits(11))) for _ in range(2)
    ]
    return half[0] | half[1] << 16


def exactly(compute: Callable[..., Fraction]) -> Callable[..., int | None]:
    """The bits nearest to an exact value of finite halves; None is NaN; '?' where a source is infinite or NaN."""

    def run_exactly(*bits: int) -> int | None:
        values = [as_half(one) for one in bits]
        if not all(map(math.isfinite, values)):
            return -1
        return to_half_bits(compute(*map(Fraction, values)))

    return run_exactly


FLOATS: dict[str, tuple[int, Callable[..., int | None]]] = {
    "v_add_f16": (2, exactly(lambda a, b: a + b)),
    "v_sub_f16": (2, exactly(lambda a, b: a - b)),
    "v_subrev_f16": (2, exactly(lambda a, b: b - a)),
    "v_mul_f16": (2, exactly(lambda a, b: a * b)),
    "v_fma_f16": (3, exactly(lambda a, b, c: a * b + c)),
    "v_max_f16": (2, exactly(max)),
    "v_min_f16": (2, exactly(min)),
    "v_max3_f16": (3, exactly(max)),
    "v_min3_f16": (3, exactly(min)),
    "v_med3_f16": (3, exactly(lambda *each: sorted(each)[1])),
    "v_rndne_f16": (1, exactly(lambda a: Fraction(round(a)))),
    "v_floor_f16": (1, exactly(lambda a: Fraction(math.floor(a)))),
    "v_ceil_f16": (1, exactly(lambda a: Fraction(math.ceil(a)))),
    "v_trunc_f16": (1, exactly(lambda a: Fraction(math.trunc(a)))),
    "v_fract_f16": (1, exactly(lambda a: min(a - math.floor(a), Fraction(2047, 2048)))),
    "v_frexp_mant_f16": (1, exactly(lambda a: Fraction(math.frexp(a)[0]))),
    "v_sqrt_f16": (1, exactly(lambda a: Fraction(math.sqrt(abs(a))))),
    "v_rcp_f16": (1, exactly(lambda a: 1 / (a or Fraction(1, 2**30)))),
}
"""Results up to the sign of a zero."""

INTEGERS: dict[str, tuple[int, Callable[..., int]]] = {
    "v_add_u16": (2, lambda a, b: a + b),
    "v_sub_u16": (2, lambda a, b: a - b),
    "v_subrev_u16": (2, lambda a, b: b - a),
    "v_add_i16": (2, lambda a, b: a + b),
    "v_sub_i16": (2, lambda a, b: a - b),
    "v_mul_lo_u16": (2, lambda a, b: a * b),
    "v_mad_u16": (3, lambda a, b, c: a * b + c),
    "v_mad_i16": (3, lambda a, b, c: a * b + c),
    "v_mad_legacy_u16": (3, lambda a, b, c: a * b + c),
    "v_mad_legacy_i16": (3, lambda a, b, c: a * b + c),
    "v_lshlrev_b16": (2, lambda a, b: b * 2 ** (a % 16)),
    "v_lshrrev_b16": (2, lambda a, b: b // 2 ** (a % 16)),
    "v_ashrrev_i16": (2, lambda a, b: signed(b, 16) // 2 ** (a % 16)),
    "v_min_u16": (2, min),
    "v_max_u16": (2, max),
    "v_min_i16": (2, lambda *each: min(signed(one, 16) for one in each)),
    "v_max_i16": (2, lambda *each: max(signed(one, 16) for one in each)),
    "v_min3_u16": (3, min),
    "v_max3_u16": (3, max),
    "v_min3_i16": (3, lambda *each: min(signed(one, 16) for one in each)),
    "v_max3_i16": (3, lambda *each: max(signed(one, 16) for one in each)),
    "v_med3_u16": (3, lambda *each: sorted(each)[1]),
    "v_med3_i16": (3, lambda *each: sorted(signed(one, 16) for one in each)[1]),
    "v_cvt_f16_u16": (1, lambda a: to_half_bits(Fraction(a))),
    "v_cvt_f16_i16": (1, lambda a: to_half_bits(Fraction(signed(a, 16)))),
    "v_cvt_u16_f16": (1, lambda a: _to_integer(a, 0, 65535)),
    "v_cvt_i16_f16": (1, lambda a: _to_integer(a, -32768, 32767)),
    "v_frexp_exp_i16_f16": (1, lambda a: math.frexp(as_half(a))[1] if math.isfinite(as_half(a)) else 0),
}


def _to_integer(bits: int, low: int, high: int) -> int:
    value = as_half(bits)
    return 0 if math.isnan(value) else max(low, min(high, int(max(low, min(high, value)))))


def executed(name: str, sources: int, suffix: str = "") -> list[tuple[list[int], int]]:
    """Operands and result of 64 lanes, as registers."""
    random = Random(name + suffix)
    wave = make_wave()
    drawn = [[draw(random) for _ in range(64)] for _ in range(sources)]
    for place, values in enumerate(drawn):
        set_vector(wave, place, values)
    set_vector(wave, 9, [0xABCD1234] * 64)
    encoding = "" if sources == 3 or name in ("v_add_i16", "v_sub_i16") else "_e64"
    run(wave, f"{name}{encoding} v9, " + ", ".join(f"v{place}" for place in range(sources)) + suffix)
    return [([values[lane] for values in drawn], int(bits)) for lane, bits in enumerate(vector(wave, "v9"))]


KEPT = ("v_fma_f16", "v_mad_u16", "v_mad_i16")


@pytest.mark.parametrize("name", INTEGERS)
def test_integers(name: str) -> None:
    """Every 16-bit integer instruction agrees with Python's integers, in the low halves and, by op_sel, in the high
    ones; the other half of the destination is cleared, or kept by op_sel and by the forms that keep it."""
    sources, compute = INTEGERS[name]
    for operands, bits in executed(name, sources):
        assert bits & 0xFFFF == compute(*(one & 0xFFFF for one in operands)) & 0xFFFF, [hex(one) for one in operands]
        assert bits >> 16 == (0xABCD if name in KEPT else 0)
    chosen = ",".join("1" * (sources + 1))
    for operands, bits in executed(name, sources, f" op_sel:[{chosen}]"):
        assert bits >> 16 == compute(*(one >> 16 for one in operands)) & 0xFFFF
        assert bits & 0xFFFF == 0x1234


@pytest.mark.parametrize("name", FLOATS)
def test_floats_are_rounded_once(name: str) -> None:
    """Every float16 instruction gives the half nearest to the exact result, denormals included."""
    sources, compute = FLOATS[name]
    for _ in range(4):
        for operands, bits in executed(name, sources):
            expected = compute(*(one & 0xFFFF for one in operands))
            if expected == -1 or (name in ("v_rcp_f16", "v_sqrt_f16") and operands[0] & 0x7FFF == 0):
                continue
            if name == "v_sqrt_f16" and operands[0] & 0x8000:
                continue
            low = bits & 0xFFFF
            assert low == expected or (low | expected) & 0x7FFF == 0, (name, [hex(one) for one in operands])


def test_conversions_from_float32() -> None:
    """V_CVT_PKRTZ_F16_F32 rounds towards zero, V_CVT_PK_F16_F32 to nearest, each into both halves."""
    random = Random(3)
    wave = make_wave()
    values = [random.uniform(-2, 2) * 2.0 ** random.randint(-28, 17) for _ in range(64)]
    set_vector(wave, 0, np.array(values, np.float32))
    run(wave, "v_cvt_pkrtz_f16_f32 v1, v0, -v0", "v_cvt_pk_f16_f32 v2, v0, v0")
    for lane, bits in enumerate(vector(wave, "v0").tolist()):
        exact = Fraction(as_float(bits))
        near, zero, negated = (
            int(vector(wave, name)[lane]) >> shift & 0xFFFF for name, shift in (("v2", 16), ("v1", 0), ("v1", 16))
        )
        assert near == to_half_bits(exact)
        assert negated == zero ^ 0x8000
        towards = Fraction(as_half(zero))
        assert abs(towards) <= abs(exact)
        assert abs(Fraction(as_half(zero + 1 if zero & 0x7FFF < 0x7BFF else zero))) >= min(abs(exact), 65504)


def test_modifiers_of_halves() -> None:
    """neg, abs, clamp and omod of float16."""
    wave = make_wave()
    set_vector(wave, 0, [0x0000_BC00] * 64)
    run(wave, "v_add_f16_e64 v1, -v0, |v0|", "v_add_f16_e64 v2, v0, v0 clamp", "v_mul_f16_e64 v3, v0, v0 mul:4")
    assert [as_half(int(vector(wave, name)[0])) for name in ("v1", "v2", "v3")] == [2.0, 0.0, 4.0]


def test_every_operation_is_tested_or_listed() -> None:
    """An operation without a statement here is in this list, which says where it is tested."""
    elsewhere = {
        "v_cvt_f16_f32", "v_cvt_f32_f16",  # test_vector_table, test_vector
        "v_cvt_pk_f16_f32", "v_cvt_pkrtz_f16_f32", "v_pack_b32_f16",  # above, and test_vector_table
        "v_div_fixup_f16", "v_exp_f16", "v_log_f16", "v_rsq_f16", "v_ldexp_f16",  # test_functions_of_halves
        "v_mad_u32_u16", "v_mad_i32_i16",  # test_wide_products
    }  # fmt: skip
    assert HALF_OPERATIONS.keys() - FLOATS.keys() - INTEGERS.keys() == elsewhere


def test_functions_of_halves() -> None:
    """Exponential, logarithm, inverse root and power of two are the nearest halves, the fix-up knows x / 0."""
    wave = make_wave()
    set_vector(wave, 0, [0x4500] * 64)
    set_vector(wave, 1, [0x0000] * 64)
    set_vector(wave, 2, [3] * 64)
    run(wave, "v_exp_f16_e32 v3, v0", "v_log_f16_e32 v4, v0", "v_rsq_f16_e32 v5, v0", "v_ldexp_f16_e32 v6, v0, v2")
    run(wave, "v_mov_b32_e32 v7, 0", "v_div_fixup_f16 v7, v0, v1, -v0")
    found = [as_half(int(vector(wave, f"v{at}")[0])) for at in range(3, 8)]
    assert found == [32.0, float(np.float16(math.log2(5))), float(np.float16(1 / math.sqrt(5))), 40.0, -math.inf]


def test_wide_products() -> None:
    """V_MAD_U32_U16 and V_MAD_I32_I16: a product of halves plus 32 bits."""
    wave = make_wave()
    set_vector(wave, 0, [0x8001_FFFE] * 64)
    set_vector(wave, 1, [7] * 64)
    run(wave, "v_mad_u32_u16 v2, v0, v0, v1 op_sel:[0,1,0,0]", "v_mad_i32_i16 v3, v0, v0, v1 op_sel:[1,1,0,0]")
    assert vector(wave, "v2")[0] == 0xFFFE * 0x8001 + 7
    assert vector(wave, "v3")[0] == 0x7FFF * 0x7FFF + 7
