"""Draws a series of runs as shapes that need no script: marks stretch with the page, and texts keep their size.

Places across are in units of MARK_WIDTH per run, places down 0 to HEIGHT from the top; the page's template stretches
them to its width. Texts are placed in percent.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from pytest_attnperf.records.histories import CaseHistory, HistoryPoint
from pytest_attnperf.records.time_units import choose_time_unit
from pytest_attnperf.reports.text.figures import format_change
from pytest_attnperf.tools.history.history_text import format_day

MARK_WIDTH = 10
HEIGHT = 1000
MOST_DRAWN = 2000
TICKS = 5
DAYS, DAYS_NARROW = 7, 3
LEAST_RANGE = 0.02
"""Least height of a chart relative to its times: noise of 0.1 % must not look like a cliff."""

SPAN_SHARE = 0.5
"""Spans of processes extend the chart by at most this share of the range of medians, so that one slow process does not
flatten all others."""

LABEL_SHARE, LABEL_SHARE_NARROW = 0.065, 0.24
"""Width of a label of a change relative to a wide and a narrow chart."""

LABEL_ROWS = 2
BAD = frozenset({"SLOWER", "INCORRECT", "ERROR", "SUSPICIOUS", "WORSE", "GREW"})
OPEN = frozenset({"UNDECIDED", "ENVIRONMENT", "INCOMPARABLE", "NO_BASELINE", "STALE", "DRIFT", "MOVED"})
KINDS = ("plain", "good", "open", "bad")
"""Classes of marks in the order in which they are drawn: failing ones on top."""


@dataclass(frozen=True)
class ChartText:
    """A text of a chart: `at` percent across or down, in `row` of its kind. `narrow`: also shown on a phone."""

    at: float
    text: str
    row: int = 0
    narrow: bool = True


@dataclass(frozen=True)
class TrendChart:
    """A chart of runs: `paths` are (class, SVG path) in a box of `width` by HEIGHT; low and high its lower and upper
    border in the unit of its data (microseconds, or cases); `first` the index of its first run."""

    width: int
    low: float
    high: float
    title: str
    paths: tuple[tuple[str, str], ...]
    ticks: tuple[ChartText, ...]
    days: tuple[ChartText, ...]
    labels: tuple[ChartText, ...] = ()
    first: int = 0


def kind_of_verdict(verdict: str) -> str:
    """Returns the class of a verdict's marks, one of KINDS."""
    return "bad" if verdict in BAD else "open" if verdict in OPEN else "good" if verdict == "FASTER" else "plain"


def draw_history(history: CaseHistory, spans: Sequence[tuple[float, float]]) -> TrendChart:
    """Returns the chart of a series with points: its newest MOST_DRAWN runs, changes and levels. `spans` are the
    fastest and slowest process of each point."""
    first = max(0, len(history.points) - MOST_DRAWN)
    points, spans = history.points[first:], spans[first:]
    low, high = choose_range(points, spans)
    unit = choose_time_unit([point.median_us for point in points])
    return TrendChart(
        width=MARK_WIDTH * len(points),
        low=low,
        high=high,
        title=f"{unit.name} per call",
        paths=(
            ("span", _draw_spans(spans, low, high)),
            *_draw_levels(history, first, low, high),
            *_draw_dots(points, low, high),
        ),
        ticks=_place_ticks(low, high, unit.us),
        days=place_days([point.started for point in points]),
        labels=_place_labels(history, first),
        first=first,
    )


def choose_range(points: Sequence[HistoryPoint], spans: Sequence[tuple[float, float]]) -> tuple[float, float]:
    """Returns the lower and upper border of a chart in microseconds; the upper is larger."""
    medians = [point.median_us for point in points]
    low, high = min(medians), max(medians)
    room = max(high - low, LEAST_RANGE * statistics.median(medians))
    lowest, highest = min(low for low, _ in spans), max(high for _, high in spans)
    low, high = min(low, max(lowest, low - SPAN_SHARE * room)), max(high, min(highest, high + SPAN_SHARE * room))
    missing = max(0.0, room - (high - low)) / 2 + 0.06 * room
    return max(0.0, low - missing), high + missing


def place_value(value: float, low: float, high: float) -> int:
    """Returns how far down a value lies, 0 to HEIGHT; values beyond the borders are put on them."""
    return round(HEIGHT * (high - min(max(value, low), high)) / (high - low))


def choose_ticks(low: float, high: float, most: int = TICKS) -> list[float]:
    """Returns at most `most` + 1 round values from `low` to `high`: multiples of 1, 2 or 5 times a power of ten."""
    least = (high - low) / most
    power = 10.0 ** math.floor(math.log10(least))
    step = next(power * factor for factor in (1, 2, 5, 10) if power * factor >= least * 0.999999)
    return [number * step for number in range(math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9) + 1)]


def format_ticks(ticks: Sequence[float]) -> list[str]:
    """Returns ticks as numbers with as many decimals as all of them need."""
    step = ticks[1] - ticks[0] if len(ticks) > 1 else abs(ticks[0]) if ticks else 1.0
    decimals = max(0, -math.floor(math.log10(step) + 1e-9)) if step else 0
    return [f"{tick:.{decimals}f}" for tick in ticks]


def place_days(started: Sequence[str]) -> tuple[ChartText, ...]:
    """Returns days under a chart, spread evenly; none is repeated or reaches beyond its ends."""
    count = len(started)
    chosen = (
        sorted({round((number + 0.5) / DAYS * (count - 1)) for number in range(DAYS)}) if count > DAYS else range(count)
    )
    days: dict[str, float] = {}
    for index in chosen:
        days.setdefault(format_day(started[index]), 100 * (index + 0.5) / count)
    few = len(days) <= DAYS_NARROW
    return tuple(ChartText(at, day, narrow=few or number % 2 == 1) for number, (day, at) in enumerate(days.items()))


def _place_ticks(low: float, high: float, unit_us: float) -> tuple[ChartText, ...]:
    ticks = choose_ticks(low / unit_us, high / unit_us)
    places = [place_value(tick * unit_us, low, high) * 100 / HEIGHT for tick in ticks]
    return tuple(ChartText(at, text) for at, text in zip(places, format_ticks(ticks), strict=True))


def _draw_spans(spans: Sequence[tuple[float, float]], low: float, high: float) -> str:
    """Returns a line for each run from its slowest to its fastest process."""
    return "".join(
        f"M{MARK_WIDTH * index + 5} {place_value(slowest, low, high)}V{place_value(fastest, low, high)}"
        for index, (fastest, slowest) in enumerate(spans)
        if fastest < slowest
    )


def _draw_dots(points: Sequence[HistoryPoint], low: float, high: float) -> list[tuple[str, str]]:
    scale = HEIGHT / (high - low)  # medians are within the borders
    dots: dict[str, list[str]] = {}
    kinds = {verdict: dots.setdefault(kind_of_verdict(verdict), []) for verdict in {one.verdict for one in points}}
    for index, point in enumerate(points):
        kinds[point.verdict].append(f"M{MARK_WIDTH * index + 5} {round(scale * (high - point.median_us))}h0")
    return [(f"dot {kind}", "".join(dots[kind])) for kind in KINDS if kind in dots]


def _draw_levels(history: CaseHistory, first: int, low: float, high: float) -> list[tuple[str, str]]:
    """Returns a line across the runs of each level, and one down at each change, by whether it is slower."""
    changes = [change for change in history.changes if change.index >= first]
    if not history.changes:
        return []
    before = changes[0].before_us if changes else history.changes[-1].after_us
    levels = [before, *(change.after_us for change in changes)]
    bounds = [0, *(change.index - first for change in changes), len(history.points) - first]
    across = "".join(
        f"M{MARK_WIDTH * start} {place_value(level, low, high)}H{MARK_WIDTH * end}"
        for start, end, level in zip(bounds, bounds[1:], levels, strict=False)
    )
    down = [
        (f"change {name}", "".join(f"M{MARK_WIDTH * (one.index - first)} 0V{HEIGHT}" for one in own))
        for name, own in (
            ("bad", [change for change in changes if change.ratio > 1]),
            ("good", [change for change in changes if change.ratio <= 1]),
        )
        if own
    ]
    return [*down, ("level", across)]


def _place_labels(history: CaseHistory, first: int) -> tuple[ChartText, ...]:
    """Returns a label over each change. Newer ones come first where there is no room for all."""
    count = len(history.points) - first
    changes = [change for change in history.changes if change.index >= first]
    taken: dict[float, list[list[float]]] = {
        share: [[] for _ in range(LABEL_ROWS)] for share in (LABEL_SHARE, LABEL_SHARE_NARROW)
    }
    found = []
    for change in reversed(changes):
        at = (change.index - first) / count
        wide = _take_row(taken[LABEL_SHARE], at, LABEL_SHARE)
        if wide is not None:
            row = taken[LABEL_SHARE_NARROW][wide]
            narrow = all(abs(at - other) >= LABEL_SHARE_NARROW for other in row)
            if narrow:
                row.append(at)
            found.append(ChartText(100 * at, format_change(change.ratio), wide, narrow))
    return tuple(reversed(found))


def _take_row(rows: Sequence[list[float]], at: float, share: float) -> int | None:
    """Puts a label of width `share` into the first row with room for it, and returns the row; None if there is none."""
    for number, row in enumerate(rows):
        if all(abs(at - other) >= share for other in row):
            row.append(at)
            return number
    return None
