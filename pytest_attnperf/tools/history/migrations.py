"""A store's schema version: made, read, and brought up to today's in one transaction.

Version 1 is the first that was published, so there is no step yet. A later version adds one to STEPS.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from pytest_attnperf.tools.history.engines import Transactions, log_ahead
from pytest_attnperf.tools.history.failures import HistoryError
from pytest_attnperf.tools.history.schema import PART, SCHEMA_VERSION, tables

if TYPE_CHECKING:
    from sqlalchemy import Connection

STEPS: dict[int, Callable[[Connection], None]] = {}
"""By version: what makes the next one of it, by SQLAlchemy's DDL and Core. It may not commit."""

SETUP_LOCK = 0x61746E70657266
"""PostgreSQL's advisory lock that those who make or change tables take in turn."""


def prepare(transactions: Transactions) -> None:
    """For writing: make the tables where there are none, migrate older ones.

    Raises HistoryError for a newer schema, somebody else's database, and what cannot be written.
    """
    if transactions.reading(lambda connection: _version(connection, transactions)) == SCHEMA_VERSION:
        return
    log_ahead(transactions)
    transactions.writing(lambda connection: _bring_up(connection, transactions))


def require_today(transactions: Transactions) -> None:
    """For reading: raises HistoryError for an older schema, a newer one, and a store without any."""
    shown = transactions.place.shown
    found = transactions.reading(lambda connection: _version(connection, transactions))
    if found is None:
        raise HistoryError(
            f"history {shown} holds nothing yet; fill it by pytest --attnperf --attnperf-history=URL, or by "
            "attnperf history --import results.json"
        )
    if found < SCHEMA_VERSION:
        raise HistoryError(
            f"history {shown} is of schema {found}, this version reads {SCHEMA_VERSION}; migrate it by "
            f"attnperf history --history URL --migrate. The next run that appends to it does so, too"
        )


def _version(connection: Connection, transactions: Transactions) -> int | None:
    """The version found, None for an empty store. Raises HistoryError for a newer one and for no store of ours."""
    from sqlalchemy import inspect, select

    table = tables().schema
    names = inspect(connection).get_table_names()
    shown = transactions.place.shown
    if table.name not in names:
        if names and transactions.is_sqlite:
            listed = ", ".join(repr(name[:60]) for name in names[:5])
            raise HistoryError(f"history {shown} is the database of something else, with tables {listed}; give another")
        return None
    found = connection.execute(select(table.c.version).where(table.c.part == PART)).scalar()
    if found is None or found < 1:
        raise HistoryError(f"history {shown}: its schema version is {found}; known: 1 to {SCHEMA_VERSION}")
    if found > SCHEMA_VERSION:
        raise HistoryError(
            f"history {shown} is of schema {found}, this version knows up to {SCHEMA_VERSION}; upgrade pytest-attnperf"
        )
    return int(found)


def _bring_up(connection: Connection, transactions: Transactions) -> None:
    """Another writer may have done it meanwhile: looked at again, under the lock."""
    from sqlalchemy import func, insert, select, update

    if not transactions.is_sqlite:
        connection.execute(select(func.pg_advisory_xact_lock(SETUP_LOCK)))
    found = _version(connection, transactions)
    table = tables().schema
    if found is None:
        tables().metadata.create_all(connection)
        connection.execute(insert(table).values(part=PART, version=SCHEMA_VERSION))
        return
    for version in range(found, SCHEMA_VERSION):
        STEPS[version](connection)
        connection.execute(update(table).where(table.c.part == PART).values(version=version + 1))
