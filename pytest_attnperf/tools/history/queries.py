"""Reads a store: lists its cases, finds the case that the user means, and loads its points in order.

Also deletes, on request only, measurements beyond an age or a number, and rows that no measurement refers to any more.
"""

from __future__ import annotations

import math
import sqlite3
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any

from pytest_attnperf.records import CaseKey
from pytest_attnperf.records.histories import CaseHistory, HistoryPoint
from pytest_attnperf.tools.history.engines import Transactions
from pytest_attnperf.tools.history.history_failures import HistoryError
from pytest_attnperf.tools.history.history_rows import digest_data, make_storable
from pytest_attnperf.tools.history.history_tables import HistoryTables, define_tables

if TYPE_CHECKING:
    from sqlalchemy import ColumnElement, Connection, Delete, Select

Row = Any
"""A row of SQLAlchemy; its type does not declare the columns."""

NAMED_IN_ERRORS = 8
NAME_LIMIT = 200
WRONG_SHOWN = 5
COUNTED_AT_ONCE = 500

DAY_SECONDS = 86400.0


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


def list_cases(connection: Connection, pattern: str, arch: str, product: str) -> list[KnownCase]:
    """Returns the measured cases whose key or node id contains `pattern`, once per device, sorted by name and device.
    '' as `arch` or `product` stands for all."""
    from sqlalchemy import func, select

    found = {
        one.id: one for one in load_all_cases(connection, arch, product) if pattern in one.case or pattern in one.nodeid
    }
    table = define_tables().measurements
    counted = select(
        table.c.case_id,
        func.count(table.c.median_us),
        func.count(),
        func.min(table.c.started),
        func.max(table.c.started),
    ).group_by(table.c.case_id)
    some = len(found) <= COUNTED_AT_ONCE
    rows = connection.execute(counted.where(table.c.case_id.in_(found)) if some else counted)
    cases = [_make_known_case(found[row[0]], row) for row in rows if row[0] in found]
    return sorted(cases, key=lambda one: (one.case, one.arch, one.product))


def load_histories(connection: Connection, case: str, arch: str, product: str, asked: PointFilter) -> list[CaseHistory]:
    """Returns the series of the case that `case` names, one per device and machine. Raises HistoryError if no case, or
    more than one, matches."""
    meant = find_meant_cases(connection, case, arch, product)
    return [history for one in meant for history in _load_series(connection, one, asked)]


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
    from sqlalchemy import select

    table, runs = define_tables().measurements, define_tables().runs
    wanted = (table.c.verdict, table.c.median_us, table.c.baseline_us, table.c.process_us)
    facts = (table.c.machine_id, table.c.environment_id)
    said = (runs.c.run_id, runs.c.started_text, runs.c.commit_id, runs.c.branch, runs.c.source)
    query = select(*wanted, *facts, *said).join(runs, runs.c.id == table.c.run_id).where(table.c.case_id == case_id)
    if asked.since is not None:
        query = query.where(table.c.started >= asked.since)
    query = query.order_by(table.c.started.desc(), table.c.run_id.desc())
    return query.limit(asked.limit) if asked.limit else query


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
    _, points, every, first, last = row
    return KnownCase(
        one.case, one.arch, one.product, one.nodeid, points, every - points, _format_iso(first), _format_iso(last)
    )


def _format_iso(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, timezone.utc).isoformat(timespec="seconds")


def _join_names(names: Sequence[str]) -> str:
    shown = ", ".join(name[:NAME_LIMIT] for name in names[:NAMED_IN_ERRORS])
    more = len(names) - NAMED_IN_ERRORS
    return f"{shown} and {more} more" if more > 0 else shown


def _load_series(connection: Connection, one: StoredCase, asked: PointFilter) -> list[CaseHistory]:
    """Returns a case's points on one device, one series per machine, because times of machines whose facts differ
    cannot be compared. A single series without points if no run has a time; empty if there is no run."""
    rows = connection.execute(points_query(one.id, asked)).all()[::-1]
    facts = _load_facts(connection, rows)
    wrong = [(row.verdict, row.started_text, row.commit_id) for row in rows if row.median_us is None]
    timed = [
        (row.machine_id, _make_point(row, facts))
        for row in rows
        if row.median_us is not None and _has_facts(facts[row.machine_id], asked.machine or {})
    ]
    return split_by_machine(one, timed, wrong) if rows else []


def split_by_machine(
    one: StoredCase, timed: Sequence[tuple[int, HistoryPoint]], wrong: Sequence[tuple[str, str, str]]
) -> list[CaseHistory]:
    """Returns one series per machine of `timed` ((id of the machine, point), oldest first), with notes that say in what
    the machines differ, and which runs were `wrong` (verdict, start, commit). A single series without points if no run
    has a time."""
    notes = [_wrong_note(wrong)] if wrong else []
    by_machine: dict[int, list[HistoryPoint]] = {}
    for number, point in timed:
        by_machine.setdefault(number, []).append(point)
    if not by_machine:
        return [CaseHistory(one.case, one.arch, one.product, (), notes=tuple(notes))]
    machines = [points[0].machine for points in by_machine.values()]
    return [
        CaseHistory(
            one.case, one.arch, one.product, tuple(points), notes=(*notes, *_machine_notes(points[0].machine, machines))
        )
        for points in by_machine.values()
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


def _wrong_note(wrong: Sequence[tuple[str, str, str]]) -> str:
    shown = ", ".join(f"{verdict} {started[:10]} at {commit[:60]}" for verdict, started, commit in wrong[-WRONG_SHOWN:])
    more = " (newest)" if len(wrong) > WRONG_SHOWN else ""
    return f"wrong, without a time, in {len(wrong)} run{'s' * (len(wrong) != 1)}: {shown}{more}"


def _machine_notes(own: Mapping[str, str], machines: Sequence[Mapping[str, str]]) -> list[str]:
    """Returns one note with the facts of this series' machine (`own`) in which the machines of the series differ;
    empty if there is only one machine."""
    if len(machines) == 1:
        return []
    names = sorted({name for one in machines for name in one})
    differing = [name for name in names if len({one.get(name) for one in machines}) > 1]
    said = ", ".join(f"{name} {own.get(name, 'unknown')}" for name in differing)
    return [f"one of {len(machines)} separate series, because times of these machines cannot be compared: {said}"]


@dataclass(frozen=True)
class RetentionRule:
    """Which runs are kept: those of the last `keep_days` days, and the newest `keep_runs` of each case. 0: not used.

    A run stays if either rule keeps it. Raises HistoryError if both are 0 or one is negative."""

    keep_days: float = 0
    keep_runs: int = 0

    def __post_init__(self) -> None:
        if not (0 <= self.keep_days < float("inf") and self.keep_runs >= 0 and (self.keep_days or self.keep_runs)):
            raise HistoryError(
                f"history: keep_days is {self.keep_days:g} and keep_runs is {self.keep_runs}; none may be negative, "
                "and one must be positive"
            )


@dataclass(frozen=True)
class Pruned:
    """Numbers of deleted measurements, and of runs, cases and facts without any measurement. `kept` counts the
    measurements left."""

    measurements: int
    runs: int
    cases: int
    facts: int
    kept: int


def prune_measurements(connection: Connection, rule: RetentionRule) -> Pruned:
    """Deletes the measurements that `rule` does not keep, and rows that no measurement refers to any more. Returns the
    numbers of rows."""
    from sqlalchemy import func, select

    known = define_tables()
    measurements = connection.execute(_outdated_query(known, rule)).rowcount
    runs, cases, facts = (connection.execute(query).rowcount for query in _unnamed_queries(known))
    kept = connection.execute(select(func.count()).select_from(known.measurements)).scalar_one()
    return Pruned(measurements, runs, cases, facts, kept)


def simulate_pruning(connection: Connection, rule: RetentionRule) -> Pruned:
    """Returns how many rows `prune_measurements` would delete and leave; the store stays as it is."""
    nested = connection.begin_nested()
    try:
        return prune_measurements(connection, rule)
    finally:
        nested.rollback()


def vacuum(transactions: Transactions) -> None:
    """Makes SQLite return the space of deleted rows to the disk, which it does only on request. Raises HistoryError if
    it cannot."""
    assert transactions.place.path is not None
    try:
        connection = sqlite3.connect(transactions.place.path, timeout=transactions.wait_s, isolation_level=None)
        try:
            connection.execute("VACUUM")
        finally:
            connection.close()
    except sqlite3.Error as error:
        raise HistoryError(
            f"history {transactions.place.shown}: rows were deleted, but their disk space was not freed "
            f"({error}); run sqlite3 FILE VACUUM when nobody uses it"
        ) from error


def _outdated_query(known: HistoryTables, rule: RetentionRule) -> Delete:
    from sqlalchemy import delete, func, select, tuple_

    table = known.measurements
    conditions: list[ColumnElement[bool]] = []
    if rule.keep_days:
        conditions.append(table.c.started < time.time() - rule.keep_days * DAY_SECONDS)
    if rule.keep_runs:
        newest_first = (table.c.started.desc(), table.c.run_id.desc())
        place = func.row_number().over(partition_by=table.c.case_id, order_by=newest_first).label("place")
        ranked = select(table.c.case_id, table.c.started, table.c.run_id, place).subquery()
        old = select(ranked.c.case_id, ranked.c.started, ranked.c.run_id).where(ranked.c.place > rule.keep_runs)
        conditions.append(tuple_(table.c.case_id, table.c.started, table.c.run_id).in_(old))
    return delete(table).where(*conditions)


def _unnamed_queries(known: HistoryTables) -> tuple[Delete, Delete, Delete]:
    """Returns queries that delete runs, cases and facts that no measurement refers to."""
    from sqlalchemy import delete, exists

    table = known.measurements
    return (
        delete(known.runs).where(~exists().where(table.c.run_id == known.runs.c.id)),
        delete(known.cases).where(~exists().where(table.c.case_id == known.cases.c.id)),
        delete(known.facts).where(
            ~exists().where(table.c.machine_id == known.facts.c.id),
            ~exists().where(table.c.environment_id == known.facts.c.id),
        ),
    )
