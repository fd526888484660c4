"""Formats a store's cases, and one case over time, as terminal tables and as plain data for JSON.

Times are shown in UTC, whatever zone a run was in, because points are in this order.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import Any

from pytest_attnperf.records.histories import CaseHistory, ChangePoint, HistoryPoint
from pytest_attnperf.records.notes import NoteKind, filter_notes
from pytest_attnperf.records.time_units import format_time, format_times
from pytest_attnperf.reports.text.figures import ABSENT, format_change, one_line
from pytest_attnperf.reports.text.time_cells import Cell, TimeCell
from pytest_attnperf.reports.text.wide_tables import Column, Table, render_terminal_tables

POINTS_SHOWN = 12
NAME_LIMIT = 200
TEXT_LIMIT = 400
COMMIT_LIMIT = 18
CELL_LIMIT = 40
BRANCH_LIMIT = 24
DATE = 10
MINUTE = 16


@dataclass(frozen=True)
class ListedCase:
    """A case on a device: `points` runs with a time, `wrong` without; the newest change, if changes were searched."""

    case: str
    device: str
    points: int
    wrong: int
    last: str
    change: ChangePoint | None = None
    change_at: str = ""


def render_cases(cases: Sequence[ListedCase], notes: Sequence[str], width: int) -> str:
    """Returns a terminal table with one row per case and device. A device that all rows share is a note, not a
    column."""
    devices = {one.device for one in cases}
    known: list[tuple[Column, list[str]]] = [
        (Column("runs"), [str(one.points) for one in cases]),
        (Column("newest", "left"), [format_day(one.last) for one in cases]),
    ]
    if len(devices) > 1:
        known.insert(0, (Column("device", "left"), [one_line(one.device, CELL_LIMIT) for one in cases]))
    if any(one.wrong for one in cases):
        known.append((Column("wrong"), [str(one.wrong or "") for one in cases]))
    if any(one.change for one in cases):
        known.append((Column("last change", "left"), [_format_last_change(one) for one in cases]))
    names = [one_line(one.case, NAME_LIMIT) for one in cases]
    rows = tuple(zip(names, *(cells for _, cells in known), strict=True))
    said = [f"on {devices.pop()}"] if len(devices) == 1 else []
    lines = tuple(one_line(note, TEXT_LIMIT) for note in (*said, *notes))
    return render_terminal_tables([], [Table("", "case", tuple(column for column, _ in known), rows, lines)], width)


def render_histories(histories: Sequence[CaseHistory], width: int, shown: int = POINTS_SHOWN) -> str:
    """Returns each series as text: its name, its changes, its newest `shown` points, and its notes."""
    return "\n\n".join(_render_series(history, width, shown) for history in histories)


def encode_histories(histories: Sequence[CaseHistory]) -> list[dict[str, Any]]:
    """Returns each history as a dict of its fields for JSON; each change also has its ratio, after over before."""
    return [
        {
            **dataclasses.asdict(history),
            "changes": [{**dataclasses.asdict(change), "ratio": change.ratio} for change in history.changes],
        }
        for history in histories
    ]


def describe_change(change: ChangePoint, points: Sequence[HistoryPoint]) -> str:
    """Returns a change in one line: '+3.0 % (100.1 -> 103.1 us) between 4f2c1ab and 9d0e7c2, 2026-01-31'."""
    between = f"between {_format_commit(change.last_before)} and {_format_commit(change.first_after)}"
    sizes = format_times([change.before_us, change.after_us])
    return f"{format_change(change.ratio)} ({sizes}) {between}, {format_day(points[change.index].started)}"


def parse_moment(started: str) -> datetime | None:
    """Returns an ISO time as a datetime in UTC; one without a zone counts as UTC. None if it is no time."""
    try:
        moment = datetime.fromisoformat(f"{started[:-1]}+00:00" if started[-1:] in ("Z", "z") else started)
        return (moment if moment.tzinfo else moment.replace(tzinfo=timezone.utc)).astimezone(timezone.utc)
    except (ValueError, OverflowError):
        return None


def format_day(started: str) -> str:
    """Returns the day of an ISO time in UTC, e.g. '2026-01-31'; the first ten characters of a text that is no time."""
    return _format_time(started, DATE)


def describe_suspect(change: ChangePoint) -> str:
    """Returns the likely cause of a change: facts of machine or environment that changed with it, else the code. If
    the same commit was measured before and after it, says first that it is not the code."""
    same = change.last_before == change.first_after and change.first_after not in ("", "unknown")
    others = "; ".join(one_line(text, 2 * CELL_LIMIT) for text in change.environment)
    if same:
        return f"not the code: both sides are the same commit{f'; {others}' if others else ''}"
    return others or "the code, as far as is known"


def _render_series(history: CaseHistory, width: int, shown: int) -> str:
    device = one_line(f"{history.arch}/{history.product}", NAME_LIMIT)
    title = f"{one_line(history.case, NAME_LIMIT)} on {device}"
    if not history.points:
        return render_terminal_tables([title, "no run with a time", *_format_notes(history)], [], width)
    first, last, count = history.points[0], history.points[-1], len(history.points)
    runs = (
        f"{history.runs} runs, of which {count} are read" if history.is_thinned else f"{count} run{'s' * (count != 1)}"
    )
    lines = [
        title,
        f"{runs}, {format_day(first.started)} to {format_day(last.started)}",
        f"newest {format_time(last.median_us)}",
        *_format_notes(history),
    ]
    if not history.changes and not filter_notes(history.notes, NoteKind.TOO_FEW_POINTS):
        lines.append("no change found")
    tables = [_changes_table(history)] if history.changes else []
    return render_terminal_tables(lines, [*tables, _points_table(history, shown)], width)


def _format_notes(history: CaseHistory) -> list[str]:
    thinned = (
        "so many runs are thinned to a sample, its newest runs and those around changes: what lasted for less than a "
        "few of its steps may be missing; --since shows a shorter time whole"
    )
    return [one_line(note, TEXT_LIMIT) for note in (*([thinned] if history.is_thinned else []), *history.notes)]


def _changes_table(history: CaseHistory) -> Table:
    columns = (
        Column("change"),
        Column("before"),
        Column("after"),
        Column("last before", "left"),
        Column("first after", "left"),
    )
    rows = tuple(
        (
            format_day(history.points[change.index].started),
            format_change(change.ratio),
            TimeCell(change.before_us),
            TimeCell(change.after_us),
            _format_commit(change.last_before),
            _format_commit(change.first_after),
        )
        for change in history.changes
    )
    notes = tuple(
        f"{format_day(history.points[change.index].started)}: {change.sigmas:.1f} sigmas; "
        f"what changed with it: {describe_suspect(change)}"
        for change in history.changes
    )
    return Table("changes, time per call", "from", columns, rows, notes)


def _points_table(history: CaseHistory, shown: int) -> Table:
    columns = (
        Column("time"),
        Column("processes"),
        Column("spread"),
        Column("commit", "left"),
        Column("verdict", "left"),
        Column("branch", "left"),
    )
    points = history.points[-shown:] if shown else ()
    branches = {point.branch for point in points}
    several = len(branches) > 1
    rows = tuple(_point_row(point)[: None if several else -1] for point in points)
    left_out = max(history.runs, len(history.points)) - len(rows)
    notes = [f"{left_out} earlier runs are not shown"] if left_out else []
    if not several and any(branches):
        notes.insert(0, f"all of branch {one_line(branches.pop(), CELL_LIMIT)}")
    return Table("newest runs", "started UTC", columns if several else columns[:-1], rows, tuple(notes))


def _point_row(point: HistoryPoint) -> tuple[Cell, ...]:
    return (
        _format_time(point.started, MINUTE),
        TimeCell(point.median_us),
        str(len(point.process_us) or ""),
        _format_spread(point),
        _format_commit(point.commit),
        one_line(point.verdict, CELL_LIMIT),
        one_line(point.branch, BRANCH_LIMIT),
    )


def _format_spread(point: HistoryPoint) -> str:
    """Returns by how much the slowest process is above the fastest, e.g. '+3.0 %'; '-' with fewer than two."""
    if len(point.process_us) < 2:
        return ABSENT
    return format_change(max(point.process_us) / min(point.process_us))


def _format_last_change(one: ListedCase) -> str:
    """Returns the newest change of a case: size in percent, day, commit; '' if the case has no change."""
    if one.change is None:
        return ""
    return f"{format_change(one.change.ratio)} {format_day(one.change_at)} {_format_commit(one.change.first_after)}"


def _format_commit(commit: str) -> str:
    """Returns the first twelve digits of a commit and, if the tree was changed, the suffix; 'unknown' for ''."""
    name, plus, rest = commit.partition("+")
    return one_line(f"{name[:12]}{plus}{rest}", COMMIT_LIMIT) or "unknown"


def _format_time(started: str, length: int) -> str:
    moment = parse_moment(started)
    return one_line((started if moment is None else moment.isoformat(" "))[:length], length)
