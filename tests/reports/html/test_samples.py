from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from pytest_attnperf.records import ProcessSummary, Verdict
from pytest_attnperf.records.histories import CaseHistory
from pytest_attnperf.records.pairs import PairSummary
from pytest_attnperf.reports.html.rows import build_table, to_columnar_json
from pytest_attnperf.reports.html.samples import (
    MOST_POINTS,
    MOST_RUNS,
    STEPS,
    build_sparkline,
    collect_samples,
    compute_drift,
    histories_by_case,
)
from pytest_attnperf.reports.run.joined import join_single
from pytest_attnperf.results import CaseResult
from pytest_attnperf.testing.sample_runs import sample_run

Case = Callable[..., CaseResult]
History = Callable[..., CaseHistory]


def _process(us: float, blocks: int = 3, clocks: bool = True) -> ProcessSummary:
    block_us = tuple(us + index / 10 for index in range(blocks))
    mhz = tuple(1800.0 + index for index in range(blocks)) if clocks else ()
    return ProcessSummary(us, us, us, block_us, 40, "graph", process="pid 7", block_clock_mhz=mhz)


def test_looks_are_dots_against_the_baseline(case: Case) -> None:
    """Stored processes and both looks stand on one axis of percent, the limit and the interval as marks."""
    found = collect_samples(case(stored_us=(24.6, 24.846), first=(_process(26.076),), second=(_process(25.092),)))
    assert [(dot["row"], dot["at"]) for dot in found["dots"]] == [
        ("stored", 0.0),
        ("stored", pytest.approx(1.0)),
        ("first look", pytest.approx(6.0)),
        ("second look", pytest.approx(2.0)),
    ]
    assert found["dots"][2]["text"] == "26.08 us, +6.0 %"
    limit, change = found["marks"]
    assert (limit["kind"], limit["at"], limit["text"]) == ("limit", pytest.approx(2.0), "+2.0 %")
    assert (change["low"], change["high"]) == (pytest.approx(5.2), pytest.approx(7.0))
    assert change["text"] == "+6.1 % (+5.2 % .. +7.0 %)"


def test_pairs_are_dots_by_their_own_ratio(case: Case) -> None:
    """A pair is held against its own base side, not against what is stored."""
    pair = PairSummary(1.03, 20.0, 20.6, 40, "graph")
    dot = collect_samples(case(pairs=(pair,), first=(), second=()))["dots"][0]
    assert (dot["row"], dot["at"]) == ("pairs", pytest.approx(3.0))
    assert dot["text"] == "+3.0 %, 20.00 us -> 20.60 us"


def test_without_a_baseline_dots_are_times(case: Case) -> None:
    """What has no baseline is drawn in microseconds, without marks."""
    found = collect_samples(case(baseline_us=None, ratio=None, interval=None, threshold=None, second=()))
    assert [dot["at"] for dot in found["dots"]] == [26.0, 26.2, 26.1]
    assert "marks" not in found


def test_blocks_keep_their_order_and_clocks(case: Case) -> None:
    """Each process brings its blocks in measured order, with the clock of each where it is known."""
    found = collect_samples(case(first=(_process(26.0),), second=(_process(27.0, clocks=False),)))
    first, second = found["blocks"]
    assert (first["name"], first["us"], first["mhz"]) == ("first look, pid 7", [26.0, 26.1, 26.2], [1800, 1801, 1802])
    assert (second["look"], second["mhz"]) == ("second look", [])


def test_blocks_are_capped(case: Case) -> None:
    """A case of very many blocks is drawn by its first ones."""
    found = collect_samples(case(first=(_process(26.0, 250), _process(26.0, 250)), second=(_process(26.0),)))
    assert sum(len(process["us"]) for process in found["blocks"]) == MOST_POINTS


def test_a_case_that_was_not_measured_has_no_samples(case: Case) -> None:
    """Nothing is drawn of a case without a time, even where it has a threshold."""
    assert collect_samples(case(first=(), second=(), stored_us=())) == {}


def test_history_names_commits(case: Case, history: History) -> None:
    """Points have their commit and time, changes the commits around them; a time nobody can read is left out."""
    past = history("prefill/a/w")
    odd = replace(past.points[0], started="yesterday")
    found = collect_samples(case(first=(), second=()), replace(past, points=(*past.points, odd)))
    assert len(found["points"]) == 6
    assert found["points"][3]["at"] == 1767484800000.0
    assert (found["points"][3]["commit"], found["points"][3]["text"]) == ("c0ffee4", "10.50 us")
    (change,) = found["changes"]
    assert (change["at"], change["change"], change["commits"]) == (1767484800000.0, "+5.0 %", "c0ffee3 -> c0ffee4")


def test_histories_are_found_by_device_and_case(history: History) -> None:
    """The same case on two devices has two histories."""
    both = [history("prefill/a/w"), history("prefill/a/w", "gfx942", "mi300x")]
    assert set(histories_by_case(both)) == {("sm_90/sample", "prefill/a/w"), ("gfx942/mi300x", "prefill/a/w")}


def test_what_was_recorded_is_no_look(case: Case) -> None:
    """Processes of a case that was to be recorded are called so: nobody looked for a change."""
    found = collect_samples(case(verdict=Verdict.RECORDED, baseline_us=None, ratio=None, threshold=None, second=()))
    assert {dot["row"] for dot in found["dots"]} == {block["look"] for block in found["blocks"]} == {"recorded"}


def test_the_history_that_goes_on(history: History) -> None:
    """Of two that cannot be compared, as under two power caps, a case is shown the one with the newest run."""
    old, new = history("a"), history("a")
    new = replace(new, points=(*new.points, replace(new.points[-1], started="2026-02-01T00:00:00Z")))
    key = ("sm_90/sample", "a")
    assert histories_by_case([new, old])[key] is histories_by_case([old, new])[key] is new


def with_times(history: CaseHistory, *times_us: float) -> CaseHistory:
    """The history with these times in place of its own."""
    points = tuple(replace(history.points[0], median_us=us) for us in times_us)
    return replace(history, points=points)


def test_line_spans_its_height(history: History) -> None:
    """The slowest run is at the top, the fastest at the bottom; equal times are a line in the middle."""
    assert build_sparkline(with_times(history("a"), 10.0, 20.0, 15.0)) == [0, STEPS, STEPS // 2]
    assert build_sparkline(with_times(history("a"), 3.0, 3.0)) == [STEPS // 2] * 2
    assert len(build_sparkline(with_times(history("a"), *map(float, range(1, 99)))) or ()) == MOST_RUNS


def test_figure_is_the_latest_against_the_earlier(history: History) -> None:
    """The latest time over the median of those before."""
    assert compute_drift(with_times(history("a"), 10.0, 10.0, 90.0, 11.0)) == pytest.approx(1.1)


@pytest.mark.parametrize("times", [(), (5.0,), (0.0, float("nan"), 4.0), (float("inf"), 3.0)])
def test_less_than_two_times_are_no_line(history: History, times: tuple[float, ...]) -> None:
    """A time of zero, infinity or no number does not count."""
    assert build_sparkline(with_times(history("a"), *times)) is None
    assert compute_drift(with_times(history("a"), *times)) is None
    assert build_sparkline(None) is None


def test_table_has_a_column_of_histories(history: History) -> None:
    """Only where histories are given; two other columns make room, and are still there to be drawn."""
    run = sample_run(8)
    key = str(run.cases[0].key)
    table = build_table(join_single(run), [history(key)])
    names = [column.name for column in table.shown_columns]
    assert "history" in names
    assert not {"finds", "gb_s"} & set(names)
    assert {"finds", "gb_s"} <= {column.name for column in table.columns}
    lines = to_columnar_json(table)["sparklines"]
    assert [len(line) for line in lines.values()] == [6]
    assert "history" not in [column.name for column in build_table(join_single(run)).columns]
