"""Computes the spread of many durations: median, quartiles, standard deviation, extremes. Without numpy."""

from __future__ import annotations

import math
from array import array
from collections.abc import Iterable, Sequence
from operator import mul

from pytest_attnperf.records.profiles import Spread


def compute_spread(durations: Iterable[int]) -> Spread:
    """Computes the spread of nanoseconds in any order; `Spread(0, 0)` if there are none.

    Quartiles lie at rank (n - 1) p of the sorted durations, counted from 0, interpolated linearly: the 'inclusive'
    method of `statistics.quantiles`. The standard deviation is the sample's (n - 1), None for one duration, and is
    computed in integers up to the last division."""
    ordered = sorted(durations)
    count, total = len(ordered), sum(ordered)
    if not count:
        return Spread(0, 0)
    return Spread(
        calls=count,
        total_ns=total,
        median_ns=_compute_quartile(ordered, 2),
        q1_ns=_compute_quartile(ordered, 1),
        q3_ns=_compute_quartile(ordered, 3),
        min_ns=ordered[0],
        max_ns=ordered[-1],
        stddev_ns=_compute_deviation(ordered, total),
    )


def _compute_quartile(ordered: Sequence[int], quarter: int) -> float:
    rank, rest = divmod((len(ordered) - 1) * quarter, 4)
    if not rest:
        return float(ordered[rank])
    return (ordered[rank] * (4 - rest) + ordered[rank + 1] * rest) / 4


def _compute_deviation(values: Sequence[int], total: int) -> float | None:
    count = len(values)
    if count < 2:
        return None
    squares = sum(map(mul, values, values))
    return math.sqrt((count * squares - total * total) / (count * (count - 1)))


def join_durations(parts: Iterable[Iterable[int]]) -> array[int]:
    """Returns the durations (ns) of several launch sizes, one after another, in one array."""
    column = array("q")
    for part in parts:
        column.extend(part)
    return column


def add_spreads(spreads: Iterable[Spread]) -> Spread:
    """Returns several spreads as one: calls, total, minimum, maximum, but no median, which needs the durations. A
    single spread with calls is returned as it is.

    Minimum and maximum are None if one of the spreads lacks its own."""
    every = [spread for spread in spreads if spread.calls]
    if len(every) == 1:
        return every[0]
    least = [spread.min_ns for spread in every if spread.min_ns is not None]
    largest = [spread.max_ns for spread in every if spread.max_ns is not None]
    return Spread(
        calls=sum(spread.calls for spread in every),
        total_ns=sum(spread.total_ns for spread in every),
        min_ns=min(least) if every and len(least) == len(every) else None,
        max_ns=max(largest) if every and len(largest) == len(every) else None,
    )
