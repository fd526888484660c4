"""Where a case's time changed for good: candidates from ruptures, each then held against statistics of our own.

Candidates are the cheapest cut of log times into levels (PELT with squared distances; Killick, Fearnhead and Eckley,
JASA 107, 2012), with outliers put to their neighbours' median first. A candidate is a change if

- at least MIN_SEGMENT points lie on each side,
- the levels' medians are MIN_CHANGE and MIN_SIGMAS standard deviations of a point apart,
- ranks of up to WINDOW points a side say so (p at most MAX_P, or complete separation where few points can say no more),
- and it is a step: with one slope for both sides at least half of it is left, so that no drift is cut into steps.

docs/evidence.md has the rates of false alarms and of detection; benchmarks/history_cost.py measures them again.

Mann and Whitney's rank test with its exact distribution, so that three points against thirty are judged rightly.

How far a case's points lie from their level, estimated robustly, and points that lie alone.
"""

from __future__ import annotations

import functools
import itertools
import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, replace

from pytest_attnperf.records.histories import CaseHistory, ChangePoint, HistoryPoint
from pytest_attnperf.records.notes import Note, NoteKind
from pytest_attnperf.tools.history.failures import HistoryError

MIN_POINTS = 8
MIN_SEGMENT = 3
MIN_CHANGE = 0.01
MIN_SIGMAS = 4.0
MAX_P = 0.001
WINDOW = 20
PENALTY = 3.0
"""Cost of one more level, in sigma^2 * log(points): generous, because every candidate is judged again."""

STEP_SHARE = 0.5
DRIFT_POINTS = 18
"""A third of these on each side can reach MAX_P."""

NOT_COMPARED = frozenset({"INCORRECT", "ERROR", "SUSPICIOUS"})
"""The time of a wrong result says nothing of the right one's."""

NOISE_FLOOR = 0.003
"""Relative: fresh processes of unchanged code lie at least so far apart on one machine; days lie further."""

MAD_TO_SD = 1.4826
"""Median absolute deviation of normal values, to their standard deviation."""

NEIGHBOURS = 2
"""On each side of a point, of those that it is compared with."""

ALONE_SIGMAS = 4.0


@dataclass(frozen=True)
class _Cut:
    """A candidate: the level before is [start, at), the one after [at, end)."""

    start: int
    at: int
    end: int


def with_changes(history: CaseHistory) -> CaseHistory:
    """The same history with its changes, and notes on what kept them from being looked for, and on a drift.

    Raises HistoryError where ruptures is missing.
    """
    indices = [index for index, point in enumerate(history.points) if point.verdict not in NOT_COMPARED]
    if len(indices) < MIN_POINTS:
        said = f"too few points to look for changes: {len(indices)}, at least {MIN_POINTS}"
        note = Note(NoteKind.TOO_FEW_POINTS, said)
        return replace(history, changes=(), notes=(*history.notes, note))
    logs = [math.log(history.points[index].median_us) for index in indices]
    sigma, cuts = _find_cuts(logs)
    changes = tuple(_make_change(history.points, indices, logs, cut, sigma) for cut in cuts)
    drift = _drift_note(logs[cuts[-1].at if cuts else 0 :], sigma)
    return replace(history, changes=changes, notes=(*history.notes, *drift))


def _find_cuts(logs: Sequence[float]) -> tuple[float, list[_Cut]]:
    """Noise of a point, and the cuts that are changes."""
    sigma = step_noise(logs)
    bounds = _find_bounds(replace_outliers(logs, sigma), sigma)
    sigma = max(sigma, level_noise(logs, bounds))
    while True:
        cuts = [_Cut(*around) for around in zip((0, *bounds), bounds, bounds[1:], strict=False)]
        doubtful = [cut for cut in cuts if not _is_change(logs, cut, sigma)]
        if not doubtful:
            return sigma, cuts
        # The smallest goes first: its levels become one, by which the others are judged again.
        least = min(doubtful, key=lambda cut: abs(_compute_shift(logs, cut)))
        bounds = [bound for bound in bounds if bound != least.at]


def _find_bounds(logs: Sequence[float], sigma: float) -> list[int]:
    """Ends of levels, the last of them the number of points."""
    try:
        import numpy
        import ruptures
    except ImportError as error:
        raise HistoryError(f"change points need ruptures ({error}): pip install 'pytest-attnperf[history]'") from error
    # In units of the noise: the C code's costs keep their precision.
    values = (numpy.array(logs) - statistics.median(logs)) / sigma
    search = ruptures.KernelCPD(kernel="linear", min_size=MIN_SEGMENT).fit(values)
    return [int(bound) for bound in search.predict(pen=PENALTY * math.log(len(logs)))]


def _compute_shift(logs: Sequence[float], cut: _Cut) -> float:
    return statistics.median(logs[cut.at : cut.end]) - statistics.median(logs[cut.start : cut.at])


def _is_change(logs: Sequence[float], cut: _Cut, sigma: float) -> bool:
    shift = _compute_shift(logs, cut)
    if abs(shift) < max(math.log1p(MIN_CHANGE), MIN_SIGMAS * sigma):
        return False
    before, after = logs[max(cut.start, cut.at - WINDOW) : cut.at], logs[cut.at : min(cut.end, cut.at + WINDOW)]
    lower, higher = (before, after) if shift > 0 else (after, before)
    if one_sided_p(lower, higher) > max(MAX_P, smallest_p(len(lower), len(higher))):
        return False
    step = _estimate_step(before, after)
    return step * shift > 0 and abs(step) >= STEP_SHARE * abs(shift)


def _estimate_step(before: Sequence[float], after: Sequence[float]) -> float:
    """Height of the step at the cut, by least squares with one slope for both sides; outliers are drawn in first."""
    sides = [_clip_outliers(before), _clip_outliers(after)]
    means = [statistics.fmean(side) for side in sides]
    middles = [(len(before) - 1) / 2, len(before) + (len(after) - 1) / 2]
    spread = across = 0.0
    for side, mean, middle, first in zip(sides, means, middles, (0, len(before)), strict=True):
        for offset, value in enumerate(side):
            spread += (first + offset - middle) ** 2
            across += (first + offset - middle) * (value - mean)
    return means[1] - means[0] - across / spread * (middles[1] - middles[0])


def _clip_outliers(values: Sequence[float]) -> list[float]:
    centre = statistics.median(values)
    reach = 4 * max(1e-4, 1.4826 * statistics.median(abs(value - centre) for value in values))
    return [min(max(value, centre - reach), centre + reach) for value in values]


def _make_change(
    points: Sequence[HistoryPoint], indices: Sequence[int], logs: Sequence[float], cut: _Cut, sigma: float
) -> ChangePoint:
    before, after = points[indices[cut.at - 1]], points[indices[cut.at]]
    return ChangePoint(
        index=indices[cut.at],
        before_us=math.exp(statistics.median(logs[cut.start : cut.at])),
        after_us=math.exp(statistics.median(logs[cut.at : cut.end])),
        last_before=before.commit,
        first_after=after.commit,
        environment=(
            *_list_differences(before.environment, after.environment),
            *_list_differences(before.machine, after.machine),
        ),
        sigmas=abs(_compute_shift(logs, cut)) / sigma,
    )


def _list_differences(before: dict[str, str], after: dict[str, str]) -> tuple[str, ...]:
    """'torch: 2.10.0 -> 2.11.0' of every name whose text changed."""
    absent = "absent"
    names = sorted(before.keys() | after.keys())
    return tuple(
        f"{name}: {before.get(name, absent)} -> {after.get(name, absent)}"
        for name in names
        if before.get(name, absent) != after.get(name, absent)
    )


def _drift_note(logs: Sequence[float], sigma: float) -> tuple[str, ...]:
    """On the points since the last change: their last third against their first."""
    if len(logs) < DRIFT_POINTS:
        return ()
    third = min(len(logs) // 3, WINDOW)
    first, last = logs[:third], logs[-third:]
    shift = statistics.median(last) - statistics.median(first)
    # Medians of a third are sigma * sqrt(pi / (2 * third)) uncertain; both ends of the course are a third further out.
    lower, higher = (first, last) if shift > 0 else (last, first)
    if abs(shift) < max(math.log1p(MIN_CHANGE), 2 * sigma) or one_sided_p(lower, higher) > MAX_P:
        return ()
    each = shift / (len(logs) - third)
    percent, course = 100 * math.expm1(each), 100 * math.expm1(each * (len(logs) - 1))
    way = "slower" if shift > 0 else "faster"
    return (
        f"drifts: {way} by about {abs(percent):.2g} % per run over the last {len(logs)} runs, {course:+.1f} % in all; "
        "no single run is where it changed",
    )


def one_sided_p(lower: Sequence[float], higher: Sequence[float]) -> float:
    """The chance of ranks at least as much in favour of `higher` being higher, if both are alike.

    Ties count half; half a rank is then given away, so that p is rather too large. Raises ValueError for an empty side.
    """
    if not lower or not higher:
        raise ValueError(f"{len(lower)} and {len(higher)} values cannot be compared; both sides need one")
    against = sum((low > high) + 0.5 * (low == high) for low in lower for high in higher)
    counts = _count_orders(*sorted((len(lower), len(higher))))
    # `against` is U; a half is rounded up.
    return sum(counts[: int(against + 0.5) + 1]) / sum(counts)


def smallest_p(lower: int, higher: int) -> float:
    """What complete separation of so many values gives."""
    return 1 / sum(_count_orders(*sorted((lower, higher))))


@functools.lru_cache(maxsize=256)
def _count_orders(fewer: int, more: int) -> tuple[int, ...]:
    """How many orders of both samples have U = 0, 1, 2 ...: coefficients of the Gaussian binomial."""
    size = fewer * more + 1
    counts = [1] + [0] * (size - 1)
    for step in range(1, fewer + 1):
        # Times (1 - q^(more + step)), then divided by (1 - q^step).
        for index in range(size - 1, more + step - 1, -1):
            counts[index] -= counts[index - more - step]
        for index in range(step, size):
            counts[index] += counts[index - step]
    return tuple(counts)


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


def replace_outliers(logs: Sequence[float], sigma: float) -> list[float]:
    """Points far from all their neighbours are put at these neighbours' median: one outlier, or two, are no level."""
    cleaned = []
    for index, value in enumerate(logs):
        around = statistics.median(logs[max(0, index - NEIGHBOURS) : index + NEIGHBOURS + 1])
        cleaned.append(around if abs(value - around) > ALONE_SIGMAS * sigma else value)
    return cleaned
