"""Charts of rows, whose names stand above them and not beside them, so that long names take no width from the plot."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pytest_attnperf.reports.html.charts import VERMILLION, Spec
from pytest_attnperf.reports.html.embedding import Json, round_figure
from pytest_attnperf.reports.html.labels import NARROWEST_PX, count_cells, encode_label, estimate_px, make_labels
from pytest_attnperf.reports.text.text_width import both_ends, cut_text

LINE_PX = 13
MARK_PX = 20
"""Height of a row without its lines of text; its mark is in the middle of that."""

GAP_PX = 4
"""Room above the names of a row."""

BOLD = 1.15
"""Width of bold text over that of other text."""

SIDE_PX = 14
"""Room between a name and the value at its right, and between the outermost mark and the edge."""


@dataclass(frozen=True)
class UprightLine:
    """A line over all rows, such as a limit: its place on the axis, and its words."""

    at: float
    label: str


@dataclass(frozen=True)
class RowLayout:
    """The rows of a chart.

    labels      name -> fields of its label
    beside_px   width of the widest value, at the right of the names
    row_px      height of each row
    """

    count: int
    labels: Mapping[str, Mapping[str, Json]]
    beside_px: int
    row_px: int

    @property
    def height(self) -> int:
        """Height of the plot in pixels."""
        return self.count * self.row_px

    @property
    def middle_px(self) -> float:
        """Middle of a row's mark, in pixels below the top of the row."""
        return self.row_px - MARK_PX / 2

    def at(self, px: float) -> Spec:
        """Returns the vertical encoding of a place `px` below the top of a row."""
        scale = {"domain": list(range(self.count)), "paddingInner": 0, "paddingOuter": 0, "type": "band"}
        place = {"bandPosition": px / self.row_px}
        return {"field": "row", "type": "ordinal", "axis": None, "scale": scale, **place}


def lay_out_rows(names: Sequence[str], values: Sequence[str]) -> RowLayout:
    """Returns the layout of rows with these names and, at their right ends, these values as text."""
    beside = round(BOLD * max(map(estimate_px, values), default=0))
    labels = make_labels(names, count_cells(NARROWEST_PX - beside - SIDE_PX, names))
    lines = max((len(label["short"]) for label in labels.values()), default=1)
    return RowLayout(max(1, len(names)), labels, beside, lines * LINE_PX + MARK_PX + GAP_PX)


def make_row_texts(layout: RowLayout, data: str) -> list[Spec]:
    """Returns the layers of names, at the left, and values, at the right, above the marks of the rows in `data`."""
    y = layout.at(layout.row_px - MARK_PX - 1)
    room = layout.beside_px + SIDE_PX
    left: Spec = {"type": "text", "align": "left", "baseline": "bottom", "aria": False}
    # Vega adds further lines below the first one, also where the baseline is the bottom.
    left["dy"] = {"expr": f"width > datum.name_px + {room} ? 0 : -{LINE_PX} * (length(datum.short) - 1)"}
    right: Spec = {"type": "text", "align": "right", "baseline": "bottom", "aria": False, "fontWeight": 600}
    return [
        {
            "name": "row_names",
            "data": {"name": data},
            "mark": left,
            "encoding": {"x": {"value": 0}, "y": y, "text": encode_label(room)},
        },
        {
            "name": "row_values",
            "data": {"name": data},
            "mark": right,
            "encoding": {"x": {"value": "width"}, "y": y, "text": {"field": "text", "type": "nominal"}},
        },
    ]


def list_lines(lines: Sequence[UprightLine]) -> list[Mapping[str, Json]]:
    """Returns the data of lines over all rows: words of at most half of the narrowest chart."""
    most = count_cells(NARROWEST_PX // 2, [line.label for line in lines])
    return [{"at": round_figure(line.at), "label": cut_text(both_ends(line.label), most)} for line in lines]


def make_upright_lines(data: str) -> list[Spec]:
    """Returns the layers of lines over all rows, {'at', 'label'} of `data`; their words stand above the plot."""
    label: Spec = {"type": "text", "baseline": "bottom", "y": -4, "aria": False}
    label["align"] = {"expr": "scale('x', datum.at) > width / 2 ? 'right' : 'left'"}
    x = {"field": "at", "type": "quantitative"}
    return [
        {
            "data": {"name": data},
            "mark": {"type": "rule", "strokeDash": [5, 4], "color": VERMILLION},
            "encoding": {"x": x, "tooltip": [{"field": "label", "title": "limit", "type": "nominal"}]},
        },
        {"data": {"name": data}, "mark": label, "encoding": {"x": x, "text": {"field": "label", "type": "nominal"}}},
    ]
