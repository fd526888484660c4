"""The first line of an entry in a baseline file: what a reviewer of a diff has to know, derived from the entry.

Derived on every writing and held against the entry on every reading, so that nobody can change the one without the
other. Its wording belongs to the file's schema: other words would make every stored line look like a false one.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pytest_attnperf.baselines.schema import Entry

COMMIT_DIGITS = 12


def summary_of(entry: Entry) -> str:
    """'154.4 us, 7 processes within 0.41 %, error 0.38 of budget, recorded 2026-11-20 from 0123abcdef12'.

    The time is the median over processes; 'within' is how far the fastest and the slowest of them lie apart. The last
    acceptance follows, with what it rests on: ', accepted 2026-12-01 (7 processes): REASON'.
    """
    error = max(entry.check.max_error_over_budget, entry.check.rms_error_over_budget)
    parts = [*_times([p.median_us for p in entry.processes]), f"error {digits(error, 2)} of budget", _origin(entry)]
    if entry.accepted:
        last = entry.accepted[-1]
        parts.append(f"accepted {last.date} ({last.how}): {last.reason}")
    return ", ".join(parts)


def digits(value: float, significant: int = 4) -> str:
    """A number with so many significant digits, and never an exponent: 18.84, 0.0041, 104312."""
    if not value or not math.isfinite(value):
        return f"{value:g}"
    return f"{value:.{max(0, significant - 1 - math.floor(math.log10(abs(value))))}f}"


def _times(medians_us: Sequence[float]) -> tuple[str, str]:
    """Of what is no time, too: an unsound entry is refused by name when its text is read."""
    centre_us = statistics.median(medians_us) if medians_us else math.nan
    if len(medians_us) < 2 or not centre_us:
        return f"{digits(centre_us)} us", f"{len(medians_us)} process{'es' * (len(medians_us) != 1)}"
    apart_percent = 100 * (max(medians_us) - min(medians_us)) / centre_us
    return f"{digits(centre_us)} us", f"{len(medians_us)} processes within {digits(apart_percent, 2)} %"


def _origin(entry: Entry) -> str:
    commit = entry.commit[:COMMIT_DIGITS]
    return f"recorded {entry.recorded} from {commit}" if commit else f"recorded {entry.recorded}"
