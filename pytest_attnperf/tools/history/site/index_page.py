"""The first page: all cases as a table, changes found, and how many cases are slower or faster over time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pytest_attnperf.records.time_units import format_time
from pytest_attnperf.reports.html.embedding import Json, round_figure, script_json
from pytest_attnperf.reports.text.figures import format_change, one_line
from pytest_attnperf.tools.history.history_text import format_day
from pytest_attnperf.tools.history.site.case_summary import CaseSummary
from pytest_attnperf.tools.history.site.commits import SiteCommit
from pytest_attnperf.tools.history.site.lasting_changes import LastingChange
from pytest_attnperf.tools.history.site.site_templates import load_site_template
from pytest_attnperf.tools.history.site.trend_chart import (
    HEIGHT,
    MARK_WIDTH,
    ChartText,
    TrendChart,
    choose_ticks,
    place_days,
    place_value,
)

NAME_LIMIT = 300
TEXT_LIMIT = 400
GROUPS_SHOWN = 25
CASES_SHOWN = 3
GROUPS_OPEN = 6
"""Groups that are not folded away."""


@dataclass(frozen=True)
class ChangeGroup:
    """The changes at one commit: their numbers, the largest as (case, change, is slower), and what changed there."""

    commit: SiteCommit
    before: SiteCommit
    day: str
    slower: int
    faster: int
    largest: tuple[tuple[CaseSummary, str, str, bool], ...]
    suspects: tuple[str, ...]


@dataclass(frozen=True)
class FleetCounts:
    """At each commit: how many series stand slower and faster than at their first run, how many changed there to slower
    and to faster, and how many cases were measured."""

    slower: tuple[int, ...]
    faster: tuple[int, ...]
    became_slower: tuple[int, ...]
    became_faster: tuple[int, ...]
    measured: tuple[int, ...]


def render_index_page(cases: Sequence[CaseSummary], commits: Sequence[SiteCommit]) -> str:
    """Returns the first page of the site."""
    counts = count_fleet(cases, len(commits))
    groups = group_changes(cases, commits)
    devices = sorted({one.device for one in cases})
    chart = draw_fleet(counts, commits) if groups else None
    page = load_site_template("index_page.html").render(
        cases=cases,
        names=[one_line(str(one.key), NAME_LIMIT) for one in cases],
        devices=[one_line(device, NAME_LIMIT) for device in devices],
        commits=commits,
        runs=sum(len(commit.runs) for commit in commits),
        first=format_day(commits[0].runs[0].started) if commits else "",
        last=format_day(commits[-1].runs[-1].started) if commits else "",
        groups=groups[:GROUPS_SHOWN],
        shown=GROUPS_OPEN,
        groups_left=max(0, len(groups) - GROUPS_SHOWN),
        chart=chart,
        slower=counts.slower[-1] if commits else 0,
        faster=counts.faster[-1] if commits else 0,
        rows=list_commit_rows(counts, commits),
        data=script_json(collect_index_data(cases, commits, counts, chart)),
        root="",
    )
    return str(page)


def group_changes(cases: Sequence[CaseSummary], commits: Sequence[SiteCommit]) -> list[ChangeGroup]:
    """Returns the changes by the commit of the first run after them, latest first."""
    by_commit: dict[int, list[LastingChange]] = {}
    for one in cases:
        for change in one.changes:
            by_commit.setdefault(change.commit, []).append(change)
    return [_make_group(commits[number], by_commit[number], cases, commits) for number in sorted(by_commit)[::-1]]


def _make_group(
    commit: SiteCommit, changes: Sequence[LastingChange], cases: Sequence[CaseSummary], commits: Sequence[SiteCommit]
) -> ChangeGroup:
    ordered = sorted(changes, key=lambda change: (-max(change.ratio, 1 / change.ratio), change.case))
    largest = tuple(
        (cases[one.case], one_line(str(cases[one.case].key), NAME_LIMIT), format_change(one.ratio), one.ratio > 1)
        for one in ordered[:CASES_SHOWN]
    )
    return ChangeGroup(
        commit=commit,
        before=commits[max(change.before for change in changes)],
        day=format_day(min(change.started for change in changes)),
        slower=sum(change.ratio > 1 for change in changes),
        faster=sum(change.ratio <= 1 for change in changes),
        largest=largest,
        suspects=tuple(dict.fromkeys(one_line(change.suspect, TEXT_LIMIT) for change in ordered))[:CASES_SHOWN],
    )


def list_commit_rows(
    counts: FleetCounts, commits: Sequence[SiteCommit]
) -> list[tuple[SiteCommit, str, tuple[int, int, int, int, int]]]:
    """Returns (commit, day, (measured, became slower, became faster, stand slower, stand faster)), latest first."""
    return [
        (
            commit,
            format_day(commit.runs[0].started),
            (
                counts.measured[commit.number], counts.became_slower[commit.number],
                counts.became_faster[commit.number], counts.slower[commit.number], counts.faster[commit.number],
            ),
        )
        for commit in reversed(commits)
    ]  # fmt: skip


def collect_case_names(cases: Sequence[CaseSummary]) -> Json:
    """Returns the names of all cases, which the first page and those of commits share: words by column, and for each
    case its places in them, its workload and its page."""
    words: dict[str, dict[str, int]] = {name: {} for name in ("suite", "backend", "device")}

    def code(name: str, text: str) -> int:
        known = words[name]
        return known.setdefault(one_line(text, NAME_LIMIT), len(known))

    rows = [
        [
            code("suite", one.key.suite),
            code("backend", one.key.backend),
            code("device", one.device),
            one_line("/".join(filter(None, (one.key.workload, one.key.label))), NAME_LIMIT),
            one.file,
        ]
        for one in cases
    ]
    return {"words": {name: list(known) for name, known in words.items()}, "rows": rows}


def collect_index_data(
    cases: Sequence[CaseSummary], commits: Sequence[SiteCommit], counts: FleetCounts, chart: TrendChart | None
) -> Json:
    """Returns the data of the first page's script: a row for each case, and the figures of the chart. `zero` is how far
    down the chart zero lies, 0 to 1."""
    return {
        "cases": [_make_row(one, commits) for one in cases],
        "fleet": {
            "zero": round(chart.high / (chart.high - chart.low), 4) if chart else 0,
            "slower": counts.slower,
            "faster": counts.faster,
            "became": [counts.became_slower, counts.became_faster],
            "commits": [[one.name, one.file, format_day(one.runs[0].started)] for one in commits],
        },
    }


def _make_row(one: CaseSummary, commits: Sequence[SiteCommit]) -> Json:
    last = one.changes[-1] if one.changes else None
    newest = commits[one.newest_commit].runs[-1]
    return [
        round_figure(one.newest_us),
        format_time(one.newest_us),
        one_line(one.newest_verdict, 40),
        format_day(newest.started),
        one.runs + one.wrong,
        *(
            [round_figure(last.ratio), format_change(last.ratio), format_day(last.started), last.before, last.commit]
            if last
            else [None, "", "", -1, -1]
        ),
        one.spark,
        one.spark_change,
    ]


def count_fleet(cases: Sequence[CaseSummary], commits: int) -> FleetCounts:
    """Returns the counts over all cases; `commits` is the number of commits."""
    steps = {sign: [0] * commits for sign in (1, -1)}
    became = {sign: [0] * commits for sign in (1, -1)}
    measured = [0] * commits
    for one in cases:
        for commit in set(one.times.commits):
            measured[commit] += 1
        for change in one.changes:
            became[1 if change.ratio > 1 else -1][change.commit] += 1
        for levels in one.levels:
            before = 0
            for commit, sign in levels:
                for which in (1, -1):
                    steps[which][commit] += (sign == which) - (before == which)
                before = sign
    return FleetCounts(
        slower=_add_up(steps[1]),
        faster=_add_up(steps[-1]),
        became_slower=tuple(became[1]),
        became_faster=tuple(became[-1]),
        measured=tuple(measured),
    )


def draw_fleet(counts: FleetCounts, commits: Sequence[SiteCommit]) -> TrendChart:
    """Returns the chart: slower series above zero, faster ones below, a step per commit."""
    most = max(1, *counts.slower, *counts.faster)
    high, low = max(counts.slower) or 0.15 * most, -(max(counts.faster) or 0.15 * most)
    high, low = high + 0.08 * (high - low), low - 0.08 * (high - low)
    zero = place_value(0, low, high)
    ticks = [tick for tick in choose_ticks(low, high, 4) if tick == round(tick)]
    return TrendChart(
        width=MARK_WIDTH * len(commits),
        low=low,
        high=high,
        title="cases slower (above 0) and faster (below)",
        paths=(
            ("area bad", _draw_area(counts.slower, 1, zero, low, high)),
            ("area good", _draw_area(counts.faster, -1, zero, low, high)),
            ("zero", f"M0 {zero}H{MARK_WIDTH * len(commits)}"),
        ),
        ticks=tuple(ChartText(place_value(tick, low, high) * 100 / HEIGHT, f"{abs(tick):.0f}") for tick in ticks),
        days=place_days([commit.runs[0].started for commit in commits]),
    )


def _draw_area(counts: Sequence[int], sign: int, zero: int, low: float, high: float) -> str:
    """Returns the path of steps between zero and the counts; only where a count differs from the one before."""
    path, before = f"M0 {zero}", 0
    for commit, count in enumerate(counts):
        if count != before:
            path += f"H{MARK_WIDTH * commit}V{place_value(sign * count, low, high)}"
        before = count
    return f"{path}H{MARK_WIDTH * len(counts)}V{zero}Z"


def _add_up(steps: Sequence[int]) -> tuple[int, ...]:
    total, found = 0, []
    for step in steps:
        total += step
        found.append(total)
    return tuple(found)
