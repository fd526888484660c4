"""A picture of the changes for a pull request: a line of characters per case, on one axis, worst and best first.

It is text in a fenced block because that is what GitHub shows everywhere. GitHub removes inline SVG and data: addresses
from comments, an image would need a host that readers trust, and a mermaid chart has no intervals, cuts the names of
cases and is source text in mails. Only ASCII is drawn: fonts that lack a block or a box take it from
another font, of another width, and the columns would no longer stand below each other. Names come last, so that no wide
character moves a strip.
"""

from __future__ import annotations

import math
import re
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from pytest_attnperf.records import Verdict
from pytest_attnperf.records.time_units import format_time_change
from pytest_attnperf.reports.files.markdown_details import MarkdownSection
from pytest_attnperf.reports.files.markdown_text import fence_lines, make_visible
from pytest_attnperf.reports.run.joined import Joined, Shown
from pytest_attnperf.reports.text.figures import format_change
from pytest_attnperf.reports.text.text_width import cut_text

CELLS = 31
"""Characters of a strip: 30 steps between the ends of the axis."""

BEYOND_ALLOWED = 4.0
"""The axis ends at this many times the largest allowed change: a case that is five times as slow must not press all
others into one column."""

LEAST_REACH = 1e-3
MARGIN = 1.05
"""The axis ends a little beyond what it shows."""

TICKS = 4
"""About as many steps as an axis has."""

ZERO, ALLOWED, CHANGE, LOW, HIGH, BETWEEN, BELOW, ABOVE = "|:o[]-<>"
LEGEND = (
    f"{CHANGE} change   {LOW}{BETWEEN}{HIGH} 95 % interval   {ZERO} none   {ALLOWED} allowed   "
    f"{BELOW} {ABOVE} beyond the axis"
)

WORST, BEST = 16, 8
"""Most cases that are shown from either end. With axis, legend and fences the picture has at most 29 lines."""

NAME_CELLS = 72
NAME_LIMIT = 400
UNCHANGED = frozenset({Verdict.SAME, Verdict.RIGHT, Verdict.UNSUPPORTED})
_ACTS = re.compile("[<@`]")


def picture_section(joined: Joined) -> MarkdownSection | None:
    """Returns the picture of all compared cases that are not SAME, the slowest first, then the fastest; None without
    any."""
    changed = sort_by_change(joined.cases)
    if not changed:
        return None
    worst = changed[: WORST + max(0, BEST - max(0, len(changed) - WORST))]
    best = changed[max(len(worst), len(changed) - BEST) :]
    between = len(changed) - len(worst) - len(best)
    several = len(joined.devices) > 1
    opening, closing = fence_lines("text")
    axis = choose_axis([_make_change(one) for one in (*worst, *best)])
    figures = [_format_figures(one) for one in (*worst, *best)]
    widths = [max(map(len, column)) for column in zip(*figures, strict=True)]

    def draw_rows() -> Iterator[str]:
        for number, one in enumerate((*worst, *best)):
            gap = f"{'':{CELLS}}  ({between} more between)\n" if between and number == len(worst) else ""
            change, times = figures[number]
            strip = axis.draw_strip(_make_change(one))
            yield f"{gap}{strip}  {change:>{widths[0]}}  {times:>{widths[1]}}  {_format_name(one, several)}"

    head = (opening, axis.draw_labels())
    return MarkdownSection("", head, draw_rows(), len(changed), foot=(LEGEND, closing), unit="case")


def sort_by_change(cases: Sequence[Shown]) -> list[Shown]:
    """Returns the cases with a finite ratio that are not SAME, the slowest first; ties by name."""
    changed = [
        one
        for one in cases
        if one.case.ratio is not None and math.isfinite(one.case.ratio) and one.case.verdict not in UNCHANGED
    ]
    return sorted(changed, key=lambda one: (-(one.case.ratio or 0.0), str(one.case.key), one.device))


def _make_change(one: Shown) -> DrawnChange:
    return DrawnChange(one.case.ratio or 0.0, one.case.interval, one.case.threshold)


def _format_figures(one: Shown) -> tuple[str, str]:
    return format_change(one.case.ratio), format_time_change(one.case.baseline_us, one.case.median_us)


def _format_name(one: Shown, several: bool) -> str:
    """Returns the case's name, with its device among several. GitHub acts on nothing in a fenced block, but tools that
    read the text for mentions, tags or hidden markers may; so a name has none of their characters here."""
    named = cut_text(make_visible(str(one.case.key), NAME_LIMIT), NAME_CELLS)
    where = f" on {make_visible(one.device, NAME_CELLS)}" if several and one.device else ""
    return _ACTS.sub("?", named + where)


@dataclass(frozen=True)
class DrawnChange:
    """A ratio new / old, its 95 % interval, and the ratio up to which it is allowed; None where not known.

    Ratios and ends that are not finite count as not known.
    """

    ratio: float
    interval: tuple[float, float] | None = None
    allowed: float | None = None

    @property
    def ends(self) -> tuple[float, float] | None:
        """The finite ends of the interval, in order; None without."""
        known = self.interval is not None and all(map(math.isfinite, self.interval))
        return (min(self.interval), max(self.interval)) if known and self.interval is not None else None

    @property
    def limit(self) -> float | None:
        """The allowed ratio, if it is finite; else None."""
        return self.allowed if self.allowed is not None and math.isfinite(self.allowed) else None


@dataclass(frozen=True)
class ChangeAxis:
    """An axis of changes, as fractions: from `low` (at most 0) to `high` (above 0), with `ticks` between."""

    low: float
    high: float
    ticks: tuple[float, ...]

    def place(self, ratio: float) -> int:
        """Returns the column of a ratio; below 0 or from CELLS on if it is beyond the axis."""
        share = (ratio - 1.0 - self.low) / (self.high - self.low)
        return round(max(-1.0, min(2.0, share)) * (CELLS - 1))

    def draw_labels(self) -> str:
        """Returns the line above the strips, with the ticks in percent; the last label may reach beyond."""
        line = [" "] * (CELLS + 8)
        for tick in self.ticks:
            text = f"{tick * 100:+g} %" if tick else "0"
            at = max(0, self.place(1 + tick) - len(text) // 2)
            if all(cell == " " for cell in line[max(0, at - 1) : at + len(text) + 1]):
                line[at : at + len(text)] = text
        return "".join(line).rstrip()

    def draw_strip(self, change: DrawnChange) -> str:
        """Returns CELLS characters: the change with its interval, no change, and what is allowed. The change hides the
        others where they meet."""
        strip = [" "] * CELLS
        for ratio, mark in ((1.0, ZERO), (change.limit, ALLOWED)):
            if ratio is not None and 0 <= self.place(ratio) < CELLS:
                strip[self.place(ratio)] = mark
        if change.ends is not None:
            low, high = map(self.place, change.ends)
            for at in range(max(0, low), min(CELLS - 1, high) + 1):
                strip[at] = LOW if at == low else HIGH if at == high else BETWEEN if strip[at] == " " else strip[at]
        at = self.place(change.ratio)
        strip[max(0, min(CELLS - 1, at))] = CHANGE if 0 <= at < CELLS else BELOW if at < 0 else ABOVE
        return "".join(strip)


def choose_axis(changes: Sequence[DrawnChange]) -> ChangeAxis:
    """Returns an axis that shows these changes and what is allowed, with a few round ticks.

    It goes no further than BEYOND_ALLOWED times the median allowed change, or, where none is known, the median change.
    """
    ends = [end - 1.0 for one in changes for end in (one.ratio, *(one.ends or ()))]
    limits = [abs(one.limit - 1.0) for one in changes if one.limit is not None]
    sizes = limits or [abs(one.ratio - 1.0) for one in changes] or [0.0]
    most = max(LEAST_REACH, BEYOND_ALLOWED * statistics.median(sizes))
    high = min(most, MARGIN * max([LEAST_REACH, *ends, *limits]))
    low = -min(most, MARGIN * max([0.0, *(-end for end in ends)]))
    step = _choose_step((high - low) / TICKS)
    first, last = math.ceil(low / step), math.floor(high / step)
    return ChangeAxis(low, high, tuple(number * step for number in range(first, last + 1)))


def _choose_step(least: float) -> float:
    """Returns the smallest of 1, 2, 2.5 and 5 times a power of ten that is not below `least`."""
    power = 10.0 ** math.floor(math.log10(least))
    return next((factor * power for factor in (1.0, 2.0, 2.5, 5.0) if factor * power >= least), 10.0 * power)
