"""Loads a long series as a sample of its runs, so that a case of two years is shown and searched within a second.

Of each machine's runs every n-th is kept, so that about MOST_POINTS are left, all of the newest, and all between the
neighbours of each change that the sample has. The sample takes points as they are, not medians of several, because the
noise of a point is what changes are judged by. What lasts for fewer than a few steps of the sample, and is not among
the newest, is not seen; `--since` and `--json` show all.

The database takes the sample from the index of the primary key, and rows are read only of the points that are kept.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from pytest_attnperf.records.histories import CaseHistory, HistoryPoint
from pytest_attnperf.tools.history.change_points import with_changes
from pytest_attnperf.tools.history.history_tables import define_tables
from pytest_attnperf.tools.history.queries import (
    WRONG_SHOWN,
    PointFilter,
    StoredCase,
    WrongRuns,
    find_meant_cases,
    load_chosen_series,
    load_series,
    parse_time,
)

if TYPE_CHECKING:
    from sqlalchemy import ColumnElement, Connection, Select

MOST_POINTS = 2000
"""Points of a series from which on it is thinned, and how many a sample in equal steps has."""

NEWEST_POINTS = 300
"""Newest runs of each series that are always kept."""

REFINED_CHANGES = 10
"""Newest changes of each series around which all runs are kept."""


class SampledPoint(NamedTuple):
    """A run with a time: its start and number, and its machine."""

    started: float
    run: int
    machine: int
    median_us: float
    verdict: str


def load_thinned_histories(
    connection: Connection, case: str, arch: str, product: str, asked: PointFilter, newest: int
) -> list[CaseHistory]:
    """Returns the series of the case that `case` names, one per device and machine, thinned if they are long; at least
    the `newest` runs are all kept. Raises HistoryError if no case, or more than one, matches."""
    found: list[CaseHistory] = []
    for one in find_meant_cases(connection, case, arch, product):
        if _count_runs(connection, one.id) <= MOST_POINTS or 0 < asked.limit <= MOST_POINTS:
            found += load_series(connection, one, asked)
        else:
            found += _load_thinned(connection, one, asked, newest)
    return found


def _count_runs(connection: Connection, case_id: int) -> int:
    from sqlalchemy import select

    table = define_tables().totals
    return connection.execute(select(table.c.timed + table.c.wrong).where(table.c.case_id == case_id)).scalar() or 0


def _load_thinned(connection: Connection, one: StoredCase, asked: PointFilter, newest: int) -> list[CaseHistory]:
    timed, wrong = _count_by_machine(connection, one.id, asked)
    by_machine: dict[int, list[SampledPoint]] = {}
    for row in connection.execute(sample_query(one.id, asked, max(newest, NEWEST_POINTS), timed)).all():
        by_machine.setdefault(row.machine_id, []).append(SampledPoint(*row))
    kept: set[tuple[float, int]] = set()
    for points in by_machine.values():
        kept.update((point.started, point.run) for point in points)
        for first, last in find_gaps(points):
            kept.update(_list_between(connection, one.id, first, last))
    newest_wrong = _load_wrong(connection, one.id, asked) if wrong else ()
    return load_chosen_series(connection, one, kept, WrongRuns(newest_wrong, wrong), timed)


def _count_by_machine(connection: Connection, case_id: int, asked: PointFilter) -> tuple[dict[int, int], int]:
    """Returns the number of runs with a time of each machine, and that of all runs without one."""
    from sqlalchemy import func, select

    read = _course_query(case_id, asked).subquery()
    query = select(read.c.machine_id, func.count(read.c.median_us), func.count()).group_by(read.c.machine_id)
    rows = connection.execute(query).all()
    return {machine: timed for machine, timed, _ in rows}, sum(every - timed for _, timed, every in rows)


def _load_wrong(connection: Connection, case_id: int, asked: PointFilter) -> tuple[tuple[str, str, str], ...]:
    """Returns (verdict, start, commit) of the newest runs without a time, oldest first."""
    from sqlalchemy import select

    read, runs = _course_query(case_id, asked).subquery(), define_tables().runs
    query = select(read.c.verdict, runs.c.started_text, runs.c.commit_id).join(runs, runs.c.id == read.c.run_id)
    query = query.where(read.c.median_us.is_(None)).order_by(read.c.started.desc(), read.c.run_id.desc())
    return tuple((row[0], row[1], row[2]) for row in connection.execute(query.limit(WRONG_SHOWN)).all()[::-1])


def _course_query(case_id: int, asked: PointFilter) -> Select[Any]:
    """Returns a query for the course of a case: what the index of the primary key holds, with `since` and `limit`."""
    from sqlalchemy import select

    table = define_tables().measurements
    query = select(*(table.c[name] for name in ("started", "run_id", "machine_id", "median_us", "verdict")))
    query = query.where(table.c.case_id == case_id)
    query = query if asked.since is None else query.where(table.c.started >= asked.since)
    return query.order_by(table.c.started.desc(), table.c.run_id.desc()).limit(asked.limit) if asked.limit else query


def sample_query(case_id: int, asked: PointFilter, newest: int, runs: Mapping[int, int]) -> Select[Any]:
    """Returns a query for the sampled points of a case, oldest first, with the columns of `SampledPoint`. `runs` has
    the number of runs with a time by machine. It reads the case's range of the primary key's index, and on PostgreSQL
    nothing else. Places are counted in the order of this index, which makes them cheap."""
    from sqlalchemy import and_, func, or_, select

    read = _course_query(case_id, asked).subquery()
    place = func.row_number().over(partition_by=read.c.machine_id, order_by=(read.c.started, read.c.run_id))
    timed = select(read, place.label("place")).where(read.c.median_us.is_not(None)).subquery()
    long = {machine: count for machine, count in runs.items() if count > MOST_POINTS}
    kept: list[ColumnElement[bool]] = [timed.c.machine_id.not_in(list(long))]
    for machine, count in long.items():
        sampled = or_(timed.c.place % -(-count // MOST_POINTS) == 1, timed.c.place > count - newest)
        kept.append(and_(timed.c.machine_id == machine, sampled))
    columns = [column for column in timed.c if column.name != "place"]
    return select(*columns).where(or_(*kept)).order_by(timed.c.started, timed.c.run_id)


def find_gaps(points: Sequence[SampledPoint]) -> list[tuple[SampledPoint, SampledPoint]]:
    """Returns between which sampled points, oldest first, changes lie that all runs there can place better: for each of
    the newest REFINED_CHANGES one point more on either side than the change is between."""
    sampled = tuple(HistoryPoint("", "", point.verdict, parse_time(point.median_us)) for point in points)
    changes = with_changes(CaseHistory("", "", "", sampled)).changes[-REFINED_CHANGES:]
    last = len(points) - 1
    return [(points[max(0, change.index - 2)], points[min(last, change.index + 1)]) for change in changes]


def _list_between(
    connection: Connection, case_id: int, first: SampledPoint, last: SampledPoint
) -> list[tuple[float, int]]:
    """Returns (start, run) of the runs with a time on this machine from one point to another."""
    from sqlalchemy import select

    table = define_tables().measurements
    query = select(table.c.started, table.c.run_id).where(table.c.case_id == case_id)
    query = query.where(table.c.started.between(first.started, last.started), table.c.median_us.is_not(None))
    return [(started, run) for started, run in connection.execute(query.where(table.c.machine_id == first.machine))]
