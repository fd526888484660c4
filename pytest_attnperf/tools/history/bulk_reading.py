"""Reads whole stores: all cases that match, many at once, in queries whose number does not grow with the runs."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from pytest_attnperf.records.histories import CaseHistory, HistoryPoint
from pytest_attnperf.tools.history.history_failures import HistoryError
from pytest_attnperf.tools.history.history_tables import define_tables
from pytest_attnperf.tools.history.queries import StoredCase, find_wrong, load_all_cases, parse_time, split_by_machine

if TYPE_CHECKING:
    from sqlalchemy import Connection, Select

Row = Any
"""A row of SQLAlchemy; its type does not declare the columns."""

CASES_AT_ONCE = 200
"""Cases of one query: an older SQLite accepts 999 values, and a store of 500 runs then gives 100,000 rows."""

EARLIEST = -1e300
"""A start, in seconds since 1970, that no run is before."""

ROWS_MAX = 10_000_000
"""Most measurements that are read at once: a site of them takes a quarter of an hour, and a gigabyte."""

_PROCESS_TIMES = msgspec.json.Decoder(tuple[float, ...])
_CASE, _RUN, _MACHINE, _ENVIRONMENT, _VERDICT, _MEDIAN, _BASELINE, _PROCESSES = range(8)


@dataclass(frozen=True)
class BulkFilter:
    """Which cases and runs are asked: cases whose key or node id contains `pattern`, on devices of `arch` and `product`
    ('' for all), their runs from `since` on (seconds since 1970), of each the newest `limit` (0: all)."""

    pattern: str = ""
    arch: str = ""
    product: str = ""
    since: float | None = None
    limit: int = 0


@dataclass(frozen=True)
class StoredRun:
    """A row of the table of runs. `seconds` is its start since 1970, `started` the same as the run wrote it."""

    id: int
    run_id: str
    seconds: float
    started: str
    commit: str
    branch: str
    source: str
    version: str
    mode: str
    complete: bool
    provenance: Mapping[str, str]


class CaseMeasurement(NamedTuple):
    """A case in a run, with a time or wrong: the run's and the facts' numbers in the store, and the verdict."""

    run: int
    machine: int
    environment: int
    verdict: str
    median_us: float | None


@dataclass(frozen=True)
class CaseRuns:
    """All asked runs of one case on one device.

    series         one for each machine whose times are comparable; without points if no run has a time
    runs           for each series, the number in the store of each point's run
    measurements   every run, oldest first, those without a time among them
    """

    case: StoredCase
    series: tuple[CaseHistory, ...]
    runs: tuple[tuple[int, ...], ...]
    measurements: tuple[CaseMeasurement, ...]


@dataclass(frozen=True)
class StoreContents:
    """What a store holds beside measurements: cases and runs that have asked ones, and facts, by their numbers."""

    cases: tuple[StoredCase, ...]
    runs: Mapping[int, StoredRun]
    facts: Mapping[int, dict[str, str]]


def load_contents(connection: Connection, asked: BulkFilter) -> StoreContents:
    """Returns the asked cases that have runs, sorted by name and device, these runs, oldest first, and all facts.
    Raises HistoryError if more than ROWS_MAX measurements are asked."""
    from sqlalchemy import select

    table = define_tables().facts
    known = [
        one
        for one in load_all_cases(connection, asked.arch, asked.product)
        if asked.pattern in one.case or asked.pattern in one.nodeid
    ]
    rows = count_asked(connection, known, asked)
    if rows > ROWS_MAX:
        raise HistoryError(
            f"history: about {rows} measurements of {len(known)} cases are asked, and at most {ROWS_MAX} are read at "
            f"once. Ask for fewer: --limit {max(1, ROWS_MAX // len(known))}, --since 30d, or a CASE"
        )
    cases: set[int] = set()
    runs: set[int] = set()
    for start in range(0, len(known), CASES_AT_ONCE):
        found = _asked_rows([one.id for one in known[start : start + CASES_AT_ONCE]], asked).subquery()
        cases.update(connection.execute(select(found.c.case_id).distinct()).scalars())
        runs.update(connection.execute(select(found.c.run_id).distinct()).scalars())
    facts = {number: dict(found) for number, found in connection.execute(select(table.c.id, table.c.facts))}
    used = {number: run for number, run in _load_runs(connection).items() if number in runs}
    return StoreContents(tuple(one for one in known if one.id in cases), used, facts)


def load_case_runs(
    connection: Connection, contents: StoreContents, cases: Sequence[StoredCase], asked: BulkFilter
) -> list[CaseRuns]:
    """Returns the asked runs of these cases, in their order. Leaves out runs stored after `contents` was read. Raises
    ValueError for a stored time that cannot be one."""
    by_id = {one.id: one for one in cases}
    found: dict[int, CaseRuns] = {}
    for number, rows in groupby(_read_rows(connection, list(by_id), asked), key=lambda row: row[_CASE]):
        kept = [row for row in rows if row[_RUN] in contents.runs and row[_ENVIRONMENT] in contents.facts]
        if kept:
            newest = kept[-asked.limit :] if asked.limit else kept
            found[number] = _make_case_runs(by_id[number], newest, contents)
    return [found[one.id] for one in cases if one.id in found]


def _load_runs(connection: Connection) -> dict[int, StoredRun]:
    from sqlalchemy import select

    table = define_tables().runs
    names = ("id", "run_id", "started", "started_text", "commit_id", "branch", "source", "version", "mode", "complete")
    query = select(*(table.c[name] for name in (*names, "provenance"))).order_by(table.c.started, table.c.run_id)
    return {row[0]: StoredRun(*row) for row in connection.execute(query)}


def count_asked(connection: Connection, cases: Sequence[StoredCase], asked: BulkFilter) -> int:
    """Returns about how many measurements of these cases are asked, as if a case's runs were spread evenly in time."""
    from sqlalchemy import select

    table = define_tables().totals
    wanted = {one.id for one in cases}
    rows = connection.execute(select(table.c.case_id, table.c.timed + table.c.wrong, table.c.oldest, table.c.newest))
    count = 0.0
    for case, every, oldest, newest in rows:
        if case in wanted:
            since = oldest if asked.since is None else max(oldest, asked.since)
            part = every * min(1.0, max(0.0, newest - since) / (newest - oldest)) if newest > oldest else every
            count += min(part, asked.limit) if asked.limit else part
    return int(count)


def _asked_rows(cases: Sequence[int], asked: BulkFilter) -> Select[Any]:
    """Returns a query for the case and run of the asked measurements of some cases."""
    from sqlalchemy import func, select

    table = define_tables().measurements
    query = _narrow_query(select(table.c.case_id, table.c.run_id), cases, asked)
    if not asked.limit:
        return query
    newest_first = (table.c.started.desc(), table.c.run_id.desc())
    place = func.row_number().over(partition_by=table.c.case_id, order_by=newest_first).label("place")
    ranked = query.add_columns(place).subquery()
    return select(ranked.c.case_id, ranked.c.run_id).where(ranked.c.place <= asked.limit)


def _narrow_query(query: Select[Any], cases: Sequence[int], asked: BulkFilter) -> Select[Any]:
    """Returns a query for measurements, narrowed to cases and from `since` on; with a limit, to starts from that of the
    oldest of the newest `limit`, which the index finds. Several runs with this very start may be too many."""
    from sqlalchemy import func, select

    table, known = define_tables().measurements, define_tables().cases
    query = query.where(table.c.case_id.in_(cases))
    query = query if asked.since is None else query.where(table.c.started >= asked.since)
    if not asked.limit:
        return query
    own = table.alias("own")
    places = select(own.c.started).where(own.c.case_id == known.c.id).order_by(own.c.started.desc())
    start = places.offset(asked.limit - 1).limit(1).scalar_subquery()
    first = select(known.c.id, func.coalesce(start, EARLIEST).label("started")).where(known.c.id.in_(cases)).subquery()
    return query.join(first, (first.c.id == table.c.case_id) & (table.c.started >= first.c.started))


def _measurements_query(cases: Sequence[int], asked: BulkFilter) -> Select[Any]:
    """Returns a query for the measurements of cases in the order of the primary key, columns as in `_CASE` ..."""
    from sqlalchemy import Text, cast, select

    table = define_tables().measurements
    named = ("case_id", "run_id", "machine_id", "environment_id", "verdict", "median_us", "baseline_us")
    processes = cast(table.c.process_us, Text)
    query = _narrow_query(select(*(table.c[name] for name in named), processes), cases, asked)
    return query.order_by(table.c.case_id, table.c.started, table.c.run_id)


def _read_rows(connection: Connection, cases: Sequence[int], asked: BulkFilter) -> Iterator[Row]:
    for start in range(0, len(cases), CASES_AT_ONCE):
        yield from connection.execute(_measurements_query(cases[start : start + CASES_AT_ONCE], asked))


def _make_case_runs(one: StoredCase, rows: Sequence[Row], contents: StoreContents) -> CaseRuns:
    timed: list[tuple[int, HistoryPoint]] = []
    wrong: list[tuple[str, str, str]] = []
    numbers: dict[int, list[int]] = {}
    for row in rows:
        run = contents.runs[row[_RUN]]
        if row[_MEDIAN] is None:
            wrong.append((row[_VERDICT], run.started, run.commit))
            continue
        timed.append((row[_MACHINE], _make_point(row, run, contents.facts)))
        numbers.setdefault(row[_MACHINE], []).append(run.id)
    measurements = tuple(CaseMeasurement._make(row[_RUN : _MEDIAN + 1]) for row in rows)
    return CaseRuns(
        one, tuple(split_by_machine(one, timed, find_wrong(wrong))), tuple(map(tuple, numbers.values())), measurements
    )


def parse_processes(text: str) -> tuple[float, ...]:
    """Returns the times of processes, in microseconds, from JSON. Raises ValueError unless all are above 0 and finite.

    Of a whole store, these are most of the numbers, so that the time to read them counts."""
    try:
        times = _PROCESS_TIMES.decode(text)
    except msgspec.MsgspecError as error:
        raise ValueError(f"times of processes are {text[:80]!r} ({error})") from error
    if times and not (min(times) > 0 and max(times) < math.inf):
        raise ValueError(f"times of processes are {text[:80]!r}")
    return times


def _make_point(row: Row, run: StoredRun, facts: Mapping[int, dict[str, str]]) -> HistoryPoint:
    _, _, machine, environment, verdict, median_us, baseline_us, process_us = row
    return HistoryPoint(
        started=run.started,
        commit=run.commit,
        verdict=verdict,
        median_us=parse_time(median_us),
        process_us=parse_processes(process_us),
        baseline_us=None if baseline_us is None else parse_time(baseline_us),
        branch=run.branch,
        environment=facts[environment],
        machine=facts[machine],
        run_id=run.run_id,
        source=run.source,
    )
