from __future__ import annotations

import pytest

from pytest_attnperf.reports.html.sections import Figure
from pytest_attnperf.tools.profilers.analysed_profile import AnalysedProfile
from pytest_attnperf.tools.profilers.page.family_colours import choose_colours
from pytest_attnperf.tools.profilers.page.time_lanes import TimeWindow, cut_window
from pytest_attnperf.tools.profilers.page.time_strip import build_lane_table, build_pass_table, build_time_strip
from tests.tools.profilers.page.samples import make_analysed, make_network


def draw(analysed: AnalysedProfile) -> tuple[Figure, TimeWindow]:
    """The chart of a profile and its window."""
    window = cut_window(analysed)
    assert window is not None
    return build_time_strip(analysed, window, choose_colours(analysed.summary.kernels)), window


def test_bars_have_time_lane_and_family() -> None:
    """Each dispatch is a bar from its start to its end, in the unit of the axis, coloured by family."""
    figure, _ = draw(make_network())
    bars = figure.data["bars"]
    assert figure.title == "Passes 1 to 3 of 4 over time"
    assert len(bars) == 33
    named = {"lane": "stream 1", "group": "GEMM", "name": "Cijk_Ailk_Bljk_HB_MT64x64", "time": "2.000 us"}
    assert bars[1] == {"x": 2.1, "x2": 4.1, **named}
    assert [row["label"] for row in figure.data["passes"]] == ["pass 1", "pass 2", "pass 3"]
    assert "33 of 44 dispatches" in figure.caption


def test_merged_bars_say_so() -> None:
    """A bar of several dispatches counts them, and the caption says what was merged."""
    rows = [(f"k{n % 7}", "1", "s", 10 * n, 10 * n + 9) for n in range(9000)]
    figure, _ = draw(make_analysed(rows, passes=1))
    assert len(figure.data["bars"]) < 3000
    assert "more" in figure.data["bars"][0]["name"]
    assert "a pixel, are one" in figure.caption


@pytest.mark.parametrize(("span_ns", "unit"), [(1500, "ns"), (3_000, "us"), (5_000_000, "ms"), (7 * 10**9, "s")])
def test_the_axis_has_a_fitting_unit(span_ns: int, unit: str) -> None:
    """The longest unit in which the window is two or more."""
    figure, _ = draw(make_analysed([("k", "1", "s", 0, span_ns)]))
    assert figure.spec["layer"][0]["encoding"]["x"]["title"] == f"{unit} since the first of them"


def test_passes_and_streams_are_tables() -> None:
    """The chart's figures stand in tables: a row per pass and per stream."""
    analysed = make_network()
    _, window = draw(analysed)
    passes = build_pass_table(analysed)
    assert passes is not None
    assert passes.rows[1] == ("2", "33.10 us", "23.00 us", "4.35 %", "11")
    assert build_lane_table(window).rows[0][:2] == ("stream 1", "33")
    assert build_pass_table(make_analysed([("k", "1", "s", 0, 5)])) is None


def test_one_instant_can_be_drawn() -> None:
    """A single dispatch of 0 ns gives a chart whose axis is no wider than nothing."""
    figure, _ = draw(make_analysed([("k", "1", "s", 5, 5)]))
    assert figure.data["bars"][0]["x2"] == 0.0
