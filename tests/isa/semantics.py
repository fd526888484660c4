"""What instructions compute, stated a second time: Python integers and fractions, one lane at a time.

Written from AMD's documents without numpy, so that it shares nothing with the interpreter but the names.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Mapping
from fractions import Fraction

WORD = 2**32 - 1


def as_float(bits: int) -> float:
    """The value of 32 bits."""
    return float(struct.unpack("<f", struct.pack("<I", bits))[0])


def as_half(bits: int) -> float:
    """The value of 16 bits."""
    return float(struct.unpack("<e", struct.pack("<H", bits & 0xFFFF))[0])


def signed(value: int, bits: int = 32) -> int:
    """The low bits as a two's complement number."""
    value %= 1 << bits
    return value - (1 << bits) if value >= 1 << (bits - 1) else value


def round_to_bits(value: Fraction, mantissa: int, bias: int, width: int, negative_zero: bool = False) -> int:
    """The bits of the float nearest to an exact value, ties to even; `mantissa` bits are stored."""
    sign = 1 if value < 0 or (value == 0 and negative_zero) else 0
    size = abs(value)
    if size == 0:
        return sign << (width - 1)
    exponent = max(math.floor(math.log2(size)) if size > Fraction(1, 2**1000) else -1100, 1 - bias)
    while size >= Fraction(2) ** (exponent + 1):
        exponent += 1
    while size < Fraction(2) ** exponent and exponent > 1 - bias:
        exponent -= 1
    steps = size / Fraction(2) ** (exponent - mantissa)
    whole = math.floor(steps)
    rest = steps - whole
    whole += rest > Fraction(1, 2) or (rest == Fraction(1, 2) and whole % 2)
    bits = whole + ((exponent - (1 - bias)) << mantissa)
    infinity = ((1 << (width - 1 - mantissa)) - 1) << mantissa
    return sign << (width - 1) | min(bits, infinity)


def to_float_bits(value: Fraction, negative_zero: bool = False) -> int:
    """The 32 bits nearest to an exact value."""
    return round_to_bits(value, 23, 127, 32, negative_zero)


def to_half_bits(value: Fraction, negative_zero: bool = False) -> int:
    """The 16 bits nearest to an exact value."""
    return round_to_bits(value, 10, 15, 16, negative_zero)


def fused(a: int, b: int, c: int) -> int | None:
    """a * b + c of float32 bits, rounded once; None is NaN."""
    x, y, z = as_float(a), as_float(b), as_float(c)
    if not all(map(math.isfinite, (x, y, z))):
        if any(map(math.isnan, (x, y, z))) or (0 in (x, y) and math.inf in (abs(x), abs(y))):
            return None
        sign = math.copysign(1, x) * math.copysign(1, y)
        product = sign * math.inf if math.inf in (abs(x), abs(y)) else sign
        total = product + z if math.isinf(product) else z
        return None if math.isnan(total) else struct.unpack("<I", struct.pack("<f", total))[0]
    exact = Fraction(x) * Fraction(y) + Fraction(z)
    product_negative = math.copysign(1, x) * math.copysign(1, y) < 0
    return to_float_bits(exact, exact == 0 and product_negative and math.copysign(1, z) < 0)


def _sum(a: int, b: int) -> int | None:
    return fused(a, 0x3F800000, b)


def _product(a: int, b: int) -> int | None:
    sign = (a ^ b) & 1 << 31
    return fused(a, b, sign)


def _fraction(a: int) -> int | None:
    value = as_float(a)
    if not math.isfinite(value):
        return None
    exact = Fraction(value)
    return min(to_float_bits(exact - math.floor(exact)), 0x3F7FFFFF)


def _largest(a: int, b: int) -> int | None:
    if math.isnan(as_float(a)) or math.isnan(as_float(b)):
        numbers = [one for one in (a, b) if not math.isnan(as_float(one))]
        return numbers[0] if numbers else None
    return max((a, b), key=lambda bits: (as_float(bits), -(bits >> 31)))


def _to_half(a: int) -> int | None:
    value = as_float(a)
    if math.isnan(value):
        return None
    if math.isinf(value):
        return (a >> 31) << 15 | 0x7C00
    return to_half_bits(Fraction(value), bool(a >> 31))


def _to_unsigned(a: int) -> int:
    value = as_float(a)
    if math.isnan(value):
        return 0
    return int(min(max(value, 0.0), float(2**32))) if value < 2**32 else WORD


def _to_signed(a: int, whole: Callable[[float], int] = int) -> int:
    value = as_float(a)
    if math.isnan(value):
        return 0
    return (
        max(-(2**31), min(2**31 - 1, whole(value))) if math.isfinite(value) else (2**31 - 1 if value > 0 else -(2**31))
    )


def _chosen_byte(a: int, b: int, selector: int) -> int:
    pool = [b >> 8 * at & 255 for at in range(4)] + [a >> 8 * at & 255 for at in range(4)]
    if selector <= 7:
        return pool[selector]
    if selector <= 11:
        return 255 if pool[2 * (selector - 8) + 1] >> 7 else 0
    return 0 if selector == 12 else 255


INTEGERS: Mapping[str, tuple[int, Callable[..., int]]] = {
    "v_not_b32": (1, lambda a: ~a),
    "v_bfrev_b32": (1, lambda a: int(f"{a:032b}"[::-1], 2)),
    "v_add_u32": (2, lambda a, b: a + b),
    "v_sub_u32": (2, lambda a, b: a - b),
    "v_subrev_u32": (2, lambda a, b: b - a),
    "v_add3_u32": (3, lambda a, b, c: a + b + c),
    "v_add_lshl_u32": (3, lambda a, b, c: (a + b) * 2 ** (c % 32)),
    "v_lshl_add_u32": (3, lambda a, b, c: a * 2 ** (b % 32) + c),
    "v_lshl_or_b32": (3, lambda a, b, c: a * 2 ** (b % 32) % 2**32 | c),
    "v_and_or_b32": (3, lambda a, b, c: (a & b) | c),
    "v_or3_b32": (3, lambda a, b, c: a | b | c),
    "v_xad_u32": (3, lambda a, b, c: (a ^ b) + c),
    "v_and_b32": (2, lambda a, b: a & b),
    "v_or_b32": (2, lambda a, b: a | b),
    "v_xor_b32": (2, lambda a, b: a ^ b),
    "v_xnor_b32": (2, lambda a, b: ~(a ^ b)),
    "v_bfi_b32": (3, lambda a, b, c: (a & b) | (~a & c)),
    "v_bfe_u32": (3, lambda a, b, c: a // 2 ** (b % 32) % 2 ** (c % 32)),
    "v_bfe_i32": (3, lambda a, b, c: signed(a // 2 ** (b % 32), c % 32) if c % 32 else 0),
    "v_lshlrev_b32": (2, lambda a, b: b * 2 ** (a % 32)),
    "v_lshrrev_b32": (2, lambda a, b: b // 2 ** (a % 32)),
    "v_ashrrev_i32": (2, lambda a, b: signed(b) // 2 ** (a % 32)),
    "v_lshlrev_b16": (2, lambda a, b: (b % 2**16) * 2 ** (a % 16) % 2**16),
    "v_lshrrev_b16": (2, lambda a, b: (b % 2**16) // 2 ** (a % 16)),
    "v_mul_lo_u32": (2, lambda a, b: a * b),
    "v_mul_hi_u32": (2, lambda a, b: a * b // 2**32),
    "v_mul_hi_i32": (2, lambda a, b: signed(a) * signed(b) // 2**32),
    "v_mul_lo_u16": (2, lambda a, b: a * b % 2**16),
    "v_mul_u32_u24": (2, lambda a, b: (a % 2**24) * (b % 2**24)),
    "v_mul_i32_i24": (2, lambda a, b: signed(a, 24) * signed(b, 24)),
    "v_mad_u32_u24": (3, lambda a, b, c: (a % 2**24) * (b % 2**24) + c),
    "v_mad_i32_i24": (3, lambda a, b, c: signed(a, 24) * signed(b, 24) + signed(c)),
    "v_min_u32": (2, min),
    "v_max_u32": (2, max),
    "v_min_i32": (2, lambda a, b: min(signed(a), signed(b))),
    "v_max_i32": (2, lambda a, b: max(signed(a), signed(b))),
    "v_min3_u32": (3, min),
    "v_max3_u32": (3, max),
    "v_min3_i32": (3, lambda *each: min(map(signed, each))),
    "v_max3_i32": (3, lambda *each: max(map(signed, each))),
    "v_perm_b32": (3, lambda a, b, c: sum(_chosen_byte(a, b, c >> 8 * at & 255) << 8 * at for at in range(4))),
    "v_alignbit_b32": (3, lambda a, b, c: (a << 32 | b) >> c % 32),
    "v_pack_b32_f16": (2, lambda a, b: a % 2**16 | (b % 2**16) << 16),
    "v_mul_hi_u32_u24": (2, lambda a, b: (a % 2**24) * (b % 2**24) // 2**32),
    "v_mul_hi_i32_i24": (2, lambda a, b: signed(a, 24) * signed(b, 24) // 2**32),
    "v_med3_u32": (3, lambda *each: sorted(each)[1]),
    "v_med3_i32": (3, lambda *each: sorted(map(signed, each))[1]),
    "v_bcnt_u32_b32": (2, lambda a, b: f"{a:b}".count("1") + b),
    "v_ffbh_u32": (1, lambda a: f"{a:032b}".find("1")),
    "v_ffbl_b32": (1, lambda a: f"{a:032b}"[::-1].find("1")),
    "v_ffbh_i32": (1, lambda a: f"{a:032b}".find("10"[a >> 31])),
    "v_bfm_b32": (2, lambda a, b: (2 ** (a % 32) - 1) * 2 ** (b % 32)),
    "v_sad_u8": (3, lambda a, b, c: c + sum(abs((a >> n & 255) - (b >> n & 255)) for n in (0, 8, 16, 24))),
    "v_sad_u32": (3, lambda a, b, c: abs(a - b) + c),
    "v_add_i32": (2, lambda a, b: a + b),
    "v_sub_i32": (2, lambda a, b: a - b),
    "v_alignbyte_b32": (3, lambda a, b, c: (a << 32 | b) >> 8 * (c % 4)),
    "v_cvt_flr_i32_f32": (1, lambda a: _to_signed(a, math.floor)),
    "v_cvt_rpi_i32_f32": (1, lambda a: _to_signed(a, lambda value: math.floor(Fraction(value) + Fraction(1, 2)))),
    "v_cvt_u32_f32": (1, _to_unsigned),
    "v_cvt_i32_f32": (1, _to_signed),
}
"""Name -> number of sources, and the function of their bits; results count modulo 2^32."""

FLOATS: Mapping[str, tuple[int, Callable[..., int | None]]] = {
    "v_add_f32": (2, _sum),
    "v_sub_f32": (2, lambda a, b: _sum(a, b ^ 1 << 31)),
    "v_subrev_f32": (2, lambda a, b: _sum(b, a ^ 1 << 31)),
    "v_mul_f32": (2, _product),
    "v_fma_f32": (3, fused),
    "v_max_f32": (2, _largest),
    "v_min_f32": (2, lambda a, b: None if (at := _largest(a ^ 1 << 31, b ^ 1 << 31)) is None else at ^ 1 << 31),
    "v_mul_legacy_f32": (2, lambda a, b: 0 if a % 2**31 == 0 or b % 2**31 == 0 else _product(a, b)),
    "v_fract_f32": (1, _fraction),
    **{f"v_cvt_f32_ubyte{n}": (1, lambda a, n=n: to_float_bits(Fraction(a >> 8 * n & 255))) for n in range(4)},
    "v_cvt_f32_u32": (1, lambda a: to_float_bits(Fraction(a))),
    "v_cvt_f32_i32": (1, lambda a: to_float_bits(Fraction(signed(a)))),
}
"""Name -> number of sources, and the function of their bits; None is NaN."""

HALVES: Mapping[str, tuple[int, Callable[..., int | None]]] = {"v_cvt_f16_f32": (1, _to_half)}
"""As FLOATS, with a result of 16 bits."""
