"""The changes of a series as the site shows them: with an interval, and the commits before and after them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from pytest_attnperf.records.histories import CaseHistory, ChangePoint
from pytest_attnperf.tools.history.history_text import describe_suspect

NORMAL_95 = 1.96
MEDIAN_TO_MEAN = math.sqrt(math.pi / 2)
"""Standard error of a median relative to that of a mean, for normal values."""


@dataclass(frozen=True)
class LastingChange:
    """A change of a case's level. Ratios above 1 are slower.

    case               number of the case in the site
    index              of the first point after it in its series; `series` is the number of that
    commit, before     numbers of the commits of the first point after it and of the last one before
    low, high          95 % interval of the ratio
    before_us, after_us
    started            of the first run after it
    suspect            what changed with it, in words
    """

    case: int
    series: int
    index: int
    commit: int
    before: int
    ratio: float
    low: float
    high: float
    before_us: float
    after_us: float
    started: str
    suspect: str


def list_changes(history: CaseHistory, case: int, series: int, commits: Sequence[int]) -> tuple[LastingChange, ...]:
    """Returns the changes of a series, oldest first; `commits` are the numbers of its points' commits."""
    bounds = [0, *(change.index for change in history.changes), len(history.points)]
    return tuple(
        LastingChange(
            case, series, change.index, commits[change.index], commits[change.index - 1], change.ratio,
            *estimate_interval(change, change.index - bounds[place], bounds[place + 2] - change.index),
            change.before_us, change.after_us, history.points[change.index].started, describe_suspect(change),
        )
        for place, change in enumerate(history.changes)
    )  # fmt: skip


def estimate_interval(change: ChangePoint, before: int, after: int) -> tuple[float, float]:
    """Returns the 95 % interval of a change's ratio, from the noise of a point and the number of points on each side.

    Runs count as independent, and levels as medians of normal log times."""
    shift = math.log(change.ratio)
    sigma = abs(shift) / change.sigmas if change.sigmas > 0 else 0.0
    reach = NORMAL_95 * MEDIAN_TO_MEAN * sigma * math.sqrt(1 / max(1, before) + 1 / max(1, after))
    return math.exp(shift - reach), math.exp(shift + reach)
