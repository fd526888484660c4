"""Floating-point arithmetic of the vector units, on numpy arrays or scalars.

Rounding to nearest even, denormals kept, IEEE mode: the state in which compilers start a kernel on gfx9. Every NaN is
as good as another. Source: AMD, "CDNA3 Instruction Set Architecture".
"""

from __future__ import annotations

from typing import Any

import numpy as np

_TIE, _TAIL = np.uint64(1 << 28), np.uint64((1 << 29) - 1)
_SMALLEST = np.float64(2.0**-126)
_ONE = np.uint64(1)


def fma_f32(a: Any, b: Any, c: Any) -> Any:
    """Returns a * b + c of float32, rounded once.

    In float64 the product is exact and the sum rounded; rounding it again to float32 differs only where the first
    result lies on a tie, or below the normal numbers. There the sum is rounded to odd first, which makes the second
    rounding right (Boldo and Melquiond 2008, "Emulation of a FMA and correctly rounded sums").
    """
    product = np.multiply(a, b, dtype=np.float64)
    total = product + c
    bits = total.view(np.uint64)
    if np.count_nonzero((bits & _TAIL) == _TIE) or np.count_nonzero((np.abs(total) < _SMALLEST) & (total != 0)):
        return add_to_odd(product, np.asarray(c, np.float64)).astype(np.float32)
    return total.astype(np.float32)


def add_to_odd(a: Any, b: Any) -> Any:
    """Returns a + b of float64, rounded to odd: where inexact, the neighbour of the exact sum whose last bit is 1."""
    total = a + b
    bridge = total - a
    error = (a - (total - bridge)) + (b - bridge)
    bits = total.view(np.uint64)
    inexact = np.isfinite(total) & (error != 0) & ((bits & _ONE) == 0)
    toward = np.where((error > 0) == (total > 0), bits + _ONE, bits - _ONE)
    return np.where(inexact, toward, bits).view(np.float64)


def flush(value: Any) -> Any:
    """Returns float32 with denormals replaced by zeros of their sign."""
    return np.where(np.abs(value) < np.float32(2.0**-126), np.copysign(np.float32(0), value), value)


def flush_half(value: Any) -> Any:
    """Returns float16 with denormals replaced by zeros of their sign."""
    return np.where(np.abs(value) < np.float16(2.0**-14), np.copysign(np.float16(0), value), value)


def multiply_add(a: Any, b: Any, c: Any) -> Any:
    """Returns a * b + c of float32, each rounded, denormals flushed (V_MAD_F32 and V_MAC_F32 of gfx90a)."""
    return flush(flush(flush(a) * flush(b)) + flush(c))


def exp2(a: Any) -> Any:
    """Returns 2^a (V_EXP_F32: 1 ulp, denormals flushed)."""
    return flush(np.exp2(flush(a).astype(np.float64)).astype(np.float32))


def log2(a: Any) -> Any:
    """Returns log2(a) (V_LOG_F32: 1 ulp, denormals flushed)."""
    return np.log2(flush(a).astype(np.float64)).astype(np.float32)


def reciprocal(a: Any) -> Any:
    """Returns 1 / a (V_RCP_F32: 1 ulp, denormals flushed)."""
    return flush((1.0 / flush(a).astype(np.float64)).astype(np.float32))


def reciprocal_root(a: Any) -> Any:
    """Returns 1 / sqrt(a) (V_RSQ_F32: 1 ulp, denormals flushed)."""
    return flush((1.0 / np.sqrt(flush(a).astype(np.float64))).astype(np.float32))


def root(a: Any) -> Any:
    """Returns sqrt(a) (V_SQRT_F32: 1 ulp, denormals flushed)."""
    return np.sqrt(flush(a).astype(np.float64)).astype(np.float32)


def maximum(a: Any, b: Any) -> Any:
    """Returns the larger; of a number and NaN the number; +0 above -0."""
    found = np.fmax(a, b)
    if (found == 0).any():
        return np.where((a == b) & (found == 0), a + b, found)
    return found


def minimum(a: Any, b: Any) -> Any:
    """Returns the smaller; of a number and NaN the number; -0 below +0."""
    return -maximum(-a, -b)


def median(a: Any, b: Any, c: Any) -> Any:
    """Returns the middle one of three (V_MED3_F32); with a NaN the smallest number."""
    middle = maximum(minimum(a, b), minimum(maximum(a, b), c))
    invalid = np.isnan(a) | np.isnan(b) | np.isnan(c)
    return np.where(invalid, minimum(minimum(a, b), c), middle)


def scale_by_power(a: Any, power: Any) -> Any:
    """Returns a * 2^power (V_LDEXP_F32)."""
    return np.ldexp(np.float64(a), np.clip(power, -1000, 1000)).astype(np.float32)


def convert_to_unsigned(a: Any) -> Any:
    """Returns uint32 of float32, towards zero, limited to its range; NaN gives 0."""
    return np.nan_to_num(np.clip(np.trunc(np.float64(a)), 0, 2**32 - 1), nan=0.0).astype(np.uint32)


def convert_to_signed(a: Any) -> Any:
    """Returns int32 of float32, towards zero, limited to its range; NaN gives 0."""
    return np.nan_to_num(np.clip(np.trunc(np.float64(a)), -(2**31), 2**31 - 1), nan=0.0).astype(np.int32)


def is_of_class(a: Any, classes: Any) -> Any:
    """Returns whether a float is of one of the classes whose bits are set (V_CMP_CLASS): 0 signaling NaN, 1 quiet NaN,
    2 -infinity, 3 -normal, 4 -denormal, 5 -0, 6 +0, 7 +denormal, 8 +normal, 9 +infinity."""
    a = np.asarray(a)
    width, mantissa = {2: (np.uint16, 10), 4: (np.uint32, 23), 8: (np.uint64, 52)}[a.dtype.itemsize]
    bits, smallest = a.view(width), np.finfo(a.dtype).smallest_normal
    quiet = bits >> width(mantissa - 1) & width(1) != 0
    kind = np.select([np.isinf(a), a == 0, np.abs(a) < smallest], [0, 3, 2], 1)
    place = np.where(np.signbit(a), 2 + kind, 9 - kind)
    place = np.where(np.isnan(a), quiet, place)
    return (np.asarray(classes) >> place.astype(np.uint32) & np.uint32(1)) != 0
