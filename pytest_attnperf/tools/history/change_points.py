"""Finds lasting changes of a case's time: ruptures proposes candidates, and our own statistics check each.

Candidates are the cheapest cut of log times into levels (PELT with squared distances; Killick, Fearnhead and Eckley,
JASA 107, 2012). Outliers are first replaced by the median of their neighbours. A candidate is a change if
- at least MIN_SEGMENT points lie on each side,
- the levels' medians differ by MIN_CHANGE and by MIN_SIGMAS standard deviations of a point,
- a rank test of up to WINDOW points a side confirms it (p at most MAX_P; with few points complete separation suffices),
- and it is a step: at least half of it is left when both sides share one slope, so that no drift is cut into steps.
docs/evidence.md has the rates of false alarms and of detection; benchmarks/history_cost.py measures them again.

The rank test is Mann and Whitney's with its exact distribution, because one side may have only three points. The noise
of points around their level is estimated robustly.
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
from pytest_attnperf.tools.history.history_failures import HistoryError

MIN_POINTS = 8
MIN_SEGMENT = 3
MIN_CHANGE = 0.01
MIN_SIGMAS = 4.0
MAX_P = 0.001
WINDOW = 20
PENALTY = 3.0
"""Cost of one more level, in sigma^2 * log(points). It is low, because every candidate is checked again."""

STEP_SHARE = 0.5
DRIFT_POINTS = 18
"""Least points for a drift: a third of them on each side can reach MAX_P."""

NOT_COMPARED = frozenset({"INCORRECT", "ERROR", "SUSPICIOUS"})
"""Verdicts that are left out: the time of a wrong result says nothing about a right one."""

NOISE_FLOOR = 0.003
"""Least relative noise: processes of unchanged code differ at least so much on one machine, days differ more."""

MAD_TO_SD = 1.4826
"""Factor from the median absolute deviation of normal values to their standard deviation."""

NEIGHBOURS = 2
"""Points on each side that a point is compared with."""

ALONE_SIGMAS = 4.0


@dataclass(frozen=True)
class _Cut:
    """A candidate: indices [start, at) are the level before, [at, end) the level after."""

    start: int
    at: int
    end: int


def with_changes(history: CaseHistory) -> CaseHistory:
    """Returns the history with its `changes` set: the runs from which on times are lastingly slower or faster. Adds a
    note if there are too few points, or a drift. Raises HistoryError if the library ruptures is missing."""
    indices = [index for index, point in enumerate(history.points) if point.verdict not in NOT_COMPARED]
    if len(indices) < MIN_POINTS:
        said = f"too few points to look for changes: {len(indices)}, at least {MIN_POINTS}"
        note = Note(NoteKind.TOO_FEW_POINTS, said)
        return replace(history, changes=(), notes=(*history.notes, note))
    logs = [math.log(history.points[index].median_us) for index in indices]
    sigma, cuts = _find_cuts(logs)
    changes = tuple(_make_change(history.points, indices, logs, cut, sigma) for cut in cuts)
    drift = _drift_note(logs[cuts[-1].at if cuts else 0 :], sigma, "sampled run" if history.is_thinned else "run")
    return replace(history, changes=changes, notes=(*history.notes, *drift))


def _find_cuts(logs: Sequence[float]) -> tuple[float, list[_Cut]]:
    """Returns the noise of a point (standard deviation of log times), and the borders between levels of time whose
    difference is more than noise."""
    sigma = step_noise(logs)
    bounds = _find_bounds(replace_outliers(logs, sigma), sigma)
    sigma = max(sigma, level_noise(logs, bounds))
    while True:
        cuts = [_Cut(*around) for around in zip((0, *bounds), bounds, bounds[1:], strict=False)]
        doubtful = [cut for cut in cuts if not _is_change(logs, cut, sigma)]
        if not doubtful:
            return sigma, cuts
        # The smallest is removed first: its levels become one, and the others are judged again.
        least = min(doubtful, key=lambda cut: abs(_compute_shift(logs, cut)))
        bounds = [bound for bound in bounds if bound != least.at]


def _find_bounds(logs: Sequence[float], sigma: float) -> list[int]:
    """Returns the end index of each level (stretch of equal times) that the library ruptures proposes; the last is the
    number of points. Raises HistoryError if ruptures is missing."""
    try:
        import numpy
        import ruptures
    except ImportError as error:
        raise HistoryError(f"change points need ruptures ({error}): pip install 'pytest-attnperf[history]'") from error
    # In units of the noise, so that the C code's costs keep their precision.
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
    """Returns by how much `after` (log times) lies above `before`, by least squares: two levels with one common slope,
    after clipping outliers."""
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
            *list_differences(before.environment, after.environment),
            *list_differences(before.machine, after.machine),
        ),
        sigmas=abs(_compute_shift(logs, cut)) / sigma,
    )


def list_differences(before: dict[str, str], after: dict[str, str]) -> tuple[str, ...]:
    """Returns 'torch: 2.10.0 -> 2.11.0' for every name whose text changed."""
    absent = "absent"
    names = sorted(before.keys() | after.keys())
    return tuple(
        f"{name}: {before.get(name, absent)} -> {after.get(name, absent)}"
        for name in names
        if before.get(name, absent) != after.get(name, absent)
    )


def _drift_note(logs: Sequence[float], sigma: float, unit: str) -> tuple[str, ...]:
    """Returns one note if the points since the last change drift, else nothing: compares their last third with their
    first third. `unit` is what a point is."""
    if len(logs) < DRIFT_POINTS:
        return ()
    third = min(len(logs) // 3, WINDOW)
    first, last = logs[:third], logs[-third:]
    shift = statistics.median(last) - statistics.median(first)
    # A third's median has the error sigma * sqrt(pi / (2 * third)); the course extends half a third beyond each middle.
    lower, higher = (first, last) if shift > 0 else (last, first)
    if abs(shift) < max(math.log1p(MIN_CHANGE), 2 * sigma) or one_sided_p(lower, higher) > MAX_P:
        return ()
    each = shift / (len(logs) - third)
    percent, course = 100 * math.expm1(each), 100 * math.expm1(each * (len(logs) - 1))
    way = "slower" if shift > 0 else "faster"
    return (
        f"drifts: {way} by about {abs(percent):.2g} % per {unit} over the last {len(logs)} {unit}s, {course:+.1f} % in "
        "all; no single run caused it",
    )


def one_sided_p(lower: Sequence[float], higher: Sequence[float]) -> float:
    """Returns the chance that equal distributions give ranks at least as much in favour of `higher` being higher.

    Ties count half, and half a rank is rounded up, so p may be too large. Raises ValueError for an empty side."""
    if not lower or not higher:
        raise ValueError(f"{len(lower)} and {len(higher)} values cannot be compared; both sides need one")
    against = sum((low > high) + 0.5 * (low == high) for low in lower for high in higher)
    counts = _count_orders(*sorted((len(lower), len(higher))))
    # `against` is U, rounded up at a half.
    return sum(counts[: int(against + 0.5) + 1]) / sum(counts)


def smallest_p(lower: int, higher: int) -> float:
    """Returns the least p that the rank test can give for these numbers of values: that of complete separation."""
    return 1 / sum(_count_orders(*sorted((lower, higher))))


@functools.lru_cache(maxsize=256)
def _count_orders(fewer: int, more: int) -> tuple[int, ...]:
    """Returns how many of the possible orders of two samples of these sizes give U = 0, 1, 2 ... in the rank test: the
    coefficients of the Gaussian binomial."""
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
    """Returns the standard deviation of log times around their level, from differences of neighbouring points, because
    changes of level hardly affect these.

    At least NOISE_FLOOR. Raises ValueError for fewer than two points."""
    if len(logs) < 2:
        raise ValueError(f"noise needs two points, got {len(logs)}")
    differences = [abs(after - before) for before, after in itertools.pairwise(logs)]
    return max(NOISE_FLOOR, MAD_TO_SD * statistics.median(differences) / math.sqrt(2))


def level_noise(logs: Sequence[float], bounds: Sequence[int]) -> float:
    """Returns the standard deviation of log times around their level, from distances to each level's median, so that it
    includes slow waves. At least NOISE_FLOOR. `bounds` are the levels' end indices."""
    distances: list[float] = []
    for start, end in zip((0, *bounds), bounds, strict=False):
        centre = statistics.median(logs[start:end])
        distances += [abs(value - centre) for value in logs[start:end]]
    return max(NOISE_FLOOR, MAD_TO_SD * statistics.median(distances))


def replace_outliers(logs: Sequence[float], sigma: float) -> list[float]:
    """Returns the values with each one far from its neighbours replaced by their median, so that one or two outliers
    are not taken for a level."""
    cleaned = []
    for index, value in enumerate(logs):
        around = statistics.median(logs[max(0, index - NEIGHBOURS) : index + NEIGHBOURS + 1])
        cleaned.append(around if abs(value - around) > ALONE_SIGMAS * sigma else value)
    return cleaned
