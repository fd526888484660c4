from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from pytest_attnperf.errors import UsageError
from pytest_attnperf.records import CaseKey, CheckReport, DeviceInfo, ErrorFigures, Fingerprint, ProcessSummary, Verdict
from pytest_attnperf.records.notes import Note, NoteKind
from pytest_attnperf.results import RESULTS_SCHEMA, CaseResult, RunResult
from pytest_attnperf.tools.dispatch.measured_points import BackendTime, make_points, split_timed_cases

Make = Callable[..., BackendTime]

WORKLOAD = "prefill-b4-s512-h8-d256-f16-causal"
RIGHT = CheckReport((ErrorFigures("seed 1", "out", 1e-3, 2e-3, 1e-4, 2e-4),))
WRONG = replace(RIGHT, problems=("out is off",))
Process = Callable[..., ProcessSummary]
FOREIGN = (Note(NoteKind.FOREIGN, "module k of /x"),)


def test_points_hold_their_backends_fastest_first(timed: Make) -> None:
    """One point per workload, in order of size, however the cases come."""
    points, left_out = make_points(
        [timed("b", 4.0, seq=1024), timed("a", 5.0, seq=1024), timed("a", 1.0), timed("b", 2.0)]
    )
    assert left_out == []
    assert [(point.size, [one.backend for one in point.times]) for point in points] == [
        (512, ["a", "b"]),
        (1024, ["b", "a"]),
    ]


def test_numbers_in_shapes_sort_by_value(timed: Make) -> None:
    """d64 comes before d256."""
    ids = [f"prefill-b4-s512-h8-d{size}-f16-causal" for size in (256, 64)]
    points, _ = make_points([timed("a", 1.0, workload=workload) for workload in ids])
    assert [point.shape.find_value("head_dim") for point in points] == [64, 256]


@pytest.mark.parametrize("order", [1, -1])
def test_of_a_case_measured_twice_the_newest_is_taken(timed: Make, order: int) -> None:
    """Whatever the order of files, and it is said."""
    old = timed("a", 1.0, recorded="2026-01-01", source="old.json")
    new = timed("a", 2.0, recorded="2026-01-02", source="new.json")
    points, left_out = make_points([old, new][::order])
    assert [one.median_us for one in points[0].times] == [2.0]
    assert left_out[0].why == "measured twice: the time of new.json of 2026-01-02 is used, that of old.json is not"


def test_of_equal_age_the_later_one_is_taken(timed: Make) -> None:
    """Files are read in the order in which they are named."""
    points, left_out = make_points([timed("a", 1.0, source="1.json"), timed("a", 2.0, source="2.json")])
    assert [one.median_us for one in points[0].times] == [2.0]
    assert left_out[0].why.startswith("measured twice: the time of 2.json")


def test_times_of_different_timers_are_not_mixed(timed: Make) -> None:
    """A faster time by another timer does not win: it is INCOMPARABLE, with what differs."""
    liar = timed("fast", 1.0, conditions={"timer": "events", "cache_state": "hot"})
    points, left_out = make_points([timed("a", 5.0), timed("b", 6.0), liar])
    assert [one.backend for one in points[0].times] == ["a", "b"]
    assert left_out[0].backend == "fast"
    assert left_out[0].why == "INCOMPARABLE with the others: timer is events, of the others graph"


@pytest.mark.parametrize("us", [0.0, -3.0, float("nan"), float("inf")])
def test_a_time_that_is_none_is_refused(timed: Make, us: float) -> None:
    """Zero, negative, NaN and Inf, in the median or in a process, name file and case."""
    with pytest.raises(UsageError, match=r"run.json: a on 'prefill.* holds a time of"):
        make_points([timed("a", us)])


def test_a_bad_process_is_refused_too(timed: Make, process: Callable[..., object]) -> None:
    """A sound median does not hide it."""
    with pytest.raises(UsageError, match="holds a time of -1"):
        make_points([timed("a", 2.0, processes=(process(2.0), process(-1.0)))])


def test_a_workload_that_cannot_be_read_is_left_out(timed: Make) -> None:
    """With its text and why; the others are decided."""
    points, left_out = make_points([timed("a", 1.0, workload="prefill-\x1b[2J; import os"), timed("a", 1.0)])
    assert len(points) == 1
    assert "import os" in left_out[0].workload


def case(backend: str, *processes: ProcessSummary, verdict: Verdict = Verdict.SAME, **fields: object) -> CaseResult:
    """A case proven right."""
    whole: dict[str, object] = {
        "first": processes,
        "checks": (RIGHT,),
        "fingerprint": Fingerprint({"timer": "graph"}, {}),
        **fields,
    }
    return CaseResult(CaseKey("s", backend, WORKLOAD), "node", verdict, "", **whole)  # type: ignore[arg-type]


def run(*cases: CaseResult) -> RunResult:
    """A run on an H200."""
    device = DeviceInfo("cuda", "sm_90", "h200")
    return RunResult(RESULTS_SCHEMA, "0.1.0", "gate", "2026-01-01T00:00:00Z", "pytest", "c0", device, None, cases)


RIGHT_IN_ITSELF = [
    *("SAME", "FASTER", "SLOWER", "UNDECIDED", "NO_BASELINE", "INCOMPARABLE", "RECORDED"),
    *("MOVED", "DRIFT", "STALE", "GREW"),
]


@pytest.mark.parametrize("verdict", [verdict for verdict in Verdict if verdict.value not in RIGHT_IN_ITSELF])
def test_a_fast_case_that_is_not_right_never_wins(process: Process, verdict: Verdict) -> None:
    """INCORRECT, SUSPICIOUS, ERROR and the like are left out with their verdict, however fast they are."""
    liar = case("fast", process(0.1), verdict=verdict)
    timed, left_out = split_timed_cases(run(case("right", process(9.0)), liar), "run.json")
    assert [one.backend for one in timed] == ["right"]
    assert left_out[0].why == verdict.value
    assert make_points(timed)[0][0].fastest.backend == "right"


@pytest.mark.parametrize("said", ["code from another tree ran", "not comparable with base: code from another tree ran"])
def test_the_time_of_another_trees_code_never_wins(process: Process, said: str) -> None:
    """It is right, but not this backend's as it is here."""
    liar = replace(case("fast", process(0.1), verdict=Verdict.INCOMPARABLE), summary=said, reasons=FOREIGN)
    timed, left_out = split_timed_cases(run(case("right", process(9.0)), liar), "run.json")
    assert [one.backend for one in timed] == ["right"]
    assert left_out[0].why == f"INCOMPARABLE: {said}"


@pytest.mark.parametrize("checks", [(), (CheckReport(),), (RIGHT, WRONG)])
def test_a_verdict_alone_proves_nothing(process: Process, checks: tuple[CheckReport, ...]) -> None:
    """SAME with no check, an empty one, or one that failed, is left out."""
    timed, left_out = split_timed_cases(run(case("fast", process(0.1), checks=checks)), "run.json")
    assert (timed, left_out[0].why) == ([], "SAME, but no check of its output passed")


@pytest.mark.parametrize("verdict", [Verdict(name) for name in RIGHT_IN_ITSELF])
def test_a_right_time_counts_however_it_stands_to_its_baseline(process: Process, verdict: Verdict) -> None:
    """SLOWER than before may still be the fastest backend."""
    timed, left_out = split_timed_cases(
        run(case("a", process(3.0), process(1.0), process(2.0), verdict=verdict)), "run.json"
    )
    assert left_out == []
    assert (timed[0].median_us, timed[0].recorded, timed[0].conditions) == (
        2.0,
        "2026-01-01T00:00:00Z",
        {"timer": "graph"},
    )


def test_the_second_look_counts_where_there_was_one(process: Process) -> None:
    """The first was selected for its size."""
    timed, _ = split_timed_cases(run(case("a", process(9.0), second=(process(5.0), process(7.0)))), "run.json")
    assert timed[0].median_us == 6.0


def test_a_case_without_processes_or_with_two_timers_is_left_out(process: Process) -> None:
    """There is nothing to compute an interval from."""
    _, left_out = split_timed_cases(run(case("none"), case("two", process(1.0), process(1.0, "events"))), "run.json")
    assert [one.why for one in left_out] == [
        "SAME, but no process was timed",
        "its processes were timed by events and by graph",
    ]


def test_a_label_makes_another_choice(process: Process) -> None:
    """Two labels of a backend are not the same case measured twice."""
    labelled = replace(case("a", process(1.0)), key=CaseKey("s", "a", WORKLOAD, "tuned"))
    timed, _ = split_timed_cases(run(case("a", process(2.0)), labelled), "run.json")
    assert [one.backend for one in timed] == ["a", "a/tuned"]
    assert make_points(timed)[1] == []
