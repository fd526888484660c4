"""The page's charts as Vega-Lite specifications. Field names are ours; foreign text is only data.

Every chart reads named data sets that the page's script fills: 'points' (one per drawn case, see the script's `point`),
'ceilings', and those of `samples.collect_samples` for one case. If a colour or shape stands for a backend, the script
sets the scale, so that a backend looks the same in every chart. For a vertical axis of words it sets the domain, so
that they keep their order and none is empty.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

Spec: TypeAlias = dict[str, Any]

SCHEMA = "https://vega.github.io/schema/vega-lite/v6.json"
HEIGHT = 320
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#8C8C8C")
"""Colours of Okabe and Ito. Their black and yellow are invisible on one of the two backgrounds; grey replaces them."""

SHAPES = ("circle", "square", "triangle-up", "diamond", "cross", "triangle-down", "triangle-right", "triangle-left")
"""One more shape than colours: two backends share at most one of both, for up to 56 backends."""

ROWS = ["stored", "first look", "second look", "pairs", "recorded"]
BLUE, VERMILLION, GREEN, ORANGE = COLOURS[0], COLOURS[1], COLOURS[2], COLOURS[4]
FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, sans-serif"
AXIS_WIDTH = 58
"""Width of the vertical axis in charts below each other, so that their plots are aligned."""

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


def page_charts(columns: Sequence[str], reference: str) -> dict[str, Spec]:
    """Returns the charts over many cases by name: {'spec', 'title', 'needs': fields that every drawn point has}.

    `columns` are the names of the case table's columns; charts that need others are left out. Speedups are over the
    backend `reference`.
    """
    known = {*columns, "name", *(("time",) if "ms" in columns else ())}
    tooltip = _make_tooltip([pair for pair in CASE_TOOLTIP if pair[0].removesuffix("_text") in known])
    over = f"times as fast as {reference}"
    charts = {
        "length_ms": _make_length_chart("ms", "ms per call", "log", tooltip),
        "length_tflops": _make_length_chart("tflops", "TFLOP/s", "linear", tooltip),
        "length_speedup": _make_length_chart("speedup", over, "log", tooltip),
        "roofline": _make_roofline_chart(tooltip),
        "limits": _make_limits_chart(tooltip),
    }
    return {name: chart for name, chart in charts.items() if set(chart["needs"]) <= {*columns, "length", "intensity"}}


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
    """Returns Vega's configuration. The page's style sheet sets the colours of text, axes and grids, so that a chart
    follows the theme, on paper too, without being drawn again."""
    text, muted, grid = "#1d2126", "#555b63", "#e3e4e2"
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
        "text": {"color": muted, "fill": muted, "fontSize": 11},
        "rule": {"color": muted},
        "line": {"strokeWidth": 1.75},
        "point": {"size": 56, "filled": True, "opacity": 1},
    }


def _make_tooltip(pairs: Sequence[tuple[str, str]]) -> list[Spec]:
    return [{"field": name, "title": title, "type": "nominal"} for name, title in pairs]


def _make_quantity(name: str, title: str, **more: Any) -> Spec:
    return {"field": name, "type": "quantitative", "title": title, **more}


def _make_log_scale() -> Spec:
    return {"type": "log", "nice": False, "padding": 12}


def _make_linear_scale() -> Spec:
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


def _make_backend_encoding() -> Spec:
    """Returns Vega-Lite's encoding of colour and opacity by backend; clicking the legend picks one."""
    scale: Spec = {}
    legend = {"title": None, "orient": "top", "symbolType": "circle"}
    return {
        "color": {"field": "backend", "type": "nominal", "scale": scale, "legend": legend},
        "opacity": {"condition": {"param": "picked", "value": 1}, "value": 0.07},
    }


def _make_shape_encoding() -> Spec:
    return {"field": "backend", "type": "nominal", "scale": {}, "legend": {"title": None, "orient": "top"}}


def _make_backend_selection() -> Spec:
    return {"name": "picked", "select": {"type": "point", "fields": ["backend"]}, "bind": "legend"}


def _make_length_chart(figure: str, title: str, scale: str, tooltip: list[Spec]) -> Spec:
    """Returns {'spec', 'title', 'needs'} of a chart of the field `figure` over sequence length, a line per backend."""
    y = _make_quantity(figure, title, scale=_make_log_scale() if scale == "log" else {"zero": True, "nice": True})
    x = _make_quantity("length", "sequence length", scale={"type": "log", "base": 2, "nice": False, "padding": 16})
    x["axis"] = {"format": "d", "grid": False}
    layers: list[Spec] = [
        {"mark": {"type": "line", "interpolate": "linear", "aria": False}, "encoding": {"tooltip": {"value": None}}},
        {
            "params": [_make_backend_selection()],
            "mark": {"type": "point", "cursor": "pointer"},
            "encoding": {"shape": _make_shape_encoding(), "tooltip": tooltip, "description": {"field": "description"}},
        },
    ]
    spec = make_base(f"{title} against sequence length, one line per backend", data={"name": "points"})
    return {
        "title": f"{title} against sequence length",
        "needs": ["length", figure],
        "spec": spec | {"encoding": {"x": x, "y": y, **_make_backend_encoding()}, "layer": layers},
    }


def _make_roofline_chart(tooltip: list[Spec]) -> Spec:
    """Returns {'spec', 'title', 'needs'} of the roofline: TFLOP/s of cases over FLOP per byte, and the ceilings."""
    x = _make_quantity(
        "intensity", "useful FLOP per compulsory byte", scale=_make_log_scale(), axis={"grid": False, "format": "~g"}
    )
    y = _make_quantity("tflops", "useful TFLOP/s", scale=_make_log_scale(), axis={"format": "~g"})
    end = {"x": {"field": "x", "type": "quantitative"}, "y": {"field": "y", "type": "quantitative"}}
    dash: Spec = {"field": "kind", "type": "nominal", "legend": None}
    dash["scale"] = {"domain": ["measured", "peak"], "range": [[1, 0], [6, 4]]}
    ceilings: list[Spec] = [
        {
            "data": {"name": "ceilings"},
            "transform": [{"filter": {"field": "label", "equal": ""}}],
            "mark": {"type": "line", "color": "#888888", "strokeWidth": 1.25},
            "encoding": {**end, "detail": {"field": "name"}, "strokeDash": dash},
        },
        {
            "data": {"name": "ceilings"},
            "transform": [{"filter": {"not": {"field": "label", "equal": ""}}}],
            "mark": {"type": "text", "align": "left", "baseline": "top", "lineBreak": "\n"},
            "encoding": {**end, "text": {"field": "label"}},
        },
    ]
    layers = [*ceilings, _make_points(x, y, tooltip)]
    spec = make_base("Rates of cases under the ceilings of the device, by FLOP per byte", layer=layers)
    return {"title": "Roofline", "needs": ["intensity", "tflops"], "spec": spec}


def _make_points(x: Spec, y: Spec, tooltip: list[Spec]) -> Spec:
    """Returns the layer of a point per case, coloured by backend; a click selects the backend."""
    encoding = {"x": x, "y": y, **_make_backend_encoding(), "shape": _make_shape_encoding(), "tooltip": tooltip}
    return {
        "data": {"name": "points"},
        "params": [_make_backend_selection()],
        "mark": {"type": "point", "cursor": "pointer"},
        "encoding": {**encoding, "description": {"field": "description"}},
    }


def _make_limits_chart(tooltip: list[Spec]) -> Spec:
    """Returns {'spec', 'title', 'needs'} of detectable slowdowns over time; noisy cases lie above the policy."""
    x = _make_quantity("ms", "ms per call", scale=_make_log_scale(), axis={"grid": False, "format": "~g"})
    y = _make_quantity("finds", "smallest detectable slowdown (%)", scale=_make_linear_scale())
    policy: Spec = {"data": {"name": "thresholds"}, "encoding": {"y": {**y, "field": "at"}}}
    label = {"type": "text", "align": "left", "x": 6, "dy": -6, "aria": False}
    layers = [
        {**policy, "mark": {"type": "rule", "strokeDash": [5, 4], "color": VERMILLION}},
        {**policy, "mark": label, "encoding": {**policy["encoding"], "text": {"field": "label"}}},
        _make_points(x, y, tooltip),
    ]
    spec = make_base("Smallest slowdown that each look detects 99 % of the time, over the case's time", layer=layers)
    return {"title": "What each look could detect", "needs": ["ms", "finds"], "spec": spec}


def _make_strip_chart() -> Spec:
    """Returns the spec of a case's processes and pairs as dots, its limit as a line, its change with an interval."""
    x = _make_quantity("at", "change against the baseline (%)", scale=_make_linear_scale(), axis={"tickCount": 9})
    row: Spec = {"field": "row", "type": "nominal", "title": None, "axis": {"minExtent": AXIS_WIDTH, "grid": False}}
    spec = make_base("Processes of each look and the change with its 95 % interval, against the limit", height=170)
    change = {"data": {"name": "marks"}, "transform": [{"filter": {"field": "kind", "equal": "change"}}]}
    limit = {"data": {"name": "marks"}, "transform": [{"filter": {"field": "kind", "equal": "limit"}}]}
    at_change = {"y": {**row, "field": "kind"}}
    named = {"tooltip": _make_tooltip([("kind", "mark"), ("text", "value")])}
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
    x = _make_quantity("at", "us per call", scale=_make_linear_scale(), axis={"tickCount": 9})
    row: Spec = {"field": "row", "type": "nominal", "title": None, "axis": {"minExtent": AXIS_WIDTH, "grid": False}}
    spec = make_base("Processes of each look", height={"step": 34}, data={"name": "dots"}, mark={"type": "point"})
    return spec | {"encoding": {"x": x, "y": row, **_look_colours("row"), **_make_dot_encoding()}}


def _make_dot_encoding() -> Spec:
    return {"tooltip": _make_tooltip([("name", "process"), ("text", "time")]), "description": {"field": "description"}}


def _look_colours(name: str) -> Spec:
    colour = {"domain": ROWS, "range": ["#8C8C8C", GREEN, ORANGE, "#CC79A7", BLUE]}
    shape = {"domain": ROWS, "range": ["circle", "square", "triangle-up", "cross", "square"]}
    field = {"field": name, "type": "nominal", "legend": None}
    return {"color": {**field, "scale": colour}, "shape": {**field, "scale": shape}}


def _make_trace_chart(figure: str, title: str, description: str, height: int) -> Spec:
    """Returns the spec of a chart of the field `figure` for every measured block, with a faint line per process."""
    # Both charts show the same blocks, so they need the same scale, even if some blocks have no clock.
    x = _make_quantity(
        "block", "block, in measured order", scale=_make_linear_scale(), axis={"grid": False, "tickMinStep": 1}
    )
    y = _make_quantity(
        figure, title, scale={"zero": False, "nice": True}, axis={"minExtent": AXIS_WIDTH - 14, "tickCount": 5}
    )
    tooltip = [*_make_tooltip([("name", "process")]), _make_quantity("block", "block"), _make_quantity(figure, title)]
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
    y = _make_quantity("us", "us per call", scale={"zero": False, "nice": True}, axis={"minExtent": AXIS_WIDTH - 14})
    point_tooltip = _make_tooltip([("started", "run"), ("text", "time"), ("commit", "commit"), ("verdict", "verdict")])
    change_tooltip = _make_tooltip(
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
