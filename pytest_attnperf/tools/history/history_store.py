"""A store of many runs: appends, finds, lists and prunes them. Every failure is a HistoryError that says what to do.

Also creates, checks and migrates a store's schema in one transaction. Version 1 is the first published one, so there is
no step yet. A later version adds one to STEPS.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING, Any

from pytest_attnperf.records.histories import CaseHistory
from pytest_attnperf.records.regular_file import require_regular
from pytest_attnperf.results import RunResult
from pytest_attnperf.tools.history import history_rows, queries
from pytest_attnperf.tools.history.engines import (
    WAIT_SECONDS,
    StoreLocation,
    Transactions,
    enable_write_ahead_log,
    parse_location,
)
from pytest_attnperf.tools.history.history_failures import HistoryError
from pytest_attnperf.tools.history.history_tables import PART, SCHEMA_VERSION, HistoryTables, define_tables

if TYPE_CHECKING:
    from sqlalchemy import Connection, Insert, Table

FOUND_AT_ONCE = 500
"""Most digests in one query: an older SQLite accepts 999 values."""

STEPS: dict[int, Callable[[Connection], None]] = {}
"""Version -> function that migrates it to the next one, by SQLAlchemy's DDL and Core. It may not commit."""

SETUP_LOCK = 0x61746E70657266
"""PostgreSQL advisory lock, held while tables are made or changed."""


@dataclass(frozen=True)
class Appended:
    """Result of `append`. `rows` is the number of stored rows; `already` says that the run was stored before, and
    nothing was done."""

    rows: int
    already: bool
    run_id: str


def open_store(url: str, *, read_only: bool = False, wait_s: float = WAIT_SECONDS) -> HistoryStore:
    """Opens a store by its address: a path, `sqlite:///path` or `postgresql://...`.

    For writing, the store and its folder are made, or migrated; for reading it must exist. `wait_s` is the time limit
    in seconds for other writers. Raises HistoryError if it cannot be opened."""
    place = parse_location(url)
    _prepare_file(place, read_only)
    transactions = Transactions(place, read_only=read_only, wait_s=wait_s)
    try:
        if read_only:
            check_current_schema(transactions)
        else:
            prepare_tables(transactions)
    except BaseException:
        transactions.close()
        raise
    return HistoryStore(transactions)


class HistoryStore:
    """An open store, made by `open_store`. As a context manager it closes itself."""

    def __init__(self, transactions: Transactions) -> None:
        self.transactions = transactions

    @property
    def address(self) -> str:
        """The store's address, without a password."""
        return self.transactions.place.shown

    def append(self, run: RunResult, *, source: str = "attnperf") -> Appended:
        """Stores a run's timed and wrong cases, all or none; returns how many rows were added. Adds nothing if the run
        is stored already."""
        added = history_rows.make_rows(run, source)

        def append_run(connection: Connection) -> Appended:
            return _append_run(connection, added, sqlite=self.transactions.is_sqlite)

        return self.transactions.write(append_run)

    def list_cases(self, pattern: str = "", *, arch: str = "", product: str = "") -> list[queries.KnownCase]:
        """Returns the cases whose key or node id contains `pattern`, with their numbers of runs, sorted by name and
        device."""
        return self.transactions.read(lambda connection: queries.list_cases(connection, pattern, arch, product))

    def load_history(
        self,
        case: str,
        *,
        arch: str = "",
        product: str = "",
        since: str = "",
        limit: int = 0,
        machine: Mapping[str, str] | None = None,
    ) -> list[CaseHistory]:
        """Returns one case over time: a series for each device, and for each of its machines whose times are
        comparable.

        case      its key, its node id, or a part of either that only one case has
        since     ISO date; earlier runs are left out
        limit     most runs of each device, the newest; 0 is all
        machine   facts that the machine must have, e.g. {'power_cap_w': '700'}
        Raises HistoryError if no case, or more than one, matches.
        """
        asked = queries.PointFilter(
            history_rows.parse_seconds(since, "time in `since`") if since else None, limit, machine or {}
        )
        return self.transactions.read(lambda connection: queries.load_histories(connection, case, arch, product, asked))

    def prune(self, *, keep_days: float = 0, keep_runs: int = 0, dry_run: bool = False) -> queries.Pruned:
        """Deletes results older than `keep_days` that are not among the newest `keep_runs` of their case; 0: no rule.
        Returns the numbers of rows deleted and left; with `dry_run` deletes nothing."""
        rule = queries.RetentionRule(keep_days, keep_runs)
        if not dry_run:
            return self.transactions.write(lambda connection: queries.prune_measurements(connection, rule))
        return self.transactions.write(lambda connection: queries.simulate_pruning(connection, rule))

    def compact(self) -> int:
        """Gives a SQLite file's free pages back to the disk; returns the bytes freed. 0 for a server, which does it
        itself."""
        path = self.transactions.place.path
        if path is None:
            return 0
        before = path.stat().st_size
        queries.vacuum(self.transactions)
        return before - path.stat().st_size

    def close(self) -> None:
        """Closes the connections to the database."""
        self.transactions.close()

    def __enter__(self) -> HistoryStore:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()


def _prepare_file(place: StoreLocation, read_only: bool) -> None:
    """Makes the folder of a new SQLite file. Raises HistoryError if that fails, if a file to read does not exist, or if
    it is no regular file."""
    if place.path is None:
        return
    if place.path.exists():
        require_regular(place.path, HistoryError)
        return
    if read_only:
        raise HistoryError(
            f"history {place.shown} does not exist yet; make it from the last run: attnperf history --history "
            f"{shlex.quote(place.shown)} --import .attnperf/results.json, or from each run by --attnperf-history=URL"
        )
    try:
        place.path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise HistoryError(f"history {place.shown}: its folder cannot be made ({error}); give another path") from error


def _append_run(connection: Connection, added: history_rows.RunRows, *, sqlite: bool) -> Appended:
    from sqlalchemy import insert, select

    known = define_tables()
    run_id = str(added.run["run_id"])
    there = select(known.runs.c.id).where(known.runs.c.digest == added.run["digest"])
    new = _make_insert(known.runs, sqlite).values(**added.run).returning(known.runs.c.id)
    run = None if connection.execute(there).first() else connection.execute(new).scalar_one_or_none()
    if run is None:
        return Appended(0, True, run_id)
    facts = _find_or_add_ids(connection, known.facts, added.facts, sqlite)
    cases = _find_or_add_ids(connection, known.cases, added.cases, sqlite)
    _update_node_ids(connection, known, added, cases)
    stored = [_make_measurement(row, run, cases, facts) for row in added.measurements]
    if stored:
        connection.execute(insert(known.measurements), sorted(stored, key=lambda row: row["case_id"]))
    return Appended(len(stored), False, run_id)


def _make_insert(table: Table, sqlite: bool) -> Insert:
    """Returns an INSERT that skips rows that are stored already."""
    from sqlalchemy.dialects import postgresql
    from sqlalchemy.dialects import sqlite as sqlite_dialect

    if sqlite:
        return sqlite_dialect.insert(table).on_conflict_do_nothing()
    return postgresql.insert(table).on_conflict_do_nothing()


def _find_or_add_ids(
    connection: Connection, table: Table, wanted: dict[str, history_rows.Row], sqlite: bool
) -> dict[str, int]:
    """Returns digest -> id of the rows `wanted` in a table; adds those that are missing."""
    found = _find_ids(connection, table, list(wanted))
    missing = history_rows.sort_by_digest(row for identity, row in wanted.items() if identity not in found)
    if missing:
        connection.execute(_make_insert(table, sqlite), missing)
        found |= _find_ids(connection, table, [str(row["digest"]) for row in missing])
    return found


def _find_ids(connection: Connection, table: Table, digests: list[str]) -> dict[str, int]:
    from sqlalchemy import select

    found: dict[str, int] = {}
    for start in range(0, len(digests), FOUND_AT_ONCE):
        part = digests[start : start + FOUND_AT_ONCE]
        query = select(table.c.digest, table.c.id).where(table.c.digest.in_(part))
        found.update({row.digest: row.id for row in connection.execute(query)})
    return found


def _update_node_ids(
    connection: Connection, known: HistoryTables, added: history_rows.RunRows, ids: dict[str, int]
) -> None:
    """Replaces the stored pytest node ids of a run's cases by the run's, because a test may have moved to another
    file."""
    from sqlalchemy import bindparam, update

    table = known.cases
    rows = history_rows.sort_by_digest(added.cases.values())
    named = [{"which": ids[row["digest"]], "newest": row["nodeid"]} for row in rows]
    if named:
        changed = update(table).where(table.c.id == bindparam("which"), table.c.nodeid != bindparam("newest"))
        connection.execute(changed.values(nodeid=bindparam("newest")), named)


def _make_measurement(row: history_rows.Row, run: int, cases: dict[str, int], facts: dict[str, int]) -> dict[str, Any]:
    named = ("case", "machine", "environment")
    return {
        **{name: value for name, value in row.items() if name not in named},
        "case_id": cases[row["case"]],
        "run_id": run,
        "machine_id": facts[row["machine"]],
        "environment_id": facts[row["environment"]],
    }


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
        connection.execute(insert(table).values(part=PART, version=SCHEMA_VERSION))
        return
    for version in range(found, SCHEMA_VERSION):
        STEPS[version](connection)
        connection.execute(update(table).where(table.c.part == PART).values(version=version + 1))
