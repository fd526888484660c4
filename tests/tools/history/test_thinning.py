from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from sqlalchemy import Connection, delete, insert, select

from pytest_attnperf.records import Verdict
from pytest_attnperf.records.histories import CaseHistory
from pytest_attnperf.results import RunResult
from pytest_attnperf.tools.history import thinning
from pytest_attnperf.tools.history.appending import append_rows, make_measurement
from pytest_attnperf.tools.history.change_points import with_changes
from pytest_attnperf.tools.history.history_rows import make_rows
from pytest_attnperf.tools.history.history_store import HistoryStore, open_store
from pytest_attnperf.tools.history.history_tables import define_tables
from pytest_attnperf.tools.history.queries import PointFilter
from pytest_attnperf.tools.history.store_schema import fill_summaries
from pytest_attnperf.tools.history.thinning import sample_query

MakeRun = Callable[..., RunResult]
RUNS, STEP_AT, MOST, NEWEST = 400, 251, 40, 20
OTHER = {"arch": "sm_90", "product": "h200", "timer": "graph", "power_cap_w": "500"}


def make_runs(make_run: MakeRun) -> Iterator[RunResult]:
    """Runs a minute apart, 5 % slower from STEP_AT on; every 50th is wrong, without a time, and 20 on another card."""
    draw = random.Random(1)
    for number in range(RUNS):
        us = (105.0 if number >= STEP_AT else 100.0) * math.exp(draw.gauss(0, 0.003))
        wrong = number % 50 == 7
        made = make_run(
            1,
            None if wrong else us,
            machine=OTHER if number % 20 == 3 else None,
            verdict=Verdict.INCORRECT if wrong else Verdict.SAME,
        )
        started = f"2026-01-01T{number // 60:02}:{number % 60:02}:00+00:00"
        yield replace(made, run_id=f"run {number}", commit=f"c{number}", started=started)


def fill(url: str, make_run: MakeRun) -> None:
    """Stores all runs in few statements, numbered from 1; the first 8 have all facts and are appended as ever."""
    rows = [make_rows(run, "attnperf") for run in make_runs(make_run)]
    known = define_tables()

    def insert_rows(connection: Connection) -> None:
        ids = [
            dict(connection.execute(select(table.c.digest, table.c.id)).all()) for table in (known.cases, known.facts)
        ]
        new = list(enumerate(rows, 1))[8:]
        connection.execute(insert(known.runs), [{**one.run, "id": number} for number, one in new])
        made = [make_measurement(row, number, *ids) for number, one in new for row in one.measurements]
        connection.execute(insert(known.measurements), made)
        for table in (known.totals, known.uses):
            connection.execute(delete(table))
        fill_summaries(connection)

    with open_store(url) as store:
        sqlite = store.transactions.is_sqlite
        store.transactions.write(lambda connection: [append_rows(connection, one, sqlite=sqlite) for one in rows[:8]])
        store.transactions.write(insert_rows)


@pytest.fixture
def long_store(store_url: str, make_run: MakeRun, monkeypatch: pytest.MonkeyPatch) -> Iterator[HistoryStore]:
    """A store with one long case, of which few points are taken."""
    monkeypatch.setattr(thinning, "MOST_POINTS", MOST)
    monkeypatch.setattr(thinning, "NEWEST_POINTS", NEWEST)
    fill(store_url, make_run)
    with open_store(store_url, read_only=True) as store:
        yield store


def name_changes(history: CaseHistory) -> list[tuple[str, str]]:
    """The commits around each change."""
    return [(change.last_before, change.first_after) for change in with_changes(history).changes]


def test_a_sample_places_a_change_as_all_runs_do(long_store: HistoryStore) -> None:
    """Of 372 runs a fifth is read: a sample, the newest, and those around the change, which is named to the commit."""
    whole, _ = long_store.load_history("triton")
    page, other = long_store.load_page("triton")
    assert (len(whole.points), page.runs, page.is_thinned) == (372, 372, True)
    assert MOST < len(page.points) < MOST + NEWEST + 40
    assert all(point in whole.points for point in page.points)
    assert list(page.points[-NEWEST:]) == list(whole.points[-NEWEST:])
    assert page.points[0] == whole.points[0]
    assert name_changes(page) == name_changes(whole) == [(f"c{STEP_AT - 1}", f"c{STEP_AT}")]
    assert (other.runs, len(other.points), other.is_thinned) == (20, 20, False)
    assert page.notes == whole.notes
    assert page.notes[0].startswith("wrong, without a time, in 8 runs: INCORRECT 2026-01-01 at c157, ")


def test_a_time_or_a_number_narrows_the_sample(long_store: HistoryStore) -> None:
    """What is short enough then is whole."""
    (since, _) = long_store.load_page("triton", since="2026-01-01T05:00:00")
    assert (since.runs, since.points[0].commit, since.is_thinned) == (93, "c300", True)
    (newest, _) = long_store.load_page("triton", limit=200)
    assert (newest.runs, newest.is_thinned) == (186, True)
    for narrow in ({"limit": 40}, {"since": "2026-01-01T06:10:00"}):
        assert long_store.load_page("triton", **narrow) == long_store.load_history("triton", **narrow)
    assert long_store.load_page("triton", since="2026-02-01") == []


def test_more_newest_runs_are_kept_where_they_are_asked_for(long_store: HistoryStore) -> None:
    """For `--fail-on-change 70` each of the newest 70 runs counts."""
    whole, _ = long_store.load_history("triton")
    page, _ = long_store.load_page("triton", newest=70)
    assert page.points[-70:] == whole.points[-70:]


def test_on_sqlite_the_sample_is_a_range_of_the_primary_key(tmp_path: Path) -> None:
    """Nothing is scanned but what this range gave."""
    plan = explain(str(tmp_path / "a.sqlite"), "EXPLAIN QUERY PLAN")
    assert "SEARCH attnperf_measurements USING PRIMARY KEY (case_id=?" in plan
    assert "SCAN attnperf_measurements" not in plan


def test_on_postgresql_the_sample_reads_an_index_only(postgres_url: str) -> None:
    """The rows, with the times of processes, lie in as many pages as there are runs."""
    plan = explain(postgres_url, "EXPLAIN", "SET enable_seqscan = off", "SET enable_bitmapscan = off")
    assert "Index Only Scan using attnperf_measurements_pkey on attnperf_measurements" in plan


def explain(url: str, how: str, *before: str) -> str:
    """The plan of the sample of one case."""
    with open_store(url) as store, store.transactions.engine.connect() as connection:
        for statement in before:
            connection.exec_driver_sql(statement)
        made = sample_query(7, PointFilter(), 5, {1: 5000}).compile(connection, compile_kwargs={"literal_binds": True})
        return "\n".join(str(row[-1]) for row in connection.exec_driver_sql(f"{how} {made}"))
