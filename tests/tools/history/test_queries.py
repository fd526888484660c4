from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest

from pytest_attnperf.records import Verdict
from pytest_attnperf.results import RunResult
from pytest_attnperf.tools.history.history_failures import HistoryError
from pytest_attnperf.tools.history.history_store import open_store
from pytest_attnperf.tools.history.queries import PointFilter, Pruned, points_query

MakeRun = Callable[..., RunResult]


ASKED = [PointFilter(), PointFilter(since=1.0), PointFilter(limit=5)]


def _plan(url: str, asked: PointFilter, explain: str, *, before: str = "") -> str:
    with open_store(url) as store, store.transactions.engine.connect() as connection:
        if before:
            connection.exec_driver_sql(before)
        query = str(points_query(7, asked).compile(connection, compile_kwargs={"literal_binds": True}))
        return "\n".join(str(row[-1]) for row in connection.exec_driver_sql(f"{explain} {query}"))


@pytest.mark.parametrize("asked", ASKED)
def test_on_sqlite_points_of_a_case_are_a_range_of_the_primary_key(tmp_path: Path, asked: PointFilter) -> None:
    """It is searched by the case, and nothing is scanned or sorted."""
    plan = _plan(str(tmp_path / "a.sqlite"), asked, "EXPLAIN QUERY PLAN")
    assert "SEARCH attnperf_measurements USING PRIMARY KEY (case_id=?" in plan
    assert "SCAN" not in plan
    assert "TEMP B-TREE" not in plan


@pytest.mark.parametrize("asked", ASKED)
def test_on_postgresql_points_of_a_case_are_a_range_of_the_primary_key(postgres_url: str, asked: PointFilter) -> None:
    """The planner takes it once a scan of the whole, which is cheaper in an empty table, is not allowed."""
    plan = _plan(postgres_url, asked, "EXPLAIN", before="SET enable_seqscan = off")
    assert "attnperf_measurements_pkey" in plan


def test_many_cases_are_counted_as_few_are(store_url: str, make_run: MakeRun, monkeypatch: pytest.MonkeyPatch) -> None:
    """Counting all cases at once, and only those asked for, gives the same."""
    with open_store(store_url) as store:
        for number, backend in enumerate(("a", "b", "c"), 1):
            store.append(make_run(number, backend=backend))
        few = store.list_cases()
        monkeypatch.setattr("pytest_attnperf.tools.history.queries.COUNTED_AT_ONCE", 1)
        assert store.list_cases() == few
        assert [(one.points, one.wrong) for one in few] == [(1, 0)] * 3


def test_only_the_newest_wrong_runs_are_named(store_url: str, make_run: MakeRun) -> None:
    """A case that has been wrong for weeks fills no page; without any time the history has no points."""
    with open_store(store_url) as store:
        for day in range(1, 9):
            store.append(make_run(day, None, verdict=Verdict.ERROR if day % 2 else Verdict.INCORRECT))
        (history,) = store.load_history("triton")
        assert store.load_history("triton", since="2027-01-01") == []
    assert history.points == ()
    (note,) = history.notes
    assert note.startswith("wrong, without a time, in 8 runs: INCORRECT 2026-01-04")
    assert note.endswith("INCORRECT 2026-01-08 at 000000000008 (newest)")


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
