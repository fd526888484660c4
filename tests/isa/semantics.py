"""Short names for what instruction tests state their results with: integers of 32 bits, float32 and float16."""

from __future__ import annotations

import math
from fractions import Fraction

from tests.isa import formats
from tests.isa.formats import F16, F32, Format
from tests.isa.statements import WORD, signed

__all__ = ["WORD", "as_float", "as_half", "fused", "signed", "to_float_bits", "to_half_bits"]


def as_float(bits: int) -> float:
    """The value of 32 bits."""
    return _value(F32, bits)


def as_half(bits: int) -> float:
    """The value of 16 bits."""
    return _value(F16, bits & 0xFFFF)


def _value(form: Format, bits: int) -> float:
    if form.is_nan(bits):
        return math.nan
    size = math.inf if form.is_infinite(bits) else float(abs(form.value(bits)))
    return -size if form.is_negative(bits) else size


def to_float_bits(value: Fraction, negative_zero: bool = False) -> int:
    """The 32 bits nearest to an exact value."""
    return F32.encode(value, negative_zero=negative_zero)


def to_half_bits(value: Fraction, negative_zero: bool = False) -> int:
    """The 16 bits nearest to an exact value."""
    return F16.encode(value, negative_zero=negative_zero)


def fused(a: int, b: int, c: int) -> int | None:
    """a * b + c of float32 bits, rounded once; None is NaN."""
    return formats.fused(F32, a, b, c)
