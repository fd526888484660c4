"""Reads a store: lists its cases, finds the case that the user means, and loads its points in order."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any

from pytest_attnperf.records import CaseKey
from pytest_attnperf.records.histories import CaseHistory, HistoryPoint
from pytest_attnperf.tools.history.history_failures import HistoryError
from pytest_attnperf.tools.history.history_rows import digest_data, make_storable
from pytest_attnperf.tools.history.history_tables import define_tables

if TYPE_CHECKING:
    from sqlalchemy import Connection, Select

Row = Any
"""A row of SQLAlchemy; its type does not declare the columns."""

NAMED_IN_ERRORS = 8
NAME_LIMIT = 200
WRONG_SHOWN = 5
COUNTED_AT_ONCE = 500
STARTS_AT_ONCE = 500


@dataclass(frozen=True)
class KnownCase:
    """A case on a device.

    points        number of runs with a time
    wrong         number of runs without a time, because the case was wrong
    first, last   start of its oldest and its newest run, ISO 8601 in UTC
    """

    case: str
    arch: str
    product: str
    nodeid: str
    points: int
    wrong: int
    first: str
    last: str


@dataclass(frozen=True)
class PointFilter:
    """Selects points: from `since` on (seconds since 1970), the newest `limit` (0: all), with these machine facts."""

    since: float | None = None
    limit: int = 0
    machine: Mapping[str, str] | None = None


@dataclass(frozen=True)
class StoredCase:
    """A row of the table of cases; `case` is `key` as text."""

    id: int
    key: CaseKey
    case: str
    arch: str
    product: str
    nodeid: str


@dataclass(frozen=True)
class WrongRuns:
    """Runs of a case without a time: (verdict, start, commit) of the `newest` of them, oldest first, and how many."""

    newest: tuple[tuple[str, str, str], ...]
    runs: int


def list_cases(connection: Connection, pattern: str, arch: str, product: str) -> list[KnownCase]:
    """Returns the measured cases whose key or node id contains `pattern`, once per device, sorted by name and device.
    '' as `arch` or `product` stands for all."""
    from sqlalchemy import select

    found = {
        one.id: one for one in load_all_cases(connection, arch, product) if pattern in one.case or pattern in one.nodeid
    }
    table = define_tables().totals
    rows = connection.execute(select(table.c.case_id, table.c.timed, table.c.wrong, table.c.oldest, table.c.newest))
    cases = [_make_known_case(found[row.case_id], row) for row in rows if row.case_id in found]
    return sorted(cases, key=lambda one: (one.case, one.arch, one.product))


def load_histories(connection: Connection, case: str, arch: str, product: str, asked: PointFilter) -> list[CaseHistory]:
    """Returns the series of the case that `case` names, one per device and machine. Raises HistoryError if no case, or
    more than one, matches."""
    meant = find_meant_cases(connection, case, arch, product)
    return [history for one in meant for history in load_series(connection, one, asked)]


def find_meant_cases(connection: Connection, text: str, arch: str, product: str) -> list[StoredCase]:
    """Returns the case whose key or node id is `text`, else the only one that contains it, once for each of its
    devices. Only devices of `arch` and `product` count; '' stands for any. Raises HistoryError if no case, or more
    than one, matches."""
    found = _find_by_key(connection, text, arch, product)
    if found:
        return found
    known = load_all_cases(connection, arch, product)
    for matches in (
        [one for one in known if one.nodeid == text],
        [one for one in known if text in one.case],
        [one for one in known if text in one.nodeid],
    ):
        names = sorted({one.case for one in matches})
        if len(names) > 1:
            raise HistoryError(
                f"history: {text[:NAME_LIMIT]!r} is part of {len(names)} cases: {_join_names(names)}; give more of it"
            )
        if names:
            return sorted(matches, key=lambda one: (one.arch, one.product))
    where = f" on {'/'.join(part for part in (arch, product) if part)}" if arch or product else ""
    names = sorted({one.case for one in known})
    raise HistoryError(
        f"history: no case{where} is or contains {text[:NAME_LIMIT]!r}; known: {_join_names(names) or 'none'}"
    )


def points_query(case_id: int, asked: PointFilter) -> Select[Any]:
    """Returns a query for one case's measurements with their runs, newest first: a range of the primary key, read
    backwards. Applies `since` and `limit` of `asked`."""
    table = define_tables().measurements
    query = _case_query(case_id, asked).order_by(table.c.started.desc(), table.c.run_id.desc())
    return query.limit(asked.limit) if asked.limit else query


def _case_query(case_id: int, asked: PointFilter) -> Select[Any]:
    """Returns a query for one case's measurements with their runs, in any order. Applies `since` of `asked`."""
    from sqlalchemy import select

    table, runs = define_tables().measurements, define_tables().runs
    wanted = (table.c.verdict, table.c.median_us, table.c.baseline_us, table.c.process_us)
    key = (table.c.started, table.c.run_id.label("run_number"))
    facts = (table.c.machine_id, table.c.environment_id)
    said = (runs.c.run_id, runs.c.started_text, runs.c.commit_id, runs.c.branch, runs.c.source)
    query = select(*key, *wanted, *facts, *said).join(runs, runs.c.id == table.c.run_id)
    query = query.where(table.c.case_id == case_id)
    return query if asked.since is None else query.where(table.c.started >= asked.since)


def _find_by_key(connection: Connection, text: str, arch: str, product: str) -> list[StoredCase]:
    from sqlalchemy import select

    table = define_tables().cases
    rows = connection.execute(select(*_case_columns()).where(table.c.key_digest == digest_data(make_storable(text))))
    return _filter_by_device((_parse_case_row(row) for row in rows), arch, product)


def load_all_cases(connection: Connection, arch: str, product: str) -> list[StoredCase]:
    """Returns the cases on devices of `arch` and `product` ('' stands for any), sorted by name and device."""
    from sqlalchemy import select

    return _filter_by_device(
        (_parse_case_row(row) for row in connection.execute(select(*_case_columns()))), arch, product
    )


def _case_columns() -> list[Any]:
    table = define_tables().cases
    names = ("id", "suite", "backend", "workload", "label", "arch", "product", "nodeid")
    return [table.c[name] for name in names]


def _parse_case_row(row: Row) -> StoredCase:
    number, suite, backend, workload, label, arch, product, nodeid = row
    key = CaseKey(suite, backend, workload, label)
    return StoredCase(number, key, str(key), arch, product, nodeid)


def _filter_by_device(found: Iterable[StoredCase], arch: str, product: str) -> list[StoredCase]:
    kept = [one for one in found if arch in ("", one.arch) and product in ("", one.product)]
    return sorted(kept, key=lambda one: (one.case, one.arch, one.product))


def _make_known_case(one: StoredCase, row: Row) -> KnownCase:
    _, points, wrong, oldest, newest = row
    return KnownCase(
        one.case, one.arch, one.product, one.nodeid, points, wrong, _format_iso(oldest), _format_iso(newest)
    )


def _format_iso(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, timezone.utc).isoformat(timespec="seconds")


def _join_names(names: Sequence[str]) -> str:
    shown = ", ".join(name[:NAME_LIMIT] for name in names[:NAMED_IN_ERRORS])
    more = len(names) - NAMED_IN_ERRORS
    return f"{shown} and {more} more" if more > 0 else shown


def load_series(connection: Connection, one: StoredCase, asked: PointFilter) -> list[CaseHistory]:
    """Returns a case's points on one device, one series per machine, because times of machines whose facts differ
    cannot be compared. A single series without points if no run has a time; empty if there is no run."""
    rows = connection.execute(points_query(one.id, asked)).all()[::-1]
    wrong = [(row.verdict, row.started_text, row.commit_id) for row in rows if row.median_us is None]
    return split_by_machine(one, _make_points(connection, rows, asked), find_wrong(wrong)) if rows else []


def load_chosen_series(
    connection: Connection,
    one: StoredCase,
    chosen: Set[tuple[float, int]],
    wrong: WrongRuns,
    runs: Mapping[int, int],
) -> list[CaseHistory]:
    """Returns what `load_series` does, but of the runs with a time only the `chosen`, by (start, number). `runs` has
    the number of runs with a time by machine. Reads these rows by the primary key."""
    table = define_tables().measurements
    starts = sorted({started for started, _ in chosen})
    found: list[Row] = []
    for first in range(0, len(starts), STARTS_AT_ONCE):
        part = table.c.started.in_(starts[first : first + STARTS_AT_ONCE])
        found += connection.execute(_case_query(one.id, PointFilter()).where(part)).all()
    rows = sorted(
        (row for row in found if (row.started, row.run_number) in chosen), key=lambda row: (row.started, row.run_number)
    )
    if not rows and not wrong.runs:
        return []
    return split_by_machine(one, _make_points(connection, rows, PointFilter()), wrong, runs)


def find_wrong(wrong: Sequence[tuple[str, str, str]]) -> WrongRuns:
    """Returns the newest and the number of runs without a time: (verdict, start, commit), oldest first."""
    return WrongRuns(tuple(wrong[-WRONG_SHOWN:]), len(wrong))


def _make_points(connection: Connection, rows: Sequence[Row], asked: PointFilter) -> list[tuple[int, HistoryPoint]]:
    """Returns (id of the machine, point) of the rows with a time whose machine is asked."""
    facts = _load_facts(connection, rows)
    return [
        (row.machine_id, _make_point(row, facts))
        for row in rows
        if row.median_us is not None and _has_facts(facts[row.machine_id], asked.machine or {})
    ]


def split_by_machine(
    one: StoredCase,
    timed: Sequence[tuple[int, HistoryPoint]],
    wrong: WrongRuns,
    runs: Mapping[int, int] | None = None,
) -> list[CaseHistory]:
    """Returns one series per machine of `timed` ((id of the machine, point), oldest first), with notes that say in what
    the machines differ, and which runs were `wrong`. A single series without points if no run has a time. `runs` has
    the number of runs with a time of each machine, if `timed` has only some."""
    notes = [_wrong_note(wrong)] if wrong.runs else []
    by_machine: dict[int, list[HistoryPoint]] = {}
    for number, point in timed:
        by_machine.setdefault(number, []).append(point)
    if not by_machine:
        return [CaseHistory(one.case, one.arch, one.product, (), notes=tuple(notes))]
    machines = [points[0].machine for points in by_machine.values()]
    return [
        CaseHistory(
            one.case,
            one.arch,
            one.product,
            tuple(points),
            notes=(*notes, *_machine_notes(points[0].machine, machines)),
            runs=max(len(points), (runs or {}).get(machine, 0)),
        )
        for machine, points in by_machine.items()
    ]


def _make_point(row: Row, facts: Mapping[int, dict[str, str]]) -> HistoryPoint:
    return HistoryPoint(
        started=row.started_text,
        commit=row.commit_id,
        verdict=row.verdict,
        median_us=parse_time(row.median_us),
        process_us=tuple(map(parse_time, row.process_us)),
        baseline_us=None if row.baseline_us is None else parse_time(row.baseline_us),
        branch=row.branch,
        environment=facts[row.environment_id],
        machine=facts[row.machine_id],
        run_id=row.run_id,
        source=row.source,
    )


def parse_time(value: object) -> float:
    """Returns a stored time as a float. Raises ValueError unless it is a finite number above 0."""
    if not isinstance(value, (int, float)) or not (math.isfinite(value) and value > 0):
        raise ValueError(f"a time is {value!r}")
    return float(value)


def _load_facts(connection: Connection, rows: Sequence[Row]) -> dict[int, dict[str, str]]:
    from sqlalchemy import select

    table = define_tables().facts
    wanted = sorted({number for row in rows for number in (row.machine_id, row.environment_id)})
    found: dict[int, dict[str, str]] = {}
    for start in range(0, len(wanted), COUNTED_AT_ONCE):
        part = wanted[start : start + COUNTED_AT_ONCE]
        query = select(table.c.id, table.c.facts).where(table.c.id.in_(part))
        found.update({number: dict(facts) for number, facts in connection.execute(query)})
    return found


def _has_facts(facts: Mapping[str, str], wanted: Mapping[str, str]) -> bool:
    return all(facts.get(name) == value for name, value in wanted.items())


def _wrong_note(wrong: WrongRuns) -> str:
    shown = ", ".join(f"{verdict} {started[:10]} at {commit[:60]}" for verdict, started, commit in wrong.newest)
    more = " (newest)" if wrong.runs > WRONG_SHOWN else ""
    return f"wrong, without a time, in {wrong.runs} run{'s' * (wrong.runs != 1)}: {shown}{more}"


def _machine_notes(own: Mapping[str, str], machines: Sequence[Mapping[str, str]]) -> list[str]:
    """Returns one note with the facts of this series' machine (`own`) in which the machines of the series differ;
    empty if there is only one machine."""
    if len(machines) == 1:
        return []
    names = sorted({name for one in machines for name in one})
    differing = [name for name in names if len({one.get(name) for one in machines}) > 1]
    said = ", ".join(f"{name} {own.get(name, 'unknown')}" for name in differing)
    return [f"one of {len(machines)} separate series, because times of these machines cannot be compared: {said}"]
