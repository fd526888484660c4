"""A map of coloured cells: a column for each size, a row for each shape, whose name stands above its cells."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from pytest_attnperf.reports.html.charts import Spec, make_base
from pytest_attnperf.reports.html.embedding import Json
from pytest_attnperf.reports.html.labels import (
    NARROWEST_PX,
    count_cells,
    encode_label,
    estimate_px,
    make_labels,
    make_legend,
)
from pytest_attnperf.reports.html.sections import Figure
from pytest_attnperf.reports.text.text_width import both_ends, cut_text

CELL_PX = 36
LINE_PX = 14
GAP_PX = 8
PAD_PX = 8
LEGEND_CELLS = 34

Looks = Literal["full", "pale", "outline"]


@dataclass(frozen=True)
class Cell:
    """A cell.

    row      number of its row
    name     what its colour stands for; drawn in the cell where it fits
    words    drawn below the name
    told     what the tooltip says: heading -> text
    """

    row: int
    column: str
    name: str
    words: str
    looks: Looks
    colour: str
    told: Mapping[str, str] = field(default_factory=dict)


def draw_map(
    title: str,
    axis: str,
    columns: Sequence[str],
    rows: Sequence[str],
    cells: Sequence[Cell],
    colours: Mapping[str, str],
    *,
    caption: str = "",
) -> Figure:
    """Returns the chart. Places without a cell are dotted.

    columns   in order; a single '' has no axis
    rows      labels in order
    colours   name -> colour, in the order of the legend
    """
    labels = make_labels(rows, count_cells(NARROWEST_PX, rows))
    lines = max((len(label["short"]) for label in labels.values()), default=1)
    headings = list(dict.fromkeys(heading for cell in cells for heading in cell.told))
    made = [_make_datum(cell, headings) for cell in cells]
    taken = {(cell.row, cell.column) for cell in cells}
    data: dict[str, list[Mapping[str, Json]]] = {
        looks: [datum for datum, cell in zip(made, cells, strict=True) if cell.looks == looks]
        for looks in ("full", "pale", "outline")
    }
    data["plain"] = [*data["pale"], *data["outline"]]
    data["rows"] = [{"at": number, **labels[name]} for number, name in enumerate(rows)]
    data["empty"] = [
        {"row": number, "column": column, "words": "not measured"}
        for number in range(len(rows))
        for column in columns
        if (number, column) not in taken
    ]
    spec = _make_spec(title, axis, columns, len(rows), lines, headings, _name_legend(colours))
    return Figure(title, spec, data, caption)


def _name_legend(colours: Mapping[str, str]) -> dict[str, str]:
    """Returns shown name -> colour. Names that share the last colour share an entry."""
    return {_shorten(name): colour for name, colour in colours.items()}


def _shorten(name: str) -> str:
    return cut_text(both_ends(name), LEGEND_CELLS)


def _make_datum(cell: Cell, headings: Sequence[str]) -> dict[str, Json]:
    name = _shorten(cell.name)
    told = {f"told{place}": cell.told.get(heading, "") for place, heading in enumerate(headings)}
    return {
        "row": cell.row,
        "column": cell.column,
        "name": name,
        "words": cell.words,
        "name_px": estimate_px(name) + PAD_PX,
        "words_px": estimate_px(cell.words) + PAD_PX,
        "description": f"{name}, {cell.words}",
        **told,
    }


def _make_spec(
    title: str,
    axis: str,
    columns: Sequence[str],
    count: int,
    lines: int,
    headings: Sequence[str],
    colours: Mapping[str, str],
) -> Spec:
    row_px = lines * LINE_PX + CELL_PX + GAP_PX

    def place(px: float, name: str = "row") -> Spec:
        scale = {"domain": list(range(max(1, count))), "paddingInner": 0, "paddingOuter": 0, "type": "band"}
        at = {"bandPosition": px / row_px}
        return {"field": name, "type": "ordinal", "axis": None, "scale": scale, **at}

    x: Spec = {"field": "column", "type": "ordinal", "title": axis or None, "sort": None}
    x["scale"] = {"domain": list(columns), "paddingInner": 0.04, "paddingOuter": 0}
    x["axis"] = {"labelAngle": 0, "grid": False, "ticks": False, "domain": False} if any(columns) else None
    colour: Spec = {"field": "name", "type": "nominal"}
    colour["scale"] = {"domain": list(colours), "range": list(colours.values())}
    colour["legend"] = make_legend(list(colours))
    tooltip = [{"field": f"told{at}", "title": heading, "type": "nominal"} for at, heading in enumerate(headings)]
    top, bottom = lines * LINE_PX, lines * LINE_PX + CELL_PX
    box = {"x": x, "y": place(top), "y2": {"field": "row", "bandPosition": bottom / row_px}}
    spec = make_base(title, height=max(1, count) * row_px)
    spec["layer"] = [
        *_make_boxes(box, colour, tooltip),
        *_make_texts({"x": x, "y": place(top + CELL_PX / 2)}),
        {
            "name": "row_names",
            "data": {"name": "rows"},
            "mark": {
                "type": "text", "align": "left", "baseline": "bottom", "aria": False,
                "dy": {"expr": f"width > datum.name_px ? 0 : -{LINE_PX - 1} * (length(datum.short) - 1)"},
            },
            "encoding": {"x": {"value": 0}, "y": place(top - 2, "at"), "text": encode_label()},
        },
    ]  # fmt: skip
    return spec


def _make_boxes(box: Spec, colour: Spec, tooltip: list[Spec]) -> list[Spec]:
    told = {"tooltip": tooltip, "description": {"field": "description"}}
    dotted = {
        "type": "rect",
        "filled": False,
        "stroke": "#8C8C8C",
        "strokeDash": [2, 4],
        "strokeWidth": 1,
        "aria": False,
    }
    outline = {"type": "rect", "filled": False, "strokeWidth": 2}
    return [
        {
            "data": {"name": "empty"},
            "mark": dotted,
            "encoding": {**box, "tooltip": {"field": "words", "title": "time"}},
        },
        {"data": {"name": "full"}, "mark": {"type": "rect"}, "encoding": {**box, "color": colour, **told}},
        {
            "data": {"name": "pale"},
            "mark": {"type": "rect", "fillOpacity": 0.3},
            "encoding": {**box, "color": colour, **told},
        },
        {"data": {"name": "outline"}, "mark": outline, "encoding": {**box, "color": colour, **told}},
    ]


def _make_texts(at: Spec) -> list[Spec]:
    """Returns the layers of names and words inside the cells, each only where the cell is wide enough."""
    layers = []
    for data, name in (("full", "on_colour"), ("plain", "on_plain")):
        for field_name, other, dy, weight in (("name", "words", -7, 400), ("words", "name", 7, 600)):
            test = f"bandwidth('x') >= datum.{field_name}_px"
            alone = {"expr": f"bandwidth('x') >= datum.{other}_px ? {dy} : 0"}
            layers.append(
                {
                    "name": f"{name}_{field_name}",
                    "data": {"name": data},
                    "mark": {"type": "text", "dy": alone, "fontWeight": weight, "aria": False},
                    "encoding": {
                        **at,
                        "text": {"condition": {"test": test, "field": field_name, "type": "nominal"}, "value": ""},
                    },
                }
            )
    return layers
