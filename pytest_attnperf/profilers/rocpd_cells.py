"""Single values of a rocpd database: SQLite columns hold any type, whatever their declaration says."""

from __future__ import annotations

from collections import Counter

from pytest_attnperf.profile_records import Size3


def text_of(value: object) -> str:
    """A text, '' for anything else."""
    return value if isinstance(value, str) else ""


def count_of(value: object) -> int | None:
    """A whole number from 0, None for anything else."""
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None


def size3_of(values: tuple[object, ...]) -> Size3 | None:
    """Three such numbers, None where one is none."""
    x, y, z = (count_of(value) for value in values)
    return None if x is None or y is None or z is None else (x, y, z)


class Times:
    """Checks starts and ends of one table, and counts those that cannot be used by what is wrong with them."""

    def __init__(self, what: str) -> None:
        self.what = what
        self.good = 0
        self.bad: Counter[str] = Counter()

    def usable(self, start: object, end: object) -> bool:
        """Whether both are nanoseconds, in order."""
        if type(start) is not int or type(end) is not int or start < 0:
            self.bad["have a start or end that is no whole number from 0"] += 1
        elif not end:
            self.bad["have no times"] += 1
        elif end < start:
            self.bad["end before they start"] += 1
        else:
            self.good += 1
            return True
        return False
