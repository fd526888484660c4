"""Names inside charts: whole where the chart is wide enough, else cut in their middle; never over a neighbour.

A chart's width is known in the browser only. So a label carries its own estimated width, and Vega compares the two.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

from pytest_attnperf.reports.html.embedding import Json
from pytest_attnperf.reports.text.text_width import CUT, both_ends, display_width, shorten_distinctly

PX_PER_CELL = 7.0
"""Estimated width of a cell of text of 11 px in a wide font."""

WIDE, WIDE_CELLS = frozenset("mwMW@%=<>+#&~^"), 1.45
NARROW, NARROW_CELLS = frozenset("ijlI.,:;|/\\'!()[]{}\" ft-r"), 0.65
"""Letters that are wider or narrower than others, and how many cells each takes."""

SEPARATORS = frozenset("/-_. ,;:=")
"""Characters behind which a name is broken."""

LEAST_PX = 6.5
"""Fewest pixels for a cell of text: half of a name may have wider letters than the whole."""

LEGEND_PX = 36
"""Width of an entry of a legend without its words."""

NARROWEST_PX = 318
"""Width of the plot of a chart on a page of 360 px."""


def estimate_px(text: str) -> int:
    """Returns about how many pixels a chart's text of 11 px takes."""
    wide, narrow = (sum(letter in letters for letter in text) for letters in (WIDE, NARROW))
    cells = display_width(text) + wide * (WIDE_CELLS - 1) - narrow * (1 - NARROW_CELLS)
    return math.ceil(cells * PX_PER_CELL)


def count_cells(px: int, names: Sequence[str] = ()) -> int:
    """Returns how many cells of text fit into `px` pixels, at least one; fewer if a name has many wide letters."""
    shown = [both_ends(name) for name in names]
    widest = max((estimate_px(name) / max(1, display_width(name)) for name in shown), default=PX_PER_CELL)
    return max(1, int(px / max(1.05 * widest, LEAST_PX)))


def make_labels(names: Iterable[str], width: int) -> dict[str, dict[str, Json]]:
    """Returns name -> fields of a label: 'name' whole, 'name_px' its width, and 'short', one or two lines of at most
    `width` cells. Two names never have one short form."""
    shown = shorten_distinctly(names, max(width, 2 * width - 2 * len(CUT)))
    return {
        name: {"name": both_ends(name), "name_px": estimate_px(both_ends(name)), "short": _break_in_two(short, width)}
        for name, short in shown.items()
    }


def _break_in_two(text: str, width: int) -> list[str]:
    """Returns the text in one line if it fits, else in two, broken behind the mark of a cut, or else a separator."""
    if display_width(text) <= width:
        return [text]
    fitting = [end for end in range(1, len(text)) if display_width(text[:end]) <= width]
    most = max(fitting, default=1)
    broken = [end for end in fitting if text[end - 1] in SEPARATORS and display_width(text[end:]) <= width]
    cut = text.find(CUT) + len(CUT)
    place = cut if cut in fitting and CUT in text else max(broken, default=most)
    return [text[:place], text[place:]]


def encode_label(beside_px: int = 0) -> dict[str, Any]:
    """Returns Vega-Lite's encoding of the text of `make_labels`: whole where the chart has room for it and for
    `beside_px` more."""
    return {
        "condition": {"test": f"width > datum.name_px + {beside_px}", "field": "name", "type": "nominal"},
        "field": "short",
        "type": "nominal",
    }


def make_legend(names: Sequence[str]) -> dict[str, Any]:
    """Returns Vega-Lite's legend of squares above a chart, with as many columns as the widest of `names` allows."""
    room = max(map(estimate_px, names), default=0) + LEGEND_PX
    columns = {"expr": f"max(1, floor(width / {room}))"}
    return {"title": None, "orient": "top", "symbolType": "square", "columns": columns, "labelLimit": 300}
