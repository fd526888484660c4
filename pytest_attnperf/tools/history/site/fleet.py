"""How many cases are slower or faster than when they were first measured, commit by commit, as numbers and a chart."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pytest_attnperf.tools.history.site.case_summary import CaseSummary
from pytest_attnperf.tools.history.site.commits import SiteCommit
from pytest_attnperf.tools.history.site.trend_chart import (
    HEIGHT,
    MARK_WIDTH,
    ChartText,
    TrendChart,
    choose_ticks,
    place_days,
    place_value,
)


@dataclass(frozen=True)
class FleetCounts:
    """At each commit: how many series stand slower and faster than at their first run, how many changed there to slower
    and to faster, and how many cases were measured."""

    slower: tuple[int, ...]
    faster: tuple[int, ...]
    became_slower: tuple[int, ...]
    became_faster: tuple[int, ...]
    measured: tuple[int, ...]


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
