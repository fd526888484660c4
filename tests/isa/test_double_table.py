from __future__ import annotations

import math
import struct
from collections.abc import Callable
from fractions import Fraction
from random import Random

import numpy as np
import pytest

from pytest_attnperf.isa.double_table import DOUBLE_OPERATIONS, fma_f64
from pytest_attnperf.isa.wave import Wave
from tests.isa.one_wave import make_wave, run, set_vector, vector

EDGES = (0.0, -0.0, 1.0, -1.0, math.inf, -math.inf, math.nan, 5e-324, 2.0**-1022, 1.7976931348623157e308, 0.1, 3.0)


def draw(random: Random) -> float:
    """Edges, numbers whose sums cancel, and any bits."""
    kind = random.random()
    if kind < 0.25:
        return random.choice(EDGES)
    if kind < 0.7:
        return random.choice((-1, 1)) * random.uniform(0.4, 3)
    return struct.unpack("<d", random.randbytes(8))[0]


def set_numbers(wave: Wave, first: int, values: list[float]) -> None:
    """Writes float64 into two registers."""
    words = np.array(values, np.float64).view(np.uint32).reshape(-1, 2)
    set_vector(wave, first, words[:, 0].copy())
    set_vector(wave, first + 1, words[:, 1].copy())


def numbers(wave: Wave, first: int) -> list[float]:
    """The float64 numbers in two registers."""
    words = np.stack([vector(wave, f"v{first}"), vector(wave, f"v{first + 1}")], axis=1)
    return np.ascontiguousarray(words).view(np.float64)[:, 0].tolist()


def same(a: float, b: float) -> bool:
    """Whether two numbers are equal, or both NaN."""
    return a == b or (math.isnan(a) and math.isnan(b))


def fused(a: float, b: float, c: float) -> float:
    """a * b + c of finite numbers, rounded once."""
    exact = Fraction(a) * Fraction(b) + Fraction(c)
    try:
        return float(exact)
    except OverflowError:
        return math.inf if exact > 0 else -math.inf


@pytest.mark.parametrize("count", [16, pytest.param(400, marks=pytest.mark.soak)])
def test_fma_is_rounded_once(count: int) -> None:
    """a * b + c of float64 is the number nearest to the exact result, also where it cancels, overflows or is tiny."""
    random = Random(4)
    for _ in range(count):
        a, b, c = ([draw(random) for _ in range(64)] for _ in range(3))
        for lane in range(0, 64, 3):
            c[lane] = -a[lane] * b[lane]
        with np.errstate(all="ignore"):
            found = fma_f64(np.array(a), np.array(b), np.array(c)).tolist()
        for lane in range(64):
            if all(map(math.isfinite, (a[lane], b[lane], c[lane]))):
                assert found[lane] == fused(a[lane], b[lane], c[lane]), (a[lane], b[lane], c[lane])


@pytest.mark.parametrize("count", [4, pytest.param(80, marks=pytest.mark.soak)])
def test_division_sequence_is_correctly_rounded(count: int) -> None:
    """The compiler's sequence for float64 gives the quotient, rounded once, but for results below the normal ones."""
    random = Random(6)
    for _ in range(count):
        above, below = ([draw(random) for _ in range(64)] for _ in range(2))
        wave = make_wave()
        set_numbers(wave, 0, above)
        set_numbers(wave, 2, below)
        run(wave, "v_div_scale_f64 v[4:5], s[2:3], v[2:3], v[2:3], v[0:1]", "v_rcp_f64_e32 v[6:7], v[4:5]")
        run(wave, "v_div_scale_f64 v[8:9], vcc, v[0:1], v[2:3], v[0:1]")
        for _ in range(2):
            run(wave, "v_fma_f64 v[10:11], -v[4:5], v[6:7], 1.0", "v_fma_f64 v[6:7], v[6:7], v[10:11], v[6:7]")
        run(wave, "v_mul_f64 v[10:11], v[8:9], v[6:7]", "v_fma_f64 v[12:13], -v[4:5], v[10:11], v[8:9]")
        run(wave, "v_div_fmas_f64 v[12:13], v[12:13], v[6:7], v[10:11]")
        run(wave, "v_div_fixup_f64 v[14:15], v[12:13], v[2:3], v[0:1]")
        for a, b, found in zip(above, below, numbers(wave, 14), strict=True):
            with np.errstate(all="ignore"):
                expected = float(np.float64(a) / np.float64(b))
            near = abs(expected) < 2.0**-1021 and abs(found - expected) <= 5e-324
            assert same(found, expected) or near, (a, b, found, expected)


FUNCTIONS: dict[str, tuple[int, Callable[..., float]]] = {
    "v_add_f64": (2, lambda a, b: a + b),
    "v_mul_f64": (2, lambda a, b: a * b),
    "v_max_f64": (2, max),
    "v_min_f64": (2, min),
    "v_sqrt_f64": (1, lambda a: math.sqrt(a) if a >= 0 else math.nan),
    "v_trunc_f64": (1, lambda a: float(math.trunc(a))),
    "v_ceil_f64": (1, lambda a: float(math.ceil(a))),
    "v_floor_f64": (1, lambda a: float(math.floor(a))),
    "v_rndne_f64": (1, lambda a: float(round(a))),
    "v_fract_f64": (1, lambda a: min(float(Fraction(a) - math.floor(a)), 1 - 2.0**-53)),
    "v_frexp_mant_f64": (1, lambda a: math.frexp(a)[0]),
    "v_rcp_f64": (1, lambda a: 1 / a if a else math.copysign(math.inf, a)),
    "v_rsq_f64": (1, lambda a: 1 / math.sqrt(a) if a > 0 else math.nan if a else math.copysign(math.inf, a)),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions(name: str) -> None:
    """Every float64 function of finite numbers agrees with Python's."""
    sources, compute = FUNCTIONS[name]
    random, wave = Random(name), make_wave()
    drawn = [[draw(random) for _ in range(64)] for _ in range(sources)]
    for place, values in enumerate(drawn):
        set_numbers(wave, 2 * place, values)
    encoding = "" if name in ("v_add_f64", "v_mul_f64", "v_max_f64", "v_min_f64") else "_e32"
    run(wave, f"{name}{encoding} v[8:9], " + ", ".join(f"v[{2 * at}:{2 * at + 1}]" for at in range(sources)))
    for operands, found in zip(zip(*drawn, strict=True), numbers(wave, 8), strict=True):
        if all(map(math.isfinite, operands)):
            expected = compute(*operands)
            assert same(found, expected) or (name == "v_rsq_f64" and math.isclose(found, expected)), operands


def test_conversions() -> None:
    """Between float64 and 32 bits: exact, rounded, or limited to the range; NaN is 0 as an integer."""
    wave = make_wave()
    values = [2.5, -2.5, 1e300, -1e300, math.nan, 4294967295.5, 0.1, -0.0] * 8
    set_numbers(wave, 0, values)
    run(wave, "v_cvt_i32_f64_e32 v2, v[0:1]", "v_cvt_u32_f64_e32 v3, v[0:1]", "v_cvt_f32_f64_e32 v4, v[0:1]")
    run(wave, "v_cvt_f64_i32_e32 v[6:7], v2", "v_cvt_f64_u32_e32 v[8:9], v3", "v_cvt_f64_f32_e32 v[10:11], v4")
    run(wave, "v_ldexp_f64 v[12:13], v[0:1], 4", "v_frexp_exp_i32_f64_e32 v14, v[0:1]")
    assert numbers(wave, 6)[:7] == [2, -2, 2**31 - 1, -(2**31), 0, 2**31 - 1, 0]
    assert numbers(wave, 8)[:7] == [2, 0, 2**32 - 1, 0, 0, 2**32 - 1, 0]
    assert numbers(wave, 10)[6] == float(np.float32(0.1))
    assert numbers(wave, 12)[0] == 40.0
    assert vector(wave, "v14").view(np.int32)[[0, 6]].tolist() == [2, -3]


def test_every_operation_is_tested_or_listed() -> None:
    """An operation without a statement here is in this list: the conversions, the sequence and the fma above."""
    elsewhere = {
        *(name for name in DOUBLE_OPERATIONS if name.startswith("v_cvt_")), "v_fma_f64", "v_div_fixup_f64",
        "v_ldexp_f64", "v_frexp_exp_i32_f64",
    }  # fmt: skip
    assert DOUBLE_OPERATIONS.keys() - FUNCTIONS.keys() == elsewhere


def test_an_infinite_addend_decides_over_a_product_that_overflows() -> None:
    """Two numbers whose product float64 cannot hold, and an infinity of the other sign: that infinity, not NaN."""
    wave = make_wave()
    for place, value in enumerate((1e300, -1e300, float("inf"))):
        bits = np.full(64, value).view(np.uint64)
        set_vector(wave, 2 * place, (bits & 0xFFFFFFFF).astype(np.uint32))
        set_vector(wave, 2 * place + 1, (bits >> np.uint64(32)).astype(np.uint32))
    run(wave, "v_fma_f64 v[6:7], v[0:1], v[2:3], v[4:5]", "v_fma_f64 v[8:9], v[0:1], v[0:1], -v[4:5]")
    assert (vector(wave, "v6")[0], vector(wave, "v7")[0]) == (0, 0x7FF00000)
    assert (vector(wave, "v8")[0], vector(wave, "v9")[0]) == (0, 0xFFF00000)
