"""Single values of a rocpd database: SQLite columns hold any type, whatever their declaration says."""

from __future__ import annotations

from collections import Counter

from pytest_attnperf.records.profiles import Size3
from pytest_attnperf.tools.profilers.timed_rows import LONGEST_NS


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
    """Checks starts and ends of one table, and counts those that cannot be used by what is wrong with them.

    first    of each kind of these: its id, start and end in words
    """

    def __init__(self, what: str) -> None:
        self.what = what
        self.good = 0
        self.bad: Counter[str] = Counter()
        self.first: dict[str, str] = {}

    def usable(self, start: object, end: object, number: object) -> bool:
        """Whether both are nanoseconds, in order and less than a day apart; number: the row's id."""
        if type(start) is not int or type(end) is not int or start < 0:
            how = "have a start or end that is no whole number from 0"
        elif not end:
            how = "have no times"
        elif end < start:
            how = "end before they start"
        elif end - start > LONGEST_NS:
            how = "take more than a day"
        else:
            self.good += 1
            return True
        self.bad[how] += 1
        self.first.setdefault(how, f"id {number!r:.40}: start {start!r:.40}, end {end!r:.40}")
        return False
