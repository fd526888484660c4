"""The occupancy of kernels as sections of a page: what limits each, and how it changes with each resource.

With --cycles also what is busy in their key loops.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pytest_attnperf.codeobject.arch import limits_of
from pytest_attnperf.codeobject.headroom import OccupancyStair, compute_size_stairs, compute_staircase
from pytest_attnperf.codeobject.issue_model import ESTIMATED
from pytest_attnperf.records.code import KernelCode, LoopEstimate
from pytest_attnperf.reports.html.charts import COLOURS, Spec, make_base
from pytest_attnperf.reports.html.embedding import Json
from pytest_attnperf.reports.html.sections import Figure, PageTable, Section, TableHead
from pytest_attnperf.reports.html.share_bars import LEGEND, ShareBar, build_share_bars
from pytest_attnperf.reports.html.text_tables import convert_table
from pytest_attnperf.reports.run.profile_figures import cut_middle, tell_apart
from pytest_attnperf.reports.text.figures import one_line
from pytest_attnperf.tools.occupancy.cycles_text import (
    CONFLICTS,
    busy_shares,
    describe_limit,
    describe_loop,
    explain_missing,
    format_place,
    list_counts,
)
from pytest_attnperf.tools.occupancy.occupancy_rows import (
    OccupancyPoint,
    find_shown_vgprs,
    limit_rows,
    make_overview_row,
    raise_lines,
    use_rows,
)
from pytest_attnperf.tools.occupancy.occupancy_text import (
    describe_occupancy,
    format_count,
    join_limiters,
    make_overview_table,
)

COMPILED, WHOLE = "as compilers count", "whole workgroups"
HEIGHT = 260
CHARACTER = 6.4
"""Pixels of a letter, on average."""

GLYPHS = {"own": "◆", "up": "▲", "down": "▼"}
LISTED_ROOM = 1.3
"""Height of a chart whose labels are listed at its top, over that of its steps."""


@dataclass(frozen=True)
class StairAxis:
    """A resource as the horizontal axis.

    title     with its unit
    noun      one of it: 'VGPR', 'byte'
    per_tick  units between ticks; `shown_per` units are 1 on the axis (1024 bytes are 1 KiB)
    by_whole  whether the point stands on the line of whole workgroups, which the hardware runs
    falls     whether occupancy never rises along it, so that there is room for a label at a step
    """

    title: str
    noun: str
    per_tick: int
    shown_per: int = 1
    by_whole: bool = False
    falls: bool = True


VGPRS = StairAxis("VGPRs per lane", "VGPR", 64)
LDS = StairAxis("KiB of LDS per workgroup", "byte", 16384, 1024)
THREADS = StairAxis("threads of a workgroup", "thread", 256, by_whole=True, falls=False)


@dataclass(frozen=True)
class StairMark:
    """A labelled point of a chart. kind: 'own', 'up' or 'down'."""

    kind: str
    value: int
    waves: float
    label: str


def build_staircase(
    axis: StairAxis, stairs: Sequence[OccupancyStair], at: int, most_waves: int, step: int = 1
) -> Figure:
    """Returns the chart of the waves per SIMD by `stairs`, with the kernel at `at` and the nearest steps, in whole
    multiples of `step` of the resource."""
    marks = find_marks(axis, stairs, at, step)
    top = max(stairs[-1].last, at)
    differs = any(stair.whole_waves_per_simd != stair.waves_per_simd for stair in stairs)
    lines = _list_line(axis, stairs, COMPILED)
    lines += _list_line(axis, stairs, WHOLE) if differs else []
    rows: list[Json] = [
        {
            "kind": mark.kind,
            "x": mark.value / axis.shown_per,
            "waves": mark.waves,
            "label": mark.label,
            "listed": f"{GLYPHS[mark.kind]} {mark.label}",
            "share": mark.value / top if top else 0,
            "row": number,
        }
        for number, mark in enumerate(marks)
    ]
    title = f"Waves per SIMD over {axis.title}"
    series = [COMPILED, WHOLE] if differs else [COMPILED]
    caption = "Diamond: this kernel. The other resources are as they are."
    return Figure(title, _make_spec(title, axis, series, top, most_waves), {"lines": lines, "marks": rows}, caption)


def find_marks(axis: StairAxis, stairs: Sequence[OccupancyStair], at: int, step: int = 1) -> list[StairMark]:
    """Returns the kernel's point at `at`, the nearest value with more waves, and the nearest with fewer; those that
    exist. `step` as in `build_staircase`."""

    def height(stair: OccupancyStair) -> float:
        return stair.whole_waves_per_simd if axis.by_whole else stair.waves_per_simd

    own = next((stair for stair in stairs if at <= stair.last), stairs[-1])
    marks = [StairMark("own", at, height(own), f"{format_count(at, axis.noun)}: {_format_waves(height(own))}")]
    for kind, sign in (("up", 1), ("down", -1)):
        ends = [
            (_find_nearest(stair, at, step), height(stair))
            for stair in stairs
            if sign * height(stair) > sign * height(own)
        ]
        if ends:
            value, waves = min(ends, key=lambda end: abs(end[0] - at))
            marks.append(StairMark(kind, value, waves, _describe_step(axis, value - at, waves)))
    return marks


def _find_nearest(stair: OccupancyStair, at: int, step: int) -> int:
    return stair.last if stair.last < at else stair.first + step - 1


def _describe_step(axis: StairAxis, more: int, waves: float) -> str:
    """Returns '8 VGPRs fewer: 6 waves'."""
    return f"{format_count(abs(more), axis.noun)} {'more' if more > 0 else 'fewer'}: {_format_waves(waves)}"


def _format_waves(waves: float) -> str:
    return f"{waves:g} {'wave' if waves == 1 else 'waves'}"


def _list_line(axis: StairAxis, stairs: Sequence[OccupancyStair], series: str) -> list[Json]:
    """Returns both ends of every stair as points of one line."""
    points: list[Json] = []
    for number, stair in enumerate(stairs):
        waves = stair.waves_per_simd if series == COMPILED else stair.whole_waves_per_simd
        first = stairs[number - 1].last if number else stair.first
        more = {"waves": waves, "series": series, "range": f"{stair.first:,} to {stair.last:,}"}
        points += [{"x": value / axis.shown_per, **more} for value in (first, stair.last)]
    return points


def _make_spec(title: str, axis: StairAxis, series: list[str], top: int, most_waves: int) -> Spec:
    ticks = [value / axis.shown_per for value in range(0, top + axis.per_tick, axis.per_tick) if value <= top]
    x: Spec = {"field": "x", "type": "quantitative", "title": axis.title}
    x |= {"scale": {"domain": [0, top / axis.shown_per], "nice": False}, "axis": {"values": ticks, "grid": False}}
    y: Spec = {"field": "waves", "type": "quantitative", "title": "waves per SIMD"}
    y |= {"scale": {"domain": [0, most_waves + 1 if axis.falls else most_waves * LISTED_ROOM], "nice": False}}
    y["axis"] = {"values": list(range(0, most_waves + 1, 1 if most_waves <= 10 else 2)), "format": "d"}
    own = {"field": "series", "type": "nominal"}
    legend = LEGEND if len(series) > 1 else None
    colour = {**own, "scale": {"domain": series, "range": list(COLOURS[: len(series)])}, "legend": legend}
    dash = {**own, "scale": {"domain": series, "range": [[1, 0], [5, 3]][: len(series)]}, "legend": None}
    kinds = {"domain": ["own", "up", "down"], "range": [COLOURS[4], COLOURS[2], COLOURS[3]]}
    shapes = {"domain": kinds["domain"], "range": ["diamond", "triangle-up", "triangle-down"]}
    kind = {"field": "kind", "type": "nominal", "legend": None}
    tooltip = [
        {"field": field, "type": "nominal", "title": heading}
        for field, heading in (("range", axis.noun + "s"), ("waves", "waves per SIMD"), ("series", "counted"))
    ]
    line: Spec = {
        "data": {"name": "lines"},
        "mark": {"type": "line", "strokeWidth": 2, "aria": False},
        "encoding": {"x": x, "y": y, "color": colour, "strokeDash": dash, "tooltip": tooltip},
    }
    point: Spec = {
        "data": {"name": "marks"},
        "mark": {"type": "point", "size": 110, "aria": False},
        "encoding": {
            "x": x,
            "y": y,
            "color": {**kind, "scale": kinds},
            "shape": {**kind, "scale": shapes},
            "tooltip": [{"field": "label", "type": "nominal", "title": "step"}],
        },
    }
    layers = [line, point, *(_label_steps(x, y) if axis.falls else _list_labels())]
    spec = make_base(title, height=HEIGHT, layer=layers)
    return {**spec, "resolve": {"scale": {"color": "independent", "shape": "independent"}}}


def _label_steps(x: Spec, y: Spec) -> list[Spec]:
    """Returns layers of labels beside their points, where a falling line leaves room: above to the right or, if that
    is too narrow, below to the left."""
    fits = f"datum.share * width + length(datum.label) * {CHARACTER} + 12 <= width"
    layers = []
    for test, align, right, down in ((fits, "left", 9, -9), (f"!({fits})", "right", -7, 13)):
        text = {"type": "text", "align": align, "dx": right, "dy": down, "aria": False}
        encoding = {"x": x, "y": y, "text": {"field": "label"}}
        layers.append({"data": {"name": "marks"}, "transform": [{"filter": test}], "mark": text, "encoding": encoding})
    return layers


def _list_labels() -> list[Spec]:
    """Returns layers of labels below each other at the top, each with its point's glyph."""
    return [
        {
            "data": {"name": "marks"},
            "transform": [{"filter": {"field": "row", "equal": row}}],
            "mark": {"type": "text", "align": "left", "baseline": "top", "x": 8, "y": 2 + 15 * row, "aria": False},
            "encoding": {"text": {"field": "listed"}},
        }
        for row in range(len(GLYPHS))
    ]


def build_stair_table(axis: StairAxis, stairs: Sequence[OccupancyStair]) -> PageTable:
    """Returns the steps as a table."""
    heads = (
        TableHead(f"{axis.noun}s"),
        TableHead("waves per SIMD", True, COMPILED),
        TableHead("in whole workgroups", True, WHOLE),
    )
    rows = tuple(
        (f"{stair.first:,} to {stair.last:,}", f"{stair.waves_per_simd}", f"{stair.whole_waves_per_simd:g}")
        for stair in stairs
    )
    return PageTable(f"steps over {axis.title}", heads, rows)


NAME_LIMIT, TITLE_LIMIT, TEXT_LIMIT = 50, 120, 80
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


def build_cycle_sections(codes: Sequence[KernelCode], keys: int = 0) -> list[Section]:
    """Returns a section per kernel: its key loop's estimate, or why there is none. `keys` are those of an iteration, 0
    for those that a kernel declares."""
    sections = []
    for number, code in enumerate(codes, 1):
        name, title = f"cycles{number}", cut_middle(one_line(code.name, 4 * TITLE_LIMIT), TITLE_LIMIT)
        short = f"Cycles {number}" if len(codes) > 1 else "Cycles"
        if code.key_loop is None:
            reason = f"no estimate: {explain_missing(code)}"
            sections.append(Section(name, f"Cycles of {title}", (reason,), short=short))
        else:
            sections.append(_make_section(code, code.key_loop, keys or code.key_loop.keys, name, title, short))
    return sections


def _make_section(code: KernelCode, loop: LoopEstimate, keys: int, name: str, title: str, short: str) -> Section:
    bars = [
        ShareBar(unit, share, f"{100 * share:.0f} %", COLOURS[number])
        for number, (unit, share) in enumerate(busy_shares(loop).items())
    ]
    figure = build_share_bars("How busy each unit is in the key loop", bars, f"{describe_limit(loop)}.", 1.2)
    lead = (*describe_loop(code, loop, keys), f"({ESTIMATED})", CONFLICTS)
    tables = (_make_count_table(loop, keys), _make_heaviest_table(loop))
    return Section(name, f"Cycles of {title}", lead, (figure,) if figure else (), tables, short)


def _make_count_table(loop: LoopEstimate, keys: int) -> PageTable:
    heads, rows = list_counts(loop, keys)
    return PageTable(
        "instructions, cycles and bytes",
        tuple(TableHead(text, bool(place)) for place, text in enumerate(heads)),
        tuple(rows),
    )


def _make_heaviest_table(loop: LoopEstimate) -> PageTable:
    numbers = (TableHead(text, True) for text in ("wave's cycles", "share", "count"))
    heads = (TableHead("instruction, with the wait before it"), *numbers, TableHead("line"), TableHead("source"))
    rows = tuple(
        (
            one.mnemonic,
            f"{one.cycles:,.0f}",
            f"{100 * one.cycles / (loop.cycles * loop.waves):.0f} %",
            f"{one.count}",
            format_place(one.file, one.line),
            one_line(one.text, TEXT_LIMIT),
        )
        for one in loop.heaviest
    )
    kept = len(heads) if any(one.line for one in loop.heaviest) else len(heads) - 2
    return PageTable("the heaviest instructions of a wave", heads[:kept], tuple(row[:kept] for row in rows))
