"""A chart of values with their intervals, a row each: its name and its value as text, the dot and its interval below.

Names stand above their dots, not beside them, so that long ones take no width from the plot.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from pytest_attnperf.reports.html.charts import COLOURS, SHAPES, VERMILLION, Spec, make_base
from pytest_attnperf.reports.html.embedding import Json, round_figure
from pytest_attnperf.reports.html.row_layout import (
    SIDE_PX,
    RowLayout,
    UprightLine,
    lay_out_rows,
    list_lines,
    make_row_texts,
    make_upright_lines,
)
from pytest_attnperf.reports.html.sections import Figure

ORIGINS: Spec = {"data": {"name": "origins"}, "mark": {"type": "rule", "aria": False}}
"""The layer of the value that rows are compared with."""


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
    marks: Sequence[UprightLine] = (),
    is_log: bool = False,
    caption: str = "",
) -> Figure:
    """Returns a chart with a row for each of `rows`, in their order.

    axis     its title, with the unit
    kinds    how the rows of each kind are drawn
    origin   value with a thin line that rows are compared with; None for none
    """
    layout = lay_out_rows([row.name for row in rows], [row.text for row in rows])
    headings = list(dict.fromkeys(heading for row in rows for heading in row.told))
    reach = _find_reach(rows, [*(mark.at for mark in marks), *([] if origin is None else [origin])])
    data: dict[str, list[Mapping[str, Json]]] = {
        "dots": [_make_datum(index, row, layout.labels[row.name], headings) for index, row in enumerate(rows)],
        "strips": [_make_strip(index, row, at) for index, row in enumerate(rows) for at in row.strip],
        "marks": list_lines(marks),
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
    spec = make_base(title, height=layout.height, encoding={"x": x})
    texts = make_row_texts(layout, "dots")
    spec["layer"] = [ORIGINS, *make_upright_lines("marks"), *texts, *_make_marks(x, layout, kinds, tooltip)]
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


def _make_marks(x: Spec, layout: RowLayout, kinds: Mapping[str, DotKind], tooltip: list[Spec]) -> list[Spec]:
    """Returns the layers of single values, limits, intervals and dots."""
    middle = layout.middle_px
    y, names = layout.at(middle), list(kinds)
    colours = [COLOURS[kind.colour % len(COLOURS)] for kind in kinds.values()]
    shapes = [SHAPES[kind.shape % len(SHAPES)] for kind in kinds.values()]
    colour = {"field": "kind", "type": "nominal", "scale": {"domain": names, "range": colours}, "legend": None}
    shape = {"field": "kind", "type": "nominal", "scale": {"domain": names, "range": shapes}, "legend": None}
    end = {"field": "row", "bandPosition": (middle + 7) / layout.row_px}
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
            "encoding": {"x": {**x, "field": "limit"}, "y": layout.at(middle - 7), "y2": end},
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


def place_ratio(ratio: float, *, is_log: bool) -> float:
    """Returns where a ratio of times lies: itself on a logarithmic axis, else its change in per cent."""
    return ratio if is_log else 100 * (ratio - 1)


def place_ends(ends: tuple[float, float] | None, *, is_log: bool) -> tuple[float, float] | None:
    """Returns where both ends of an interval of ratios lie; None without one."""
    return None if ends is None else (place_ratio(ends[0], is_log=is_log), place_ratio(ends[1], is_log=is_log))


def thin_evenly(values: Sequence[float], most: int) -> list[float]:
    """Returns at most `most` of sorted values, evenly spaced by rank, the ends included."""
    if len(values) <= most:
        return list(values)
    return [values[round(place * (len(values) - 1) / (most - 1))] for place in range(most)]
