from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import pytest

from pytest_attnperf.records import ProcessSummary, Verdict
from pytest_attnperf.results import RunResult
from pytest_attnperf.tools.history.history_failures import HistoryError
from pytest_attnperf.tools.history.history_rows import make_rows, make_run_id, parse_seconds

MakeRun = Callable[..., RunResult]


def _process(us: float) -> ProcessSummary:
    return ProcessSummary(us, us, us, (us,), 1, "graph")


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("1970-01-01T00:00:10+00:00", 10),
        ("1970-01-01T00:00:10Z", 10),
        ("1970-01-01T00:00:10", 10),
        ("1970-01-01T01:00:00.500000+01:00", 0.5),
        ("1970-01-02", 86400),
    ],
)
def test_starts_are_put_on_one_clock(text: str, seconds: float) -> None:
    """Zones count; without one it is UTC."""
    assert parse_seconds(text) == seconds


@pytest.mark.parametrize(
    "text", ["", "yesterday", "Z", "2026-13-01", "9" * 400, "9999-12-31T23:59:59-12:00", "0001-01-01T00:00:00+12:00"]
)
def test_a_start_that_is_no_date_is_refused(text: str) -> None:
    """Points could not be ordered by it."""
    with pytest.raises(HistoryError, match="which is no date like 2026-01-31T12:00:00"):
        parse_seconds(text)


@pytest.mark.parametrize("value", [math.nan, math.inf, 0.0, -1.0])
@pytest.mark.parametrize("name", ["median_us", "baseline_us", "ratio"])
def test_no_figure_is_stored_that_none_can_be(make_run: MakeRun, name: str, value: float) -> None:
    """Of the case, and of each of its processes."""
    with pytest.raises(HistoryError, match=rf"run 'run 1', case 'prefill/triton.*: {name} is {value}"):
        make_rows(make_run(1, **({"us": value} if name == "median_us" else {name: value})), "attnperf")
    with pytest.raises(HistoryError, match="a process's median_us is"):
        make_rows(make_run(1, first=(_process(value),)), "attnperf")


def test_a_start_is_storable(make_run: MakeRun) -> None:
    """Python takes any character between date and time, also one that no database holds."""
    run = replace(make_run(1), started="2026-01-01\ud80012:00:00+00:00")
    assert make_rows(run, "attnperf").run["started_text"] == "2026-01-01?12:00:00+00:00"


def test_processes_are_those_of_the_deciding_look(make_run: MakeRun) -> None:
    """The second look's, where there was one."""
    run = make_run(1, first=(_process(1.0),), second=(_process(2.0), _process(3.0)))
    assert make_rows(run, "attnperf").measurements[0]["process_us"] == [2.0, 3.0]


def test_of_a_case_that_is_there_twice_the_failing_one_is_kept(make_run: MakeRun) -> None:
    """A repetition hides no failure; of two that passed the later is kept."""
    run = make_run(1)
    slow = replace(run.cases[0], verdict=Verdict.SLOWER, fails=True, median_us=200.0)
    later = replace(run.cases[0], median_us=101.0)
    for cases, kept in (((slow, later), 200.0), ((later, slow), 200.0), ((run.cases[0], later), 101.0)):
        rows = make_rows(replace(run, cases=cases), "attnperf")
        assert [row["median_us"] for row in rows.measurements] == [kept]


def test_equal_machines_and_environments_are_one_row(make_run: MakeRun) -> None:
    """Whatever the order of their fields."""
    run = make_run(1)
    fingerprint = run.fingerprint
    assert fingerprint is not None
    turned = replace(fingerprint, must_match=dict(reversed(fingerprint.must_match.items())))
    other = replace(run.cases[0], key=replace(run.cases[0].key, backend="ck"), fingerprint=turned)
    assert len(make_rows(replace(run, cases=(*run.cases, other)), "attnperf").facts) == 2


def test_without_a_device_there_is_nothing_to_keep(make_run: MakeRun) -> None:
    """A run that measured nothing still counts as told."""
    rows = make_rows(replace(make_run(1, None, verdict=Verdict.ERROR), device=None), "attnperf")
    assert (rows.measurements, rows.run["run_id"]) == ([], "run 1")


def test_an_id_is_made_from_what_a_run_holds(make_run: MakeRun) -> None:
    """The same for the same content, another for another time."""
    first, same, other = (replace(make_run(1, us), run_id="") for us in (1.0, 1.0, 2.0))
    assert make_run_id(first) == make_run_id(same) != make_run_id(other)
    assert make_run_id(first).startswith("content-")
