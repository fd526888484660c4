from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from pytest_attnperf.records import Verdict
from pytest_attnperf.results import RunResult
from pytest_attnperf.tools.history.history_store import open_store
from pytest_attnperf.tools.history.queries import PointFilter, points_query

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
