"""The data of a case's charts: its processes block by block, its looks as dots, and its history, also as a line of a
few pixels for its row in the table.

Numbers are for drawing; every text of a tooltip comes from here, too.
"""

from __future__ import annotations

import datetime
import statistics
from collections.abc import Iterator, Sequence

from pytest_attnperf.records import ProcessSummary, Verdict
from pytest_attnperf.records.histories import CaseHistory, HistoryPoint
from pytest_attnperf.records.time_units import format_time, format_times
from pytest_attnperf.reports.html.embedding import Json, round_figure
from pytest_attnperf.reports.text.figures import format_change, one_line
from pytest_attnperf.results import CaseResult

NAME_LIMIT = 60
COMMIT_LENGTH = 12
MOST_POINTS = 300
"""Most points: the latest of a case's history, the first of its samples."""

MOST_RUNS = 30
STEPS = 20
"""Height of a line, in the units of its points."""

LOOKS = ("first look", "second look")
RECORDED = ("recorded", "second look")
"""Names of the looks of a case that was recorded, because these looks compared nothing."""


def collect_samples(case: CaseResult, history: CaseHistory | None = None) -> Json:
    """Returns the data sets of a case's charts by name, only those that are not empty; {} if nothing was measured."""
    dots, marks = _list_dots(case), _list_marks(case)
    found = {
        "dots": dots,
        "marks": marks if dots else [],
        "blocks": _list_blocks(case),
        "points": _history_points(history) if history else [],
        "changes": list_change_points(history) if history else [],
    }
    return {name: values for name, values in found.items() if values}


def list_change_points(history: CaseHistory) -> list[Json]:
    """Returns a dict per change of a case's time: when, times before and after, commits, what else changed."""
    return [
        {
            "at": _parse_moment(history.points[change.index].started),
            "before": round_figure(change.before_us),
            "after": round_figure(change.after_us),
            "change": format_change(change.ratio) if change.before_us else "",
            "commits": f"{_shorten_commit(change.last_before)} -> {_shorten_commit(change.first_after)}",
            "started": one_line(history.points[change.index].started, NAME_LIMIT),
            "environment": one_line("; ".join(change.environment), 4 * NAME_LIMIT),
        }
        for change in history.changes
        if 0 <= change.index < len(history.points)
    ]


def _list_processes(case: CaseResult) -> Iterator[tuple[str, int, ProcessSummary]]:
    names = RECORDED if case.verdict is Verdict.RECORDED else LOOKS
    for look, processes in zip(names, (case.first, case.second), strict=True):
        for index, process in enumerate(processes, 1):
            yield look, index, process


def _list_dots(case: CaseResult) -> list[Json]:
    """Returns a dot per process and pair. 'at' is percent against the baseline, or microseconds without one."""
    base = case.baseline_us
    rows = [("stored", f"stored process {index}", us) for index, us in enumerate(case.stored_us, 1)]
    rows += [
        (look, f"{look}, {_format_process_name(process, index)}", process.median_us)
        for look, index, process in _list_processes(case)
    ]
    dots = [
        {
            "row": row,
            "at": round_figure(_to_percent(us / base) if base else us),
            "name": name,
            "text": f"{format_time(us)}, {format_change(us / base)}" if base else format_time(us),
        }
        for row, name, us in rows
    ]
    # Ratios of pairs are against the base side, which the pairs measure too.
    pairs = [
        {
            "row": "pairs",
            "at": round_figure(_to_percent(pair.ratio)),
            "name": f"pair {index}",
            "text": f"{format_change(pair.ratio)}, {format_times([pair.base_us, pair.new_us])}",
        }
        for index, pair in enumerate(case.pairs, 1)
    ]
    return dots + pairs if base else dots or pairs


def _list_marks(case: CaseResult) -> list[Json]:
    """Returns dicts of marks for the chart, in percent: the limit, the change with its interval; each only if known."""
    marks = []
    if case.threshold is not None:
        text = format_change(case.threshold)
        marks.append(
            {"kind": "limit", "at": round_figure(_to_percent(case.threshold)), "text": text, "label": f"limit {text}"}
        )
    if case.ratio is not None:
        low, high = case.interval or (case.ratio, case.ratio)
        marks.append(
            {
                "kind": "change",
                "at": round_figure(_to_percent(case.ratio)),
                "low": round_figure(_to_percent(low)),
                "high": round_figure(_to_percent(high)),
                "text": f"{format_change(case.ratio)} ({format_change(low)} .. {format_change(high)})",
            }
        )
    return marks


def _list_blocks(case: CaseResult) -> list[Json]:
    """Returns {'name', 'look', 'us', 'mhz'} per process, in measured order; at most MOST_POINTS blocks in all."""
    found, left = [], MOST_POINTS
    for look, index, process in _list_processes(case):
        values = [round_figure(us) for us in process.block_us[: max(0, left)]]
        left -= len(values)
        clocks = [round_figure(mhz) for mhz in process.block_clock_mhz[: len(values)]]
        if values:
            name = f"{look}, {_format_process_name(process, index)}"
            found.append({"name": name, "look": look, "us": values, "mhz": clocks})
    return found


def _history_points(history: CaseHistory) -> list[Json]:
    return [
        _history_point(point) for point in history.points[-MOST_POINTS:] if _parse_moment(point.started) is not None
    ]


def _history_point(point: HistoryPoint) -> Json:
    low, high = (min(point.process_us), max(point.process_us)) if point.process_us else (point.median_us,) * 2
    return {
        "at": _parse_moment(point.started),
        "us": round_figure(point.median_us),
        "low": round_figure(low),
        "high": round_figure(high),
        "text": format_time(point.median_us),
        "commit": _shorten_commit(point.commit),
        "started": one_line(point.started, NAME_LIMIT),
        "verdict": one_line(point.verdict, NAME_LIMIT),
    }


def _parse_moment(started: str) -> float | None:
    """Returns an ISO 8601 time as milliseconds since 1970; None if it is invalid. Without a zone it counts as UTC."""
    try:
        moment = datetime.datetime.fromisoformat(started[:NAME_LIMIT].strip().replace("Z", "+00:00"))
        if moment.tzinfo is None:
            moment = moment.replace(tzinfo=datetime.timezone.utc)
        return moment.timestamp() * 1000
    except (ValueError, OverflowError):
        return None


def _shorten_commit(commit: str) -> str:
    return one_line(commit, NAME_LIMIT)[:COMMIT_LENGTH] or "unknown"


def _format_process_name(process: ProcessSummary, index: int) -> str:
    return one_line(process.process, NAME_LIMIT) or f"process {index}"


def _to_percent(ratio: float) -> float:
    return (ratio - 1) * 100


def histories_by_case(histories: Sequence[CaseHistory]) -> dict[tuple[str, str], CaseHistory]:
    """Returns (device, case key) -> history of that case.

    A case has several histories if its times cannot be compared, as under two power caps; the one with the latest run
    counts.
    """
    ordered = sorted(
        histories, key=lambda history: (_parse_moment(history.points[-1].started) or 0) if history.points else 0
    )
    return {(f"{history.arch}/{history.product}", history.case): history for history in ordered}


def build_sparkline(history: CaseHistory | None) -> list[int] | None:
    """Returns the heights (0 to STEPS, larger is slower) of the latest MOST_RUNS runs; None for less than two."""
    times_us = _list_times(history)
    if len(times_us) < 2:
        return None
    low, high = min(times_us), max(times_us)
    if low == high:
        return [STEPS // 2] * len(times_us)
    return [round(STEPS * (us - low) / (high - low)) for us in times_us]


def compute_drift(history: CaseHistory | None) -> float | None:
    """Returns the latest time of the line / the median of those before it; None for less than two runs."""
    times_us = _list_times(history)
    return times_us[-1] / statistics.median(times_us[:-1]) if len(times_us) > 1 else None


def _list_times(history: CaseHistory | None) -> list[float]:
    points = history.points if history else ()
    return [point.median_us for point in points if 0 < point.median_us < float("inf")][-MOST_RUNS:]
