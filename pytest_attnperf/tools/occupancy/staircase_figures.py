"""Occupancy over one resource as a chart: steps, the kernel's own point, and the nearest steps up and down."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pytest_attnperf.codeobject.headroom import OccupancyStair
from pytest_attnperf.reports.html.charts import COLOURS, Spec, make_base
from pytest_attnperf.reports.html.embedding import Json
from pytest_attnperf.reports.html.sections import Figure, PageTable, TableHead
from pytest_attnperf.reports.html.share_bars import LEGEND
from pytest_attnperf.tools.occupancy.occupancy_text import format_count

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
