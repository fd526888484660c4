from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from pytest_attnperf.reports.html.charts import make_base
from pytest_attnperf.reports.html.document import render_document
from pytest_attnperf.reports.html.sections import Figure, PageTable, Section, TableHead
from tests.reports.html.conftest import messages

pytest.importorskip("jinja2", reason="the HTML report needs jinja2")
pytest.importorskip("vl_convert", reason="the HTML report needs vl_convert")

Open = Callable[..., None]


def bars(values: list[dict[str, Any]]) -> Figure:
    """Bars of a value by name."""
    encoding = {
        "x": {"field": "us", "type": "quantitative"},
        "y": {"field": "name", "type": "nominal", "sort": None},
        "tooltip": [{"field": "name", "type": "nominal"}, {"field": "us", "type": "nominal"}],
    }
    spec = make_base("Times by name", data={"name": "bars"}, mark={"type": "bar"}, encoding=encoding)
    return Figure("Times", spec, {"bars": values}, "Shorter is better.")


def section(name: str, text: str, **more: Any) -> Section:
    """A section with a chart and a table, whose every text is the same."""
    table = PageTable(text, (TableHead(text), TableHead("us", True, text)), ((text, "3.1"),))
    return Section(name, text, (text,), (bars([{"name": text, "us": 3.1}]),), (table,), **more)


def test_every_section_is_drawn_and_reachable(browser: Any, open_page: Open) -> None:
    """Each has its heading, its chart, its table and a link; the browser has nothing to say."""
    open_page(render_document("A page", [section("one", "First"), section("two", "Second", short="2nd")]))
    count = "return document.querySelectorAll(arguments[0]).length"
    assert [browser.execute_script(count, one) for one in ("main section", ".chart svg", "main table")] == [2, 2, 2]
    links = browser.execute_script("return [...document.querySelectorAll('nav a')].map((a) => [a.hash, a.textContent])")
    assert links == [["#one", "First"], ["#two", "2nd"]]
    assert messages(browser) == []


def test_hostile_texts_stay_texts(browser: Any, open_page: Open, hostile: Any) -> None:
    """No text of a section runs as a script, in a chart, a table or a heading."""
    sections = [section(f"s{index}", case.summary) for index, case in enumerate(hostile.cases[:7])]
    open_page(render_document(hostile.cases[0].summary, sections))
    assert browser.execute_script("return window.pwned") is None
    assert messages(browser) == []


def test_page_without_charts_carries_no_chart_library(read_page: Callable[[str], Any]) -> None:
    """A page of tables alone is small, and its policy allows one script."""
    html = render_document(
        "A page", [Section("one", "First", tables=(PageTable("all", (TableHead("name"),), (("a",),)),))]
    )
    assert len(html) < 40_000
    assert read_page(html).metas["Content-Security-Policy"].count("script-src 'sha256-") == 1
    assert "vegaEmbed = " not in html


@pytest.mark.parametrize("folded", [True, False])
def test_folded_tables_are_behind_a_heading(read_page: Callable[[str], Any], folded: bool) -> None:
    """Tables whose figures a chart shows can be folded away, and are there either way."""
    parsed = read_page(render_document("A page", [section("one", "First", folded=folded)]))
    assert parsed.tags["details"] == int(folded)
    assert parsed.tags["table"] == 1


def test_same_sections_give_the_same_bytes() -> None:
    """Nothing of the moment or the machine is in the page."""
    assert render_document("A page", [section("one", "x")]) == render_document("A page", [section("one", "x")])
