from __future__ import annotations

import multiprocessing
import os
import signal
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from pytest_attnperf.records import CaseKey, Verdict
from pytest_attnperf.results import RunResult
from pytest_attnperf.tools.history.appending import Appended
from pytest_attnperf.tools.history.history_failures import HistoryError
from pytest_attnperf.tools.history.history_store import open_store

MakeRun = Callable[..., RunResult]
CASE = "prefill/triton.flash/prefill-b4-s512-h8-d64-f16-causal"
HOSTILE = "<script>|\x1b[31m\n'; DROP TABLE attnperf_runs; --\0\ud800" + "x" * 100_000


def test_a_run_comes_back_as_it_was(store_url: str, make_run: MakeRun) -> None:
    """Every field of a point is that of the run and the case, its processes among them."""
    with open_store(store_url) as store:
        assert store.append(make_run(3, 100.5, baseline_us=99.0, ratio=1.0152)) == Appended(1, False)
    with open_store(store_url, read_only=True) as store:
        (history,) = store.load_history(CASE)
    (point,) = history.points
    assert (history.case, history.arch, history.product, history.notes) == (CASE, "sm_90", "h200", ())
    assert (point.started, point.commit, point.branch) == ("2026-01-03T12:00:00+00:00", "000000000003", "main")
    assert (point.median_us, point.baseline_us, point.verdict) == (100.5, 99.0, "SAME")
    assert point.process_us == tuple(100.5 * scale for scale in (0.999, 1.0, 1.001))
    assert point.environment == {"torch": "2.11.0", "driver": "580.00"}
    assert point.machine["power_cap_w"] == "700"
    assert (point.run_id, point.source) == ("run 3", "attnperf")


def test_a_run_that_is_told_twice_counts_once(store_url: str, make_run: MakeRun) -> None:
    """By its id; and where it has none, by what it holds."""
    nameless = replace(make_run(2), run_id="")
    with open_store(store_url) as store:
        assert [store.append(run).already for run in (make_run(1), make_run(1))] == [False, True]
        assert [store.append(run).already for run in (nameless, nameless)] == [False, True]
        assert store.append(replace(nameless, commit="another")).already is False
        assert [one.points for one in store.list_cases()] == [3]


def test_points_are_in_order_whatever_order_they_came_in(store_url: str, make_run: MakeRun) -> None:
    """Order is that of the runs' starts in time, whatever their zones; `since` and `limit` cut off the oldest."""
    late = replace(make_run(4), started="2026-01-03T23:30:00-02:00")
    with open_store(store_url) as store:
        for run in (make_run(5), late, make_run(1), make_run(3)):
            store.append(run)
        (history,) = store.load_history(CASE)
        assert [point.run_id for point in history.points] == ["run 1", "run 3", "run 4", "run 5"]
        (newest,) = store.load_history(CASE, limit=2)
        assert [point.run_id for point in newest.points] == ["run 4", "run 5"]
        (since,) = store.load_history(CASE, since="2026-01-04")
        assert [point.run_id for point in since.points] == ["run 4", "run 5"]


def test_foreign_text_is_stored_as_text(store_url: str, make_run: MakeRun) -> None:
    """Markup, quotes, control characters and 100 kB in every name come back; what no database holds is replaced."""
    run = make_run(1)
    key = CaseKey(HOSTILE, HOSTILE, HOSTILE, HOSTILE)
    case = replace(run.cases[0], key=key, nodeid=HOSTILE)
    hostile = replace(run, cases=(case,), commit=HOSTILE, run_id=HOSTILE, provenance={"branch": HOSTILE})
    expected = HOSTILE.replace("\0", "\ufffd").replace("\ud800", "?")
    with open_store(store_url) as store:
        assert store.append(hostile).rows == 1
        assert store.append(hostile).already
        (history,) = store.load_history(str(key))
    assert history.case == str(CaseKey(expected, expected, expected, expected))
    assert (history.points[0].commit, history.points[0].branch) == (expected, expected)


def test_a_case_is_found_by_key_part_and_node_id(store_url: str, make_run: MakeRun) -> None:
    """The whole key, the whole node id, or a part that one case has; else what there is is said."""
    with open_store(store_url) as store:
        store.append(make_run(1))
        store.append(replace(make_run(1, backend="ck"), run_id="other"))
        node = "suites/test_prefill.py::test_prefill[triton.flash-prefill-b4-s512-h8-d64-f16-causal]"
        for text in (CASE, "triton.flash/", node, "test_prefill[triton"):
            assert [history.case for history in store.load_history(text)] == [CASE]
        with pytest.raises(
            HistoryError, match=r"'b4-s512' is part of 2 cases: prefill/ck/.*, prefill/triton.*; give more of it"
        ):
            store.load_history("b4-s512")
        with pytest.raises(HistoryError, match=r"no case is or contains 'b5'; known: prefill/ck/"):
            store.load_history("b5")
        with pytest.raises(HistoryError, match=r"no case on gfx942 is or contains .*; known: none"):
            store.load_history(CASE, arch="gfx942")
        assert [one.case for one in store.list_cases("ck/")] == [CASE.replace("triton.flash", "ck")]


def test_a_test_that_moved_is_found_by_its_newest_node_id(store_url: str, make_run: MakeRun) -> None:
    """A case keeps its history when its test moves to another file."""
    with open_store(store_url) as store:
        store.append(make_run(1, nodeid="old.py::test"))
        store.append(make_run(2, nodeid="new.py::test"))
        assert [len(history.points) for history in store.load_history("new.py::test")] == [2]


def test_machines_that_do_not_compare_are_kept_apart(store_url: str, make_run: MakeRun) -> None:
    """Points of another power cap are a series of their own, and both say so."""
    capped = {"arch": "sm_90", "product": "h200", "timer": "graph", "power_cap_w": "500"}
    with open_store(store_url) as store:
        store.append(make_run(1))
        store.append(make_run(2, machine=capped))
        store.append(make_run(3))
        apart = store.load_history(CASE)
        (asked,) = store.load_history(CASE, machine={"power_cap_w": "500"})
    assert [[point.run_id for point in history.points] for history in apart] == [["run 1", "run 3"], ["run 2"]]
    assert [history.notes[0].rpartition(": ")[2] for history in apart] == ["power_cap_w 700", "power_cap_w 500"]
    assert [point.run_id for point in asked.points] == ["run 2"]


def test_wrong_cases_without_a_time_are_remembered(store_url: str, make_run: MakeRun) -> None:
    """A case that was wrong shows in its history; one that is unsupported is not kept."""
    with open_store(store_url) as store:
        store.append(make_run(1))
        assert store.append(make_run(2, None, verdict=Verdict.INCORRECT, fails=True)).rows == 1
        assert store.append(make_run(3, None, verdict=Verdict.UNSUPPORTED)).rows == 0
        (history,) = store.load_history(CASE)
        (known,) = store.list_cases()
    assert [point.run_id for point in history.points] == ["run 1"]
    assert history.notes == ("wrong, without a time, in 1 run: INCORRECT 2026-01-02 at 000000000002",)
    assert (known.points, known.wrong, known.last) == (1, 1, "2026-01-02T12:00:00+00:00")


def test_what_a_measurement_cannot_be_is_refused_whole(store_url: str, make_run: MakeRun) -> None:
    """NaN in one case keeps the whole run out; the store stays usable."""
    run = make_run(1)
    bad = replace(run.cases[0], key=CaseKey("prefill", "ck", "w"), median_us=float("nan"))
    with open_store(store_url) as store:
        with pytest.raises(HistoryError, match=r"case 'prefill/ck/w': median_us is nan; a time must be finite"):
            store.append(replace(run, cases=(*run.cases, bad)))
        assert store.list_cases() == []
        assert store.append(run).rows == 1


def _write(url: str, make: MakeRun, writer: int, runs: int) -> None:
    for number in range(runs):
        with open_store(url) as store:
            runs_of_all = make(1 + number, backend=f"backend {number % 3}")
            store.append(replace(runs_of_all, run_id=f"{writer} {number}"))


def test_ten_writers_at_once_lose_nothing(store_url: str, make_run: MakeRun) -> None:
    """Ten processes make the store together and append to the same cases; every measurement is there once."""
    context = multiprocessing.get_context("fork")
    writers = [context.Process(target=_write, args=(store_url, make_run, writer, 3)) for writer in range(10)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    assert [writer.exitcode for writer in writers] == [0] * 10
    with open_store(store_url, read_only=True) as store:
        assert [one.points for one in store.list_cases()] == [10, 10, 10]
        found = {point.run_id for one in store.list_cases() for point in store.load_history(one.case)[0].points}
    assert found == {f"{writer} {number}" for writer in range(10) for number in range(3)}


def test_a_store_open_for_reading_is_not_written(store_url: str, make_run: MakeRun) -> None:
    """Neither by this package nor by the database."""
    open_store(store_url).close()
    with open_store(store_url, read_only=True) as store:
        with pytest.raises(HistoryError, match="open for reading only; open it with"):
            store.append(make_run(1))
        store.transactions.read_only = False
        with pytest.raises(HistoryError, match="read"):
            store.append(make_run(1))


def test_a_new_file_is_made_with_its_folders(tmp_path: Path, make_run: MakeRun) -> None:
    """A bare path with characters that mean something in an address names exactly this file."""
    for name, form in (("50% of a? #1.sqlite", "{}"), ("50% of a #1.sqlite", "sqlite:///{}")):
        path = tmp_path / "new" / name
        with open_store(form.format(path)) as store:
            store.append(make_run(1))
        assert path.is_file()
        with open_store(str(path), read_only=True) as store:
            assert len(store.list_cases()) == 1


def test_the_same_run_from_several_processes_counts_once(store_url: str, make_run: MakeRun) -> None:
    """Whoever comes later finds it there, also while the first is still at it."""
    open_store(store_url).close()
    context = multiprocessing.get_context("fork")
    writers = [context.Process(target=_append, args=(store_url, make_run(1))) for _ in range(4)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    assert [writer.exitcode for writer in writers] == [0] * 4
    with open_store(store_url, read_only=True) as store:
        assert [one.points for one in store.list_cases()] == [1]


def _append(url: str, run: RunResult) -> None:
    with open_store(url) as store:
        store.append(run)


def _die_half_way(url: str, run: RunResult) -> None:
    """Ends as by kill -9 when all of a run but its measurements is written."""
    from sqlalchemy import event

    with open_store(url) as store:

        @event.listens_for(store.transactions.engine, "before_cursor_execute")
        def _(connection: object, cursor: object, statement: str, *_: object) -> None:
            if statement.startswith("INSERT INTO attnperf_measurements"):
                os.kill(os.getpid(), signal.SIGKILL)

        store.append(run)


def test_of_a_writer_that_is_killed_nothing_stays(store_url: str, make_run: MakeRun) -> None:
    """Half a run would look like one that was stored, and could not be told again."""
    writer = multiprocessing.get_context("fork").Process(target=_die_half_way, args=(store_url, make_run(1)))
    writer.start()
    writer.join()
    assert writer.exitcode == -signal.SIGKILL
    with open_store(store_url) as store:
        assert store.list_cases() == []
        assert store.append(make_run(1)) == Appended(1, False)
