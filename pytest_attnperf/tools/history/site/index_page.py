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
from pytest_attnperf.tools.history.site.fleet import FleetCounts, count_fleet, draw_fleet
from pytest_attnperf.tools.history.site.lasting_changes import LastingChange
from pytest_attnperf.tools.history.site.site_templates import load_site_template
from pytest_attnperf.tools.history.site.trend_chart import TrendChart

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
