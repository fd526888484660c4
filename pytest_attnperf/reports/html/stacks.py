"""A chart of bars, a row each, which may be made of parts: a name and a value as text, the bar below them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from pytest_attnperf.reports.html.charts import COLOURS, Spec, make_base
from pytest_attnperf.reports.html.embedding import Json, round_figure
from pytest_attnperf.reports.html.heat_map import DARK
from pytest_attnperf.reports.html.labels import estimate_px, make_legend
from pytest_attnperf.reports.html.row_layout import (
    RowLayout,
    UprightLine,
    lay_out_rows,
    list_lines,
    make_row_texts,
    make_upright_lines,
)
from pytest_attnperf.reports.html.sections import Figure
from pytest_attnperf.reports.text.figures import one_line
from pytest_attnperf.reports.text.text_width import both_ends, shorten_distinctly

OTHER = "other"
PART_CELLS = 34
PAD_PX = 8
BAR_PX = 14


@dataclass(frozen=True)
class StackPart:
    """A part of a bar: what it is, its length in the unit of the axis, and the length as people read it."""

    name: str
    length: float
    text: str


@dataclass(frozen=True)
class StackRow:
    """A bar. Without parts the row has its name and its text alone.

    name    whole; unique in the chart
    text    its value as people read it, at the right end
    told    what the tooltip says further: heading -> text
    """

    name: str
    parts: tuple[StackPart, ...]
    text: str = ""
    told: Mapping[str, str] = field(default_factory=dict)


def make_stacks(
    title: str,
    axis: str,
    rows: Sequence[StackRow],
    *,
    marks: Sequence[UprightLine] = (),
    colours: Mapping[str, str] | None = None,
    caption: str = "",
) -> Figure:
    """Returns a chart with a bar for each of `rows`, in their order.

    axis      its title, with the unit
    colours   of each kind of part, which then have no words and no legend; None names the longest kinds of parts, and
              the rest is 'other'
    """
    layout = lay_out_rows([row.name for row in rows], [row.text for row in rows])
    shown = colours if colours is not None else _choose_colours(rows)
    headings = list(dict.fromkeys(heading for row in rows for heading in row.told))
    parts = [
        datum for number, row in enumerate(rows) for datum in _make_parts(number, row, shown, headings)
    ]  # fmt: skip
    data: dict[str, list[Mapping[str, Json]]] = {
        "bars": [{"row": number, **layout.labels[row.name], "text": row.text} for number, row in enumerate(rows)],
        "parts": [*parts],
        "dark": [part for part in parts if colours is None and part["is_dark"]],
        "light": [part for part in parts if colours is None and not part["is_dark"]],
        "marks": list_lines(marks),
    }
    tooltip = [("name", "name"), ("part", "part"), ("length", "length"), ("share", "share")]
    tooltip = [pair for pair in tooltip if colours is None or pair[0] == "name"]
    tooltip += [(f"told{place}", heading) for place, heading in enumerate(headings)]
    spec = make_base(title, height=layout.height)
    spec["layer"] = _make_layers(axis, layout, shown, tooltip, has_legend=colours is None)
    return Figure(title, spec, data, caption)


def _choose_colours(rows: Sequence[StackRow]) -> dict[str, str]:
    """Returns kind of part -> colour: the longest kinds in the order in which they first stand, then OTHER."""
    lengths: dict[str, float] = {}
    for row in rows:
        for part in row.parts:
            lengths[part.name] = lengths.get(part.name, 0.0) + part.length
    most = sorted(lengths, key=lambda name: -lengths[name])
    most = most if len(most) <= len(COLOURS) else most[: len(COLOURS) - 1]
    found = {name: COLOURS[place] for place, name in enumerate(name for name in lengths if name in most)}
    return found if len(most) == len(lengths) else {**found, OTHER: COLOURS[-1]}


def _make_parts(
    number: int, row: StackRow, colours: Mapping[str, str], headings: Sequence[str]
) -> list[dict[str, Json]]:
    """Returns the data of a bar's parts, from left to right; those without a colour are one, the last."""
    whole = sum(part.length for part in row.parts)
    told = {f"told{place}": row.told.get(heading, "") for place, heading in enumerate(headings)}
    shown = shorten_distinctly(colours, PART_CELLS)
    found, start = [], 0.0
    for part in [*(part for part in row.parts if part.name in colours), *_join_others(row.parts, colours)]:
        end = start + part.length
        words = shown.get(part.name, OTHER)
        found.append(
            {
                "row": number,
                "start": round_figure(start),
                "end": round_figure(end),
                "middle": round_figure((start + end) / 2),
                "kind": words,
                "words_px": estimate_px(words) + PAD_PX,
                "name": both_ends(row.name),
                "part": both_ends(part.name),
                "length": part.text,
                "share": f"{100 * part.length / whole:.0f} %" if whole else "",
                "description": f"{both_ends(row.name)}, {both_ends(part.name)}: {part.text}",
                "is_dark": colours.get(part.name, COLOURS[-1]) in DARK,
                **told,
            }
        )
        start = end
    return found


def _join_others(parts: Sequence[StackPart], colours: Mapping[str, str]) -> list[StackPart]:
    """Returns the parts without a colour as one, in a list; [] without any."""
    others = [part for part in parts if part.name not in colours]
    said = ", ".join(f"{both_ends(part.name)} {part.text}" for part in others)
    return [StackPart(OTHER, sum(part.length for part in others), one_line(said, 200))] if others else []


def _make_layers(
    axis: str,
    layout: RowLayout,
    colours: Mapping[str, str],
    tooltip: Sequence[tuple[str, str]],
    *,
    has_legend: bool,
) -> list[Spec]:
    x: Spec = {"field": "start", "type": "quantitative", "title": axis, "scale": {"zero": True, "nice": False}}
    ticks = {"expr": "max(3, min(9, floor(width / 70)))"}
    x["axis"] = {"format": ".12~g", "tickCount": ticks, "labelFlush": True}
    middle = layout.middle_px
    top, bottom = (
        layout.at(middle - BAR_PX / 2),
        {"field": "row", "bandPosition": (middle + BAR_PX / 2) / layout.row_px},
    )
    scale = {"domain": list(shorten_distinctly(colours, PART_CELLS).values()), "range": list(colours.values())}
    colour: Spec = {"field": "kind", "type": "nominal", "scale": scale, "legend": None}
    if has_legend:
        colour["legend"] = make_legend(scale["domain"])
    told = [{"field": name, "title": heading, "type": "nominal"} for name, heading in tooltip]
    encoding = {"x": x, "x2": {"field": "end"}, "y": top, "y2": bottom, "color": colour, "tooltip": told}
    words = {"field": "kind", "type": "nominal"}
    fits = "scale('x', datum.end) - scale('x', datum.start) >= datum.words_px"
    inside = {"x": {"field": "middle", "type": "quantitative"}, "y": layout.at(middle)}
    return [
        *make_upright_lines("marks"),
        *make_row_texts(layout, "bars"),
        {
            "data": {"name": "parts"},
            "mark": {"type": "rect", "x2Offset": -1},
            "encoding": {**encoding, "description": {"field": "description"}},
        },
        *(
            {
                "name": f"on_{data}",
                "data": {"name": data},
                "mark": {"type": "text", "aria": False},
                "encoding": {**inside, "text": {"condition": {"test": fits, **words}, "value": ""}},
            }
            for data in ("dark", "light")
        ),
    ]
