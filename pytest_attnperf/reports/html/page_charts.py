"""The charts over many cases of a run's page, as Vega-Lite specifications: the first picture (changes or times),
lengths, roofline, speedups, limits.

Each reads data sets that the page's script fills: 'points' (one per drawn case, see the script's `point`), 'labels' and
'leaders' of its series, 'ceilings' and 'thresholds'. A series is a backend, or all those beyond the palette. The script
sets scales of colours and shapes, and of axes whose ticks it chooses (`axes.js`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pytest_attnperf.records import Verdict
from pytest_attnperf.reports.html.charts import (
    BORDER,
    CASE_TOOLTIP,
    QUIET,
    VERMILLION,
    Spec,
    make_base,
    make_quantity,
    make_tooltip,
)

SECONDS = "format(datum.value / 1000, '~s') + 's'"
"""Label of a tick in milliseconds: '20µs', '1.5ms'."""

FLOPS = "format(datum.value * 1e12, '~s')"
"""Label of a tick in TFLOP/s, with a prefix: '500G', '1P'."""

PLAIN = "datum.value >= 1000 ? format(datum.value, '~s') : format(datum.value, '~g')"
LENGTHS = "datum.value >= 1024 && datum.value % 1024 === 0 ? datum.value / 1024 + 'k' : datum.value"
TIMES = "format(datum.value, '~g') + 'x'"
PICTURE_HEIGHT = 270
BAD, OPEN, GOOD, NEUTRAL = "var(--bad)", "var(--open)", "var(--good)", "var(--quiet)"
MARKS: Mapping[Verdict, tuple[str, str]] = {
    Verdict.INCORRECT: (BAD, "cross"),
    Verdict.ERROR: (BAD, "cross"),
    Verdict.SUSPICIOUS: (BAD, "cross"),
    Verdict.WORSE: (BAD, "triangle-up"),
    Verdict.SLOWER: (BAD, "triangle-up"),
    Verdict.GREW: (BAD, "triangle-up"),
    Verdict.UNDECIDED: (OPEN, "diamond"),
    Verdict.ENVIRONMENT: (OPEN, "square"),
    Verdict.INCOMPARABLE: (OPEN, "square"),
    Verdict.NO_BASELINE: (OPEN, "square"),
    Verdict.STALE: (OPEN, "triangle-right"),
    Verdict.DRIFT: (OPEN, "triangle-right"),
    Verdict.MOVED: (OPEN, "triangle-right"),
    Verdict.UNSUPPORTED: (NEUTRAL, "circle"),
    Verdict.SAME: (NEUTRAL, "circle"),
    Verdict.FASTER: (GOOD, "triangle-down"),
    Verdict.RECORDED: (NEUTRAL, "circle"),
    Verdict.RIGHT: (NEUTRAL, "circle"),
}
"""Colour and shape of a verdict's dots, the same as beside its name in the page."""


def page_charts(columns: Sequence[str], reference: str) -> dict[str, Spec]:
    """Returns the charts over many cases by name: {'spec', 'title', 'needs': fields that every drawn point has}.

    `columns` are the names of the case table's columns; charts that need others are left out. Speedups are over the
    backend `reference`.
    """
    tooltip = _make_case_tooltip(columns)
    charts = {
        "length_ms": _make_length_chart("ms", "time per call", SECONDS, tooltip),
        "length_tflops": _make_length_chart("tflops", "useful FLOP/s", FLOPS, tooltip),
        "length_speedup": _make_length_chart("speedup", f"times as fast as {reference}", TIMES, tooltip),
        "roofline": _make_roofline_chart(tooltip),
        "speedups": _make_speedup_chart(reference, tooltip),
        "limits": _make_limits_chart(tooltip),
    }
    return {name: chart for name, chart in charts.items() if set(chart["needs"]) <= {*columns, "length", "intensity"}}


def make_changes_chart(columns: Sequence[str]) -> Spec:
    """Returns the spec of dots by rank over their change, with intervals, above the band of their limits.

    `columns` as in `page_charts`.
    """
    colour, shape = _make_verdict_encodings()
    x: Spec = {"field": "at", "type": "quantitative", "axis": None, "scale": {"nice": False, "zero": False}}
    axis = {"labelExpr": "datum.value ? format(datum.value, '+~g') : '0'", "gridOpacity": 0.6}
    y: Spec = {"field": "change", "type": "quantitative", "title": "change of the time (%)", "axis": axis, "scale": {}}
    span = {"y": {**y, "field": "low"}, "y2": {"field": "high"}}
    layers: list[Spec] = [
        {"data": {"name": "band"}, "mark": {"type": "area", "color": "var(--band)", **QUIET}, "encoding": span},
        {
            "data": {"values": [{"change": 0}]},
            "mark": {"type": "rule", **QUIET},
            "encoding": {"x": {"value": 0}, "x2": {"value": "width"}},
        },
        {
            "data": {"name": "rest"},
            "mark": {"type": "area", "color": NEUTRAL, "opacity": 0.3, **QUIET},
            "encoding": span,
        },
        {"data": {"name": "rest"}, "mark": {"type": "line", "color": NEUTRAL, "strokeWidth": 2, **QUIET}},
        {
            "data": {"name": "points"},
            "mark": {"type": "rule", "strokeWidth": 1.5, "opacity": 0.75, **QUIET},
            "encoding": {**span, "color": colour},
        },
        {
            "data": {"name": "points"},
            "mark": {"type": "point", "cursor": "pointer", "size": 54},
            "encoding": {
                "color": colour,
                "shape": shape,
                "tooltip": _make_case_tooltip(columns),
                "description": {"field": "description"},
            },
        },
        {
            "data": {"name": "labels"},
            "mark": {"type": "text", "baseline": "bottom", **QUIET, "lineBreak": "\n"},
            "encoding": {"text": {"field": "label"}},
        },
    ]
    layers[1]["encoding"]["y"] = y
    spec = make_base(
        "Change of every gated case against its baseline, slowest first", height=PICTURE_HEIGHT, layer=layers
    )
    return spec | {"encoding": {"x": x, "y": y}}


def make_times_chart(columns: Sequence[str], title: str) -> Spec:
    """Returns the spec of a row of dots per suite or backend, a dot per case. `columns` as in `page_charts`."""
    colour, shape = _make_verdict_encodings()
    y: Spec = {"field": "row", "type": "nominal", "title": None, "sort": None, "scale": {}}
    y["axis"] = {
        "grid": True,
        "labelLimit": 220,
        "ticks": False,
        "domain": False,
        "labelPadding": 8,
        "labelExpr": "slice(datum.label, 5)",
    }
    x: Spec = {"field": "value", "type": "quantitative", "title": title, "scale": {}, "axis": {"grid": True}}
    dots: Spec = {
        "data": {"name": "points"},
        "mark": {"type": "point", "cursor": "pointer", "size": 46, "opacity": 0.8},
        "encoding": {
            "color": colour,
            "shape": shape,
            "tooltip": _make_case_tooltip(columns),
            "description": {"field": "description"},
        },
    }
    labels: list[Spec] = [
        {
            "data": {"name": "labels"},
            "mark": {"type": "text", "align": "right", "x": "width", **look, **QUIET},
            "encoding": {"text": {"field": "label"}, "y": y},
        }
        for look in (BORDER, {"color": "var(--text)"})
    ]
    dots["encoding"] |= {"x": x, "y": y}
    return make_base(f"{title} of every timed case", layer=[dots, *labels], height=PICTURE_HEIGHT)


def _make_case_tooltip(columns: Sequence[str]) -> list[Spec]:
    known = {*columns, "name", *(("time",) if "ms" in columns else ())}
    return make_tooltip([pair for pair in CASE_TOOLTIP if pair[0].removesuffix("_text") in known])


def _make_verdict_encodings() -> tuple[Spec, Spec]:
    """Returns Vega-Lite's encodings of colour and shape by the field 'mark', a verdict or 'quarantined'."""
    names = [*(verdict.value for verdict in MARKS), "quarantined"]
    marks = [*MARKS.values(), (OPEN, "square")]
    field: Spec = {"field": "mark", "type": "nominal", "legend": None}
    colour = {**field, "scale": {"domain": names, "range": [colour for colour, _ in marks]}}
    return colour, {**field, "scale": {"domain": names, "range": [shape for _, shape in marks]}}


def _make_series_encoding() -> Spec:
    """Returns Vega-Lite's encodings of colour and shape by series, whose scales and legend the script sets."""
    field: Spec = {"field": "series", "type": "nominal", "scale": {}}
    return {"color": dict(field), "shape": dict(field)}


def _make_mark_layer(tooltip: list[Spec], **encoding: Any) -> Spec:
    """Returns the layer of a point per case, each of which the pointer and the keyboard reach."""
    return {
        "data": {"name": "points"},
        "mark": {"type": "point", "cursor": "pointer"},
        "encoding": {**encoding, "tooltip": tooltip, "description": {"field": "description"}},
    }


def _make_label_layers(x: Spec, y: Spec) -> list[Spec]:
    """Returns the layers of the names of series at the right, each with a thin line from its last point."""
    colour = _make_series_encoding()["color"]
    return [
        {
            "data": {"name": "leaders"},
            "mark": {"type": "line", "strokeWidth": 0.75, "opacity": 0.6, **QUIET},
            "encoding": {"x": x, "y": y, "color": colour, "detail": {"field": "series"}},
        },
        {
            "data": {"name": "labels"},
            "mark": {"type": "text", "align": "left", "dx": 4, **QUIET},
            "encoding": {"x": x, "y": y, "color": colour, "text": {"field": "label"}},
        },
    ]


def _make_length_chart(figure: str, title: str, label: str, tooltip: list[Spec]) -> Spec:
    """Returns {'spec', 'title', 'needs'} of a chart of the field `figure` over sequence length, a line per backend."""
    x = make_quantity("length", "sequence length", scale={"type": "log"}, axis={"labelExpr": LENGTHS, "grid": False})
    y = make_quantity(figure, title, scale={"type": "log"}, axis={"labelExpr": label})
    series = _make_series_encoding()
    line: Spec = {
        "data": {"name": "points"},
        "mark": {"type": "line", "interpolate": "linear", **QUIET},
        "encoding": {"x": x, "y": y, "color": series["color"], "detail": {"field": "backend"}},
    }
    layers = [line, _make_mark_layer(tooltip, x=x, y=y, **series), *_make_label_layers(x, y)]
    return {
        "title": f"{title} against sequence length",
        "needs": ["length", figure],
        "spec": make_base(f"{title} against sequence length, one line per backend", layer=layers),
    }


def _make_roofline_chart(tooltip: list[Spec]) -> Spec:
    """Returns {'spec', 'title', 'needs'} of the roofline: FLOP/s of cases over FLOP per byte, and the ceilings."""
    x = make_quantity(
        "intensity",
        "useful FLOP per compulsory byte",
        scale={"type": "log"},
        axis={"labelExpr": PLAIN, "gridOpacity": 0.6},
    )
    y = make_quantity("tflops", "useful FLOP/s", scale={"type": "log"}, axis={"labelExpr": FLOPS, "gridOpacity": 0.6})
    end = {"x": {**x, "field": "x"}, "y": {**y, "field": "y"}}
    dash: Spec = {"field": "kind", "type": "nominal", "legend": None}
    dash["scale"] = {"domain": ["measured", "peak"], "range": [[1, 0], [6, 4]]}
    ceilings: list[Spec] = [
        {
            "data": {"name": "ceilings"},
            "mark": {"type": "line", "color": "var(--muted)", "strokeWidth": 1.25, "clip": True, **QUIET},
            "encoding": {**end, "detail": {"field": "name"}, "strokeDash": dash},
        },
        *_make_roof_label_layers(end),
    ]
    points = _make_mark_layer(tooltip, x=x, y=y, **_make_series_encoding())
    layers = [*ceilings, points, *_make_label_layers(x, y)]
    spec = make_base("Rates of cases under the ceilings of the device, by FLOP per byte", layer=layers, height=360)
    return {"title": "Roofline", "needs": ["intensity", "tflops"], "spec": spec}


def _make_roof_label_layers(end: Spec) -> list[Spec]:
    """Returns the layers of the ceilings' labels: above the right end of a flat line, below the left end of a slanted
    one."""
    return [
        {
            "data": {"name": "roofs"},
            "transform": [{"filter": {"field": "slanted", "equal": slanted}}],
            "mark": {
                "type": "text",
                "align": "left" if slanted else "right",
                "dx": 4 if slanted else -4,
                "baseline": "top" if slanted else "bottom",
                "dy": 4 if slanted else -3,
                **look,
                **QUIET,
            },
            "encoding": {**end, "text": {"field": "label"}},
        }
        for slanted in (False, True)
        for look in (BORDER, {"color": "var(--muted)"})
    ]


def _make_speedup_chart(reference: str, tooltip: list[Spec]) -> Spec:
    """Returns {'spec', 'title', 'needs'} of bars per workload and backend; a workload's name stands above its bars."""
    x = make_quantity(
        "speedup", f"times as fast as {reference}", axis={"labelExpr": TIMES, "gridOpacity": 0.6}, scale={"zero": True}
    )
    # Slots are numbered: backends occur once in each workload, and bars keep their order.
    y: Spec = {"field": "slot", "type": "nominal", "sort": None, "scale": {}}
    y["axis"] = {
        "labelExpr": "slice(datum.label, 4)",
        "title": None,
        "ticks": False,
        "domain": False,
        "labelLimit": 170,
    }
    colour = _make_series_encoding()["color"]
    text = {"type": "text", "align": "left", **QUIET}
    value = {"x": x, "y": y, "text": {"field": "speedup_text"}}
    head = {"y": y, "text": {"field": "label"}}
    written = {"color": "var(--text)"}
    layers: list[Spec] = [
        {
            "data": {"name": "points"},
            "mark": {"type": "bar", "cursor": "pointer", "height": {"band": 0.8}},
            "encoding": {
                "x": x,
                "y": y,
                "color": {**colour, "legend": None},
                "tooltip": tooltip,
                "description": {"field": "description"},
            },
        },
        {
            "data": {"values": [{"speedup": 1}]},
            "mark": {"type": "rule", "strokeDash": [5, 4], "color": "var(--text)", **QUIET},
            "encoding": {"x": x},
        },
        *(
            {"data": {"name": "points"}, "mark": {**text, "dx": 4, **look}, "encoding": value}
            for look in (BORDER, written)
        ),
        *(
            {"data": {"name": "heads"}, "mark": {**text, "x": 0, "fontWeight": "bold", **look}, "encoding": head}
            for look in (BORDER, written)
        ),
    ]
    spec = make_base("Speedups of backends, grouped by workload, with a line at one", layer=layers)
    return {"title": "Speedups by workload", "needs": ["speedup"], "spec": spec}


def _make_limits_chart(tooltip: list[Spec]) -> Spec:
    """Returns {'spec', 'title', 'needs'} of detectable slowdowns over time; noisy cases lie above the policy."""
    x = make_quantity("ms", "time per call", scale={"type": "log"}, axis={"grid": False, "labelExpr": SECONDS})
    y = make_quantity(
        "finds", "smallest detectable slowdown (%)", scale={"zero": True, "nice": True}, axis={"tickCount": 5}
    )
    policy: Spec = {"data": {"name": "thresholds"}, "encoding": {"y": {**y, "field": "at"}}}
    label = {"type": "text", "align": "left", "x": 6, "dy": -6, **QUIET}
    colour, shape = _make_verdict_encodings()
    layers = [
        {**policy, "mark": {"type": "rule", "strokeDash": [5, 4], "color": VERMILLION}},
        {**policy, "mark": label, "encoding": {**policy["encoding"], "text": {"field": "label"}}},
        _make_mark_layer(tooltip, x=x, y=y, color=colour, shape=shape),
    ]
    spec = make_base("Smallest slowdown that each look detects 99 % of the time, over the case's time", layer=layers)
    return {"title": "What each look could detect", "needs": ["ms", "finds"], "spec": spec}
