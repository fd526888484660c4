"""What plain vector instructions compute, stated a second time: from AMD's documents, in Python's integers and
fractions, one lane at a time, without numpy.

A statement takes the bits of its sources and returns those of its result, None for NaN. Integers count modulo the
width of the result.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fractions import Fraction

from tests.isa.formats import (
    BF16,
    F16,
    F32,
    F64,
    FORMATS,
    Format,
    add,
    convert,
    fraction,
    fused,
    largest,
    median,
    multiply,
    scale,
    smallest,
    split,
    to_integer,
    to_whole,
)  # fmt: skip

WORD = 2**32 - 1


@dataclass(frozen=True)
class Statement:
    """Types of the result and of the sources, and the function of their bits."""

    result: str
    sources: tuple[str, ...]
    compute: Callable[..., int | None]


def signed(value: int, bits: int = 32) -> int:
    """The low bits as a two's complement number."""
    value %= 1 << bits
    return value - (1 << bits) if value >= 1 << (bits - 1) else value


def _chosen_byte(a: int, b: int, selector: int) -> int:
    pool = [b >> 8 * at & 255 for at in range(4)] + [a >> 8 * at & 255 for at in range(4)]
    if selector <= 7:
        return pool[selector]
    if selector <= 11:
        return 255 if pool[2 * (selector - 8) + 1] >> 7 else 0
    return 0 if selector == 12 else 255


def _words(compute: Callable[..., int], sources: int = 2, kind: str = "u32") -> Statement:
    return Statement(kind, (kind,) * sources, compute)


def _of_signed(compute: Callable[..., int], sources: int = 2, kind: str = "i32") -> Statement:
    bits = int(kind[1:])
    return Statement(kind, (kind,) * sources, lambda *each: compute(*(signed(one, bits) for one in each)))


def _middle(*each: int) -> int:
    return sorted(each)[1]


def _leading(a: int) -> int:
    return 32 - a.bit_length() if a else -1


def _bytes(a: int) -> list[int]:
    return [a >> 8 * at & 255 for at in range(4)]


_INTEGERS: Mapping[str, Statement] = {
    "v_mov_b32": Statement("b32", ("b32",), lambda a: a),
    "v_mov_b64": Statement("b64", ("b64",), lambda a: a),
    "v_not_b32": _words(lambda a: ~a, 1),
    "v_bfrev_b32": _words(lambda a: int(f"{a:032b}"[::-1], 2), 1),
    "v_add_u32": _words(lambda a, b: a + b),
    "v_sub_u32": _words(lambda a, b: a - b),
    "v_subrev_u32": _words(lambda a, b: b - a),
    "v_add_i32": _of_signed(lambda a, b: a + b),
    "v_sub_i32": _of_signed(lambda a, b: a - b),
    "v_add3_u32": _words(lambda a, b, c: a + b + c, 3),
    "v_add_lshl_u32": _words(lambda a, b, c: (a + b) * 2 ** (c % 32), 3),
    "v_lshl_add_u32": _words(lambda a, b, c: a * 2 ** (b % 32) + c, 3),
    "v_lshl_or_b32": _words(lambda a, b, c: a * 2 ** (b % 32) % 2**32 | c, 3),
    "v_and_or_b32": _words(lambda a, b, c: (a & b) | c, 3),
    "v_or3_b32": _words(lambda a, b, c: a | b | c, 3),
    "v_xor3_b32": _words(lambda a, b, c: a ^ b ^ c, 3),
    "v_xad_u32": _words(lambda a, b, c: (a ^ b) + c, 3),
    # The amount has three bits, and 5 to 7 give no result that compilers use.
    "v_lshl_add_u64": Statement("u64", ("u64", "u32", "u64"), lambda a, b, c: a * 2 ** (b % 8) + c),
    "v_and_b32": _words(lambda a, b: a & b),
    "v_or_b32": _words(lambda a, b: a | b),
    "v_xor_b32": _words(lambda a, b: a ^ b),
    "v_xnor_b32": _words(lambda a, b: ~(a ^ b)),
    "v_bfi_b32": _words(lambda a, b, c: (a & b) | (~a & c), 3),
    "v_bfm_b32": _words(lambda a, b: (2 ** (a % 32) - 1) * 2 ** (b % 32)),
    "v_bfe_u32": _words(lambda a, b, c: a // 2 ** (b % 32) % 2 ** (c % 32), 3),
    "v_bfe_i32": Statement(
        "i32", ("i32", "u32", "u32"), lambda a, b, c: signed(a // 2 ** (b % 32), c % 32) if c % 32 else 0
    ),
    "v_lshlrev_b32": _words(lambda a, b: b * 2 ** (a % 32)),
    "v_lshrrev_b32": _words(lambda a, b: b // 2 ** (a % 32)),
    "v_ashrrev_i32": Statement("i32", ("u32", "i32"), lambda a, b: signed(b) // 2 ** (a % 32)),
    "v_lshlrev_b64": Statement("u64", ("u32", "u64"), lambda a, b: b * 2 ** (a % 64)),
    "v_lshrrev_b64": Statement("u64", ("u32", "u64"), lambda a, b: b // 2 ** (a % 64)),
    "v_ashrrev_i64": Statement("i64", ("u32", "i64"), lambda a, b: signed(b, 64) // 2 ** (a % 64)),
    "v_mul_lo_u32": _words(lambda a, b: a * b),
    "v_mul_hi_u32": _words(lambda a, b: a * b // 2**32),
    "v_mul_hi_i32": _of_signed(lambda a, b: a * b // 2**32),
    "v_mul_u32_u24": _words(lambda a, b: (a % 2**24) * (b % 2**24)),
    "v_mul_hi_u32_u24": _words(lambda a, b: (a % 2**24) * (b % 2**24) // 2**32),
    "v_mul_i32_i24": _of_signed(lambda a, b: signed(a, 24) * signed(b, 24)),
    "v_mul_hi_i32_i24": _of_signed(lambda a, b: signed(a, 24) * signed(b, 24) // 2**32),
    "v_mad_u32_u24": _words(lambda a, b, c: (a % 2**24) * (b % 2**24) + c, 3),
    "v_mad_i32_i24": _of_signed(lambda a, b, c: signed(a, 24) * signed(b, 24) + c, 3),
    "v_min_u32": _words(min),
    "v_max_u32": _words(max),
    "v_min_i32": _of_signed(min),
    "v_max_i32": _of_signed(max),
    **{f"v_{name}3_u32": _words(rule, 3) for name, rule in (("min", min), ("max", max), ("med", _middle))},
    **{f"v_{name}3_i32": _of_signed(rule, 3) for name, rule in (("min", min), ("max", max), ("med", _middle))},
    "v_bcnt_u32_b32": _words(lambda a, b: a.bit_count() + b),
    "v_ffbh_u32": _words(_leading, 1),
    "v_ffbl_b32": _words(lambda a: (a & -a).bit_length() - 1, 1),
    "v_ffbh_i32": Statement("u32", ("i32",), lambda a: _leading(a ^ WORD if a >> 31 else a)),
    "v_sad_u8": _words(lambda a, b, c: c + sum(abs(x - y) for x, y in zip(_bytes(a), _bytes(b), strict=True)), 3),
    "v_sad_u32": _words(lambda a, b, c: abs(a - b) + c, 3),
    "v_perm_b32": _words(
        lambda a, b, c: sum(_chosen_byte(a, b, selector) << 8 * at for at, selector in enumerate(_bytes(c))), 3
    ),
    "v_alignbit_b32": _words(lambda a, b, c: (a << 32 | b) >> c % 32, 3),
    "v_alignbyte_b32": _words(lambda a, b, c: (a << 32 | b) >> 8 * (c % 4), 3),
}

_HALF_INTEGERS: Mapping[str, Statement] = {
    **{
        f"v_{name}_u16": _words(rule, 2, "u16")
        for name, rule in (
            ("add", lambda a, b: a + b), ("sub", lambda a, b: a - b), ("subrev", lambda a, b: b - a),
            ("mul_lo", lambda a, b: a * b), ("min", min), ("max", max),
        )
    },
    **{
        f"v_{name}_i16": _of_signed(rule, 2, "i16")
        for name, rule in (("add", lambda a, b: a + b), ("sub", lambda a, b: a - b), ("min", min), ("max", max))
    },
    **{f"v_{name}_u16": _words(lambda a, b, c: a * b + c, 3, "u16") for name in ("mad", "mad_legacy")},
    **{f"v_{name}_i16": _of_signed(lambda a, b, c: a * b + c, 3, "i16") for name in ("mad", "mad_legacy")},
    **{f"v_{name}3_u16": _words(rule, 3, "u16") for name, rule in (("min", min), ("max", max), ("med", _middle))},
    **{f"v_{name}3_i16": _of_signed(rule, 3, "i16") for name, rule in (("min", min), ("max", max), ("med", _middle))},
    "v_mad_u32_u16": Statement("u32", ("u16", "u16", "u32"), lambda a, b, c: a * b + c),
    "v_mad_i32_i16": Statement("i32", ("i16", "i16", "i32"), lambda a, b, c: signed(a, 16) * signed(b, 16) + c),
    "v_lshlrev_b16": _words(lambda a, b: b * 2 ** (a % 16), 2, "u16"),
    "v_lshrrev_b16": _words(lambda a, b: b // 2 ** (a % 16), 2, "u16"),
    "v_ashrrev_i16": Statement("i16", ("u16", "i16"), lambda a, b: signed(b, 16) // 2 ** (a % 16)),
    "v_pack_b32_f16": Statement("u32", ("f16", "f16"), lambda a, b: a | b << 16),
}  # fmt: skip


def _of_floats(kind: str) -> dict[str, Statement]:
    """The statements that every format shares."""
    form = FORMATS[kind]

    def state(compute: Callable[..., int | None], sources: int = 2) -> Statement:
        return Statement(kind, (kind,) * sources, lambda *each: compute(form, *each))

    rules = {"rndne": round, "floor": math.floor, "ceil": math.ceil, "trunc": math.trunc}
    return {
        f"v_add_{kind}": state(add),
        f"v_sub_{kind}": state(lambda form, a, b: add(form, a, b ^ form.sign)),
        f"v_subrev_{kind}": state(lambda form, a, b: add(form, b, a ^ form.sign)),
        f"v_mul_{kind}": state(multiply),
        f"v_fma_{kind}": state(fused, 3),
        f"v_max_{kind}": state(largest),
        f"v_min_{kind}": state(smallest),
        f"v_max3_{kind}": state(largest, 3),
        f"v_min3_{kind}": state(smallest, 3),
        f"v_med3_{kind}": state(median, 3),
        f"v_fract_{kind}": state(fraction, 1),
        f"v_frexp_mant_{kind}": state(lambda form, a: split(form, a)[0], 1),
        f"v_div_fixup_{kind}": state(_fix_division, 3),
        **{
            f"v_{name}_{kind}": state(lambda form, a, rule=rule: to_whole(form, rule, a), 1)
            for name, rule in rules.items()
        },
    }


def _fix_division(form: Format, quotient: int, denominator: int, numerator: int) -> int | None:
    """The quotient, or the result of IEEE 754 where an operand is special."""
    sign = (denominator ^ numerator) & form.sign
    zeros = [not one & (form.sign - 1) for one in (denominator, numerator)]
    infinities = [form.is_infinite(one) for one in (denominator, numerator)]
    if form.is_nan(denominator) or form.is_nan(numerator) or all(zeros) or all(infinities):
        return None
    if zeros[0] or infinities[1]:
        return sign | form.infinity
    if infinities[0] or zeros[1]:
        return sign
    exponents = [one >> form.mantissa & (form.infinity >> form.mantissa) for one in (denominator, numerator)]
    limit = {32: -150, 64: -1075}.get(form.width)
    if limit is not None and exponents[1] - exponents[0] < limit:
        return sign
    if form.is_nan(quotient):
        # A quotient of numbers that overflowed on its way.
        return None if form is F16 else sign | form.infinity
    return sign | quotient & (form.sign - 1)


def _legacy_product(a: int, b: int) -> int | None:
    zero = not a & (F32.sign - 1) or not b & (F32.sign - 1)
    return 0 if zero else multiply(F32, a, b)


def _pair(form: Format, rule: Callable[[Fraction], int] = round) -> Callable[[int, int], int]:
    """Two float32 values in the halves of a word; their NaNs are quiet ones."""

    def pack(a: int, b: int) -> int:
        low, high = (convert(F32, form, one, rule) for one in (a, b))
        return (0xFFFF if low is None else low) | (0xFFFF if high is None else high) << 16

    return pack


def _flushed(bits: int) -> int:
    return bits if bits & F32.infinity else bits & F32.sign


def _product_and_sum(a: int, b: int, c: int) -> int | None:
    """a * b + c, each rounded, of float32 without denormals."""
    product = multiply(F32, _flushed(a), _flushed(b))
    total = None if product is None else add(F32, _flushed(product), _flushed(c))
    return None if total is None else _flushed(total)


_SIGNED, _UNSIGNED = (-(2**31), 2**31 - 1), (0, WORD)

_CONVERSIONS: Mapping[str, Statement] = {
    "v_mul_legacy_f32": Statement("f32", ("f32", "f32"), _legacy_product),
    "v_mad_f32": Statement("f32", ("f32",) * 3, _product_and_sum),
    "v_frexp_exp_i32_f32": Statement("i32", ("f32",), lambda a: split(F32, a)[1]),
    "v_frexp_exp_i32_f64": Statement("i32", ("f64",), lambda a: split(F64, a)[1]),
    "v_frexp_exp_i16_f16": Statement("i16", ("f16",), lambda a: split(F16, a)[1]),
    "v_ldexp_f32": Statement("f32", ("f32", "i32"), lambda a, b: scale(F32, a, signed(b))),
    "v_ldexp_f64": Statement("f64", ("f64", "i32"), lambda a, b: scale(F64, a, signed(b))),
    "v_ldexp_f16": Statement("f16", ("f16", "i16"), lambda a, b: scale(F16, a, signed(b, 16))),
    "v_cvt_f16_f32": Statement("f16", ("f32",), lambda a: convert(F32, F16, a)),
    "v_cvt_f32_f16": Statement("f32", ("f16",), lambda a: convert(F16, F32, a)),
    "v_cvt_f32_bf16": Statement("f32", ("u16",), lambda a: convert(BF16, F32, a)),
    "v_cvt_f32_f64": Statement("f32", ("f64",), lambda a: convert(F64, F32, a)),
    "v_cvt_f64_f32": Statement("f64", ("f32",), lambda a: convert(F32, F64, a)),
    "v_cvt_f32_u32": Statement("f32", ("u32",), lambda a: F32.encode(Fraction(a))),
    "v_cvt_f32_i32": Statement("f32", ("i32",), lambda a: F32.encode(Fraction(signed(a)))),
    "v_cvt_f64_u32": Statement("f64", ("u32",), lambda a: F64.encode(Fraction(a))),
    "v_cvt_f64_i32": Statement("f64", ("i32",), lambda a: F64.encode(Fraction(signed(a)))),
    "v_cvt_f16_u16": Statement("f16", ("u16",), lambda a: F16.encode(Fraction(a))),
    "v_cvt_f16_i16": Statement("f16", ("i16",), lambda a: F16.encode(Fraction(signed(a, 16)))),
    "v_cvt_u32_f32": Statement("u32", ("f32",), lambda a: to_integer(F32, *_UNSIGNED, a)),
    "v_cvt_i32_f32": Statement("i32", ("f32",), lambda a: to_integer(F32, *_SIGNED, a)),
    "v_cvt_u32_f64": Statement("u32", ("f64",), lambda a: to_integer(F64, *_UNSIGNED, a)),
    "v_cvt_i32_f64": Statement("i32", ("f64",), lambda a: to_integer(F64, *_SIGNED, a)),
    "v_cvt_u16_f16": Statement("u16", ("f16",), lambda a: to_integer(F16, 0, 2**16 - 1, a)),
    "v_cvt_i16_f16": Statement("i16", ("f16",), lambda a: to_integer(F16, -(2**15), 2**15 - 1, a)),
    "v_cvt_flr_i32_f32": Statement("i32", ("f32",), lambda a: to_integer(F32, *_SIGNED, a, math.floor)),
    "v_cvt_rpi_i32_f32": Statement(
        "i32", ("f32",), lambda a: to_integer(F32, *_SIGNED, a, lambda x: math.floor(x + Fraction(1, 2)))
    ),
    **{f"v_cvt_f32_ubyte{at}": Statement("f32", ("u32",), lambda a, at=at: F32.encode(Fraction(_bytes(a)[at])))
       for at in range(4)},
    "v_cvt_pk_f16_f32": Statement("u32", ("f32", "f32"), _pair(F16)),
    "v_cvt_pk_bf16_f32": Statement("u32", ("f32", "f32"), _pair(BF16)),
    "v_cvt_pkrtz_f16_f32": Statement("u32", ("f32", "f32"), _pair(F16, math.trunc)),
}  # fmt: skip

STATEMENTS: Mapping[str, Statement] = {
    **_INTEGERS, **_HALF_INTEGERS, **_of_floats("f32"), **_of_floats("f16"), **_of_floats("f64"), **_CONVERSIONS,
}  # fmt: skip
"""Name without encoding -> statement."""

KEPT = frozenset(f"v_{name}" for name in ("fma_f16", "mad_f16", "mad_u16", "mad_i16", "div_fixup_f16"))
"""Instructions of gfx9 that leave the upper half of their result as it was (LLVM, `zeroesHigh16BitsOfDest`)."""

PAIRS = {"v_cvt_pk_f16_f32": F16, "v_cvt_pk_bf16_f32": BF16, "v_cvt_pkrtz_f16_f32": F16}
"""Instructions whose result is two floats in one word."""

SATURATING: Mapping[str, Statement] = {
    name: Statement(
        kind, (kind, kind),
        lambda a, b, kind=kind, rule=rule: _limit(kind, rule(*(_number(kind, one) for one in (a, b)))),
    )
    for kind in ("u32", "i32", "u16", "i16")
    for name, rule in (
        (f"v_add_{kind}", lambda a, b: a + b),
        (f"v_sub_{kind}", lambda a, b: a - b),
        (f"v_subrev_{kind}", lambda a, b: b - a),
    )
}  # fmt: skip
"""Sums and differences with the modifier clamp, limited to the range of their type."""


def _number(kind: str, bits: int) -> int:
    return signed(bits, int(kind[1:])) if kind[0] == "i" else bits


def _limit(kind: str, value: int) -> int:
    width = int(kind[1:])
    low, high = (-(1 << (width - 1)), (1 << (width - 1)) - 1) if kind[0] == "i" else (0, (1 << width) - 1)
    return max(low, min(high, value))
