from __future__ import annotations

from collections.abc import Callable

import pytest

from pytest_attnperf.errors import UsageError
from pytest_attnperf.tools.dispatch.points import Timed, points_of

Make = Callable[..., Timed]


def test_points_hold_their_backends_fastest_first(timed: Make) -> None:
    """One point per workload, in order of size, however the cases come."""
    points, left_out = points_of(
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
    points, _ = points_of([timed("a", 1.0, workload=workload) for workload in ids])
    assert [point.shape.value("head_dim") for point in points] == [64, 256]


@pytest.mark.parametrize("order", [1, -1])
def test_of_a_case_measured_twice_the_newest_is_taken(timed: Make, order: int) -> None:
    """Whatever the order of files, and it is said."""
    old = timed("a", 1.0, recorded="2026-01-01", source="old.json")
    new = timed("a", 2.0, recorded="2026-01-02", source="new.json")
    points, left_out = points_of([old, new][::order])
    assert [one.median_us for one in points[0].times] == [2.0]
    assert left_out[0].why == "measured twice: that of new.json of 2026-01-02 is taken, that of old.json is not"


def test_of_equal_age_the_later_one_is_taken(timed: Make) -> None:
    """Files are read in the order in which they are named."""
    points, left_out = points_of([timed("a", 1.0, source="1.json"), timed("a", 2.0, source="2.json")])
    assert [one.median_us for one in points[0].times] == [2.0]
    assert left_out[0].why.startswith("measured twice: that of 2.json")


def test_times_of_different_timers_are_not_mixed(timed: Make) -> None:
    """A faster time by another timer does not win: it is INCOMPARABLE, with what differs."""
    liar = timed("fast", 1.0, conditions={"timer": "events", "cache_state": "hot"})
    points, left_out = points_of([timed("a", 5.0), timed("b", 6.0), liar])
    assert [one.backend for one in points[0].times] == ["a", "b"]
    assert left_out[0].backend == "fast"
    assert left_out[0].why == "INCOMPARABLE with the others: timer is events, of the others graph"


@pytest.mark.parametrize("us", [0.0, -3.0, float("nan"), float("inf")])
def test_a_time_that_is_none_is_refused(timed: Make, us: float) -> None:
    """Zero, negative, NaN and Inf, in the median or in a process, name file and case."""
    with pytest.raises(UsageError, match=r"run.json: a on 'prefill.* holds a time of"):
        points_of([timed("a", us)])


def test_a_bad_process_is_refused_too(timed: Make, process: Callable[..., object]) -> None:
    """A sound median does not hide it."""
    with pytest.raises(UsageError, match="holds a time of -1"):
        points_of([timed("a", 2.0, processes=(process(2.0), process(-1.0)))])


def test_a_workload_that_cannot_be_read_is_left_out(timed: Make) -> None:
    """With its text and why; the others are decided."""
    points, left_out = points_of([timed("a", 1.0, workload="prefill-\x1b[2J; import os"), timed("a", 1.0)])
    assert len(points) == 1
    assert "import os" in left_out[0].workload
