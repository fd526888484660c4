from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from pytest_attnperf.results import RunResult
from pytest_attnperf.tools.history import pruning
from pytest_attnperf.tools.history.history_failures import HistoryError
from pytest_attnperf.tools.history.history_store import HistoryStore, open_store
from pytest_attnperf.tools.history.history_tables import define_tables
from pytest_attnperf.tools.history.pruning import Pruned
from pytest_attnperf.tools.history.store_schema import fill_summaries

if TYPE_CHECKING:
    from sqlalchemy import Connection

MakeRun = Callable[..., RunResult]


@pytest.fixture
def aged_url(store_url: str, make_run: MakeRun) -> str:
    """Runs 0, 10, 20, 30 and 40 days old; another case in the oldest only."""
    now = datetime.now(timezone.utc)
    with open_store(store_url) as store:
        for days in (40, 30, 20, 10, 0):
            run = replace(make_run(1, environment={"torch": str(days)}), run_id=f"{days} days")
            other = replace(run.cases[0], key=replace(run.cases[0].key, backend="ck"))
            cases = (*run.cases, other) if days == 40 else run.cases
            store.append(replace(run, started=(now - timedelta(days=days)).isoformat(), cases=cases))
    return store_url


@pytest.mark.parametrize(
    ("keep_days", "keep_runs", "left", "pruned"),
    [
        (25, 0, ["20 days", "10 days", "0 days"], Pruned(3, 2, 1, 2, 3)),
        (0, 2, ["10 days", "0 days"], Pruned(3, 2, 0, 2, 3)),
        (15, 1, ["10 days", "0 days"], Pruned(3, 2, 0, 2, 3)),
        (1, 4, ["30 days", "20 days", "10 days", "0 days"], Pruned(1, 0, 0, 0, 5)),
        (100, 0, ["40 days", "30 days", "20 days", "10 days", "0 days"], Pruned(0, 0, 0, 0, 6)),
    ],
)
def test_what_the_rule_keeps_stays(
    aged_url: str, keep_days: float, keep_runs: int, left: list[str], pruned: Pruned
) -> None:
    """By age, by number, and with both what either keeps; runs, cases and facts that nothing names go, too."""
    with open_store(aged_url) as store:
        assert store.prune(keep_days=keep_days, keep_runs=keep_runs, dry_run=True) == pruned
        assert sum(one.points for one in store.list_cases()) == 6
        assert store.prune(keep_days=keep_days, keep_runs=keep_runs) == pruned
        (history,) = store.load_history("triton")
    assert [point.run_id for point in history.points] == left


def read_summaries(store: HistoryStore) -> list[list[tuple[Any, ...]]]:
    """The rows of totals and uses."""
    from sqlalchemy import select

    known = define_tables()

    def read(connection: Connection) -> list[list[tuple[Any, ...]]]:
        return [sorted(map(tuple, connection.execute(select(table)))) for table in (known.totals, known.uses)]

    return store.transactions.read(read)


@pytest.mark.parametrize("rule", [{"keep_days": 25}, {"keep_runs": 2}, {"keep_days": 15, "keep_runs": 1}])
def test_totals_stay_those_of_what_is_left(
    aged_url: str, rule: dict[str, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a pruning in several transactions they are what counting all measurements gives."""
    from sqlalchemy import delete

    monkeypatch.setattr(pruning, "RUNS_AT_ONCE", 1)
    known = define_tables()

    def count_again(connection: Connection) -> None:
        connection.execute(delete(known.totals))
        connection.execute(delete(known.uses))
        fill_summaries(connection)

    with open_store(aged_url) as store:
        store.prune(**rule)  # type: ignore[arg-type]
        kept = read_summaries(store)
        store.transactions.write(count_again)
        assert kept == read_summaries(store)
        assert kept[0]


def test_a_pruning_that_fails_leaves_whole_runs(aged_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """What earlier transactions deleted is gone, the run of the failing one is there, and the next pruning ends it."""
    from sqlalchemy import event

    monkeypatch.setattr(pruning, "RUNS_AT_ONCE", 1)
    with open_store(aged_url) as store:
        deleted: list[int] = []

        @event.listens_for(store.transactions.engine, "before_cursor_execute")
        def fail(connection: object, cursor: object, statement: str, *_: object) -> None:
            deleted.append(statement.startswith("DELETE FROM attnperf_measurements"))
            if sum(deleted) == 2:
                raise HistoryError("the server went away")

        with pytest.raises(HistoryError, match="went away"):
            store.prune(keep_days=15)
        event.remove(store.transactions.engine, "before_cursor_execute", fail)
        (history,) = store.load_history("triton")
        assert [point.run_id for point in history.points] == ["30 days", "20 days", "10 days", "0 days"]
        assert store.prune(keep_days=15) == Pruned(2, 2, 1, 3, 2)


def test_a_run_appended_meanwhile_is_in_the_totals(
    aged_url: str, make_run: MakeRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A writer between two transactions of a pruning loses nothing."""
    monkeypatch.setattr(pruning, "RUNS_AT_ONCE", 1)
    delete_runs = pruning._delete_runs
    appended: list[int] = []

    def delete_and_append(connection: Connection, runs: list[int]) -> int:
        appended.extend(runs)
        with open_store(aged_url) as other:
            if len(appended) == 2 and not other.transactions.is_sqlite:
                other.append(replace(make_run(300), run_id="meanwhile"))
        return delete_runs(connection, runs)

    monkeypatch.setattr(pruning, "_delete_runs", delete_and_append)
    with open_store(aged_url) as store:
        store.prune(keep_days=25)
        (known,) = store.list_cases()
        (history,) = store.load_history("triton")
        assert known.points == len(history.points) == (3 if store.transactions.is_sqlite else 4)


@pytest.mark.parametrize("rule", [{}, {"keep_days": -1}, {"keep_runs": -2}, {"keep_days": float("nan")}])
def test_nothing_is_deleted_without_a_rule(tmp_path: Path, rule: dict[str, float]) -> None:
    """A rule that keeps nothing is a mistake."""
    with (
        open_store(str(tmp_path / "a.sqlite")) as store,
        pytest.raises(HistoryError, match="one must be positive"),
    ):
        store.prune(**rule)  # type: ignore[arg-type]


def test_a_file_gets_smaller(tmp_path: Path, make_run: MakeRun) -> None:
    """SQLite gives pages back when it is told."""
    with open_store(str(tmp_path / "a.sqlite")) as store:
        for day in (1, 2):
            store.append(make_run(day, backend="b" * 200_000 * day))
        store.prune(keep_days=0.001)
        assert store.compact() > 300_000
        assert store.list_cases() == []


def test_space_that_is_not_given_back_is_said(tmp_path: Path) -> None:
    """Somebody else reads: the deletion itself is done."""
    import sqlite3

    with open_store(str(tmp_path / "a.sqlite"), wait_s=0.05) as store:
        other = sqlite3.connect(tmp_path / "a.sqlite", isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(HistoryError, match="rows were deleted, but their disk space was not freed"):
            store.compact()
        other.close()
