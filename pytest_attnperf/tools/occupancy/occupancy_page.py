"""The occupancy of kernels as sections of a page: what limits each, and how it changes with each resource."""

from __future__ import annotations

from collections.abc import Sequence

from pytest_attnperf.codeobject.arch import limits_of
from pytest_attnperf.codeobject.headroom import OccupancyStair, compute_size_stairs, compute_staircase
from pytest_attnperf.reports.html.charts import COLOURS
from pytest_attnperf.reports.html.sections import Figure, PageTable, Section, TableHead
from pytest_attnperf.reports.html.share_bars import ShareBar, build_share_bars
from pytest_attnperf.reports.html.text_tables import convert_table
from pytest_attnperf.reports.run.profile_figures import cut_middle, tell_apart
from pytest_attnperf.reports.text.figures import one_line
from pytest_attnperf.tools.occupancy.occupancy_rows import (
    OccupancyPoint,
    find_shown_vgprs,
    limit_rows,
    make_overview_row,
    raise_lines,
    use_rows,
)
from pytest_attnperf.tools.occupancy.occupancy_text import describe_occupancy, join_limiters, make_overview_table
from pytest_attnperf.tools.occupancy.staircase_figures import (
    LDS,
    THREADS,
    VGPRS,
    StairAxis,
    build_stair_table,
    build_staircase,
)

NAME_LIMIT, TITLE_LIMIT = 50, 120
MOST_DETAILED = 10
"""Most kernels with curves of their own."""


def build_sections(points: Sequence[OccupancyPoint]) -> list[Section]:
    """Returns the sections on kernels: an overview of several, and for each its limits and its curves. Raises
    CodeObjectError as `compute_staircase` does."""
    several = len(points) > 1
    sections = [_make_overview(points)] if several else []
    for number, point in enumerate(points[:MOST_DETAILED], 1):
        sections += _build_kernel(point, f"{number}" if several else "")
    return sections


def _make_overview(points: Sequence[OccupancyPoint]) -> Section:
    names = tell_apart((point.name for point in points), NAME_LIMIT)
    bars = [
        ShareBar(
            f"{number}  {names[point.name]}",
            point.occupancy.waves_per_simd / point.occupancy.max_waves_per_simd,
            f"{point.occupancy.waves_per_simd} of {point.occupancy.max_waves_per_simd}",
            COLOURS[0],
            (("limited by", join_limiters(point.occupancy) or "nothing"), ("architecture", point.arch)),
        )
        for number, point in enumerate(points, 1)
    ]
    figure = build_share_bars("Waves per SIMD, of the most there can be", bars, "", 1.3)
    more = len(points) - MOST_DETAILED
    lead = (f"The first {MOST_DETAILED} have curves below; {more} more are in the table.",) if more > 0 else ()
    table = convert_table(make_overview_table(list(map(make_overview_row, points))), "all kernels")
    return Section("kernel-list", f"{len(points)} kernels", lead, (figure,) if figure else (), (table,), "Kernels")


def _build_kernel(point: OccupancyPoint, number: str) -> list[Section]:
    name = cut_middle(one_line(point.name, 4 * TITLE_LIMIT), TITLE_LIMIT) or "Occupancy"
    lead = (describe_occupancy(point.arch, point.occupancy), *(line.strip() for line in raise_lines(point)))
    short = f"Kernel {number}" if number else "Limits"
    limits = Section(
        f"limits{number}", name, lead, tables=(_make_limit_table(point), _make_use_table(point)), short=short
    )
    figures, tables = _build_curves(point)
    title = "What changes it" if not number else f"What changes kernel {number}"
    curves = Section(f"curves{number}", title, (), figures, tables, f"Curves {number}".strip(), folded=True)
    return [limits, curves]


def _build_curves(point: OccupancyPoint) -> tuple[tuple[Figure, ...], tuple[PageTable, ...]]:
    """Returns the charts over VGPRs, LDS and threads, and their steps as tables."""
    asked, most = point.asked.unreserved, point.occupancy.max_waves_per_simd
    wave = asked.wave_size or limits_of(point.arch).wave_sizes[0]
    curves: list[tuple[StairAxis, tuple[OccupancyStair, ...], int, int]] = [
        (VGPRS, compute_staircase(point.arch, asked, "vgprs"), find_shown_vgprs(point), 1),
        (LDS, compute_staircase(point.arch, asked, "lds_bytes"), asked.lds_bytes, 1),
        (THREADS, compute_size_stairs(point.arch, asked), asked.threads, wave),
    ]
    figures = tuple(build_staircase(axis, stairs, at, most, step) for axis, stairs, at, step in curves)
    return figures, tuple(build_stair_table(axis, stairs) for axis, stairs, _, _ in curves)


def _make_limit_table(point: OccupancyPoint) -> PageTable:
    block = point.occupancy.block
    numbers = (TableHead(text, True) for text in ("holds", "taken", "allows", "waves per SIMD"))
    heads = (TableHead(f"a {block}"), *numbers, TableHead(""))
    rows = tuple(
        (row.resource, row.holds, row.takes, row.allows, f"{row.waves_per_simd}", "binds" if row.binds else "")
        for row in limit_rows(point)
    )
    return PageTable("what each resource allows", heads, rows)


def _make_use_table(point: OccupancyPoint) -> PageTable:
    heads = (TableHead("a workgroup"), TableHead("asks for"), TableHead("is given"))
    rows = tuple((row.resource, row.asks, row.gets) for row in use_rows(point))
    return PageTable("what the kernel takes", heads, rows)
