"""How far a case's points lie from their level, estimated robustly, and points that lie alone."""

from __future__ import annotations

import itertools
import math
import statistics
from collections.abc import Sequence

NOISE_FLOOR = 0.003
"""Relative: fresh processes of unchanged code lie at least so far apart on one machine; days lie further."""

MAD_TO_SD = 1.4826
"""Median absolute deviation of normal values, to their standard deviation."""

NEIGHBOURS = 2
"""On each side of a point, of those that it is compared with."""

ALONE_SIGMAS = 4.0


def step_noise(logs: Sequence[float]) -> float:
    """Standard deviation of a point around its level, from differences of successive points, which few changes touch.

    At least NOISE_FLOOR. Raises ValueError for fewer than two points.
    """
    if len(logs) < 2:
        raise ValueError(f"noise needs two points, got {len(logs)}")
    differences = [abs(after - before) for before, after in itertools.pairwise(logs)]
    return max(NOISE_FLOOR, MAD_TO_SD * statistics.median(differences) / math.sqrt(2))


def level_noise(logs: Sequence[float], bounds: Sequence[int]) -> float:
    """The same, from distances to the medians of levels that end before each of `bounds`; sees slow waves, too."""
    distances: list[float] = []
    for start, end in zip((0, *bounds), bounds, strict=False):
        centre = statistics.median(logs[start:end])
        distances += [abs(value - centre) for value in logs[start:end]]
    return max(NOISE_FLOOR, MAD_TO_SD * statistics.median(distances))


def without_lone(logs: Sequence[float], sigma: float) -> list[float]:
    """Points far from all their neighbours are put at these neighbours' median: one outlier, or two, are no level."""
    cleaned = []
    for index, value in enumerate(logs):
        around = statistics.median(logs[max(0, index - NEIGHBOURS) : index + NEIGHBOURS + 1])
        cleaned.append(around if abs(value - around) > ALONE_SIGMAS * sigma else value)
    return cleaned
