from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_attnperf.records.profiles import KernelTime, Spread
from pytest_attnperf.reports.html.charts import COLOURS
from pytest_attnperf.tools.profilers.page.family_colours import choose_colours
from pytest_attnperf.tools.profilers.page.treemap import (
    HEIGHT,
    LAYOUTS,
    MOST_KERNELS,
    TreemapArea,
    build_treemap,
    squarify,
)

WITHIN = TreemapArea(3.0, 5.0, 400.0, 300.0)
EDGE = 1e-3


@given(st.lists(st.floats(1, 1e5), min_size=1, max_size=60))
def test_parts_fill_the_rectangle_by_their_weights(weights: list[float]) -> None:
    """Each part's size is its share, all lie inside, and together they are as large as the whole."""
    weights.sort(reverse=True)
    areas = squarify(weights, WITHIN)
    whole = WITHIN.width * WITHIN.height
    for weight, area in zip(weights, areas, strict=True):
        assert math.isclose(area.width * area.height, weight / sum(weights) * whole, rel_tol=1e-6, abs_tol=1e-6)
        assert min(area.x - WITHIN.x, area.y - WITHIN.y) >= -EDGE
        assert area.x + area.width <= WITHIN.x + WITHIN.width + EDGE
        assert area.y + area.height <= WITHIN.y + WITHIN.height + EDGE


@given(st.lists(st.floats(1, 1e4), min_size=2, max_size=25))
def test_no_two_parts_overlap(weights: list[float]) -> None:
    """Of any two, one lies wholly beside or below the other."""
    weights.sort(reverse=True)
    areas = squarify(weights, WITHIN)
    for index, one in enumerate(areas):
        for other in areas[index + 1 :]:
            beside = one.x + one.width <= other.x + 1e-6 or other.x + other.width <= one.x + 1e-6
            below = one.y + one.height <= other.y + 1e-6 or other.y + other.height <= one.y + 1e-6
            assert beside or below


def test_the_example_of_the_paper() -> None:
    """Weights 6, 6, 4, 3, 2, 2, 1 in 6 x 4: the paper's figure has these rectangles."""
    areas = squarify([6, 6, 4, 3, 2, 2, 1], TreemapArea(0, 0, 6, 4))
    sizes = [(round(area.width, 2), round(area.height, 2)) for area in areas]
    assert sizes == [(3, 2), (3, 2), (1.71, 2.33), (1.29, 2.33), (1.2, 1.67), (1.2, 1.67), (0.6, 1.67)]


def kernels_of(count: int) -> list[KernelTime]:
    """Kernels of two families, the n-th of n us."""
    return [
        KernelTime(f"k{n}", ("attention", "GEMM")[n % 2], "kernel", Spread(2, n * 1000), 0.0) for n in range(1, count)
    ]


def test_every_kernel_has_a_rectangle_of_its_share() -> None:
    """In both layouts, with its time and calls; a hundredth of the time is a hundredth of the area."""
    kernels = kernels_of(12)
    figure = build_treemap(kernels, choose_colours(kernels), "t")
    assert figure is not None
    total = sum(kernel.spread.total_ns for kernel in kernels)
    for layout, width in enumerate(LAYOUTS):
        tiles = [tile for tile in figure.data["tiles"] if tile["layout"] == layout]
        assert {tile["name"] for tile in tiles} == {kernel.name for kernel in kernels}
        for tile in tiles:
            (kernel,) = [one for one in kernels if one.name == tile["name"]]
            area = (tile["x2"] - tile["x"]) * width * (tile["y2"] - tile["y"])
            assert area == pytest.approx(kernel.spread.total_ns / total * width * HEIGHT, rel=0.01)
        assert {tile["colour"] for tile in tiles} == set(COLOURS[:2])


def test_short_kernels_are_one_rectangle() -> None:
    """Those below the least share, and those beyond the most of a family, are counted in one."""
    kernels = kernels_of(400)
    figure = build_treemap(kernels, choose_colours(kernels), "t")
    assert figure is not None
    tiles = [tile for tile in figure.data["tiles"] if tile["layout"] == 0]
    assert len(tiles) == 2 * MOST_KERNELS
    rest = [tile for tile in tiles if "more kernels" in tile["name"]]
    assert sum(int(tile["name"].split()[0]) for tile in rest) == len(kernels) - (len(tiles) - 2)
    assert sum(int(tile["calls"].replace(",", "")) for tile in tiles) == 2 * len(kernels)


def test_no_time_gives_no_chart() -> None:
    """Neither no kernel nor kernels of 0 ns have areas."""
    assert build_treemap([], choose_colours([]), "t") is None
    idle = [KernelTime("k", "GEMM", "kernel", Spread(1, 0), 0.0)]
    assert build_treemap(idle, choose_colours(idle), "t") is None
