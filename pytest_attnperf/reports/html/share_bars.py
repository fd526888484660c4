"""Bars of shares with their names above them, so that long names have room at any width."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pytest_attnperf.reports.html.charts import Spec, make_base
from pytest_attnperf.reports.html.embedding import round_figure
from pytest_attnperf.reports.html.sections import Figure

ROW_PIXELS, BAR_PIXELS = 34, 11
LEGEND: Spec = {"title": None, "orient": "top", "columns": 2, "labelLimit": 130, "columnPadding": 10}
"""A legend that is narrow enough for a window of 360 pixels."""

LABEL_ROOM = 1.3
"""The axis is longer than the longest bar by this factor, so that a label behind it fits."""


@dataclass(frozen=True)
class ShareBar:
    """One bar.

    name     above it, at most about 50 letters; unique in its chart
    share    its length, 1 is the whole
    label    text behind it
    colour   '#rrggbb'
    more     (heading, text) pairs of its tooltip
    """

    name: str
    share: float
    label: str
    colour: str
    more: tuple[tuple[str, str], ...] = ()


def build_share_bars(title: str, bars: Sequence[ShareBar], caption: str, most: float | None = None) -> Figure | None:
    """Returns a chart of bars in their order; None without bars. The axis ends at `most`, else behind the longest."""
    if not bars:
        return None
    rows = [
        {
            "name": bar.name,
            "share": round_figure(bar.share) or 0.0,
            "label": bar.label,
            "colour": bar.colour,
            **{f"more{place}": text for place, (_, text) in enumerate(bar.more)},
        }
        for bar in bars
    ]
    headings = [("name", "name"), *((f"more{place}", heading) for place, (heading, _) in enumerate(bars[0].more))]
    end = most or max(bar.share for bar in bars) * LABEL_ROOM or 1.0
    return Figure(title, _make_spec(title, [bar.name for bar in bars], headings, end), {"bars": rows}, caption)


def _make_spec(title: str, names: list[str], headings: list[tuple[str, str]], end: float) -> Spec:
    x = {"field": "share", "type": "quantitative", "axis": None, "scale": {"domain": [0, end], "nice": False}}
    y = {"field": "name", "type": "nominal", "axis": None, "sort": None, "scale": {"domain": names, "padding": 0}}
    colour = {"field": "colour", "type": "nominal", "scale": None, "legend": None}
    tooltip = [{"field": field, "type": "nominal", "title": heading} for field, heading in headings]
    text = {"type": "text", "align": "left", "aria": False, "tooltip": None}
    layers: list[Spec] = [
        {
            "mark": {"type": "bar", "height": BAR_PIXELS, "yOffset": 8, "aria": False},
            "encoding": {"x": x, "color": colour, "tooltip": tooltip},
        },
        {"mark": {**text, "x": 0, "dy": -5}, "encoding": {"text": {"field": "name"}}},
        {"mark": {**text, "dx": 5, "dy": 8}, "encoding": {"x": x, "text": {"field": "label"}}},
    ]
    return make_base(title, height=ROW_PIXELS * len(names), data={"name": "bars"}, encoding={"y": y}, layer=layers)
