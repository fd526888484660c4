from __future__ import annotations

import pytest

from pytest_attnperf.records.time_units import (
    choose_time_unit,
    format_ns,
    format_time,
    format_time_change,
    format_times,
)


@pytest.mark.parametrize(
    ("us", "text"),
    [
        (None, "-"),
        (0.0, "0 us"),
        (0.0423, "42.30 ns"),
        (5.419, "5.419 us"),
        (18.837, "18.84 us"),
        (999.9, "999.9 us"),
        (1005.04, "1.005 ms"),
        (210_820.0, "210.8 ms"),
        (1_234_500.0, "1.234 s"),
        (float("nan"), "nan us"),
    ],
)
def test_a_single_time_scales_for_itself(us: float | None, text: str) -> None:
    """Four significant digits and the longest unit in which it is at least 1; never an exponent."""
    assert format_time(us) == text


@pytest.mark.parametrize(
    ("times", "unit"),
    [
        ([], "us"),
        ([None, 0.0], "us"),
        ([5.4, None, 33.0], "us"),
        ([210_800.0, 150_000.0], "ms"),
        ([5.4, 5339.0, 4000.0, 3000.0], "us"),
        ([50.0, 5_000.0, 9_000.0], "us"),
        ([500.0, 5_000.0, 9_000.0], "ms"),
        ([0.004, 900_000.0, 2_000_000.0], "ms"),
    ],
)
def test_a_column_has_one_unit(times: list[float | None], unit: str) -> None:
    """That of its median, or a shorter one while its smallest is below 0.1 and its largest has at most six digits."""
    assert choose_time_unit(times).name == unit


def test_times_that_are_compared_have_one_unit() -> None:
    """The shorter of two has the unit of both; what is not known is a dash."""
    assert format_times([907.3, 28_079.0]) == "0.9073 ms -> 28.08 ms"
    assert format_times([None, 2.0]) == "- -> 2.000 us"
    assert format_ns(157_160_000) == "157.2 ms"
    assert format_ns(None) == "-"


def test_a_small_number_of_a_column_has_two_digits() -> None:
    """0.0054, not 0.005419, where the others are so long that the unit must be."""
    unit = choose_time_unit([5.419, 900_000.0, 2_000_000.0])
    assert [unit.format_number(us) for us in (5.419, 900_000.0)] == ["0.0054", "900.0"]


def test_a_change_names_its_unit_once() -> None:
    """Two times in one unit; one alone where the other is not known; nothing where none is."""
    assert format_time_change(24.6, 26.1) == "24.60 -> 26.10 us"
    assert format_time_change(None, 2610.0) == "2.610 ms"
    assert format_time_change(24.6, None) == "24.60 us"
    assert format_time_change(None, None) == ""
