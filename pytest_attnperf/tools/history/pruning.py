"""Deletes measurements beyond an age or a number, and rows that no measurement refers to any more.

What a rule deletes is planned first: whole runs, by an age; with a number of runs, also older measurements of a case in
runs that stay for another case. Runs go in batches of RUNS_AT_ONCE, each a transaction of its own, so that other
writers wait for one batch at most. Nothing scans all measurements: the oldest run that a case keeps is found by the
index of the primary key, a run's measurements by that of `run_id`, and counts are kept in the totals.
"""

from __future__ import annotations

import functools
import sqlite3
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from pytest_attnperf.tools.history.engines import Transactions
from pytest_attnperf.tools.history.history_failures import HistoryError
from pytest_attnperf.tools.history.history_tables import define_tables

if TYPE_CHECKING:
    from sqlalchemy import ColumnElement, Connection

RUNS_AT_ONCE = 100
"""Runs deleted by one transaction: 200,000 rows of a large team."""

DAY_SECONDS = 86400.0


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


@dataclass(frozen=True)
class PruningPlan:
    """What a rule deletes.

    runs     runs that go whole, oldest first
    oldest   (start, run) of the oldest measurement that the number keeps, of cases that have more
    cutoff   start, in seconds since 1970, from which on the age keeps everything; None without an age
    """

    runs: tuple[int, ...]
    oldest: Mapping[int, tuple[float, int]] = field(default_factory=dict)
    cutoff: float | None = None


def prune(transactions: Transactions, rule: RetentionRule) -> Pruned:
    """Deletes the measurements that `rule` does not keep, and rows that nothing refers to any more. Returns the numbers
    of rows. Raises HistoryError if a transaction fails; those before it stay done."""
    plan = transactions.read(lambda connection: plan_pruning(connection, rule))
    deleted = 0
    for runs in _split(plan.runs, RUNS_AT_ONCE):
        deleted += transactions.write(functools.partial(_delete_runs, runs=runs))
    left = transactions.read(lambda connection: _list_long_cases(connection, rule.keep_runs, plan.cutoff))
    for case in left if plan.oldest else ():
        if case in plan.oldest:
            deleted += transactions.write(functools.partial(_delete_older, plan=plan, case=case))
    cases, facts = transactions.write(_delete_unnamed)
    return Pruned(deleted, len(plan.runs), cases, facts, transactions.read(_count_measurements))


def simulate_pruning(transactions: Transactions, rule: RetentionRule) -> Pruned:
    """Returns how many rows `prune` would delete and leave; only reads."""
    return transactions.read(lambda connection: _count_pruned(connection, plan_pruning(connection, rule)))


def plan_pruning(connection: Connection, rule: RetentionRule) -> PruningPlan:
    """Returns what `rule` deletes of the store as it is now."""
    cutoff = time.time() - rule.keep_days * DAY_SECONDS if rule.keep_days else None
    if not rule.keep_runs:
        return PruningPlan(tuple(_list_runs(connection, cutoff)), cutoff=cutoff)
    oldest = {
        case: _find_newest(connection, case, rule.keep_runs)
        for case in _list_long_cases(connection, rule.keep_runs, cutoff)
    }
    if not oldest:
        return PruningPlan(())
    # No case loses a later run. What a case keeps of earlier ones is little: it is behind others, or is seldom run.
    horizon = max(started for started, _ in oldest.values())
    plan = PruningPlan((), oldest, cutoff)
    kept: set[int] = set()
    for case in _list_long_cases(connection, 0, None):
        kept.update(_list_kept_runs(connection, plan, case, horizon))
    runs = tuple(run for run in _list_runs(connection, cutoff, horizon) if run not in kept)
    return PruningPlan(runs, oldest, cutoff)


def _list_runs(connection: Connection, cutoff: float | None, horizon: float | None = None) -> list[int]:
    """Returns the runs that started before `cutoff` and not after `horizon` (None: any), oldest first."""
    from sqlalchemy import select

    table = define_tables().runs
    query = select(table.c.id).order_by(table.c.started, table.c.id)
    query = query if cutoff is None else query.where(table.c.started < cutoff)
    return list(connection.execute(query if horizon is None else query.where(table.c.started <= horizon)).scalars())


def _list_long_cases(connection: Connection, more_than: int, before: float | None) -> list[int]:
    """Returns the cases with more than so many measurements, whose oldest is before a time (None: any)."""
    from sqlalchemy import select

    table = define_tables().totals
    query = select(table.c.case_id).where(table.c.timed + table.c.wrong > more_than).order_by(table.c.case_id)
    return list(connection.execute(query if before is None else query.where(table.c.oldest < before)).scalars())


def _find_newest(connection: Connection, case: int, place: int) -> tuple[float, int]:
    """Returns (start, run) of the measurement of a case that has this place from the newest, which is place 1."""
    from sqlalchemy import select

    table = define_tables().measurements
    query = select(table.c.started, table.c.run_id).where(table.c.case_id == case)
    newest = query.order_by(table.c.started.desc(), table.c.run_id.desc()).offset(place - 1).limit(1)
    started, run = connection.execute(newest).one()
    return float(started), int(run)


def _list_kept_runs(connection: Connection, plan: PruningPlan, case: int, horizon: float) -> list[int]:
    """Returns the runs up to `horizon` of which the number keeps a case's measurement."""
    from sqlalchemy import not_, select

    table = define_tables().measurements
    query = select(table.c.run_id).where(table.c.case_id == case, table.c.started <= horizon)
    if case in plan.oldest:
        query = query.where(table.c.started >= plan.oldest[case][0], not_(_is_before(*plan.oldest[case])))
    return list(connection.execute(query).scalars())


def _delete_runs(connection: Connection, runs: Sequence[int]) -> int:
    """Deletes runs with their measurements; returns the number of these."""
    from sqlalchemy import delete

    known = define_tables()
    deleted = _delete_measurements(connection, known.measurements.c.run_id.in_(runs))
    connection.execute(delete(known.uses).where(known.uses.c.run_id.in_(runs)))
    connection.execute(delete(known.runs).where(known.runs.c.id.in_(runs)))
    return deleted


def _delete_older(connection: Connection, plan: PruningPlan, case: int) -> int:
    """Deletes the measurements of a case beyond the number that is kept, in runs that stay; returns how many."""
    return _delete_measurements(connection, *_is_older(plan, case), case=case)


def _is_older(plan: PruningPlan, case: int) -> list[ColumnElement[bool]]:
    table = define_tables().measurements
    oldest = plan.oldest[case]
    # The bound of the start is that of the index; the other one says what of it counts.
    conditions = [table.c.case_id == case, table.c.started <= oldest[0], _is_before(*oldest)]
    return conditions if plan.cutoff is None else [*conditions, table.c.started < plan.cutoff]


def _is_before(started: float, run: int) -> ColumnElement[bool]:
    from sqlalchemy import and_, or_

    table = define_tables().measurements
    return or_(table.c.started < started, and_(table.c.started == started, table.c.run_id < run))


def _delete_measurements(connection: Connection, *which: ColumnElement[bool], case: int | None = None) -> int:
    """Deletes measurements (of one case, or of any: None) and takes them off the totals; returns their number.

    On a server it first locks these totals, in the order in which writers do: a run that is appended meanwhile waits,
    and is in no count here."""
    from sqlalchemy import and_, delete, func, not_, select, update

    known = define_tables()
    table, totals = known.measurements, known.totals
    locked = select(totals.c.case_id).order_by(totals.c.case_id).with_for_update()
    connection.execute(locked if case is None else locked.where(totals.c.case_id == case)).all()
    timed = func.count(table.c.median_us)
    counted = select(table.c.case_id, timed.label("timed"), (func.count() - timed).label("wrong")).where(*which)
    lost = counted.group_by(table.c.case_id).subquery()
    # Counted before they are deleted, so that the oldest that stays is found without passing deleted rows.
    left = select(func.min(table.c.started)).where(table.c.case_id == totals.c.case_id, not_(and_(*which)))
    values = {"timed": totals.c.timed - lost.c.timed, "wrong": totals.c.wrong - lost.c.wrong}
    values["oldest"] = func.coalesce(left.scalar_subquery(), totals.c.oldest)
    connection.execute(update(totals).where(totals.c.case_id == lost.c.case_id).values(values))
    connection.execute(delete(totals).where(totals.c.timed + totals.c.wrong == 0))
    return int(connection.execute(delete(table).where(*which)).rowcount)


def _delete_unnamed(connection: Connection) -> tuple[int, int]:
    """Deletes cases without measurements, and facts that no run uses; returns how many."""
    from sqlalchemy import delete, exists

    known = define_tables()
    unnamed = (
        delete(known.cases).where(~exists().where(known.totals.c.case_id == known.cases.c.id)),
        delete(known.facts).where(~exists().where(known.uses.c.facts_id == known.facts.c.id)),
    )
    cases, facts = (connection.execute(query).rowcount for query in unnamed)
    return cases, facts


def _count_measurements(connection: Connection) -> int:
    from sqlalchemy import func, select

    table = define_tables().totals
    return int(connection.execute(select(func.coalesce(func.sum(table.c.timed + table.c.wrong), 0))).scalar_one())


def _count_pruned(connection: Connection, plan: PruningPlan) -> Pruned:
    """Returns what executing the plan would delete and leave."""
    from sqlalchemy import func, select

    known = define_tables()
    table = known.measurements
    counts: list[tuple[int, int]] = []
    if plan.oldest:
        # Of a run that goes whole every measurement is older than what its case keeps.
        older = select(func.count()).select_from(table)
        counts += [(case, connection.execute(older.where(*_is_older(plan, case))).scalar_one()) for case in plan.oldest]
    else:
        by_case = select(table.c.case_id, func.count()).group_by(table.c.case_id)
        for runs in _split(plan.runs, RUNS_AT_ONCE):
            counts += [(case, count) for case, count in connection.execute(by_case.where(table.c.run_id.in_(runs)))]
    lost: dict[int, int] = {}
    for case, count in counts:
        lost[case] = lost.get(case, 0) + count
    totals = known.totals
    left = {case: count - lost.get(case, 0) for case, count in connection.execute(
        select(totals.c.case_id, totals.c.timed + totals.c.wrong))}  # fmt: skip
    uses = connection.execute(select(known.uses.c.run_id, known.uses.c.facts_id)).all()
    going = set(plan.runs)
    facts = {facts for _, facts in uses} - {facts for run, facts in uses if run not in going}
    cases = sum(not count for count in left.values())
    return Pruned(sum(lost.values()), len(plan.runs), cases, len(facts), sum(left.values()))


def _split(values: Sequence[Any], size: int) -> Iterator[Sequence[Any]]:
    return (values[start : start + size] for start in range(0, len(values), size))


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
