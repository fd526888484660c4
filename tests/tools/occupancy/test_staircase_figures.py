from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_attnperf.codeobject.headroom import OccupancyStair, compute_size_stairs, compute_staircase
from pytest_attnperf.codeobject.occupancy import Resources, occupancy_with
from pytest_attnperf.tools.occupancy.occupancy_page import (
    LDS,
    THREADS,
    VGPRS,
    build_stair_table,
    build_staircase,
    find_marks,
)

STAIRS = (OccupancyStair(1, 64, 8, 8.0), OccupancyStair(65, 128, 4, 3.5), OccupancyStair(129, 256, 2, 2.0))
KERNEL = Resources(96, 0, 40, 8192, 256)


@pytest.mark.parametrize(
    ("at", "labels"),
    [
        (100, ["100 VGPRs: 4 waves", "36 VGPRs fewer: 8 waves", "29 VGPRs more: 2 waves"]),
        (64, ["64 VGPRs: 8 waves", "1 VGPR more: 4 waves"]),
        (256, ["256 VGPRs: 2 waves", "128 VGPRs fewer: 4 waves"]),
    ],
)
def test_the_nearest_steps_are_labelled(at: int, labels: list[str]) -> None:
    """The kernel's own value, the least saving that raises occupancy, and the least use that lowers it."""
    assert [mark.label for mark in find_marks(VGPRS, STAIRS, at)] == labels


def test_one_step_has_one_mark() -> None:
    """Where occupancy is the same everywhere, only the kernel's own point is marked."""
    assert [mark.kind for mark in find_marks(LDS, (OccupancyStair(0, 65536, 8, 8.0),), 512)] == ["own"]


@given(st.integers(1, 512), st.integers(0, 65536), st.integers(1, 16))
def test_marks_are_what_the_formula_gives(vgprs: int, lds_bytes: int, waves: int) -> None:
    """At every labelled number of threads, the occupancy of whole workgroups is the one that the label says."""
    asked = Resources(min(vgprs, 256), 0, 40, lds_bytes, 64 * waves)
    for mark in find_marks(THREADS, compute_size_stairs("gfx942", asked), asked.threads, 64):
        assert mark.value % 64 == 0
        found = occupancy_with("gfx942", Resources(asked.vgprs, 0, 40, lds_bytes, mark.value))
        assert found.whole_waves_per_simd == mark.waves


def test_a_line_has_both_ends_of_every_step() -> None:
    """Points of the line are the ends of the steps, on the axis' unit; whole workgroups are a second line."""
    figure = build_staircase(LDS, (OccupancyStair(0, 1024, 8, 8.0), OccupancyStair(1025, 2048, 4, 3.0)), 512, 8)
    lines = figure.data["lines"]
    assert [(one["x"], one["waves"]) for one in lines[:4]] == [(0, 8), (1, 8), (1, 4), (2, 4)]
    assert [one["waves"] for one in lines[4:]] == [8.0, 8.0, 3.0, 3.0]
    same = build_staircase(LDS, (OccupancyStair(0, 1024, 8, 8.0),), 512, 8)
    assert {one["series"] for one in same.data["lines"]} == {"as compilers count"}


@pytest.mark.parametrize("arch", ["gfx90a", "gfx942", "gfx950", "gfx1100", "gfx1201"])
def test_steps_are_a_table(arch: str) -> None:
    """The table has the steps of the chart, without a gap."""
    stairs = compute_staircase(arch, KERNEL, "vgprs")
    table = build_stair_table(VGPRS, stairs)
    ends = [tuple(int(text.replace(",", "")) for text in row[0].split(" to ")) for row in table.rows]
    assert ends[0][0] == 1
    assert all(one[1] + 1 == other[0] for one, other in itertools.pairwise(ends))
    assert len(ends) == len(stairs)
