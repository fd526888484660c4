"""What charts of a page share, and those of one case's panel, as Vega-Lite specifications.

Field names are ours; foreign text is only data. A case's charts read the data sets of `samples.collect_samples`. For a
vertical axis of words the script sets the domain, so that they keep their order and none is empty.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

Spec: TypeAlias = dict[str, Any]

SCHEMA = "https://vega.github.io/schema/vega-lite/v6.json"
HEIGHT = 320
COLOURS = tuple(f"var(--series-{number})" for number in range(1, 9))
"""Colours of series: blue, orange, green, pink, ochre, violet, cyan, and grey for all others. The style sheet has a
shade of each for light and for dark pages, with a contrast of 4.5 : 1, so that a label may have its series' colour."""

SHAPES = ("circle", "square", "triangle-up", "diamond", "cross", "triangle-down", "triangle-right", "triangle-left")
"""A shape for each colour."""

ROWS = ["stored", "first look", "second look", "pairs", "recorded"]
BLUE, VERMILLION, GREEN, PINK, ORANGE, GREY = COLOURS[0], COLOURS[1], COLOURS[2], COLOURS[3], COLOURS[4], COLOURS[7]
FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, sans-serif"
AXIS_WIDTH = 58
"""Width of the vertical axis in charts below each other, so that their plots are aligned."""

QUIET = {"aria": False, "tooltip": None}
"""Of marks that say nothing which others do not."""

BORDER = {"stroke": "var(--back)", "strokeWidth": 4, "color": "var(--back)"}
"""Look of a text below the same text: in the colour of the page, so that no line crosses the letters."""

CASE_TOOLTIP = (
    ("name", "case"),
    ("verdict_text", "verdict"),
    ("time_text", "time"),
    ("change_text", "change"),
    ("interval_text", "95 % interval"),
    ("finds_text", "detectable"),
    ("tflops_text", "TFLOP/s"),
    ("floor_text", "share of floor"),
    ("speedup_text", "speedup"),
)


def case_charts() -> dict[str, Spec]:
    """Returns the charts of one case's panel by name: {'spec', 'title', 'needs': data sets that must not be empty}."""
    return {
        "strip": {"title": "Looks against the baseline", "needs": ["dots", "marks"], "spec": _make_strip_chart()},
        "strip_us": {"title": "Processes", "needs": ["dots"], "unless": ["marks"], "spec": _make_strip_us_chart()},
        "samples": {
            "title": "Blocks in measured order, a line per process",
            "needs": ["blocks"],
            "spec": _make_samples_chart(),
        },
        "clocks": {"title": "Compute clock over the same blocks", "needs": ["clocks"], "spec": _make_clocks_chart()},
        "history": {"title": "History", "needs": ["points"], "spec": _make_history_chart()},
    }


def build_config() -> Spec:
    """Returns Vega's configuration. Colours are variables of the page's style sheet, so that a chart follows the theme,
    on paper too, without being drawn again."""
    text, muted, grid = "var(--text)", "var(--muted)", "var(--grid)"
    return {
        "background": None,
        "font": FONT,
        "view": {"stroke": None},
        "axis": {
            "labelColor": muted,
            "titleColor": text,
            "gridColor": grid,
            "domainColor": muted,
            "tickColor": muted,
            "labelFontSize": 11,
            "titleFontSize": 12,
            "titleFontWeight": "normal",
            "labelOverlap": "greedy",
        },
        "legend": {"labelColor": text, "titleColor": text, "labelFontSize": 12, "labelLimit": 260, "symbolLimit": 60},
        "text": {"color": muted, "fontSize": 11},
        "rule": {"color": muted},
        "line": {"strokeWidth": 1.75},
        "point": {"size": 56, "filled": True, "opacity": 1},
    }


def make_tooltip(pairs: Sequence[tuple[str, str]]) -> list[Spec]:
    """Returns Vega-Lite's tooltip of (field, title) pairs, each a text."""
    return [{"field": name, "title": title, "type": "nominal"} for name, title in pairs]


def make_quantity(name: str, title: str, **more: Any) -> Spec:
    """Returns Vega-Lite's encoding of a number, with the title of its axis."""
    return {"field": name, "type": "quantitative", "title": title, **more}


def make_linear_scale() -> Spec:
    """Returns a scale that spans the data, with room at both ends."""
    return {"zero": False, "nice": False, "padding": 12}


def make_base(description: str, **more: Any) -> Spec:
    """Returns the keys of every chart: as wide as its place, HEIGHT high, `description` for screen readers, `more`."""
    return {
        "$schema": SCHEMA,
        "description": description,
        "width": "container",
        "height": HEIGHT,
        "autosize": {"type": "fit-x", "contains": "padding"},
        **more,
    }


def _make_strip_chart() -> Spec:
    """Returns the spec of a case's processes and pairs as dots, its limit as a line, its change with an interval."""
    x = make_quantity("at", "change against the baseline (%)", scale=make_linear_scale(), axis={"tickCount": 9})
    row: Spec = {"field": "row", "type": "nominal", "title": None, "axis": {"minExtent": AXIS_WIDTH, "grid": False}}
    spec = make_base("Processes of each look and the change with its 95 % interval, against the limit", height=170)
    change = {"data": {"name": "marks"}, "transform": [{"filter": {"field": "kind", "equal": "change"}}]}
    limit = {"data": {"name": "marks"}, "transform": [{"filter": {"field": "kind", "equal": "limit"}}]}
    at_change = {"y": {**row, "field": "kind"}}
    named = {"tooltip": make_tooltip([("kind", "mark"), ("text", "value")])}
    spec["encoding"] = {"x": x}
    spec["layer"] = [
        {"data": {"values": [{"at": 0}]}, "mark": {"type": "rule", "aria": False}},
        {
            **limit,
            "mark": {"type": "rule", "strokeDash": [5, 4], "color": VERMILLION, "strokeWidth": 2},
            "encoding": named,
        },
        {
            **limit,
            "mark": {"type": "text", "align": "left", "baseline": "top", "dx": 5, "y": 2, "aria": False},
            "encoding": {"text": {"field": "label"}},
        },
        {
            **change,
            "mark": {"type": "rule", "color": BLUE, "strokeWidth": 4},
            "encoding": {"x": {**x, "field": "low"}, "x2": {"field": "high"}, **at_change, **named},
        },
        {
            **change,
            "mark": {"type": "point", "shape": "diamond", "color": BLUE, "size": 110},
            "encoding": {**at_change, **named},
        },
        {
            "data": {"name": "dots"},
            "mark": {"type": "point"},
            "encoding": {"y": row, **_look_colours("row"), **_make_dot_encoding()},
        },
    ]
    return spec


def _make_strip_us_chart() -> Spec:
    x = make_quantity("at", "us per call", scale=make_linear_scale(), axis={"tickCount": 9})
    row: Spec = {"field": "row", "type": "nominal", "title": None, "axis": {"minExtent": AXIS_WIDTH, "grid": False}}
    spec = make_base("Processes of each look", height={"step": 34}, data={"name": "dots"}, mark={"type": "point"})
    return spec | {"encoding": {"x": x, "y": row, **_look_colours("row"), **_make_dot_encoding()}}


def _make_dot_encoding() -> Spec:
    return {"tooltip": make_tooltip([("name", "process"), ("text", "time")]), "description": {"field": "description"}}


def _look_colours(name: str) -> Spec:
    colour = {"domain": ROWS, "range": [GREY, GREEN, ORANGE, PINK, BLUE]}
    shape = {"domain": ROWS, "range": ["circle", "square", "triangle-up", "cross", "square"]}
    field = {"field": name, "type": "nominal", "legend": None}
    return {"color": {**field, "scale": colour}, "shape": {**field, "scale": shape}}


def _make_trace_chart(figure: str, title: str, description: str, height: int) -> Spec:
    """Returns the spec of a chart of the field `figure` for every measured block, with a faint line per process."""
    # Both charts show the same blocks, so they need the same scale, even if some blocks have no clock.
    x = make_quantity(
        "block", "block, in measured order", scale=make_linear_scale(), axis={"grid": False, "tickMinStep": 1}
    )
    y = make_quantity(
        figure, title, scale={"zero": False, "nice": True}, axis={"minExtent": AXIS_WIDTH - 14, "tickCount": 5}
    )
    tooltip = [*make_tooltip([("name", "process")]), make_quantity("block", "block"), make_quantity(figure, title)]
    spec = make_base(
        description, height=height, data={"name": "blocks"}, encoding={"x": x, "y": y, **_look_colours("look")}
    )
    line = {"type": "line", "strokeWidth": 1, "opacity": 0.5, "aria": False}
    points = {
        "mark": {"type": "point", "size": 26},
        "encoding": {"tooltip": tooltip, "description": {"field": "description"}},
    }
    spec["layer"] = [{"mark": line, "encoding": {"detail": {"field": "process"}, "shape": {"value": "circle"}}}, points]
    return spec


def _make_samples_chart() -> Spec:
    return _make_trace_chart("us", "us per call", "Microseconds per call of each block, in measured order", 210)


def _make_clocks_chart() -> Spec:
    return _make_trace_chart("mhz", "MHz", "Mean compute clock of each block, in measured order", 120)


def _make_history_chart() -> Spec:
    """Returns the spec of a case's time by run: bars span its processes, dashed lines mark changes between commits."""
    x = {"field": "at", "type": "temporal", "title": "run", "scale": {"type": "utc"}, "axis": {"grid": False}}
    y = make_quantity("us", "us per call", scale={"zero": False, "nice": True}, axis={"minExtent": AXIS_WIDTH - 14})
    point_tooltip = make_tooltip([("started", "run"), ("text", "time"), ("commit", "commit"), ("verdict", "verdict")])
    change_tooltip = make_tooltip(
        [("change", "change"), ("commits", "between"), ("environment", "also changed"), ("started", "first seen")]
    )
    spec = make_base("Microseconds per call in every run that is kept, with change points", height=220)
    spec["encoding"] = {"x": x}
    spec["layer"] = [
        {
            "data": {"name": "changes"},
            "mark": {"type": "rule", "color": VERMILLION, "strokeWidth": 2, "strokeDash": [5, 4]},
            "encoding": {"tooltip": change_tooltip},
        },
        {
            "data": {"name": "changes"},
            "mark": {"type": "text", "align": "left", "baseline": "top", "dx": 5, "y": 2},
            "encoding": {"text": {"field": "change"}},
        },
        {
            "data": {"name": "points"},
            "mark": {"type": "rule", "opacity": 0.6, "aria": False},
            "encoding": {"y": {**y, "field": "low"}, "y2": {"field": "high"}},
        },
        {
            "data": {"name": "points"},
            "mark": {"type": "line", "color": BLUE, "strokeWidth": 1, "aria": False},
            "encoding": {"y": y},
        },
        {
            "data": {"name": "points"},
            "mark": {"type": "point", "color": BLUE, "size": 36},
            "encoding": {"y": y, "tooltip": point_tooltip, "description": {"field": "description"}},
        },
    ]
    return spec
