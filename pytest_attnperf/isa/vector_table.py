"""What each plain vector instruction computes: types of result and sources, and a function of numpy arrays.

Source: AMD, "CDNA3 Instruction Set Architecture", VOP1, VOP2 and VOP3. Integers wrap, as the units do.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from pytest_attnperf.isa import divisions, floats

_U32, _U64 = np.uint32, np.uint64
_FIVE, _SIX = np.uint32(31), np.uint64(63)
_LOW24 = np.uint32(0xFFFFFF)


@dataclass(frozen=True)
class Operation:
    """Types of the result and of the sources, and the function."""

    result: str
    sources: tuple[str, ...]
    compute: Callable[..., Any]


def _shift_left(amount: Any, value: Any) -> Any:
    return value << (amount & _FIVE)


def _high_product(a: Any, b: Any) -> Any:
    return (a.astype(_U64) * b.astype(_U64) >> _U64(32)).astype(_U32)


def _high_signed_product(a: Any, b: Any) -> Any:
    return (a.astype(np.int64) * b.astype(np.int64) >> np.int64(32)).astype(np.int32)


def _signed_24(a: Any) -> Any:
    return (a << np.int32(8)) >> np.int32(8)


def _extract(value: Any, offset: Any, width: Any) -> Any:
    return value >> (offset & _FIVE) & ((_U32(1) << (width & _FIVE)) - _U32(1))


def _extract_signed(value: Any, offset: Any, width: Any) -> Any:
    bits = _extract(value.view(_U32), offset, width)
    width = width & _FIVE
    sign = np.where(width > 0, _U32(1) << ((width - _U32(1)) & _FIVE), _U32(0))
    return ((bits ^ sign) - sign).view(np.int32)


def _permute_bytes(a: Any, b: Any, selector: Any) -> Any:
    """Returns 4 bytes, each chosen by a byte of `selector`: 0 to 3 of b, 4 to 7 of a, 8 to 11 the sign of b's or a's
    16-bit halves, 12 zero, more 0xff."""
    if np.ndim(selector) == 0 and not int(selector) & 0xF8F8F8F8:
        return _permute_alike(a, b, int(selector))
    a, b, selector = np.broadcast_arrays(a, b, selector)
    both = a.astype(_U64) << _U64(32) | b.astype(_U64)
    result = np.zeros(a.shape, _U32)
    for byte in range(4):
        chosen = selector >> _U32(8 * byte) & _U32(0xFF)
        plain = (both >> (chosen & _U32(7)).astype(_U64) * _U64(8)).astype(_U32) & _U32(0xFF)
        if (chosen > 7).any():
            half = (chosen.astype(_U64) - _U64(8) & _U64(3)) * _U64(16) + _U64(15)
            sign = (both >> half & _U64(1)).astype(_U32) * _U32(0xFF)
            above = np.where(chosen == 12, _U32(0), np.where(chosen > 12, _U32(0xFF), sign))
            plain = np.where(chosen > 7, above, plain)
        result |= plain << _U32(8 * byte)
    return result


def _permute_alike(a: Any, b: Any, selector: int) -> Any:
    """Returns `_permute_bytes` where all lanes choose the same of the 8 bytes: shifts of whole registers."""
    result = _U32(0)
    for byte in range(4):
        chosen = selector >> 8 * byte & 7
        source = a if chosen > 3 else b
        moved = 8 * (chosen & 3) - 8 * byte
        shifted = source >> _U32(moved) if moved > 0 else source << _U32(-moved)
        result = result | shifted & _U32(0xFF << 8 * byte)
    return result


def _reverse_bits(a: Any) -> Any:
    a = np.asarray(a)
    for shift, mask in ((1, 0x55555555), (2, 0x33333333), (4, 0x0F0F0F0F), (8, 0x00FF00FF), (16, 0x0000FFFF)):
        a = (a >> _U32(shift) & _U32(mask)) | (a & _U32(mask)) << _U32(shift)
    return a


def to_bfloat16(a: Any) -> Any:
    """Returns the 16 bits of float32 rounded to bfloat16, nearest even; a NaN stays one."""
    bits = np.asarray(a, np.float32).view(_U32)
    rounded = (bits + _U32(0x7FFF) + (bits >> _U32(16) & _U32(1))) >> _U32(16)
    return np.where(np.isnan(a), bits >> _U32(16) | _U32(0x40), rounded)


def count_bits(a: Any) -> Any:
    """Returns how many bits of uint32 are set."""
    a = a - (a >> _U32(1) & _U32(0x55555555))
    a = (a & _U32(0x33333333)) + (a >> _U32(2) & _U32(0x33333333))
    return ((a + (a >> _U32(4)) & _U32(0x0F0F0F0F)) * _U32(0x01010101)) >> _U32(24)


def _count_leading(a: Any) -> Any:
    """Returns the zeros above the highest set bit of uint32; -1 of 0."""
    a = np.asarray(a)
    _, length = np.frexp(a.astype(np.float64))
    return np.where(a == 0, _U32(0xFFFFFFFF), (32 - length).astype(_U32))


def _count_trailing(a: Any) -> Any:
    a = np.asarray(a)
    return np.where(a == 0, _U32(0xFFFFFFFF), count_bits((a & (~a + _U32(1))) - _U32(1)))


def _count_signs(a: Any) -> Any:
    """Returns the number of bits above the highest one that differs from the sign; -1 if none does."""
    bits = np.asarray(a).view(_U32)
    return _count_leading(np.where(bits >> _U32(31) != 0, ~bits, bits))


def _add_byte_differences(a: Any, b: Any, c: Any) -> Any:
    for shift in (0, 8, 16, 24):
        left, right = a >> _U32(shift) & _U32(0xFF), b >> _U32(shift) & _U32(0xFF)
        c = c + np.maximum(left, right) - np.minimum(left, right)
    return c


def _take_byte(byte: int) -> Callable[[Any], Any]:
    return lambda a: (a >> _U32(8 * byte) & _U32(0xFF)).astype(np.float32)


def _fraction(a: Any) -> Any:
    return np.minimum(a - np.floor(a), np.nextafter(np.float32(1), np.float32(0)))


def middle(a: Any, b: Any, c: Any) -> Any:
    """Returns the middle one of three numbers, element by element."""
    return np.maximum(np.minimum(a, b), np.minimum(np.maximum(a, b), c))


def _saturate(compute: Callable[[Any, Any], Any], kind: str) -> Operation:
    """Returns a sum or difference limited to its range, as the modifier clamp of integers asks for."""
    dtype: Any = {"u32": np.uint32, "i32": np.int32, "u16": np.uint16, "i16": np.int16}[kind]
    limits = np.iinfo(dtype)

    def run(a: Any, b: Any) -> Any:
        return np.clip(compute(a.astype(np.int64), b.astype(np.int64)), limits.min, limits.max).astype(dtype)

    return Operation(kind, (kind, kind), run)


def _f32(compute: Callable[..., Any], sources: int = 2) -> Operation:
    return Operation("f32", ("f32",) * sources, compute)


def _u32(compute: Callable[..., Any], sources: int = 2) -> Operation:
    return Operation("u32", ("u32",) * sources, compute)


def _i32(compute: Callable[..., Any], sources: int = 2) -> Operation:
    return Operation("i32", ("i32",) * sources, compute)


OPERATIONS: Mapping[str, Operation] = {
    "v_mov_b32": Operation("b32", ("b32",), lambda a: a),
    "v_mov_b64": Operation("b64", ("b64",), lambda a: a),
    "v_not_b32": _u32(lambda a: ~a, 1),
    "v_bfrev_b32": _u32(_reverse_bits, 1),
    # Floats.
    "v_add_f32": _f32(lambda a, b: a + b),
    "v_sub_f32": _f32(lambda a, b: a - b),
    "v_subrev_f32": _f32(lambda a, b: b - a),
    "v_mul_f32": _f32(lambda a, b: a * b),
    "v_max_f32": _f32(floats.maximum),
    "v_min_f32": _f32(floats.minimum),
    "v_fma_f32": _f32(floats.fma_f32, 3),
    "v_mad_f32": _f32(floats.multiply_add, 3),
    "v_max3_f32": _f32(lambda a, b, c: floats.maximum(floats.maximum(a, b), c), 3),
    "v_min3_f32": _f32(lambda a, b, c: floats.minimum(floats.minimum(a, b), c), 3),
    "v_med3_f32": _f32(floats.median, 3),
    "v_exp_f32": _f32(floats.exp2, 1),
    "v_log_f32": _f32(floats.log2, 1),
    "v_rcp_f32": _f32(floats.reciprocal, 1),
    "v_rcp_iflag_f32": _f32(floats.reciprocal, 1),
    "v_rsq_f32": _f32(floats.reciprocal_root, 1),
    "v_sqrt_f32": _f32(floats.root, 1),
    "v_rndne_f32": _f32(np.rint, 1),
    "v_floor_f32": _f32(np.floor, 1),
    "v_ceil_f32": _f32(np.ceil, 1),
    "v_trunc_f32": _f32(np.trunc, 1),
    "v_mul_legacy_f32": _f32(lambda a, b: np.where((a == 0) | (b == 0), np.float32(0), a * b)),
    "v_fract_f32": _f32(_fraction, 1),
    "v_sin_f32": _f32(lambda a: np.sin(2 * np.pi * a.astype(np.float64)).astype(np.float32), 1),
    "v_cos_f32": _f32(lambda a: np.cos(2 * np.pi * a.astype(np.float64)).astype(np.float32), 1),
    "v_frexp_mant_f32": _f32(lambda a: np.where(np.isfinite(a), np.frexp(a)[0], a), 1),
    "v_frexp_exp_i32_f32": Operation("i32", ("f32",), lambda a: np.where(np.isfinite(a), np.frexp(a)[1], 0)),
    "v_ldexp_f32": Operation("f32", ("f32", "i32"), floats.scale_by_power),
    "v_div_fixup_f32": _f32(partial(divisions.fix_up, divisions.FLOATS), 3),
    # Conversions.
    "v_cvt_f32_u32": Operation("f32", ("u32",), lambda a: a.astype(np.float32)),
    "v_cvt_f32_i32": Operation("f32", ("i32",), lambda a: a.astype(np.float32)),
    "v_cvt_u32_f32": Operation("u32", ("f32",), floats.convert_to_unsigned),
    "v_cvt_i32_f32": Operation("i32", ("f32",), floats.convert_to_signed),
    "v_cvt_pk_bf16_f32": Operation("u32", ("f32", "f32"), lambda a, b: to_bfloat16(a) | to_bfloat16(b) << _U32(16)),
    "v_cvt_flr_i32_f32": Operation("i32", ("f32",), lambda a: floats.convert_to_signed(np.floor(a))),
    "v_cvt_rpi_i32_f32": Operation(
        "i32", ("f32",), lambda a: floats.convert_to_signed(np.floor(a.astype(np.float64) + 0.5))
    ),
    "v_cvt_f32_bf16": Operation("f32", ("u16",), lambda a: (a.astype(_U32) << _U32(16)).view(np.float32)),
    **{f"v_cvt_f32_ubyte{byte}": Operation("f32", ("u32",), _take_byte(byte)) for byte in range(4)},
    # Integers.
    "v_add_u32": _u32(lambda a, b: a + b),
    "v_sub_u32": _u32(lambda a, b: a - b),
    "v_subrev_u32": _u32(lambda a, b: b - a),
    "v_add3_u32": _u32(lambda a, b, c: a + b + c, 3),
    "v_add_lshl_u32": _u32(lambda a, b, c: _shift_left(c, a + b), 3),
    "v_lshl_add_u32": _u32(lambda a, b, c: _shift_left(b, a) + c, 3),
    "v_lshl_or_b32": _u32(lambda a, b, c: _shift_left(b, a) | c, 3),
    "v_and_or_b32": _u32(lambda a, b, c: a & b | c, 3),
    "v_or3_b32": _u32(lambda a, b, c: a | b | c, 3),
    "v_xad_u32": _u32(lambda a, b, c: (a ^ b) + c, 3),
    "v_lshl_add_u64": Operation("u64", ("u64", "u32", "u64"), lambda a, b, c: (a << (b & _U32(7)).astype(_U64)) + c),
    "v_and_b32": _u32(lambda a, b: a & b),
    "v_or_b32": _u32(lambda a, b: a | b),
    "v_xor_b32": _u32(lambda a, b: a ^ b),
    "v_xnor_b32": _u32(lambda a, b: ~(a ^ b)),
    "v_bfi_b32": _u32(lambda a, b, c: a & b | ~a & c, 3),
    "v_bfe_u32": _u32(_extract, 3),
    "v_bfe_i32": Operation("i32", ("i32", "u32", "u32"), _extract_signed),
    "v_lshlrev_b32": _u32(_shift_left),
    "v_lshrrev_b32": _u32(lambda a, b: b >> (a & _FIVE)),
    "v_ashrrev_i32": Operation("i32", ("u32", "i32"), lambda a, b: b >> (a & _FIVE).astype(np.int32)),
    "v_lshlrev_b64": Operation("u64", ("u32", "u64"), lambda a, b: b << (a.astype(_U64) & _SIX)),
    "v_lshrrev_b64": Operation("u64", ("u32", "u64"), lambda a, b: b >> (a.astype(_U64) & _SIX)),
    "v_ashrrev_i64": Operation("i64", ("u32", "i64"), lambda a, b: b >> (a.astype(_U64) & _SIX).astype(np.int64)),
    "v_mul_lo_u32": _u32(lambda a, b: a * b),
    "v_mul_hi_u32": _u32(_high_product),
    "v_mul_hi_i32": _i32(_high_signed_product),
    "v_mul_u32_u24": _u32(lambda a, b: (a & _LOW24) * (b & _LOW24)),
    "v_mul_hi_u32_u24": _u32(lambda a, b: _high_product(a & _LOW24, b & _LOW24)),
    "v_mul_hi_i32_i24": _i32(lambda a, b: _high_signed_product(_signed_24(a), _signed_24(b))),
    "v_mul_i32_i24": _i32(lambda a, b: _signed_24(a) * _signed_24(b)),
    "v_mad_u32_u24": _u32(lambda a, b, c: (a & _LOW24) * (b & _LOW24) + c, 3),
    "v_mad_i32_i24": _i32(lambda a, b, c: _signed_24(a) * _signed_24(b) + c, 3),
    "v_min_u32": _u32(np.minimum),
    "v_max_u32": _u32(np.maximum),
    "v_min_i32": _i32(np.minimum),
    "v_max_i32": _i32(np.maximum),
    "v_min3_u32": _u32(lambda a, b, c: np.minimum(np.minimum(a, b), c), 3),
    "v_max3_u32": _u32(lambda a, b, c: np.maximum(np.maximum(a, b), c), 3),
    "v_min3_i32": _i32(lambda a, b, c: np.minimum(np.minimum(a, b), c), 3),
    "v_max3_i32": _i32(lambda a, b, c: np.maximum(np.maximum(a, b), c), 3),
    "v_med3_u32": _u32(middle, 3),
    "v_med3_i32": _i32(middle, 3),
    "v_bcnt_u32_b32": _u32(lambda a, b: count_bits(a) + b),
    "v_ffbh_u32": _u32(_count_leading, 1),
    "v_ffbl_b32": _u32(_count_trailing, 1),
    "v_ffbh_i32": Operation("u32", ("i32",), _count_signs),
    "v_bfm_b32": _u32(lambda a, b: ((_U32(1) << (a & _FIVE)) - _U32(1)) << (b & _FIVE)),
    "v_sad_u8": _u32(_add_byte_differences, 3),
    "v_sad_u32": _u32(lambda a, b, c: np.maximum(a, b) - np.minimum(a, b) + c, 3),
    "v_add_i32": _i32(lambda a, b: a + b),
    "v_sub_i32": _i32(lambda a, b: a - b),
    "v_perm_b32": _u32(_permute_bytes, 3),
    "v_alignbyte_b32": _u32(
        lambda a, b, c: ((a.astype(_U64) << _U64(32) | b) >> (c & _U32(3)).astype(_U64) * _U64(8)).astype(_U32), 3
    ),
    "v_alignbit_b32": _u32(
        lambda a, b, c: ((a.astype(_U64) << _U64(32) | b) >> (c & _FIVE).astype(_U64)).astype(_U32), 3
    ),
}
"""Name without encoding -> operation. The reversed shifts take the amount first."""

SATURATING: Mapping[str, Operation] = {
    f"v_{name}_{kind}": _saturate(compute, kind)
    for name, compute in (
        ("add", lambda a, b: a + b), ("sub", lambda a, b: a - b), ("subrev", lambda a, b: b - a)
    )
    for kind in ("u32", "i32", "u16", "i16")
}  # fmt: skip
"""Sums and differences with the modifier clamp."""

COMPARISONS: Mapping[str, Callable[[Any, Any], Any]] = {
    "f": lambda a, b: np.zeros(np.broadcast(a, b).shape, bool),
    "lt": lambda a, b: a < b,
    "eq": lambda a, b: a == b,
    "le": lambda a, b: a <= b,
    "gt": lambda a, b: a > b,
    "lg": lambda a, b: (a < b) | (a > b),
    "ne": lambda a, b: a != b,
    "ge": lambda a, b: a >= b,
    "o": lambda a, b: (a == a) & (b == b),
    "u": lambda a, b: (a != a) | (b != b),
    "nge": lambda a, b: ~(a >= b),
    "nlg": lambda a, b: ~((a < b) | (a > b)),
    "ngt": lambda a, b: ~(a > b),
    "nle": lambda a, b: ~(a <= b),
    "neq": lambda a, b: a != b,
    "nlt": lambda a, b: ~(a < b),
    "t": lambda a, b: np.ones(np.broadcast(a, b).shape, bool),
    "tru": lambda a, b: np.ones(np.broadcast(a, b).shape, bool),
}
"""V_CMP by the part of its name; 'o' is ordered, 'u' unordered, 'n..' the negation, true for NaN."""
