"""What each plain vector instruction of 64-bit floats computes, and float64's fused multiply-add.

Source: AMD, "CDNA3 Instruction Set Architecture", VOP1, VOP2 and VOP3.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from fractions import Fraction
from functools import partial
from typing import Any

import numpy as np

from pytest_attnperf.isa import divisions, floats
from pytest_attnperf.isa.half_table import fraction
from pytest_attnperf.isa.vector_table import Operation

_F64 = np.float64
_SPLIT = _F64(2**27 + 1)
_LARGE, _SMALL = _F64(2.0**960), _F64(2.0**-900)


def fma_f64(a: Any, b: Any, c: Any) -> Any:
    """Returns a * b + c of float64, rounded once.

    Where product and sum lie well within the range, the product is two float64 numbers (Dekker 1971), and the lower
    one's sum with the rest, rounded to odd, makes the last rounding right (Boldo and Melquiond 2008). Elsewhere
    Fractions are added, lane by lane.
    """
    a, b, c = np.broadcast_arrays(np.asarray(a, _F64), np.asarray(b, _F64), np.asarray(c, _F64))
    product = a * b
    total = product + c
    sizes = np.abs(product)
    plain = (sizes > _SMALL) & (sizes < _LARGE) & (np.abs(a) < _LARGE) & (np.abs(b) < _LARGE) & (np.abs(c) < _LARGE)
    plain &= (np.abs(c) > _SMALL) | (c == 0)
    result = _add_product(a, b, c)
    if not plain.all():
        finite = np.isfinite(a) & np.isfinite(b)
        # A product of numbers is one, even where float64 has none for it: an infinite addend decides.
        total = np.where(finite & np.isinf(c), c, total)
        special = ~np.isfinite(total) & ~(finite & np.isfinite(c))
        result = np.where(special, total, result)
        for lane in np.flatnonzero(~plain & ~special):
            result.flat[lane] = _add_exactly(float(a.flat[lane]), float(b.flat[lane]), float(c.flat[lane]))
    return result


def _split(a: Any) -> tuple[Any, Any]:
    scaled = _SPLIT * a
    high = scaled - (scaled - a)
    return high, a - high


def _add_product(a: Any, b: Any, c: Any) -> Any:
    product = a * b
    a_high, a_low = _split(a)
    b_high, b_low = _split(b)
    error = a_low * b_low - (((product - a_high * b_high) - a_low * b_high) - a_high * b_low)
    upper = product + c
    bridge = upper - product
    lower = (product - (upper - bridge)) + (c - bridge)
    return upper + floats.add_to_odd(lower, error)


def _add_exactly(a: float, b: float, c: float) -> float:
    exact = Fraction(a) * Fraction(b) + Fraction(c)
    if exact == 0:
        return a * b + c
    try:
        return float(exact)
    except OverflowError:
        return float("inf") if exact > 0 else float("-inf")


def _frexp_exponent(a: Any) -> Any:
    return np.where(np.isfinite(a), np.frexp(a)[1], 0).astype(np.int32)


def _convert(low: int, high: int, kind: Any) -> Callable[[Any], Any]:
    return lambda a: np.nan_to_num(np.clip(np.trunc(a), low, high), nan=0.0).astype(kind)


def _f64(compute: Callable[..., Any], sources: int = 2) -> Operation:
    return Operation("f64", ("f64",) * sources, compute)


DOUBLE_OPERATIONS: Mapping[str, Operation] = {
    "v_add_f64": _f64(lambda a, b: a + b),
    "v_mul_f64": _f64(lambda a, b: a * b),
    "v_fma_f64": _f64(fma_f64, 3),
    "v_max_f64": _f64(floats.maximum),
    "v_min_f64": _f64(floats.minimum),
    "v_rcp_f64": _f64(lambda a: 1.0 / a, 1),
    "v_rsq_f64": _f64(lambda a: 1.0 / np.sqrt(a), 1),
    "v_sqrt_f64": _f64(np.sqrt, 1),
    "v_trunc_f64": _f64(np.trunc, 1),
    "v_ceil_f64": _f64(np.ceil, 1),
    "v_rndne_f64": _f64(np.rint, 1),
    "v_floor_f64": _f64(np.floor, 1),
    "v_fract_f64": _f64(fraction, 1),
    "v_frexp_mant_f64": _f64(lambda a: np.where(np.isfinite(a), np.frexp(a)[0], a), 1),
    "v_frexp_exp_i32_f64": Operation("i32", ("f64",), _frexp_exponent),
    "v_div_fixup_f64": _f64(partial(divisions.fix_up, divisions.DOUBLES), 3),
    "v_ldexp_f64": Operation("f64", ("f64", "i32"), lambda a, b: np.ldexp(a, np.clip(b, -3000, 3000))),
    "v_cvt_f32_f64": Operation("f32", ("f64",), lambda a: a.astype(np.float32)),
    "v_cvt_f64_f32": Operation("f64", ("f32",), lambda a: a.astype(_F64)),
    "v_cvt_f64_i32": Operation("f64", ("i32",), lambda a: a.astype(_F64)),
    "v_cvt_f64_u32": Operation("f64", ("u32",), lambda a: a.astype(_F64)),
    "v_cvt_i32_f64": Operation("i32", ("f64",), _convert(-(2**31), 2**31 - 1, np.int32)),
    "v_cvt_u32_f64": Operation("u32", ("f64",), _convert(0, 2**32 - 1, np.uint32)),
}
"""Name without encoding -> operation. V_RCP_F64 and V_RSQ_F64 are exact here; the units give 25 bits or more, and the
compiler's sequences that start from them end in the same result."""
