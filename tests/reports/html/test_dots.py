from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from pytest_attnperf.reports.html.document import render_document
from pytest_attnperf.reports.html.dots import DotKind, DotRow, make_dots
from pytest_attnperf.reports.html.row_layout import UprightLine
from pytest_attnperf.reports.html.sections import Figure, Section
from tests.reports.html.conftest import HOSTILE

pytest.importorskip("jinja2", reason="the HTML report needs jinja2")
pytest.importorskip("vl_convert", reason="the HTML report needs vl_convert")

Check = Callable[[str, int], None]
KINDS = {"slower": DotKind(1, 2), "": DotKind()}
ROWS = (
    DotRow("prefill/triton.flash/prefill-b4-s512-h8-d256-f16-causal", 4.0, "+4.0 %", (3.0, 5.5), 2.5, "slower"),
    DotRow("decode", -1.0, "-1.0 %", strip=(-2.0, -1.0, 0.5), told={"cases": "3"}),
    DotRow("never measured", None, "too few cases"),
)


def page(*figures: Figure) -> str:
    """A document with these charts."""
    return render_document("Dots", [Section("dots", "Dots", figures=figures)])


def draw(*rows: DotRow, **more: Any) -> Figure:
    """A chart of changes."""
    return make_dots("Changes", "change (%)", rows, kinds=KINDS, **more)


def test_rows_are_drawn_with_names_values_and_intervals(check_page: Check, read_tooltip: Any, browser: Any) -> None:
    """Every row has its name and its value as text; the tooltip of a dot has what the row says further."""
    check_page(page(draw(*ROWS, origin=0.0, marks=[UprightLine(3.0, "limit 3 %")], caption="How to read it.")), 1)
    texts = browser.execute_script("return [...document.querySelectorAll('.chart svg text')].map((t) => t.textContent)")
    assert {"decode", "+4.0 %", "too few cases", "limit 3 %", "change (%)"} <= set(texts)
    assert read_tooltip(".mark-symbol.role-mark path[aria-label^=decode]") == {"name": "decode", "cases": "3"}


@pytest.mark.parametrize(
    "rows",
    [
        (),
        (DotRow("alone", 1.0),),
        (DotRow("none", None),),
        (DotRow("a", float("nan"), "nan", (float("nan"), 1.0)), DotRow("b", 1e300, "x", (-float("inf"), 1.0))),
        tuple(DotRow(f"{text} {index}", float(index), "+1.0 %") for index, text in enumerate(HOSTILE)),
        tuple(DotRow(f"{'n' * 300}{index}", 1.0, "+1.0 %") for index in range(3)),
    ],
)
def test_odd_rows_are_drawn_without_complaint(check_page: Check, rows: tuple[DotRow, ...]) -> None:
    """No row, one row, rows without a finite value, hostile and very long names: nothing is cut, runs or is said."""
    check_page(page(draw(*rows, origin=0.0)), 1)


def test_far_limit_is_not_drawn() -> None:
    """One limit far from all values would squeeze them; limits near them are drawn."""
    rows = [DotRow("near", 1.0, limit=2.0, interval=(0.0, 1.5)), DotRow("far", 0.0, limit=40.0)]
    assert [datum["name"] for datum in draw(*rows).data["limits"]] == ["near"]


def test_log_axis_for_ratios(check_page: Check) -> None:
    """Ratios from a hundredth to a hundredfold fit on one axis."""
    check_page(page(draw(DotRow("a", 0.01, "0.01x"), DotRow("b", 100.0, "100x"), is_log=True, origin=1.0)), 1)
