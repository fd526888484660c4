from __future__ import annotations

from fractions import Fraction
from random import Random

import numpy as np
import pytest

from tests.isa.one_wave import make_wave, run, set_vector, vector
from tests.isa.semantics import WORD, as_float, as_half, signed, to_float_bits

NAMES = ["v_dot4_i32_i8", "v_dot4_u32_u8", "v_dot8_i32_i4", "v_dot8_u32_u4", "v_dot2_i32_i16", "v_dot2_u32_u16"]


@pytest.mark.parametrize("name", NAMES)
def test_integer_dot_products(name: str) -> None:
    """The sum of all products of elements and the third source, modulo 2^32; the accumulating form adds to its
    destination."""
    count, is_signed = int(name[5]), "_i32" in name
    bits, random, wave = 32 // count, Random(name), make_wave()
    drawn = [[random.choice((random.getrandbits(32), WORD, 0x80808080)) for _ in range(64)] for _ in range(3)]
    for place, values in enumerate(drawn):
        set_vector(wave, place, values)
    run(wave, f"{name} v3, v0, v1, v2")
    if is_signed:
        run(wave, f"{name.replace('_i32', 'c_i32')}_e32 v2, v0, v1")
    for lane, (a, b, c) in enumerate(zip(*drawn, strict=True)):
        left, right = ([one >> bits * at & (1 << bits) - 1 for at in range(count)] for one in (a, b))
        if is_signed:
            left, right = ([signed(one, bits) for one in side] for side in (left, right))
        expected = c + sum(x * y for x, y in zip(left, right, strict=True)) & WORD
        assert vector(wave, "v3")[lane] == expected
        assert not is_signed or vector(wave, "v2")[lane] == expected


@pytest.mark.parametrize("name", ["v_dot2_f32_f16", "v_dot2_f32_bf16"])
def test_float_dot_products(name: str) -> None:
    """Two exact products, added one after the other with a rounding each."""
    random, wave = Random(name), make_wave()
    value = as_half if name.endswith("_f16") else lambda bits: as_float((bits & 0xFFFF) << 16)
    drawn = [[(0x3800 + random.getrandbits(12)) << 16 | 0xB800 + random.getrandbits(12) for _ in range(64)] for _ in
             range(2)]  # fmt: skip
    for place, values in enumerate(drawn):
        set_vector(wave, place, values)
    set_vector(wave, 2, np.full(64, 0.37, np.float32))
    run(wave, f"{name} v3, v0, v1, v2", arch="gfx950")
    for lane, (a, b) in enumerate(zip(*drawn, strict=True)):
        total = Fraction(float(np.float32(0.37)))
        for shift in (0, 16):
            product = Fraction(value(a >> shift)) * Fraction(value(b >> shift))
            total = Fraction(as_float(to_float_bits(total + product)))
        assert vector(wave, "v3")[lane] == to_float_bits(total)


@pytest.mark.parametrize(("arch", "expected"), [("gfx90a", 0.0), ("gfx942", 2.0**-24)])
def test_denormals_of_float_dot_products(arch: str, expected: float) -> None:
    """gfx90a flushes denormal elements, gfx942 keeps them."""
    wave = make_wave()
    set_vector(wave, 0, [0x0000_0001] * 64)
    set_vector(wave, 1, [0x0000_3C00] * 64)
    run(wave, "v_dot2_f32_f16 v2, v0, v1, 0", arch=arch)
    assert vector(wave, "v2").view(np.float32)[0] == expected
