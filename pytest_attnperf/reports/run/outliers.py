"""Finds recorded cases of which one process is far from the others: the gate would take that for noise."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from pytest_attnperf.records import ProcessSummary

OUTLIER_SHARE, OUTLIER_TIMES = 0.05, 3.0
"""Of seven processes of unchanged code on an H200 one was 34 % off, six within 0.7 %: it had timed single calls."""


def find_outlier(processes: Sequence[ProcessSummary]) -> ProcessSummary | None:
    """Returns the one process whose median is far from all others': by more than OUTLIER_SHARE of theirs, and more than
    OUTLIER_TIMES their range. None if there is none, or fewer than four processes."""
    if len(processes) < 4:
        return None
    middle = statistics.median(process.median_us for process in processes)
    far = max(processes, key=lambda process: abs(process.median_us - middle))
    others = [process.median_us for process in processes if process is not far]
    apart = min(abs(far.median_us - us) for us in others)
    least = max(OUTLIER_SHARE * min(others), OUTLIER_TIMES * (max(others) - min(others)))
    return far if apart > least else None
