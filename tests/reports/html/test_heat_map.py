from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from pytest_attnperf.reports.html.charts import COLOURS
from pytest_attnperf.reports.html.document import render_document
from pytest_attnperf.reports.html.heat_map import Cell, draw_map
from pytest_attnperf.reports.html.sections import Section
from tests.reports.html.conftest import HOSTILE

pytest.importorskip("jinja2", reason="the HTML report needs jinja2")
pytest.importorskip("vl_convert", reason="the HTML report needs vl_convert")

Check = Callable[[str, int], None]
CELLS = (
    Cell(0, "512", "ck", "+3.0 %", "full", COLOURS[0], {"backend": "ck"}),
    Cell(0, "1024", "ck", "tie", "pale", COLOURS[0], {"backend": "ck"}),
    Cell(1, "512", "triton.flash_varlen_persistent", "only one", "outline", COLOURS[1], {"backend": "triton"}),
)
TEXTS = "return [...document.querySelectorAll('.role-mark.mark-text text')].map((t) => t.textContent).filter(Boolean)"


def page(cells: tuple[Cell, ...], columns: list[str], rows: list[str]) -> str:
    """A document with one map."""
    colours = {cell.name: cell.colour for cell in cells}
    figure = draw_map("Map", "sequence length", columns, rows, cells, colours)
    return render_document("Map", [Section("map", "Map", figures=(figure,))])


def test_cells_say_what_they_are(check_page: Check, read_tooltip: Any, browser: Any, open_page: Any) -> None:
    """Wide cells have a name and a figure, narrow ones what fits; the tooltip has the rest."""
    html = page(CELLS, ["512", "1024"], ["d64", "d256"])
    check_page(html, 1)
    assert read_tooltip(".mark-rect.role-mark path[aria-label^=ck]") == {"backend": "ck"}
    narrow = browser.execute_script(TEXTS)
    browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
    open_page(html)
    wide = browser.execute_script(TEXTS)
    assert sorted(wide) == sorted(
        ["d64", "d256", "ck", "ck", "+3.0 %", "tie", "only one", "triton.flash_varlen_persistent"]
    )
    assert set(wide) - set(narrow) == {"triton.flash_varlen_persistent"}


def test_clear_tied_alone_and_unmeasured_differ(browser: Any, open_page: Any) -> None:
    """Full colour, pale, an outline, and dots: four looks for four states, without words."""
    open_page(page(CELLS, ["512", "1024"], ["d64", "d256"]))
    looks = browser.execute_script(
        """return [...document.querySelectorAll('.mark-rect.role-mark path')].map((p) => ['fill', 'fill-opacity',
        'stroke', 'stroke-dasharray'].map((name) => p.getAttribute(name)).join(' '))"""
    )
    assert len(looks) == 4
    assert len(set(looks)) == 4


@pytest.mark.parametrize(
    ("cells", "columns", "rows"),
    [
        ((), ["512"], ["d64"]),
        (CELLS[:1], ["512"], ["d64"]),
        ((Cell(0, "", "ck", "tie", "pale", COLOURS[0]),), [""], ["packed batch"]),
        (
            tuple(Cell(n, "512", text, "+1.0 %", "full", COLOURS[0]) for n, text in enumerate(HOSTILE)),
            ["512"],
            [f"{n} {text}" for n, text in enumerate(HOSTILE)],
        ),
        (
            tuple(Cell(0, str(n), "n" * 200, "+1.0 %", "full", COLOURS[4]) for n in range(16)),
            [str(n) for n in range(16)],
            ["r" * 300],
        ),
    ],
)
def test_odd_maps_are_drawn_without_complaint(
    check_page: Check, cells: tuple[Cell, ...], columns: list[str], rows: list[str]
) -> None:
    """No cell, one cell, no axis, hostile and long names, narrow cells: nothing is cut, runs or is said."""
    check_page(page(cells, columns, rows), 1)
