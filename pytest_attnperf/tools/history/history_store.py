"""A store of many runs: appends, finds, lists and prunes them. Every failure is a HistoryError that says what to do."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from types import TracebackType
from typing import TYPE_CHECKING

from pytest_attnperf.records.histories import CaseHistory
from pytest_attnperf.records.regular_file import require_regular
from pytest_attnperf.results import RunResult
from pytest_attnperf.tools.history import history_rows, pruning, queries, thinning
from pytest_attnperf.tools.history.appending import Appended, append_rows
from pytest_attnperf.tools.history.engines import WAIT_SECONDS, StoreLocation, Transactions, parse_location
from pytest_attnperf.tools.history.history_failures import HistoryError
from pytest_attnperf.tools.history.store_schema import check_current_schema, prepare_tables

if TYPE_CHECKING:
    from sqlalchemy import Connection


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
            return append_rows(connection, added, sqlite=self.transactions.is_sqlite)

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
        asked = queries.PointFilter(_parse_since(since), limit, machine or {})
        return self.transactions.read(lambda connection: queries.load_histories(connection, case, arch, product, asked))

    def load_page(
        self, case: str, *, arch: str = "", product: str = "", since: str = "", limit: int = 0, newest: int = 0
    ) -> list[CaseHistory]:
        """Returns one case over time as `load_history` does, but of a series of more than `thinning.MOST_POINTS` runs
        only a sample in equal steps, all of its newest runs (`newest`, at least `thinning.NEWEST_POINTS`), and all
        around its changes."""
        asked = queries.PointFilter(_parse_since(since), limit)
        return self.transactions.read(
            lambda connection: thinning.load_thinned_histories(connection, case, arch, product, asked, newest)
        )

    def prune(self, *, keep_days: float = 0, keep_runs: int = 0, dry_run: bool = False) -> pruning.Pruned:
        """Deletes results older than `keep_days` that are not among the newest `keep_runs` of their case; 0: no rule.
        Returns the numbers of rows deleted and left; with `dry_run` deletes nothing. Deletes in several transactions,
        oldest runs first: if one fails, those before it stay done."""
        rule = pruning.RetentionRule(keep_days, keep_runs)
        return pruning.simulate_pruning(self.transactions, rule) if dry_run else pruning.prune(self.transactions, rule)

    def compact(self) -> int:
        """Gives a SQLite file's free pages back to the disk; returns the bytes freed. 0 for a server, which does it
        itself."""
        path = self.transactions.place.path
        if path is None:
            return 0
        before = path.stat().st_size
        pruning.vacuum(self.transactions)
        return before - path.stat().st_size

    def close(self) -> None:
        """Closes the connections to the database."""
        self.transactions.close()

    def __enter__(self) -> HistoryStore:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()


def _parse_since(since: str) -> float | None:
    return history_rows.parse_seconds(since, "time in `since`") if since else None


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
