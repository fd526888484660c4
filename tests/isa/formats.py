"""Floating-point formats in Python's integers and fractions: every value exact, every result rounded once.

Shares nothing with the interpreter, which computes in numpy. None is NaN: every NaN is as good as another.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction

Rounding = Callable[[Fraction], int]
"""A rule that makes an integer of a fraction: `round` (to nearest even), math.floor, math.ceil, math.trunc."""


@dataclass(frozen=True)
class Format:
    """A binary format of `width` bits, of which `mantissa` are stored of the significand."""

    width: int
    mantissa: int

    @property
    def bias(self) -> int:
        """Of the exponent."""
        return (1 << (self.width - 2 - self.mantissa)) - 1

    @property
    def sign(self) -> int:
        """The bit of the sign."""
        return 1 << (self.width - 1)

    @property
    def infinity(self) -> int:
        """The bits of infinity."""
        return ((1 << (self.width - 1 - self.mantissa)) - 1) << self.mantissa

    def is_nan(self, bits: int) -> bool:
        """Whether the bits are a NaN."""
        return bits & (self.sign - 1) > self.infinity

    def is_infinite(self, bits: int) -> bool:
        """Whether the bits are an infinity."""
        return bits & (self.sign - 1) == self.infinity

    def is_negative(self, bits: int) -> bool:
        """Whether the sign is set."""
        return bool(bits & self.sign)

    def value(self, bits: int) -> Fraction:
        """The number that finite bits stand for."""
        exponent = bits >> self.mantissa & ((1 << (self.width - 1 - self.mantissa)) - 1)
        significand = bits & ((1 << self.mantissa) - 1)
        if exponent:
            significand |= 1 << self.mantissa
        size = Fraction(significand) * Fraction(2) ** (max(exponent, 1) - self.bias - self.mantissa)
        return -size if bits & self.sign else size

    def encode(self, value: Fraction, *, negative_zero: bool = False, rule: Rounding = round) -> int:
        """The bits nearest to a number; ties go to the even one. A magnitude beyond the range is infinity."""
        if value == 0:
            return self.sign if negative_zero else 0
        size = abs(value)
        exponent = size.numerator.bit_length() - size.denominator.bit_length()
        if size < Fraction(2) ** exponent:
            exponent -= 1
        exponent = max(exponent, 1 - self.bias)
        steps = rule(size / Fraction(2) ** (exponent - self.mantissa))
        bits = steps + ((exponent - (1 - self.bias)) << self.mantissa)
        return (self.sign if value < 0 else 0) | min(bits, self.infinity)

    def order(self, bits: int) -> tuple[Fraction | float, bool]:
        """A key by which numbers are ordered, -0 below +0."""
        infinite = -math.inf if self.is_negative(bits) else math.inf
        return (infinite if self.is_infinite(bits) else self.value(bits), not self.is_negative(bits))


F16, BF16, F32, F64 = Format(16, 10), Format(16, 7), Format(32, 23), Format(64, 52)
FORMATS = {"f16": F16, "bf16": BF16, "f32": F32, "f64": F64}


def fused(form: Format, a: int, b: int, c: int) -> int | None:
    """a * b + c, rounded once."""
    if any(map(form.is_nan, (a, b, c))):
        return None
    negative = form.is_negative(a) != form.is_negative(b)
    if form.is_infinite(a) or form.is_infinite(b):
        zero = 0 in (a & (form.sign - 1), b & (form.sign - 1))
        opposite = form.is_infinite(c) and form.is_negative(c) != negative
        return None if zero or opposite else form.infinity | (form.sign if negative else 0)
    if form.is_infinite(c):
        return c
    exact = form.value(a) * form.value(b) + form.value(c)
    return form.encode(exact, negative_zero=negative and form.is_negative(c))


def add(form: Format, a: int, b: int) -> int | None:
    """a + b."""
    return fused(form, a, form.encode(Fraction(1)), b)


def multiply(form: Format, a: int, b: int) -> int | None:
    """a * b."""
    return fused(form, a, b, (a ^ b) & form.sign)


def largest(form: Format, *each: int) -> int | None:
    """The largest number; a NaN only where there is no number."""
    numbers = [one for one in each if not form.is_nan(one)]
    return max(numbers, key=form.order) if numbers else None


def smallest(form: Format, *each: int) -> int | None:
    """The smallest number."""
    numbers = [one for one in each if not form.is_nan(one)]
    return min(numbers, key=form.order) if numbers else None


def median(form: Format, a: int, b: int, c: int) -> int | None:
    """The middle one; with a NaN among them the smallest number."""
    each = (a, b, c)
    return smallest(form, *each) if any(map(form.is_nan, each)) else sorted(each, key=form.order)[1]


def to_whole(form: Format, rule: Rounding, a: int) -> int | None:
    """The neighbouring whole number; a zero keeps the operand's sign."""
    if form.is_nan(a):
        return None
    if form.is_infinite(a):
        return a
    return form.encode(Fraction(rule(form.value(a))), negative_zero=form.is_negative(a))


def fraction(form: Format, a: int) -> int | None:
    """a minus its floor, below 1."""
    if form.is_nan(a) or form.is_infinite(a):
        return None
    found = form.encode(form.value(a) - math.floor(form.value(a)))
    return min(found, form.encode(Fraction(1)) - 1)


def scale(form: Format, a: int, power: int) -> int | None:
    """a * 2^power."""
    if form.is_nan(a):
        return None
    if form.is_infinite(a):
        return a
    power = max(-(2**12), min(2**12, power))
    return form.encode(form.value(a) * Fraction(2) ** power, negative_zero=form.is_negative(a))


def split(form: Format, a: int) -> tuple[int | None, int]:
    """(significand of 0.5 to 1, exponent); of a zero, infinity or NaN itself and 0."""
    if form.is_nan(a) or form.is_infinite(a) or form.value(a) == 0:
        return None if form.is_nan(a) else a, 0
    size = abs(form.value(a))
    exponent = size.numerator.bit_length() - size.denominator.bit_length()
    exponent += size >= Fraction(2) ** exponent
    return form.encode(form.value(a) / Fraction(2) ** exponent), exponent


def convert(source: Format, target: Format, a: int, rule: Rounding = round) -> int | None:
    """The number in another format. With a `rule` towards zero, what is beyond the range is the largest number."""
    if source.is_nan(a):
        return None
    negative = target.sign if source.is_negative(a) else 0
    if source.is_infinite(a):
        return target.infinity | negative
    found = target.encode(source.value(a), negative_zero=bool(negative), rule=rule)
    if rule is not round and target.is_infinite(found):
        return found - 1
    return found


def to_integer(form: Format, low: int, high: int, a: int, rule: Rounding = math.trunc) -> int:
    """An integer, limited to its range; NaN is 0."""
    if form.is_nan(a):
        return 0
    if form.is_infinite(a):
        return low if form.is_negative(a) else high
    return max(low, min(high, rule(form.value(a))))
