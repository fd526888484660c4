"""Text of times, which are stored in microseconds: one unit for a column of numbers, or the best one for a single time.

All text that people read uses it. Files that programs read keep microseconds.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable
from dataclasses import dataclass

UNKNOWN = "-"
LEAST_NUMBER = 0.1
MOST_NUMBER = 1e6
"""Numbers of a column are between these, if one unit can do that."""


@dataclass(frozen=True)
class TimeUnit:
    """A unit: its name, and its length in microseconds."""

    name: str
    us: float

    def format_number(self, us: float | None) -> str:
        """Returns a time as a number of this unit, without its name: '5.420', '104312', '0'; '-' for None."""
        return UNKNOWN if us is None else format_significant(us / self.us)


UNITS = (TimeUnit("ns", 1e-3), TimeUnit("us", 1.0), TimeUnit("ms", 1e3), TimeUnit("s", 1e6))
"""From the shortest to the longest."""

MICROSECONDS = UNITS[1]
NS_PER_US = 1e3


def choose_time_unit(times_us: Iterable[float | None]) -> TimeUnit:
    """Returns the unit for all numbers of a column: the longest in which the median is at least 1.

    A shorter one is taken while the smallest number is below LEAST_NUMBER, unless the largest would reach MOST_NUMBER.
    Without a time above zero it is the microsecond.
    """
    sizes = [abs(us) for us in times_us if us and math.isfinite(us)]
    if not sizes:
        return MICROSECONDS
    place = max((place for place, unit in enumerate(UNITS) if statistics.median(sizes) >= unit.us), default=0)
    while place and min(sizes) < LEAST_NUMBER * UNITS[place].us and max(sizes) < MOST_NUMBER * UNITS[place - 1].us:
        place -= 1
    return UNITS[place]


def format_time(us: float | None) -> str:
    """Returns a time with four significant digits and its best unit: '5.420 us', '210.8 ms'; '-' for None."""
    return format_times([us])


def format_ns(ns: float | None) -> str:
    """Returns nanoseconds as text like `format_time`: 30100 -> '30.10 us'; '-' for None."""
    return format_time(None if ns is None else ns / NS_PER_US)


def format_times(times_us: Iterable[float | None], between: str = " -> ") -> str:
    """Returns several times in one unit, so that they can be compared: '24.60 us -> 26.10 us'; '-' for None."""
    times = list(times_us)
    unit = choose_time_unit(times)
    return between.join(UNKNOWN if us is None else f"{unit.format_number(us)} {unit.name}" for us in times)


def format_time_change(before_us: float | None, now_us: float | None) -> str:
    """Returns two times with one unit: '24.60 -> 26.10 us'; '26.10 us' if only one is known, '' if none is."""
    known = [us for us in (before_us, now_us) if us is not None]
    unit = choose_time_unit(known)
    return f"{' -> '.join(map(unit.format_number, known))} {unit.name}" if known else ""


def format_significant(value: float, digits: int = 4) -> str:
    """Returns a number with at least `digits` significant digits, no exponent. Keeps final zeros: they are measured.

    Numbers below LEAST_NUMBER get two significant digits at most.
    """
    if value == 0 or not math.isfinite(value):
        return f"{value:g}"
    kept = digits if abs(value) >= LEAST_NUMBER else min(digits, 2)
    _, _, exponent = f"{value:.{kept - 1}e}".partition("e")  # of the rounded number: 99.996 is 100.0
    return f"{value:.{max(0, kept - 1 - int(exponent))}f}"
