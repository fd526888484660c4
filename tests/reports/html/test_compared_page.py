from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from pytest_attnperf.records.card_offsets import CardOffset, MeasuredCard
from pytest_attnperf.reports.html.compared_page import DRAWN, LISTED, STRIP, build_card_sections, build_sections
from pytest_attnperf.reports.html.document import render_document
from pytest_attnperf.reports.run.compared import ComparedRow, GroupRow, TwoTimersRow
from tests.reports.html.conftest import HOSTILE

pytest.importorskip("jinja2", reason="the HTML report needs jinja2")
pytest.importorskip("vl_convert", reason="the HTML report needs vl_convert")

Check = Callable[[str, int], None]
ROW = ComparedRow("prefill/triton.flash/prefill-b4-s512", "slower", 100.0, 105.0, 1.05, (1.04, 1.06), 1.02)
SLOW = MeasuredCard("GPU-a", 9, 1800.0, "700", "60", "", CardOffset("GPU-a", 0.03, (0.02, 0.04), 9, slow=True))


def test_each_case_is_a_dot_with_its_interval(check_page: Check, read_tooltip: Any) -> None:
    """The chart has change, interval, limit and --fail-above; the tooltip and the table have the same figures."""
    (section,) = build_sections([ROW, replace(ROW, name="other", looks="same", change=1.0)], fail_above=3.0)
    (figure,) = section.figures
    assert [(datum["at"], datum["low"], datum["high"], datum["limit"]) for datum in figure.data["dots"]] == [
        (5.0, 4.0, 6.0, 2.0), (0.0, 4.0, 6.0, 2.0)
    ]  # fmt: skip
    assert figure.data["marks"] == [{"at": 3.0, "label": "--fail-above 3 %"}]
    assert section.tables[0].rows[0][1:] == ("slower", "100.0", "105.0", "+5.0 %", "+4.0 % .. +6.0 %", "+2.0 %")
    check_page(render_document("Compared", [section]), 1)
    told = read_tooltip(".mark-symbol.role-mark path")
    assert (told["change"], told["first"], told["limit"]) == ("+5.0 %, looks slower", "100.0 us", "+2.0 %")


def test_far_changes_are_drawn_as_ratios() -> None:
    """A case that takes a hundred times as long does not hide the others: the axis is logarithmic."""
    (section,) = build_sections([replace(ROW, change=100.0), ROW], fail_above=3.0)
    figure = section.figures[0]
    assert [datum["at"] for datum in figure.data["dots"]] == [100.0, 1.05]
    assert figure.data["origins"] == [{"at": 1.0}]
    assert figure.data["marks"][0]["at"] == 1.03


@pytest.mark.parametrize("by", ["backend", "suite"])
def test_groups_take_the_place_of_cases(check_page: Check, by: str) -> None:
    """--by backend and --by suite show a dot for each, and their counts."""
    groups = [GroupRow("triton.flash", 1.02, 9, 2, 1), GroupRow("ck", 0.97, 9, 0, 3)]
    sections = build_sections([], groups, by=by)
    assert sections[0].tables[0].rows[0] == ("triton.flash", "9", "+2.0 %", "2", "1")
    check_page(render_document("Compared", sections), 1)


def test_nothing_compared_has_words_and_no_chart(check_page: Check) -> None:
    """Empty sides: the lead says it; two timers and cases of one side only are tables."""
    timed = [TwoTimersRow("a", ("graph", "events"), 1.0, 3.0)]
    sections = build_sections([], two_timers=timed, lead=["no case could be compared"], absent={"Only here": ["x"]})
    assert [table.caption for table in sections[0].tables] == ["Timed by two timers, so not compared", "Only here"]
    check_page(render_document("Compared", sections), 0)


def test_ten_thousand_cases_stay_a_page() -> None:
    """The chart has the first ones, the table more, and both say how many there are."""
    cases = [replace(ROW, name=f"case {number}") for number in range(10_000)]
    (section,) = build_sections(cases)
    assert len(section.figures[0].data["dots"]) == DRAWN
    assert f"{10_000 - DRAWN} more" in section.figures[0].caption
    assert len(section.tables[0].rows) == LISTED
    assert "of 10000" in section.tables[0].caption
    assert len(render_document("Compared", [section])) < 3_500_000


def test_hostile_names_stay_names(check_page: Check) -> None:
    """Cases, timers, cards and devices with scripts, control characters and lone surrogates in their names."""
    cases = [replace(ROW, name=text, interval95=None, limit=None) for text in HOSTILE]
    timed = [TwoTimersRow(text, (text, text), 1.0, 3.0) for text in HOSTILE]
    cards = [MeasuredCard(text, 1, power_cap_w=text, partition=text) for text in HOSTILE]
    sections = build_sections(cases, two_timers=timed, lead=HOSTILE, absent={HOSTILE[0]: HOSTILE})
    check_page(render_document("Compared", [*sections, *build_card_sections([(HOSTILE[0], cards)], {})]), 2)


def test_cards_are_strips_of_their_cases(check_page: Check, read_tooltip: Any) -> None:
    """A card has its offset, its interval and at most STRIP of its cases; one without an offset says so."""
    alone = MeasuredCard("GPU-b", 2)
    cases = {"sm_90/h200": {"GPU-a": [number / 10_000 for number in range(500)]}}
    (section,) = build_card_sections([("sm_90/h200", (SLOW, alone)), ("empty", ())], cases)
    (figure,) = section.figures
    assert [(datum["text"], datum["at"]) for datum in figure.data["dots"]] == [
        ("SLOW +3.0 %", 3.0), ("too few cases", None)
    ]  # fmt: skip
    assert len(figure.data["strips"]) == STRIP
    check_page(render_document("Cards", [section]), 1)
    assert read_tooltip(".mark-symbol.role-mark path[aria-label]")["95 % interval"] == "+2.0 % .. +4.0 %"
