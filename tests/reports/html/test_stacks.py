from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from pytest_attnperf.reports.html.charts import COLOURS
from pytest_attnperf.reports.html.document import render_document
from pytest_attnperf.reports.html.row_layout import UprightLine
from pytest_attnperf.reports.html.sections import Section
from pytest_attnperf.reports.html.workload_sections import OTHER, StackPart, StackRow, make_stacks
from tests.reports.html.conftest import HOSTILE

pytest.importorskip("jinja2", reason="the HTML report needs jinja2")
pytest.importorskip("vl_convert", reason="the HTML report needs vl_convert")

Check = Callable[[str, int], None]


def bar(name: str, **lengths: float) -> StackRow:
    """A bar of parts."""
    parts = tuple(StackPart(part, us, f"{us:g} us") for part, us in lengths.items())
    return StackRow(name, parts, f"{sum(lengths.values()):g} us", {"whole call": "9 us"})


def page(*rows: StackRow, **more: Any) -> str:
    """A document with one chart of bars."""
    return render_document("Bars", [Section("bars", "Bars", figures=(make_stacks("Bars", "us", rows, **more),))])


def test_parts_stand_behind_each_other(check_page: Check, read_tooltip: Any, browser: Any) -> None:
    """Each part begins where the one before ends; wide parts have their name, and the tooltip the share."""
    rows = (bar("layer.hip", norm=1.0, attention=6.0, mlp=3.0), bar("layer.triton", attention=4.0))
    data = make_stacks("Bars", "us", rows).data["parts"]
    assert [(part["kind"], part["start"], part["end"]) for part in data] == [
        ("norm", 0, 1), ("attention", 1, 7), ("mlp", 7, 10), ("attention", 0, 4)
    ]  # fmt: skip
    check_page(page(*rows, marks=[UprightLine(5.0, "reference")]), 1)
    told = read_tooltip('.mark-rect path[aria-label^="layer.hip, attention"]')
    assert told == {
        "name": "layer.hip", "part": "attention", "length": "6 us", "share": "60 %", "whole call": "9 us"
    }  # fmt: skip
    texts = browser.execute_script("return [...document.querySelectorAll('.role-mark text')].map((t) => t.textContent)")
    assert {"attention", "layer.triton", "4 us", "reference"} <= set(texts)


def test_short_parts_are_one_other(check_page: Check) -> None:
    """Beyond the colours the shortest kinds are one grey part, the last of its bar, with their names in the tooltip."""
    rows = (bar("call", **{f"stage{number}": float(20 - number) for number in range(12)}),)
    parts = make_stacks("Bars", "us", rows).data["parts"]
    assert [part["kind"] for part in parts] == [*(f"stage{number}" for number in range(7)), OTHER]
    assert parts[-1]["length"].startswith("stage7 13 us, stage8 12 us")
    check_page(page(*rows), 1)


def test_named_colours_have_no_legend(check_page: Check, browser: Any) -> None:
    """Bars of one part take the colour of their kind, and nothing is written into them."""
    colours = {"step": COLOURS[0], "reference": COLOURS[1]}
    check_page(page(bar("a", step=3.0), bar("b", reference=2.0), colours=colours), 1)
    assert browser.execute_script("return document.querySelectorAll('.role-legend').length") == 0


@pytest.mark.parametrize(
    "rows",
    [
        (StackRow("nothing measured", (), "UNSUPPORTED"),),
        (bar("one", only=1.0),),
        (bar("zero", none=0.0),),
        tuple(bar(f"{text} {number}", **{text: 1.0, "n" * 300: 2.0}) for number, text in enumerate(HOSTILE)),
    ],
)
def test_odd_bars_are_drawn_without_complaint(check_page: Check, rows: tuple[StackRow, ...]) -> None:
    """A bar without parts, one of length 0, hostile and very long names: nothing is cut, runs or is said."""
    check_page(page(bar("other", only=1.0), *rows), 1)
