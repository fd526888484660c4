"""Stores the rows of one run in one transaction: those of new cases and facts, the run's own, and its measurements."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pytest_attnperf.tools.history import history_rows
from pytest_attnperf.tools.history.history_tables import HistoryTables, define_tables

if TYPE_CHECKING:
    from sqlalchemy import Connection, Insert, Table

Row = Any
"""A row of SQLAlchemy; its type does not declare the columns."""

FOUND_AT_ONCE = 500
"""Most digests in one query: an older SQLite accepts 999 values."""


@dataclass(frozen=True)
class Appended:
    """Result of `append`. `rows` is the number of stored rows; `already` says that the run was stored before, and
    nothing was done."""

    rows: int
    already: bool


def append_rows(connection: Connection, added: history_rows.RunRows, *, sqlite: bool) -> Appended:
    """Stores the rows of a run; nothing if the run is stored already."""
    from sqlalchemy import insert, select

    known = define_tables()
    there = select(known.runs.c.id).where(known.runs.c.digest == added.run["digest"])
    new = _make_insert(known.runs, sqlite).values(**added.run).returning(known.runs.c.id)
    run = None if connection.execute(there).first() else connection.execute(new).scalar_one_or_none()
    if run is None:
        return Appended(0, True)
    facts = {digest: row.id for digest, row in _find_or_add(connection, known.facts, added.facts, sqlite).items()}
    cases = _find_or_add(connection, known.cases, added.cases, sqlite, "nodeid")
    _update_node_ids(connection, known, added, cases)
    ids = {digest: row.id for digest, row in cases.items()}
    stored = [make_measurement(row, run, ids, facts) for row in added.measurements]
    if stored:
        stored.sort(key=lambda row: row["case_id"])
        connection.execute(insert(known.measurements), stored)
        connection.execute(insert(known.uses), [{"run_id": run, "facts_id": number} for number in facts.values()])
        add_to_totals(connection, known, run, sqlite=sqlite)
    return Appended(len(stored), False)


def _start_insert(table: Table, sqlite: bool) -> Any:
    """Returns an INSERT of the database's dialect, whose type is that of no other dialect."""
    from sqlalchemy.dialects import postgresql
    from sqlalchemy.dialects import sqlite as sqlite_dialect

    return sqlite_dialect.insert(table) if sqlite else postgresql.insert(table)


def _make_insert(table: Table, sqlite: bool) -> Insert:
    """Returns an INSERT that skips rows that are stored already."""
    made: Insert = _start_insert(table, sqlite).on_conflict_do_nothing()
    return made


def add_to_totals(connection: Connection, known: HistoryTables, run: int, *, sqlite: bool) -> None:
    """Counts the stored measurements of a run in the totals of its cases, in the order of cases, so that writers that
    wait for each other's rows cannot deadlock."""
    from sqlalchemy import case, select

    table, totals = known.measurements, known.totals
    timed = case((table.c.median_us.is_(None), 0), else_=1)
    counted = select(table.c.case_id, timed, 1 - timed, table.c.started, table.c.started)
    counted = counted.where(table.c.run_id == run).order_by(table.c.case_id)
    new = _start_insert(totals, sqlite).from_select(["case_id", "timed", "wrong", "oldest", "newest"], counted)
    seen = new.excluded
    changed = {
        "timed": totals.c.timed + seen.timed,
        "wrong": totals.c.wrong + seen.wrong,
        "oldest": case((seen.oldest < totals.c.oldest, seen.oldest), else_=totals.c.oldest),
        "newest": case((seen.newest > totals.c.newest, seen.newest), else_=totals.c.newest),
    }
    connection.execute(new.on_conflict_do_update(index_elements=["case_id"], set_=changed))


def _find_or_add(
    connection: Connection, table: Table, wanted: dict[str, history_rows.Row], sqlite: bool, *columns: str
) -> dict[str, Row]:
    """Returns digest -> row, with id and `columns`, of the rows `wanted` in a table; adds those that are missing."""
    found = _find_rows(connection, table, list(wanted), columns)
    missing = history_rows.sort_by_digest(row for identity, row in wanted.items() if identity not in found)
    if missing:
        connection.execute(_make_insert(table, sqlite), missing)
        found |= _find_rows(connection, table, [str(row["digest"]) for row in missing], columns)
    return found


def _find_rows(connection: Connection, table: Table, digests: Sequence[str], columns: Sequence[str]) -> dict[str, Row]:
    from sqlalchemy import select

    found: dict[str, Row] = {}
    query = select(*(table.c[name] for name in ("digest", "id", *columns)))
    for start in range(0, len(digests), FOUND_AT_ONCE):
        part = table.c.digest.in_(digests[start : start + FOUND_AT_ONCE])
        found.update({row.digest: row for row in connection.execute(query.where(part))})
    return found


def _update_node_ids(
    connection: Connection, known: HistoryTables, added: history_rows.RunRows, stored: dict[str, Row]
) -> None:
    """Replaces the stored pytest node ids of a run's cases by the run's, because a test may have moved to another
    file."""
    from sqlalchemy import bindparam, update

    table = known.cases
    moved = [
        {"which": stored[row["digest"]].id, "named": row["nodeid"]}
        for row in history_rows.sort_by_digest(added.cases.values())
        if stored[row["digest"]].nodeid != row["nodeid"]
    ]
    if moved:
        changed = update(table).where(table.c.id == bindparam("which"))
        connection.execute(changed.values(nodeid=bindparam("named")), moved)


def make_measurement(row: history_rows.Row, run: int, cases: dict[str, int], facts: dict[str, int]) -> dict[str, Any]:
    """Returns a measurement's row with the numbers of its run, and of its case and facts in place of their digests."""
    named = ("case", "machine", "environment")
    return {
        **{name: value for name, value in row.items() if name not in named},
        "case_id": cases[row["case"]],
        "run_id": run,
        "machine_id": facts[row["machine"]],
        "environment_id": facts[row["environment"]],
    }
