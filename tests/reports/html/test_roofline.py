from __future__ import annotations

from collections.abc import Callable

import pytest

from pytest_attnperf.records import WorkloadFigures
from pytest_attnperf.records.rooflines import Ceiling
from pytest_attnperf.reports.html.roofline import ceiling_lines, roof_share
from pytest_attnperf.results import CaseResult

Case = Callable[..., CaseResult]

PEAK = Ceiling(1000e12, "FLOP/s", "peak", "f16 matrix")
MEASURED = Ceiling(700e12, "FLOP/s", "measured", "f16 matrix")
VECTOR = Ceiling(60e12, "FLOP/s", "peak", "f32 vector")
DRAM = Ceiling(4e12, "B/s", "measured", "DRAM")
CACHE = Ceiling(12e12, "B/s", "measured", "cache")


@pytest.mark.parametrize(
    ("flops", "bytes_min", "expected"),
    [(7e9, 4.0, 0.5), (7.0, 40e6, 0.5), (14e9, 40e6, 1.0)],
)
def test_share_is_of_what_binds(case: Case, flops: float, bytes_min: float, expected: float) -> None:
    """The least time is the larger of the two, by the measured ceilings of the case's own dtype."""
    figures = WorkloadFigures(flops, bytes_min, "f16", "hot")
    kind, share = roof_share(case(median_us=20.0, figures=figures), [PEAK, MEASURED, VECTOR, DRAM, CACHE])
    assert kind == "measured"
    assert share == pytest.approx(expected)


def test_share_is_unknown_without_a_ceiling_of_the_dtype(case: Case) -> None:
    """No other dtype's rate and no half of a roof is taken."""
    figures = WorkloadFigures(7e9, 4.0, "bf16", "hot")
    assert roof_share(case(figures=figures), [PEAK, MEASURED, DRAM]) == ("", None)
    assert roof_share(case(), [PEAK, MEASURED]) == ("", None)
    assert roof_share(case(median_us=None), [MEASURED, DRAM]) == ("", None)


def test_bytes_alone_count_where_they_bind(case: Case) -> None:
    """A case that memory binds has a share also where no rate of its dtype is known."""
    figures = WorkloadFigures(7.0, 40e6, "f32", "cold")
    kind, share = roof_share(case(median_us=20.0, figures=figures, floor_bound="memory"), [MEASURED, DRAM])
    assert (kind, share) == ("measured", pytest.approx(0.5))
    assert roof_share(case(median_us=20.0, figures=figures, floor_bound="compute"), [MEASURED, DRAM]) == ("", None)


def test_lines_meet_at_the_ridge() -> None:
    """Slanted lines end at the highest flat one, which begins where the fastest of them reaches it."""
    (points,) = ceiling_lines({"d": [PEAK, DRAM]}, {"d": [10.0, 500.0]}).values()
    flat, slanted = points[:2], points[2:]
    assert [point["y"] for point in flat] == [1000.0, 1000.0]
    assert flat[0]["x"] == 250.0
    assert (slanted[1]["x"], slanted[1]["y"]) == (250.0, 1000.0)
    assert slanted[0]["x"] <= 10.0
    assert [point["slanted"] for point in points] == [False, False, True, True]


def test_first_point_of_a_line_is_labelled() -> None:
    """Each line has one label with its rate, the highest first, on one line of text that is not long."""
    near = Ceiling(1050e12, "FLOP/s", "peak", "bf16 matrix")
    (points,) = ceiling_lines({"d": [PEAK, VECTOR, near, MEASURED, DRAM, CACHE]}, {"d": [10.0]}).values()
    assert [point["label"] for point in points[::2]] == [
        "bf16 matrix 1050 TFLOP/s, peak",
        "f16 matrix 1000 TFLOP/s, peak",
        "f16 matrix 700 TFLOP/s, measured",
        "f32 vector 60.0 TFLOP/s, peak",
        "cache 12000 GB/s, measured",
        "DRAM 4000 GB/s, measured",
    ]
    assert {point["label"] for point in points[1::2]} == {""}
    many = [Ceiling(1e12 * (number + 1), "FLOP/s", "peak", f"{number} {'<b>' * 99}\n") for number in range(20)]
    (points,) = ceiling_lines({"d": many}, {"d": [10.0]}).values()
    assert max(len(point["label"]) for point in points) <= 70
    assert not any("\n" in point["label"] for point in points)


def test_nothing_is_drawn_without_points_or_rates() -> None:
    """A device without cases, without a compute ceiling, or with a rate of 0 has no lines."""
    assert ceiling_lines({"d": [PEAK, DRAM]}, {}) == {}
    assert ceiling_lines({"d": [DRAM]}, {"d": [1.0]}) == {}
    assert ceiling_lines({"d": [Ceiling(0.0, "FLOP/s", "peak", "f16 matrix")]}, {"d": [1.0]}) == {}
