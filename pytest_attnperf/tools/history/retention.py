"""What a store forgets, only when asked: measurements beyond an age and a number, and what nothing names then."""

from __future__ import annotations

import sqlite3
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pytest_attnperf.tools.history.engines import Transactions
from pytest_attnperf.tools.history.failures import HistoryError
from pytest_attnperf.tools.history.schema import Tables, tables

if TYPE_CHECKING:
    from sqlalchemy import ColumnElement, Connection, Delete

DAY_SECONDS = 86400.0


@dataclass(frozen=True)
class Rule:
    """What stays: runs of the last `keep_days` days, and of each case the newest `keep_runs`; 0 is 'not by this'.

    With both given, what either keeps stays. Raises HistoryError where both are 0, or one is negative.
    """

    keep_days: float = 0
    keep_runs: int = 0

    def __post_init__(self) -> None:
        if not (0 <= self.keep_days < float("inf") and self.keep_runs >= 0 and (self.keep_days or self.keep_runs)):
            raise HistoryError(
                f"history: to keep {self.keep_days:g} days and {self.keep_runs} runs is no rule; one of both must be "
                "positive, because nothing is deleted without one"
            )


@dataclass(frozen=True)
class Pruned:
    """How many measurements were deleted and stay; and runs, cases and facts that no measurement named any more."""

    measurements: int
    runs: int
    cases: int
    facts: int
    kept: int


def prune(connection: Connection, rule: Rule) -> Pruned:
    """Delete by the rule."""
    from sqlalchemy import func, select

    known = tables()
    measurements = connection.execute(_outdated(known, rule)).rowcount
    runs, cases, facts = (connection.execute(query).rowcount for query in _unnamed(known))
    kept = connection.execute(select(func.count()).select_from(known.measurements)).scalar_one()
    return Pruned(measurements, runs, cases, facts, kept)


def would_prune(connection: Connection, rule: Rule) -> Pruned:
    """The same counts; the deletions are taken back."""
    nested = connection.begin_nested()
    try:
        return prune(connection, rule)
    finally:
        nested.rollback()


def vacuum(transactions: Transactions) -> None:
    """SQLite keeps the pages of deleted rows until it is told. Raises HistoryError naming what was kept from it."""
    assert transactions.place.path is not None
    try:
        connection = sqlite3.connect(transactions.place.path, timeout=transactions.wait_s, isolation_level=None)
        try:
            connection.execute("VACUUM")
        finally:
            connection.close()
    except sqlite3.Error as error:
        raise HistoryError(
            f"history {transactions.place.shown}: what was pruned is deleted, but its space was not given back "
            f"({error}); once nobody uses it: sqlite3 FILE VACUUM"
        ) from error


def _outdated(known: Tables, rule: Rule) -> Delete:
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


def _unnamed(known: Tables) -> tuple[Delete, Delete, Delete]:
    """Of runs, cases and facts those that no measurement names."""
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
