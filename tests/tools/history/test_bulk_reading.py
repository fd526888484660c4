from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from pytest_attnperf.records import Verdict
from pytest_attnperf.results import RunResult
from pytest_attnperf.tools.history import bulk_reading
from pytest_attnperf.tools.history.bulk_reading import (
    BulkFilter,
    CaseRuns,
    StoreContents,
    load_case_runs,
    load_contents,
    parse_processes,
)
from pytest_attnperf.tools.history.history_failures import HistoryError
from pytest_attnperf.tools.history.history_rows import parse_seconds
from pytest_attnperf.tools.history.history_store import HistoryStore, open_store

MakeRun = Callable[..., RunResult]
OTHER = {"arch": "sm_90", "product": "h200", "timer": "graph", "power_cap_w": "500"}


@pytest.fixture
def store(store_url: str, make_run: MakeRun) -> Any:
    """Two cases in ten runs; one is wrong in the fifth, and on another machine in the last two."""
    with open_store(store_url) as opened:
        for day in range(1, 11):
            opened.append(make_run(day, 100.0 + day, machine=OTHER if day > 8 else None))
            wrong: dict[str, Any] = {"verdict": Verdict.INCORRECT} if day == 5 else {}
            run = make_run(day, None if day == 5 else 50.0 + day, backend="hip.flash", **wrong)
            opened.append(make_run_id(run, f"hip {day}"))
        yield opened


def make_run_id(run: RunResult, run_id: str) -> RunResult:
    """The run by another id."""
    from dataclasses import replace

    return replace(run, run_id=run_id)


def read(store: HistoryStore, asked: BulkFilter) -> tuple[StoreContents, list[CaseRuns]]:
    """Everything that is asked."""
    contents = store.transactions.read(lambda connection: load_contents(connection, asked))
    found = store.transactions.read(lambda connection: load_case_runs(connection, contents, contents.cases, asked))
    return contents, found


@pytest.mark.parametrize("limit", [0, 3])
@pytest.mark.parametrize("since", ["", "2026-01-04"])
def test_series_are_those_of_each_case_alone(store: HistoryStore, since: str, limit: int) -> None:
    """A store read in bulk gives the series, points and notes that reading one case gives, on SQLite and PostgreSQL."""
    asked = BulkFilter(since=parse_seconds(since) if since else None, limit=limit)
    contents, found = read(store, asked)
    assert [one.case.case for one in found] == sorted(one.case for one in contents.cases)
    assert len(found) == 2
    for one in found:
        assert list(one.series) == store.load_history(one.case.case, since=since, limit=limit)
        for history, runs in zip(one.series, one.runs, strict=True):
            assert [contents.runs[run].run_id for run in runs] == [point.run_id for point in history.points]


def test_only_asked_cases_and_runs_are_read(store: HistoryStore) -> None:
    """A part of a name, a device, a date and a number narrow the cases, and with them the runs."""
    contents, found = read(store, BulkFilter(pattern="hip", limit=3))
    assert [one.case.key.backend for one in found] == ["hip.flash"]
    assert [run.run_id for run in contents.runs.values()] == ["hip 8", "hip 9", "hip 10"]
    assert read(store, BulkFilter(arch="gfx942"))[0].cases == ()
    assert read(store, BulkFilter(arch="sm_90", product="h200"))[0].cases != ()
    assert read(store, BulkFilter(since=4e9))[0].runs == {}


def test_wrong_runs_are_measurements_without_a_time(store: HistoryStore) -> None:
    """They are in the order of the others, and in no series."""
    (one,) = [one for one in read(store, BulkFilter())[1] if one.case.key.backend == "hip.flash"]
    assert [measured.median_us is None for measured in one.measurements] == [day == 5 for day in range(1, 11)]
    assert one.measurements[4].verdict == "INCORRECT"
    assert len(one.series[0].points) == 9


def test_runs_stored_meanwhile_are_left_out(store: HistoryStore, make_run: MakeRun) -> None:
    """A run that another writer appends after the cases were listed is not half in the result."""
    contents = store.transactions.read(lambda connection: load_contents(connection, BulkFilter()))
    with open_store(store.address) if store.transactions.is_sqlite else open_store(str_url(store)) as other:
        other.append(make_run(11, 99.0))
    found = store.transactions.read(
        lambda connection: load_case_runs(connection, contents, contents.cases, BulkFilter())
    )
    assert {len(one.measurements) for one in found} == {10}


def str_url(store: HistoryStore) -> str:
    """A server's address as a user types it."""
    assert store.transactions.place.url is not None
    return store.transactions.place.url.set(drivername="postgresql").render_as_string(hide_password=False)


def test_the_number_of_queries_does_not_grow_with_the_runs(store: HistoryStore) -> None:
    """Six queries list the store, one reads these cases."""
    from sqlalchemy import event

    counted: list[str] = []

    def count(_: Any, __: Any, statement: str, *___: Any) -> None:
        if statement.lstrip().upper().startswith("SELECT") and "set_config" not in statement:
            counted.append(statement)

    event.listen(store.transactions.engine, "before_cursor_execute", count)
    read(store, BulkFilter())
    assert len(counted) == 7


def test_more_than_can_be_read_at_once_is_refused(store: HistoryStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """The error says how much is asked, and what to ask for; a number, a time or a case narrow it."""
    monkeypatch.setattr(bulk_reading, "ROWS_MAX", 12)
    with pytest.raises(HistoryError, match=r"about 20 measurements of 2 cases are asked, .* 12 .*: --limit 6, --since"):
        read(store, BulkFilter())
    assert len(read(store, BulkFilter(limit=6))[1]) == 2
    assert len(read(store, BulkFilter(since=parse_seconds("2026-01-06")))[1]) == 2
    assert len(read(store, BulkFilter(pattern="hip"))[1]) == 1


@pytest.mark.parametrize("text", ["[1.0, -2.0]", "[0]", "[1e999]", "[NaN]", '["1"]', "null", "{}", "[1.0"])
def test_times_that_cannot_be_are_refused(text: str) -> None:
    """Negative, zero, infinite, no numbers, no list, no JSON: the error shows what stands there."""
    with pytest.raises(ValueError, match="times of processes are") as raised:
        parse_processes(text)
    assert text in str(raised.value)


def test_times_of_processes_are_read() -> None:
    """As floats, whole numbers too; none is allowed."""
    assert parse_processes("[1, 2.5]") == (1.0, 2.5)
    assert parse_processes("[]") == ()
