"""Draws cases over time as SVG or PNG: points with the spread of processes, levels, and changes with their commit.

tools/plotting.py says what it needs, and why equal histories give equal bytes.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_attnperf.errors import UsageError
from pytest_attnperf.records.atomic_file import write_atomically
from pytest_attnperf.records.histories import CaseHistory, HistoryPoint
from pytest_attnperf.reports.text.figures import format_change
from pytest_attnperf.tools.history.history_text import format_day
from pytest_attnperf.tools.plotting import DPI, choose_plot_form, foreign_text, render_figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

WIDTH_IN, SERIES_IN = 10.0, 4.2
SERIES_MAX = 8
TICKS = 9
NAME_LIMIT = 110
COMMIT_LENGTH = 12
CHANGE_COLOUR, LEVEL_COLOUR, BASELINE_COLOUR = "#CC3311", "#004488", "#888888"
STYLES: dict[str, tuple[str, str]] = {
    "SAME": ("o", "#0072B2"),
    "FASTER": ("^", "#009E73"),
    "SLOWER": ("v", "#D55E00"),
    "INCORRECT": ("X", "#000000"),
    "ERROR": ("X", "#000000"),
    "SUSPICIOUS": ("P", "#AA4499"),
    "UNDECIDED": ("D", "#E69F00"),
}
"""Verdict -> marker and colour. The colours of Okabe and Ito are distinct for colour-blind readers, too."""

OTHER = ("s", "#666666")


def write_plot(path: Path, histories: Sequence[CaseHistory]) -> int:
    """Writes a diagram of each series with points to one .svg or .png file; returns how many beyond SERIES_MAX were
    left out.

    Raises UsageError for another suffix, if there is nothing to plot, or if matplotlib is missing."""
    form = choose_plot_form(path)
    drawn = [history for history in histories if history.points]
    if not drawn:
        raise UsageError(f"none of {len(histories)} series has a run with a time to plot; choose other cases")
    write_atomically(path, _render_histories(drawn[:SERIES_MAX], form))
    return max(0, len(drawn) - SERIES_MAX)


def _render_histories(histories: Sequence[CaseHistory], form: str) -> bytes:
    def draw_figure() -> Figure:
        from matplotlib.figure import Figure

        figure = Figure(figsize=(WIDTH_IN, SERIES_IN * len(histories)), dpi=DPI, layout="constrained")
        for axes, history in zip(figure.subplots(len(histories), 1, squeeze=False)[:, 0], histories, strict=True):
            _draw_history(axes, history)
        return figure

    return render_figure(draw_figure, form)


def _draw_history(axes: Axes, history: CaseHistory) -> None:
    """Draws one case's times, baselines, levels and changes on `axes`. x: index of the run (not its date, because runs
    of one day would overlap); y: microseconds per call."""
    points = history.points
    _draw_baseline(axes, points)
    _draw_levels(axes, history)
    _draw_points(axes, points)
    _draw_changes(axes, history)
    step = max(1, -(-len(points) // TICKS))
    places = list(range(0, len(points), step))
    axes.set_xticks(
        places,
        [f"{_shorten_text(format_day(points[at].started), 10)}\n{_format_commit(points[at].commit)}" for at in places],
    )
    axes.tick_params(axis="x", labelsize=7.5)
    axes.set_xlim(-0.8, len(points) - 0.2)
    axes.ticklabel_format(axis="y", useOffset=False, style="plain")
    axes.set_ylabel("us per call")
    axes.grid(which="major", axis="y", color="#dddddd", linewidth=0.6)
    axes.set_axisbelow(True)
    title = (
        f"{_shorten_text(history.case, NAME_LIMIT)}\n{_shorten_text(f'{history.arch}/{history.product}', NAME_LIMIT)}"
    )
    axes.set_title(title, fontsize=9.5, loc="left")
    axes.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0), fontsize=8, frameon=False)


def _draw_points(axes: Axes, points: Sequence[HistoryPoint]) -> None:
    """Draws each run with the marker of its verdict, and a line from its fastest to its slowest process."""
    spread = [(at, min(one.process_us), max(one.process_us)) for at, one in enumerate(points) if one.process_us]
    if spread:
        xs, lows, highs = zip(*spread, strict=True)
        axes.vlines(xs, lows, highs, color="#999999", linewidth=1.0, zorder=2)
    for verdict in dict.fromkeys(point.verdict for point in points):
        marker, colour = STYLES.get(verdict, OTHER)
        own = [(at, point.median_us) for at, point in enumerate(points) if point.verdict == verdict]
        xs, ys = zip(*own, strict=True)
        label = _shorten_text(verdict, 20)
        axes.scatter(
            xs, ys, s=26, marker=marker, color=colour, edgecolors="white", linewidths=0.4, zorder=3, label=label
        )


def _draw_baseline(axes: Axes, points: Sequence[HistoryPoint]) -> None:
    known = [(at, point.baseline_us) for at, point in enumerate(points) if point.baseline_us is not None]
    if known:
        xs, ys = zip(*known, strict=True)
        style: dict[str, Any] = {"color": BASELINE_COLOUR, "linestyle": "--", "linewidth": 1.0, "zorder": 1.5}
        axes.step(xs, ys, where="mid", label="baseline", **style)


def _draw_levels(axes: Axes, history: CaseHistory) -> None:
    """Draws a horizontal line at the usual time of each stretch between changes; without changes, at the median."""
    changes = history.changes
    bounds = [0, *(change.index for change in changes), len(history.points)]
    median = statistics.median(point.median_us for point in history.points)
    levels = [changes[0].before_us, *(change.after_us for change in changes)] if changes else [median]
    for number, (start, end, level) in enumerate(zip(bounds, bounds[1:], levels, strict=False)):
        label = "_nolegend_" if number else "level"
        axes.hlines(
            level, start - 0.4, end - 0.6, color=LEVEL_COLOUR, linewidth=1.8, alpha=0.75, zorder=1.8, label=label
        )


def _draw_changes(axes: Axes, history: CaseHistory) -> None:
    """Draws a vertical line before the first run after each change, with the change's size and that run's commit."""
    low, high = axes.get_ylim()
    axes.set_ylim(low, high + 0.22 * (high - low))
    for change in history.changes:
        axes.axvline(change.index - 0.5, color=CHANGE_COLOUR, linewidth=1.0, linestyle=":", zorder=1.6)
        right = change.index > 0.8 * len(history.points)
        note = f"{format_change(change.ratio)}\n{_format_commit(change.first_after)}"
        if change.environment:
            note += f"\n{_shorten_text(change.environment[0], 40)}" + (" ..." if len(change.environment) > 1 else "")
        axes.annotate(
            note,
            (change.index - 0.5, 1.0),
            xycoords=("data", "axes fraction"),
            xytext=(-3 if right else 3, -3),
            textcoords="offset points",
            ha="right" if right else "left",
            va="top",
            fontsize=7.5,
            color=CHANGE_COLOUR,
        )


def _format_commit(commit: str) -> str:
    name, plus, rest = commit.partition("+")
    return _shorten_text(f"{name[:COMMIT_LENGTH]}{plus}{rest}", 18) or "unknown"


def _shorten_text(text: str, limit: int) -> str:
    """Returns text of foreign origin as one line of at most `limit` characters; reads no more of it than needed."""
    return foreign_text(text[: 4 * limit + 1], limit)
