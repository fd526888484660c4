"""Makes, checks and migrates the tables of a store, in one transaction.

Version 2 has totals and uses, an index that holds the course of a case, and no index of facts.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable
from typing import TYPE_CHECKING

from pytest_attnperf.tools.history.engines import Transactions, enable_write_ahead_log
from pytest_attnperf.tools.history.history_failures import HistoryError
from pytest_attnperf.tools.history.history_tables import PART, SCHEMA_VERSION, define_tables

if TYPE_CHECKING:
    from sqlalchemy import Connection

SETUP_LOCK = 0x61746E70657266
"""PostgreSQL advisory lock, held while tables are made or changed."""

FIRST_POSTGRESQL = (13,)
"""First version of PostgreSQL that vacuums a table into which rows are only inserted. Before it, an index alone never
answers a query for new rows."""

VACUUM_ROWS = 500_000
"""Rows after which PostgreSQL vacuums: a day of a large team. Its own rule, a fifth of the table, would leave months of
rows to be looked up one by one."""


def _migrate_to_2(connection: Connection) -> None:
    """Adds totals and uses, and replaces the indexes of measurements. SQLite keeps what it cannot drop, its references
    to facts, which it does not check."""
    known = define_tables()
    known.metadata.create_all(connection, [known.totals, known.uses])
    fill_summaries(connection)
    name = known.measurements.name
    for facts in ("machine_id", "environment_id"):
        connection.exec_driver_sql(f"DROP INDEX IF EXISTS ix_{name}_{facts}")
        if connection.dialect.name == "postgresql":
            connection.exec_driver_sql(f"ALTER TABLE {name} DROP CONSTRAINT IF EXISTS {name}_{facts}_fkey")
    tune_server_tables(connection)


def fill_summaries(connection: Connection) -> None:
    """Fills the empty tables of totals and uses from all measurements."""
    from sqlalchemy import func, insert, select, union

    known = define_tables()
    table = known.measurements
    timed = func.count(table.c.median_us)
    newest, oldest = func.max(table.c.started), func.min(table.c.started)
    counted = select(table.c.case_id, timed, func.count() - timed, oldest, newest).group_by(table.c.case_id)
    columns = ["case_id", "timed", "wrong", "oldest", "newest"]
    connection.execute(insert(known.totals).from_select(columns, counted))
    used = union(select(table.c.run_id, table.c.machine_id), select(table.c.run_id, table.c.environment_id))
    connection.execute(insert(known.uses).from_select(["run_id", "facts_id"], used))


def tune_server_tables(connection: Connection) -> None:
    """On PostgreSQL: makes the index of the primary key hold what the course of a case needs, and has new rows vacuumed
    daily, because an index alone answers for vacuumed rows only. Totals, which each run changes, get room for that."""
    version = connection.dialect.server_version_info if connection.dialect.name == "postgresql" else None
    if version is None or version < FIRST_POSTGRESQL:
        return
    known = define_tables()
    name, key = known.measurements.name, f"{known.measurements.name}_pkey"
    columns = ", ".join(column.name for column in known.measurements.primary_key)
    course = "median_us, machine_id, verdict"
    for text in (
        f"ALTER TABLE {name} DROP CONSTRAINT {key}, ADD CONSTRAINT {key} PRIMARY KEY ({columns}) INCLUDE ({course})",
        f"ALTER TABLE {name} SET (autovacuum_vacuum_insert_scale_factor = 0, "
        f"autovacuum_vacuum_insert_threshold = {VACUUM_ROWS})",
        f"ALTER TABLE {known.totals.name} SET (fillfactor = 50)",
    ):
        connection.exec_driver_sql(text)


STEPS: dict[int, Callable[[Connection], None]] = {1: _migrate_to_2}
"""Version -> function that migrates it to the next one, by SQLAlchemy's Core and plain DDL. It may not commit."""


def prepare_tables(transactions: Transactions) -> None:
    """Makes the tables for writing if there are none, or migrates older ones.

    Raises HistoryError for a newer schema, another program's database, and a store that cannot be written."""
    if transactions.read(lambda connection: _read_version(connection, transactions)) == SCHEMA_VERSION:
        return
    enable_write_ahead_log(transactions)
    transactions.write(lambda connection: _migrate_schema(connection, transactions))


def check_current_schema(transactions: Transactions) -> None:
    """Raises HistoryError for a store that cannot be read: it is empty, or its schema is older or newer than this
    version's."""
    shown = transactions.place.shown
    typed = shlex.quote(shown) if transactions.place.path is not None else "URL"  # a URL is shown without its password
    found = transactions.read(lambda connection: _read_version(connection, transactions))
    if found is None:
        raise HistoryError(
            f"history {shown} is empty; fill it from the last run: attnperf history --history {typed} --import "
            ".attnperf/results.json, or from each run by --attnperf-history=URL"
        )
    if found < SCHEMA_VERSION:
        raise HistoryError(
            f"history {shown} has schema {found}, this version reads {SCHEMA_VERSION}; migrate it by "
            f"attnperf history --history {typed} --migrate. The next run that appends to it migrates it, too"
        )


def _read_version(connection: Connection, transactions: Transactions) -> int | None:
    """Returns the schema version of the store, None if it is empty. Raises HistoryError for a newer version or another
    program's database."""
    from sqlalchemy import inspect, select

    table = define_tables().schema
    names = inspect(connection).get_table_names()
    shown = transactions.place.shown
    if table.name not in names:
        if names and transactions.is_sqlite:
            listed = ", ".join(repr(name[:60]) for name in names[:5])
            raise HistoryError(f"history {shown} belongs to another program, with tables {listed}; give another path")
        return None
    found = connection.execute(select(table.c.version).where(table.c.part == PART)).scalar()
    if found is None or found < 1:
        raise HistoryError(f"history {shown}: its schema version is {found}, not 1 to {SCHEMA_VERSION}; restore a copy")
    if found > SCHEMA_VERSION:
        raise HistoryError(
            f"history {shown} has schema {found}, this version knows up to {SCHEMA_VERSION}; upgrade pytest-attnperf"
        )
    return int(found)


def _migrate_schema(connection: Connection, transactions: Transactions) -> None:
    """Makes the tables, or migrates them. Reads the version again under the lock: another writer may have done it."""
    from sqlalchemy import func, insert, select, update

    if not transactions.is_sqlite:
        connection.execute(select(func.pg_advisory_xact_lock(SETUP_LOCK)))
    found = _read_version(connection, transactions)
    table = define_tables().schema
    if found is None:
        define_tables().metadata.create_all(connection)
        tune_server_tables(connection)
        connection.execute(insert(table).values(part=PART, version=SCHEMA_VERSION))
        return
    for version in range(found, SCHEMA_VERSION):
        STEPS[version](connection)
        connection.execute(update(table).where(table.c.part == PART).values(version=version + 1))
