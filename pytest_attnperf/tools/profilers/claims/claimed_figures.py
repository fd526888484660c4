"""Parses printed figures: a number with its unit, and the interval that its decimals allow.

'31.3 us' is anything from 31.25 to 31.35 microseconds, '2-4%' anything from 2 to 4 %, '90%+' 90 % or more, and '~49 KB'
49 KB to one unit of the last digit. Two figures contradict each other only if their intervals do not overlap.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from decimal import Decimal
from typing import ClassVar, NamedTuple, TypeVar

SLACK = 1e-9
"""Relative error allowed for floating-point arithmetic."""

MOST_CHARACTERS = 100

_NUMBER = r"[0-9]+(?:,[0-9]{3})*(?:\.[0-9]+)?(?:[eE][+-]?[0-9]{1,2})?"
_FIGURE = re.compile(
    r"(?P<about>~|≈|about )?\s*(?P<bound>>=|<=|≥|≤|>|<)?\s*(?P<sign>[+-])?"
    rf"(?P<first>{_NUMBER})(?:\s*-\s*(?P<last>{_NUMBER}))?(?P<more_before>\+)?\s*(?P<unit>[A-Za-z%][^+]*?)?(?P<more>\+)?"
)
_SPELLED = str.maketrans(
    {"\u00b5": "u", "\u03bc": "u", "\u00d7": "x", "\u2013": "-", "\u2212": "-", "\u00a0": " ", "\u202f": " "}
)
"""Replaces micro and mu, multiplication sign, en dash and minus, narrow and non-breaking spaces by ASCII."""

TIME = {"s": 1.0, "ms": 1e-3, "us": 1e-6, "ns": 1e-9, "microseconds": 1e-6, "seconds": 1.0}
FLOP_RATE = {"FLOP/s": 1.0, "MFLOP/s": 1e6, "GFLOP/s": 1e9, "TFLOP/s": 1e12, "PFLOP/s": 1e15}
BYTE_RATE = {"B/s": 1.0, "MB/s": 1e6, "GB/s": 1e9, "TB/s": 1e12, "GiB/s": 2.0**30, "TiB/s": 2.0**40}
INTENSITY = {"FLOP/B": 1.0, "FLOP/byte": 1.0}
PERCENT = {"%": 0.01}
FACTOR = {"x": 1.0}
BYTES = {"B": 1.0, "byte": 1.0, "bytes": 1.0, "KiB": 2.0**10, "MiB": 2.0**20, "GiB": 2.0**30}
TRAFFIC = {**BYTES, "KB": 1e3, "kB": 1e3, "MB": 1e6, "GB": 1e9}
ON_CHIP = {**BYTES, "KB": 2.0**10, "kB": 2.0**10, "K": 2.0**10, "MB": 2.0**20}
"""Units of LDS and caches, for which a KB always means 1,024 bytes."""

_DIMENSIONS = (TIME, FLOP_RATE, BYTE_RATE, INTENSITY, PERCENT, FACTOR, TRAFFIC)


class Interval(NamedTuple):
    """All values that a printed figure may mean, in SI units; percentages as fractions."""

    low: float
    high: float

    @property
    def middle(self) -> float:
        """The middle of the interval; its finite end if the other is infinite."""
        if math.isinf(self.high):
            return self.low
        return self.high if math.isinf(self.low) else (self.low + self.high) / 2

    def can_equal(self, other: Interval) -> bool:
        """Returns whether both intervals have a value in common."""
        slack = SLACK * max(abs(self.middle), abs(other.middle))
        return self.low <= other.high + slack and other.low <= self.high + slack

    def multiply_by(self, other: Interval) -> Interval:
        """Returns the product of two intervals of non-negative numbers."""
        return Interval(self.low * other.low, self.high * other.high)

    def divide_by(self, other: Interval) -> Interval:
        """Returns the quotient of two intervals of non-negative numbers; infinite where the divisor is 0."""
        return Interval(_divide_safely(self.low, other.high), _divide_safely(self.high, other.low))

    def merge_with(self, other: Interval) -> Interval:
        """Returns the smallest interval that contains both."""
        return Interval(min(self.low, other.low), max(self.high, other.high))


def _divide_safely(top: float, bottom: float) -> float:
    return top / bottom if bottom else math.inf


def exact_interval(value: float) -> Interval:
    """Returns the interval that holds only `value`, for counts, which are not rounded."""
    return Interval(value, value)


_F = TypeVar("_F", bound="PrintedFigure")


class PrintedFigure:
    """A printed number with its unit; each subclass defines its allowed units.

    text       as printed
    interval   in SI units
    ends       intervals of the first and the last number of a range, each rounded by its own decimals
    unit       as printed, in our spelling ('us', 'GFLOP/s')
    """

    what: ClassVar[str] = "figure"
    signed: ClassVar[bool] = False
    units: ClassVar[Mapping[str, float]] = {}
    __slots__ = ("ends", "interval", "text", "unit")

    def __init__(self, text: str, interval: Interval, ends: tuple[Interval, Interval], unit: str) -> None:
        self.text = text
        self.interval = interval
        self.ends = ends
        self.unit = unit

    @classmethod
    def parse(cls: type[_F], value: object) -> _F:
        """Makes a figure of a text such as '31.3 us'. Raises ValueError, with an example, for a value that is no text,
        has no unit or one of another kind, or is negative without being allowed to."""
        example = f"a text such as {_EXAMPLES[cls.what]!r}"
        if not isinstance(value, str):
            raise ValueError(f"{value!r} is no {cls.what}: expected {example}, so that its unit and decimals are known")
        text = value.strip()
        found = _FIGURE.fullmatch(_normalise_characters(text)) if len(text) <= MOST_CHARACTERS else None
        if found is None:
            raise ValueError(f"{value[:MOST_CHARACTERS]!r} is no {cls.what}: expected {example}")
        unit = normalise_unit(found["unit"] or "")
        if not unit:
            raise ValueError(f"{value!r} has no unit: expected {example}")
        scale = cls.find_scale(unit)
        if scale is None:
            raise ValueError(f"{value!r}: {unit!r} is no unit of a {cls.what}; known: {', '.join(cls.units)}")
        if found["sign"] == "-" and not cls.signed:
            raise ValueError(f"{value!r}: a {cls.what} is not negative; expected {example}")
        interval, ends = _parse_intervals(found, scale)
        if not cls.signed:
            interval = Interval(max(interval.low, 0.0), interval.high)
        return cls(text, interval, ends, unit)

    @classmethod
    def find_scale(cls, unit: str) -> float | None:
        """Returns the factor from a unit to SI units (1e-6 for 'us'); None if this kind of figure lacks the unit."""
        return cls.units.get(unit)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.text!r})"


class Time(PrintedFigure):
    """A time, in seconds."""

    what = "time"
    units = TIME


class FlopRate(PrintedFigure):
    """A compute rate, in FLOP/s."""

    what = "rate of computing"
    units = FLOP_RATE


class ByteRate(PrintedFigure):
    """A bandwidth, in bytes per second."""

    what = "bandwidth"
    units = BYTE_RATE


class Rate(PrintedFigure):
    """A ceiling, in FLOP/s or bytes per second."""

    what = "rate"
    units: ClassVar[Mapping[str, float]] = {**FLOP_RATE, **BYTE_RATE}


class Intensity(PrintedFigure):
    """An arithmetic intensity, in FLOP per byte."""

    what = "arithmetic intensity"
    units = INTENSITY


class Percent(PrintedFigure):
    """A percentage, as a fraction."""

    what = "percentage"
    signed = True
    units = PERCENT


class Factor(PrintedFigure):
    """A factor, e.g. '3.17x'."""

    what = "factor"
    units = FACTOR


class ChipSize(PrintedFigure):
    """A size of LDS or cache in bytes; a KB is 1,024 bytes."""

    what = "size on the chip"
    units = ON_CHIP


class Capacity(PrintedFigure):
    """Capacity of a unit of the device: bytes of LDS, waves, or VGPRs."""

    what = "capacity"
    units: ClassVar[Mapping[str, float]] = {**ON_CHIP, "waves": 1.0, "VGPRs": 1.0}


class Nodes(PrintedFigure):
    """A search speed, in nodes per second."""

    what = "search speed"
    units: ClassVar[Mapping[str, float]] = {"nps": 1.0, "knps": 1e3, "nodes/s": 1.0}


class Evaluations(PrintedFigure):
    """A rate of evaluations: sequences (positions, prompts) that pass the network per second."""

    what = "rate of evaluations"
    units: ClassVar[Mapping[str, float]] = {
        "evaluations/s": 1.0,
        "evals/s": 1.0,
        "positions/s": 1.0,
        "sequences/s": 1.0,
    }


class Amount(PrintedFigure):
    """An amount with any unit; unknown units ('nps', 'tokens') are not converted."""

    what = "amount"

    @classmethod
    def find_scale(cls, unit: str) -> float | None:
        """Returns the factor from a known unit to SI units, 1 (never None) for any other unit."""
        return next((units[unit] for units in _DIMENSIONS if unit in units), 1.0)

    def is_comparable(self, other: Amount) -> bool:
        """Returns whether both amounts have the same unit or units of one dimension, such as us and ms."""
        return self.unit == other.unit or any(self.unit in units and other.unit in units for units in _DIMENSIONS)


_EXAMPLES = {
    "time": "31.3 us",
    "rate of computing": "457.5 GFLOP/s",
    "bandwidth": "212 GB/s",
    "rate": "59.4 TFLOP/s",
    "arithmetic intensity": "26.6 FLOP/B",
    "percentage": "1.24%",
    "factor": "3.17x",
    "size on the chip": "1,536 bytes",
    "capacity": "128 KB",
    "search speed": "2,333 nps",
    "rate of evaluations": "2,333 evaluations/s",
    "amount": "4,000 nps",
}


def normalise_unit(unit: str) -> str:
    """Returns a unit as the tables spell it: 'GFLOPs/s' and 'GFLOPS' are GFLOP/s, 'FLOPs/byte' is FLOP/byte."""
    unit = _normalise_characters(unit).strip()
    unit = re.sub(r"FLOPS$", "FLOP/s", unit)
    return unit.replace("FLOPs", "FLOP")


def _normalise_characters(text: str) -> str:
    return text.translate(_SPELLED)


def _parse_intervals(found: re.Match[str], scale: float) -> tuple[Interval, tuple[Interval, Interval]]:
    """Returns the interval of a matched figure, and those of its first and last number, in SI units (`scale`).

    The ends of a range are exact: '2-4%' is not 1.5 to 4.5 %."""
    numbers = [_parse_number(text) for text in (found["first"], found["last"] or found["first"])]
    if found["sign"] == "-":
        numbers = [(-value, half) for value, half in reversed(numbers)]
    if numbers[1][0] < numbers[0][0]:
        raise ValueError(f"{found.string!r} is a range from more to less; write the smaller number first")
    widen = 2.0 if found["about"] else 1.0
    first, last = (Interval((value - widen * half) * scale, (value + widen * half) * scale) for value, half in numbers)
    low, high = numbers[0][0] * scale, numbers[1][0] * scale
    if found["more"] or found["more_before"] or found["bound"] in (">", ">=", "≥"):
        return Interval(low, math.inf), (first, first)
    if found["bound"]:
        return Interval(min(low, 0.0), high), (last, last)
    return (Interval(low, high) if found["last"] else first), (first, last)


def _parse_number(text: str) -> tuple[float, float]:
    """Returns the number in a text, and half a unit of its last printed digit: '31.3' -> (31.3, 0.05)."""
    number = Decimal(text.replace(",", ""))
    exponent = number.as_tuple().exponent
    return float(number), 0.5 * 10.0 ** int(exponent)


def format_si(value: float, unit: str, digits: int = 3) -> str:
    """Formats a value with an SI prefix that leaves less than 1,000, and `digits` digits: '25.2 MB', '803 GB/s'."""
    for prefix, scale in (("T", 1e12), ("G", 1e9), ("M", 1e6), ("K" if unit.startswith("B") else "k", 1e3)):
        if abs(value) >= scale * (1 - 0.5 * 10.0**-digits):
            number = value / scale
            return f"{f'{number:,.0f}' if number >= 1000 else f'{number:.{digits}g}'} {prefix}{unit}"
    return f"{value:.{digits}g} {unit}"


def format_percent(fraction: float, digits: int = 3) -> str:
    """Formats a fraction: 0.0152 -> '1.52%', whole percents from 100 on, 'any percentage' for infinity."""
    if math.isinf(fraction):
        return "any percentage"
    return f"{fraction * 100:,.0f}%" if abs(fraction) >= 1 else f"{fraction * 100:.{digits}g}%"


def format_kib(size: float) -> str:
    """Formats a size in bytes as '64 KiB', or as '1,500 bytes' if it is no whole number of KiB."""
    return f"{size / 1024:.0f} KiB" if size % 1024 == 0 else f"{size:,.0f} bytes"


def format_seconds(value: float, digits: int = 3) -> str:
    """Formats seconds in the largest of s, ms, us and ns that gives at least 1, with `digits` digits: '31.3 us'."""
    for unit, scale in (("s", 1.0), ("ms", 1e-3), ("us", 1e-6)):
        if value >= scale:
            return f"{value / scale:.{digits}g} {unit}"
    return f"{value * 1e9:.{digits}g} ns"
