"""What the site keeps of a case once its page is written: its row of the table, its changes, its times by commit."""

from __future__ import annotations

import itertools
import math
import statistics
from array import array
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pytest_attnperf.records import CaseKey
from pytest_attnperf.records.histories import CaseHistory
from pytest_attnperf.tools.history.bulk_reading import CaseMeasurement, CaseRuns
from pytest_attnperf.tools.history.change_points import with_changes
from pytest_attnperf.tools.history.site.lasting_changes import LastingChange, list_changes
from pytest_attnperf.tools.history.site.site_files import CASES, make_page_name

SPARK_POINTS = 40
SPARK_WIDTH, SPARK_HEIGHT = 100, 20
SPARK_RANGE = 0.02
"""Least range of a sparkline relative to its times, as for the chart."""

STEADY = 0.01
"""A level within 1 % of a case's first counts as neither slower nor faster, as for changes."""


@dataclass(frozen=True)
class SiteSeries:
    """A series with its changes, and for each point the number of its commit, and its fastest and slowest process in
    microseconds (its time, if it has no process)."""

    history: CaseHistory
    commits: tuple[int, ...]
    spans: tuple[tuple[float, float], ...]
    changes: tuple[LastingChange, ...]


@dataclass(frozen=True)
class CommitTimes:
    """A case's runs, oldest first, a place in each array per run: commit, time in microseconds (NaN where wrong), ratio
    to the run before on the same machine (NaN without one), and verdict as a place in `verdicts`."""

    commits: array[int]
    us: array[float]
    ratios: array[float]
    verdict_codes: array[int]
    verdicts: tuple[str, ...]


@dataclass(frozen=True)
class CaseSummary:
    """A case on a device in the site.

    number        its place among the cases, from 0; `file` is the path of its page
    runs, wrong   with and without a time
    newest_us     of its newest run with a time, None without one; `newest_verdict` and `newest` (start) of its newest
    changes       of all its series, oldest first
    levels        (commit, -1 faster, 0 or 1 slower) from that commit on, against its first level, for each series
    spark         SVG path of its newest series in SPARK_WIDTH by SPARK_HEIGHT
    spark_change  place of its last change there, None if that is not drawn
    """

    number: int
    key: CaseKey
    device: str
    nodeid: str
    file: str
    runs: int
    wrong: int
    newest_us: float | None
    newest_verdict: str
    newest_commit: int
    changes: tuple[LastingChange, ...]
    levels: tuple[tuple[tuple[int, int], ...], ...]
    spark: str
    spark_change: float | None
    times: CommitTimes


def make_series(number: int, found: CaseRuns, commit_of: Mapping[int, int]) -> tuple[SiteSeries, ...]:
    """Returns the series of a case with their changes; `commit_of` has the commit's number of each run. Raises
    HistoryError if the library that finds changes is missing."""
    made = []
    for place, (history, runs) in enumerate(zip(found.series, found.runs, strict=False)):
        commits = tuple(commit_of[run] for run in runs)
        changed = with_changes(history)
        spans = tuple(
            (min(point.process_us), max(point.process_us)) if point.process_us else (point.median_us, point.median_us)
            for point in history.points
        )
        made.append(SiteSeries(changed, commits, spans, list_changes(changed, number, place, commits)))
    return tuple(made)


def summarise_case(
    number: int, found: CaseRuns, series: Sequence[SiteSeries], commit_of: Mapping[int, int]
) -> CaseSummary:
    """Returns what the site keeps of a case."""
    newest = max(series, key=lambda one: one.commits[-1], default=None)
    last = found.measurements[-1]
    timed = [one.median_us for one in found.measurements if one.median_us is not None]
    changes = sorted((change for one in series for change in one.changes), key=lambda change: change.commit)
    spark, spark_change = _draw_spark(newest) if newest else ("", None)
    return CaseSummary(
        number=number,
        key=found.case.key,
        device=f"{found.case.arch}/{found.case.product}",
        nodeid=found.case.nodeid,
        file=name_case_page(found),
        runs=len(timed),
        wrong=len(found.measurements) - len(timed),
        newest_us=timed[-1] if timed else None,
        newest_verdict=last.verdict,
        newest_commit=commit_of[last.run],
        changes=tuple(changes),
        levels=tuple(list_levels(one) for one in series),
        spark=spark,
        spark_change=spark_change,
        times=collect_times(found.measurements, commit_of),
    )


def name_case_page(found: CaseRuns) -> str:
    """Returns the path of a case's page below the site's folder."""
    case = found.case
    return make_page_name(CASES, case.case, case.case, case.arch, case.product)


def list_levels(series: SiteSeries) -> tuple[tuple[int, int], ...]:
    """Returns (commit, 1 slower / 0 / -1 faster than the first level, from there on), from the first commit on."""
    found = [(series.commits[0], 0)]
    for change in series.history.changes:
        ratio = change.after_us / series.history.changes[0].before_us
        sign = 1 if ratio > 1 + STEADY else -1 if ratio < 1 / (1 + STEADY) else 0
        found.append((series.commits[change.index], sign))
    return tuple(found)


def collect_times(measurements: Sequence[CaseMeasurement], commit_of: Mapping[int, int]) -> CommitTimes:
    """Returns the times of a case by commit; `measurements` are oldest first."""
    words: dict[str, int] = {}
    before: dict[int, float] = {}
    times = CommitTimes(array("i"), array("d"), array("d"), array("i"), ())
    for run, machine, _, verdict, us in measurements:
        times.commits.append(commit_of[run])
        times.us.append(math.nan if us is None else us)
        times.ratios.append(math.nan if us is None or machine not in before else us / before[machine])
        times.verdict_codes.append(words.setdefault(verdict, len(words)))
        if us is not None:
            before[machine] = us
    return CommitTimes(times.commits, times.us, times.ratios, times.verdict_codes, tuple(words))


def _draw_spark(series: SiteSeries) -> tuple[str, float | None]:
    """Returns the path of a sparkline, medians of up to SPARK_POINTS groups of runs, and where its last change is."""
    values = [point.median_us for point in series.history.points]
    count = min(len(values), SPARK_POINTS)
    bounds = [len(values) * number // count for number in range(count + 1)]
    medians = [statistics.median(values[start:end]) for start, end in itertools.pairwise(bounds)]
    low, high = min(medians), max(medians)
    room = max(high - low, SPARK_RANGE * statistics.median(medians))
    bottom = (low + high - room) / 2
    places = [
        (round(SPARK_WIDTH * (number + 0.5) / count), round((SPARK_HEIGHT - 4) * (1 - (value - bottom) / room)) + 2)
        for number, value in enumerate(medians)
    ]
    path = "M" + "L".join(f"{across} {down}" for across, down in places)
    last = series.history.changes[-1].index if series.history.changes else None
    return f"{path}h0" if count == 1 else path, None if last is None else round(SPARK_WIDTH * last / len(values), 1)
