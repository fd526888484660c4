"""What each plain vector instruction of 16-bit values computes; the conversions between widths are among them.

Source: AMD, "CDNA3 Instruction Set Architecture", VOP1, VOP2 and VOP3; "CDNA4" for what gfx950 adds.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np

from pytest_attnperf.isa import divisions, floats
from pytest_attnperf.isa.vector_table import Operation, middle

_F16, _F64 = np.float16, np.float64
_ONE, _HALF_BITS = np.uint16(1), np.uint32(16)

UPPER_HALF_KEPT = frozenset(
    f"v_{name}" for name in ("fma_f16", "mad_f16", "mad_u16", "mad_i16", "div_fixup_f16")
)  # fmt: skip
"""Instructions of gfx9 that leave the upper half of their destination as it was; the others clear it. LLVM lists those
that clear (`GCNSubtarget::zeroesHigh16BitsOfDest`), the documents state it of the legacy forms of these."""


def fma_f16(a: Any, b: Any, c: Any) -> Any:
    """Returns a * b + c of float16, rounded once: the product is exact in float64, and its sum is rounded to odd."""
    product = np.multiply(a, b, dtype=_F64)
    addend = np.asarray(c, _F64)
    return floats.add_to_odd(product, addend).astype(_F16)


def _through_f64(compute: Callable[[Any], Any]) -> Callable[[Any], Any]:
    return lambda a: compute(np.asarray(a, _F64)).astype(_F16)


def fraction(a: Any) -> Any:
    """Returns a minus its floor, below 1 (V_FRACT)."""
    kind = np.asarray(a).dtype.type
    return np.minimum(a - np.floor(a), np.nextafter(kind(1), kind(0)))


def _exponent_of(a: Any) -> Any:
    _, exponent = np.frexp(np.asarray(a, np.float32))
    return np.where(np.isfinite(a), exponent, 0).astype(np.int16)


def _mantissa_of(a: Any) -> Any:
    mantissa, _ = np.frexp(np.asarray(a, np.float32))
    return np.where(np.isfinite(a), mantissa, a).astype(_F16)


def to_half_toward_zero(a: Any) -> Any:
    """Returns float16 of float32, rounded towards zero (V_CVT_PKRTZ_F16_F32)."""
    a = np.asarray(a)
    near = a.astype(_F16)
    # A finite value beyond the largest one is that, and one that was rounded away from zero is its neighbour.
    away = np.abs(near.astype(np.float32)) > np.abs(a)
    bits = near.view(np.uint16)
    return np.where(away, bits - _ONE, bits).view(_F16)


def _pack(a: Any, b: Any) -> Any:
    return a.view(np.uint16).astype(np.uint32) | b.view(np.uint16).astype(np.uint32) << _HALF_BITS


def _convert(low: int, high: int, kind: Any) -> Callable[[Any], Any]:
    def convert(a: Any) -> Any:
        return np.nan_to_num(np.clip(np.trunc(np.asarray(a, _F64)), low, high), nan=0.0).astype(kind)

    return convert


def _f16(compute: Callable[..., Any], sources: int = 2) -> Operation:
    return Operation("f16", ("f16",) * sources, compute)


def _u16(compute: Callable[..., Any], sources: int = 2) -> Operation:
    return Operation("u16", ("u16",) * sources, compute)


def _i16(compute: Callable[..., Any], sources: int = 2) -> Operation:
    return Operation("i16", ("i16",) * sources, compute)


def _three(first: Callable[..., Any], second: Callable[..., Any]) -> Callable[..., Any]:
    return lambda a, b, c: second(first(a, b), c)


HALF_OPERATIONS: Mapping[str, Operation] = {
    "v_add_f16": _f16(lambda a, b: a + b),
    "v_sub_f16": _f16(lambda a, b: a - b),
    "v_subrev_f16": _f16(lambda a, b: b - a),
    "v_mul_f16": _f16(lambda a, b: a * b),
    "v_max_f16": _f16(floats.maximum),
    "v_min_f16": _f16(floats.minimum),
    "v_max3_f16": _f16(_three(floats.maximum, floats.maximum), 3),
    "v_min3_f16": _f16(_three(floats.minimum, floats.minimum), 3),
    "v_med3_f16": _f16(floats.median, 3),
    "v_fma_f16": _f16(fma_f16, 3),
    "v_div_fixup_f16": _f16(partial(divisions.fix_up, divisions.HALVES), 3),
    "v_exp_f16": _f16(_through_f64(np.exp2), 1),
    "v_log_f16": _f16(_through_f64(np.log2), 1),
    "v_rcp_f16": _f16(_through_f64(lambda a: 1.0 / a), 1),
    "v_rsq_f16": _f16(_through_f64(lambda a: 1.0 / np.sqrt(a)), 1),
    "v_sqrt_f16": _f16(_through_f64(np.sqrt), 1),
    "v_rndne_f16": _f16(np.rint, 1),
    "v_floor_f16": _f16(np.floor, 1),
    "v_ceil_f16": _f16(np.ceil, 1),
    "v_trunc_f16": _f16(np.trunc, 1),
    "v_fract_f16": _f16(fraction, 1),
    "v_frexp_mant_f16": _f16(_mantissa_of, 1),
    "v_frexp_exp_i16_f16": Operation("i16", ("f16",), _exponent_of),
    "v_ldexp_f16": Operation("f16", ("f16", "i16"), lambda a, b: np.ldexp(_F64(a), np.int32(b)).astype(_F16)),
    "v_cvt_f16_f32": Operation("f16", ("f32",), lambda a: a.astype(_F16)),
    "v_cvt_f32_f16": Operation("f32", ("f16",), lambda a: a.astype(np.float32)),
    "v_cvt_f16_u16": Operation("f16", ("u16",), lambda a: a.astype(np.float32).astype(_F16)),
    "v_cvt_f16_i16": Operation("f16", ("i16",), lambda a: a.astype(_F16)),
    "v_cvt_u16_f16": Operation("u16", ("f16",), _convert(0, 65535, np.uint16)),
    "v_cvt_i16_f16": Operation("i16", ("f16",), _convert(-32768, 32767, np.int16)),
    "v_cvt_pk_f16_f32": Operation("u32", ("f32", "f32"), lambda a, b: _pack(a.astype(_F16), b.astype(_F16))),
    "v_cvt_pkrtz_f16_f32": Operation(
        "u32", ("f32", "f32"), lambda a, b: _pack(to_half_toward_zero(a), to_half_toward_zero(b))
    ),
    "v_pack_b32_f16": Operation("u32", ("f16", "f16"), _pack),
    "v_add_u16": _u16(lambda a, b: a + b),
    "v_sub_u16": _u16(lambda a, b: a - b),
    "v_subrev_u16": _u16(lambda a, b: b - a),
    "v_add_i16": _i16(lambda a, b: a + b),
    "v_sub_i16": _i16(lambda a, b: a - b),
    "v_mul_lo_u16": _u16(lambda a, b: a * b),
    "v_mad_u16": _u16(lambda a, b, c: a * b + c, 3),
    "v_mad_i16": _i16(lambda a, b, c: a * b + c, 3),
    "v_mad_legacy_u16": _u16(lambda a, b, c: a * b + c, 3),
    "v_mad_legacy_i16": _i16(lambda a, b, c: a * b + c, 3),
    "v_mad_u32_u16": Operation("u32", ("u16", "u16", "u32"), lambda a, b, c: np.uint32(a) * np.uint32(b) + c),
    "v_mad_i32_i16": Operation("i32", ("i16", "i16", "i32"), lambda a, b, c: np.int32(a) * np.int32(b) + c),
    "v_lshlrev_b16": _u16(lambda a, b: b << (a & np.uint16(15))),
    "v_lshrrev_b16": _u16(lambda a, b: b >> (a & np.uint16(15))),
    "v_ashrrev_i16": Operation("i16", ("u16", "i16"), lambda a, b: b >> (a & np.uint16(15)).astype(np.int16)),
    "v_min_u16": _u16(np.minimum),
    "v_max_u16": _u16(np.maximum),
    "v_min_i16": _i16(np.minimum),
    "v_max_i16": _i16(np.maximum),
    "v_min3_u16": _u16(_three(np.minimum, np.minimum), 3),
    "v_max3_u16": _u16(_three(np.maximum, np.maximum), 3),
    "v_min3_i16": _i16(_three(np.minimum, np.minimum), 3),
    "v_max3_i16": _i16(_three(np.maximum, np.maximum), 3),
    "v_med3_u16": _u16(middle, 3),
    "v_med3_i16": _i16(middle, 3),
}
"""Name without encoding -> operation."""
