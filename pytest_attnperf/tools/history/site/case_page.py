"""The page of a case: its series as charts, its changes, what else changed, and all its runs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pytest_attnperf.records.histories import CaseHistory, HistoryPoint
from pytest_attnperf.records.time_units import format_time, format_times
from pytest_attnperf.reports.html.embedding import Json, round_figure, script_json
from pytest_attnperf.reports.text.figures import format_change, one_line
from pytest_attnperf.tools.history.bulk_reading import CaseRuns
from pytest_attnperf.tools.history.change_points import list_differences
from pytest_attnperf.tools.history.history_text import format_day
from pytest_attnperf.tools.history.site.case_summary import CaseSummary, SiteSeries
from pytest_attnperf.tools.history.site.commits import SiteCommit, format_minute
from pytest_attnperf.tools.history.site.lasting_changes import LastingChange
from pytest_attnperf.tools.history.site.site_templates import load_site_template
from pytest_attnperf.tools.history.site.trend_chart import KINDS, TrendChart, draw_history, kind_of_verdict

NAME_LIMIT = 300
TEXT_LIMIT = 400
DIFFERENCES_SHOWN = 40


@dataclass(frozen=True)
class ChangeLine:
    """A change as a row of a table: texts, and the commits of the first run after it and the last one before."""

    change: str
    is_slower: bool
    interval: str
    times: str
    day: str
    after: SiteCommit
    before: SiteCommit
    suspect: str


@dataclass(frozen=True)
class SeriesView:
    """A series as its part of the page. `environment` has (commit, day, what changed), newest first."""

    chart: TrendChart
    described: str
    legend: tuple[tuple[str, str], ...]
    notes: tuple[str, ...]
    changes: tuple[ChangeLine, ...]
    environment: tuple[tuple[SiteCommit, str, tuple[str, ...]], ...]
    left_out: int


def render_case_page(
    summary: CaseSummary,
    found: CaseRuns,
    series: Sequence[SiteSeries],
    commits: Sequence[SiteCommit],
    places: Mapping[int, int],
) -> str:
    """Returns the page of a case. `places` has the place of each run in the site's list of runs."""
    views = [view_series(one, commits) for one in series]
    last = summary.changes[-1] if summary.changes else None
    page = load_site_template("case_page.html").render(
        summary=summary,
        name=one_line(str(summary.key), NAME_LIMIT),
        device=one_line(summary.device, NAME_LIMIT),
        nodeid=one_line(summary.nodeid, NAME_LIMIT),
        label=one_line(summary.key.label, NAME_LIMIT),
        newest=format_time(summary.newest_us),
        newest_commit=commits[summary.newest_commit],
        last=describe_change_line(last, commits) if last else None,
        views=views,
        notes=() if views else [one_line(note, TEXT_LIMIT) for one in found.series for note in one.notes],
        data=script_json(collect_case_data(found, series, views, places)),
        root="../",
    )
    return str(page)


def view_series(series: SiteSeries, commits: Sequence[SiteCommit]) -> SeriesView:
    """Returns a series with its texts and its chart."""
    history = series.history
    environment = list_environment_changes(series, commits)
    first, last = history.points[0], history.points[-1]
    count = len(history.points)
    return SeriesView(
        chart=draw_history(history, series.spans),
        described=f"{count} run{'s' * (count != 1)} from {format_day(first.started)} to {format_day(last.started)}, "
        f"{format_times([first.median_us, last.median_us])}, {len(series.changes)} lasting "
        f"change{'s' * (len(series.changes) != 1)}",
        legend=list_legend(history),
        notes=tuple(one_line(note, TEXT_LIMIT) for note in history.notes),
        changes=tuple(describe_change_line(change, commits) for change in reversed(series.changes)),
        environment=environment[:DIFFERENCES_SHOWN],
        left_out=max(0, len(environment) - DIFFERENCES_SHOWN),
    )


def describe_change_line(change: LastingChange, commits: Sequence[SiteCommit]) -> ChangeLine:
    """Returns a change as texts."""
    return ChangeLine(
        change=format_change(change.ratio),
        is_slower=change.ratio > 1,
        interval=f"{format_change(change.low)} .. {format_change(change.high)}",
        times=format_times([change.before_us, change.after_us]),
        day=format_day(change.started),
        after=commits[change.commit],
        before=commits[change.before],
        suspect=one_line(change.suspect, TEXT_LIMIT),
    )


def list_legend(history: CaseHistory) -> tuple[tuple[str, str], ...]:
    """Returns (class of marks, 'SAME 28, RECORDED 1') for each class that the series has."""
    counts: dict[str, dict[str, int]] = {}
    for verdict, count in Counter(point.verdict for point in history.points).items():
        counts.setdefault(kind_of_verdict(verdict), {})[verdict] = count
    return tuple(
        (kind, one_line(", ".join(f"{name} {count}" for name, count in counts[kind].items()), TEXT_LIMIT))
        for kind in KINDS
        if kind in counts
    )


def list_environment_changes(
    series: SiteSeries, commits: Sequence[SiteCommit]
) -> tuple[tuple[SiteCommit, str, tuple[str, ...]], ...]:
    """Returns (commit, day, 'torch: 2.10.0 -> 2.11.0' ...) for each run whose environment differs from that of the run
    before, newest first."""
    points, found = series.history.points, []
    for index in range(len(points) - 1, 0, -1):
        before, after = points[index - 1].environment, points[index].environment
        if after is not before and (differences := list_differences(before, after)):
            said = tuple(one_line(text, TEXT_LIMIT) for text in differences)
            found.append((commits[series.commits[index]], format_minute(points[index].started), said))
    return tuple(found)


def collect_case_data(
    found: CaseRuns, series: Sequence[SiteSeries], views: Sequence[SeriesView], places: Mapping[int, int]
) -> Json:
    """Returns the data of the page's script: for each series its runs, times, verdicts, and the borders of its chart;
    and the runs in which the case was wrong.

    runs                 [place, number of runs that follow each other from there] ...
    us                   microseconds; `low` and `high`: fastest and slowest process, in millionths beside them
    processes, verdicts  [value, number of points that share it] ...
    """
    words: dict[str, int] = {}
    collected = []
    for one, runs, view in zip(series, found.runs, views, strict=True):
        points = one.history.points
        collected.append(
            {
                "first": view.chart.first,
                "borders": [view.chart.low, view.chart.high],
                "runs": join_stretches([places[run] for run in runs], step=1),
                "us": [round_figure(point.median_us) for point in points],
                "low": [_count_millionths(low, point) for point, (low, _) in zip(points, one.spans, strict=True)],
                "high": [_count_millionths(high, point) for point, (_, high) in zip(points, one.spans, strict=True)],
                "processes": join_stretches([len(point.process_us) for point in points]),
                "verdicts": join_stretches([words.setdefault(point.verdict, len(words)) for point in points]),
            }
        )
    wrong = [
        [places[one.run], words.setdefault(one.verdict, len(words))]
        for one in found.measurements
        if one.median_us is None
    ]
    return {"series": collected, "wrong": wrong, "words": [one_line(word, 60) for word in words]}


def join_stretches(values: Sequence[int], step: int = 0) -> list[list[int]]:
    """Returns [first value, length] of stretches in which each value is the one before plus `step`."""
    found: list[list[int]] = []
    for value in values:
        if found and value == found[-1][0] + step * found[-1][1]:
            found[-1][1] += 1
        else:
            found.append([value, 1])
    return found


def _count_millionths(us: float, point: HistoryPoint) -> int:
    """Returns by how many millionths of the point's time another is above it; negative below."""
    return round(1e6 * (us / point.median_us - 1))
