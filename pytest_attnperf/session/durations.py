"""Times as people write and read them."""

from __future__ import annotations

import re

from pytest_attnperf.errors import UsageError

SECONDS_UNTIL, MINUTES_UNTIL = 120.0, 120.0
"""Times are said in seconds below so many seconds, in minutes below so many minutes."""

_DURATION = re.compile(r"(?P<number>\d+(\.\d+)?)(?P<unit>s|m|min|h)?")
_UNITS = {"": 1.0, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0}


def seconds_of(text: str, option: str = "--budget") -> float:
    """'90', '90s', '10m', '1.5h' in seconds. Raises UsageError naming the option."""
    found = _DURATION.fullmatch(text.strip())
    seconds = float(found["number"]) * _UNITS[found["unit"] or ""] if found else 0.0
    if seconds <= 0:
        raise UsageError(f"{option} {text!r} must be a time above 0, e.g. 90s, 10m or 1h")
    return seconds


def duration(seconds: float) -> str:
    """In a unit that fits: '85 s', '3 min', '2.5 h'."""
    if seconds < SECONDS_UNTIL:
        return f"{seconds:.0f} s"
    minutes = seconds / 60
    return f"{minutes:.0f} min" if minutes < MINUTES_UNTIL else f"{minutes / 60:.1f} h"
