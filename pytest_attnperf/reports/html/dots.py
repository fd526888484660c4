"""A chart of values with their intervals, a row each: its name and its value as text, the dot and its interval below.

Names stand above their dots, not beside them, so that long ones take no width from the plot.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from pytest_attnperf.reports.html.charts import COLOURS, SHAPES, VERMILLION, Spec, make_base
from pytest_attnperf.reports.html.embedding import Json, round_figure
from pytest_attnperf.reports.html.labels import NARROWEST_PX, count_cells, encode_label, estimate_px, make_labels
from pytest_attnperf.reports.html.sections import Figure

LINE_PX = 13
DOT_PX = 20
"""Height of a row without its lines of text; the dot is in the middle of it."""

BOLD = 1.15
"""Width of bold text over that of other text."""

SIDE_PX = 14
"""Room between the outermost dot and the edge."""


@dataclass(frozen=True)
class DotRow:
    """One row of a chart of dots; values in the unit of the chart's axis.

    name       whole; unique in the chart
    at         None draws no dot, as for what was not measured
    text       the value as people read it, at the right end
    interval   low and high end; None if not known
    limit      drawn as a short line in the row, unless it is far from all values; None for none
    kind       one of the chart's kinds, which has a colour and a shape
    strip      single values behind `at`, drawn as faint dots
    told       what the tooltip says further: heading -> text
    """

    name: str
    at: float | None
    text: str = ""
    interval: tuple[float, float] | None = None
    limit: float | None = None
    kind: str = ""
    strip: tuple[float, ...] = ()
    told: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class DotMark:
    """A line over all rows, such as a limit: its place on the axis, and its words."""

    at: float
    label: str


@dataclass(frozen=True)
class DotKind:
    """How rows of a kind are drawn: index of a colour of COLOURS and of a shape of SHAPES."""

    colour: int = 0
    shape: int = 0


def make_dots(
    title: str,
    axis: str,
    rows: Sequence[DotRow],
    *,
    kinds: Mapping[str, DotKind],
    origin: float | None = None,
    marks: Sequence[DotMark] = (),
    is_log: bool = False,
    caption: str = "",
) -> Figure:
    """Returns a chart with a row for each of `rows`, in their order.

    axis     its title, with the unit
    kinds    how the rows of each kind are drawn
    origin   value with a thin line that rows are compared with; None for none
    """
    beside = round(BOLD * max((estimate_px(row.text) for row in rows), default=0))
    labels = make_labels((row.name for row in rows), count_cells(NARROWEST_PX - beside - SIDE_PX))
    headings = list(dict.fromkeys(heading for row in rows for heading in row.told))
    reach = _find_reach(rows, [*(mark.at for mark in marks), *([] if origin is None else [origin])])
    data = {
        "dots": [_make_datum(index, row, labels[row.name], headings) for index, row in enumerate(rows)],
        "strips": [_make_strip(index, row, at) for index, row in enumerate(rows) for at in row.strip],
        "marks": [{"at": round_figure(mark.at), "label": mark.label} for mark in marks],
        "origins": [] if origin is None else [{"at": origin}],
    }
    data |= {
        "timed": [datum for datum in data["dots"] if datum["at"] is not None],
        "intervals": [datum for datum in data["dots"] if datum["low"] is not None],
        "limits": [datum for datum in data["dots"] if datum["limit"] is not None and datum["limit"] <= reach],
    }
    x = _make_axis(axis, is_log=is_log)
    tooltip = [{"field": f"told{place}", "title": heading, "type": "nominal"} for place, heading in enumerate(headings)]
    tooltip.insert(0, {"field": "name", "title": "name", "type": "nominal"})
    lines = max((len(label["short"]) for label in labels.values()), default=1)
    places = _Places(max(1, len(rows)), lines * LINE_PX + DOT_PX)
    spec = make_base(title, height=places.count * places.row_px, encoding={"x": x})
    spec["layer"] = [*_make_lines(), *_make_texts(places, beside), *_make_marks(x, places, kinds, tooltip)]
    return Figure(title, spec, data, caption)


def _find_reach(rows: Sequence[DotRow], others: Sequence[float]) -> float:
    """Returns the largest limit that is drawn: half as far again as values reach. One far limit would squeeze all."""
    values = [at for row in rows for at in (row.at, *(row.interval or ()), *row.strip) if at is not None]
    values += others
    return max(values) + 0.5 * (max(values) - min(values)) if values else 0.0


def _make_datum(index: int, row: DotRow, label: Mapping[str, Json], headings: Sequence[str]) -> dict[str, Json]:
    low, high = row.interval or (None, None)
    told = {f"told{place}": row.told.get(heading, "") for place, heading in enumerate(headings)}
    words = ", ".join(filter(None, (str(label["name"]), row.text)))
    ends = {"low": round_figure(low), "high": round_figure(high)}
    if None in ends.values():
        ends = {"low": None, "high": None}
    return {
        "row": index, **label, "at": round_figure(row.at), **ends, "limit": round_figure(row.limit),
        "kind": row.kind, "text": row.text, "description": words, **told,
    }  # fmt: skip


def _make_strip(index: int, row: DotRow, at: float) -> dict[str, Json]:
    return {"row": index, "at": round_figure(at), "kind": row.kind}


def _make_axis(title: str, *, is_log: bool) -> Spec:
    scale: Spec = {"type": "log", "nice": False} if is_log else {"zero": False, "nice": False}
    ticks = {"expr": "max(3, min(9, floor(width / 70)))"}
    axis = {"format": ".12~g", "tickCount": ticks, "labelFlush": True}
    return {"field": "at", "type": "quantitative", "title": title, "scale": scale | {"padding": SIDE_PX}, "axis": axis}


@dataclass(frozen=True)
class _Places:
    """The rows of a chart: their number, and the height of each in pixels."""

    count: int
    row_px: int

    def at(self, px: float) -> Spec:
        """Returns the vertical encoding of a place `px` below the top of a row."""
        scale = {"domain": list(range(self.count)), "paddingInner": 0, "paddingOuter": 0, "type": "band"}
        place = {"bandPosition": px / self.row_px}
        return {"field": "row", "type": "ordinal", "axis": None, "scale": scale, **place}


def _make_lines() -> list[Spec]:
    """Returns the layers of lines over all rows; their words stand above the plot."""
    label: Spec = {"type": "text", "baseline": "bottom", "y": -4, "aria": False}
    label["align"] = {"expr": "scale('x', datum.at) > width / 2 ? 'right' : 'left'"}
    return [
        {"data": {"name": "origins"}, "mark": {"type": "rule", "aria": False}},
        {
            "data": {"name": "marks"},
            "mark": {"type": "rule", "strokeDash": [5, 4], "color": VERMILLION},
            "encoding": {"tooltip": [{"field": "label", "title": "limit", "type": "nominal"}]},
        },
        {"data": {"name": "marks"}, "mark": label, "encoding": {"text": {"field": "label", "type": "nominal"}}},
    ]


def _make_texts(places: _Places, beside_px: int) -> list[Spec]:
    """Returns the layers of names, at the left, and values, at the right."""
    y = places.at(places.row_px - DOT_PX + 2)
    left: Spec = {"type": "text", "align": "left", "baseline": "bottom", "aria": False}
    # Vega adds further lines below the first one, also where the baseline is the bottom.
    left["dy"] = {"expr": f"width > datum.name_px + {beside_px + SIDE_PX} ? 0 : -{LINE_PX} * (length(datum.short) - 1)"}
    right: Spec = {"type": "text", "align": "right", "baseline": "bottom", "aria": False, "fontWeight": 600}
    return [
        {
            "name": "row_names",
            "data": {"name": "dots"},
            "mark": left,
            "encoding": {"x": {"value": 0}, "y": y, "text": encode_label(beside_px + SIDE_PX)},
        },
        {
            "name": "row_values",
            "data": {"name": "dots"},
            "mark": right,
            "encoding": {"x": {"value": "width"}, "y": y, "text": {"field": "text", "type": "nominal"}},
        },
    ]


def _make_marks(x: Spec, places: _Places, kinds: Mapping[str, DotKind], tooltip: list[Spec]) -> list[Spec]:
    """Returns the layers of single values, limits, intervals and dots."""
    middle = places.row_px - DOT_PX / 2
    y, names = places.at(middle), list(kinds)
    colours = [COLOURS[kind.colour % len(COLOURS)] for kind in kinds.values()]
    shapes = [SHAPES[kind.shape % len(SHAPES)] for kind in kinds.values()]
    colour = {"field": "kind", "type": "nominal", "scale": {"domain": names, "range": colours}, "legend": None}
    shape = {"field": "kind", "type": "nominal", "scale": {"domain": names, "range": shapes}, "legend": None}
    end = {"field": "row", "bandPosition": (middle + 7) / places.row_px}
    low, high = {**x, "field": "low"}, {"field": "high"}
    return [
        {
            "data": {"name": "strips"},
            "mark": {"type": "point", "size": 22, "opacity": 0.6, "aria": False},
            "encoding": {"y": y, "color": colour},
        },
        {
            "data": {"name": "limits"},
            "mark": {"type": "rule", "strokeWidth": 2, "color": VERMILLION, "aria": False},
            "encoding": {"x": {**x, "field": "limit"}, "y": places.at(middle - 7), "y2": end},
        },
        {
            "data": {"name": "intervals"},
            "mark": {"type": "rule", "strokeWidth": 3, "opacity": 0.6, "aria": False},
            "encoding": {"x": low, "x2": high, "y": y, "color": colour, "tooltip": tooltip},
        },
        {
            "data": {"name": "timed"},
            "mark": {"type": "point", "size": 70},
            "encoding": {
                "y": y, "color": colour, "shape": shape, "tooltip": tooltip,
                "description": {"field": "description"},
            },
        },
    ]  # fmt: skip
