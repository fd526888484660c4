from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from pytest_attnperf.records import CaseKey, Verdict
from pytest_attnperf.reports.html.document import render_document
from pytest_attnperf.reports.html.ladder_page import DRAWN, LADDERS, build_sections
from pytest_attnperf.reports.run.ladder_cases import Ladder
from pytest_attnperf.reports.text.wide_tables import Table
from pytest_attnperf.results import CaseResult
from tests.reports.html.conftest import HOSTILE

pytest.importorskip("jinja2", reason="the HTML report needs jinja2")
pytest.importorskip("vl_convert", reason="the HTML report needs vl_convert")

Check = Callable[[str, int], None]


def case(backend: str, us: float | None) -> CaseResult:
    """A case of the ladder; without a time it is unsupported."""
    verdict = Verdict.RECORDED if us else Verdict.UNSUPPORTED
    return CaseResult(CaseKey("hip_ladder", backend, "prefill-b1"), "n", verdict, "", median_us=us)


CASES = (case("hip.flash", 20.0), case("hip.naive", 100.0), case("hip.wgmma", None), case("native.sdpa_flash", 10.0))
LADDER = Ladder("prefill-b1", CASES, 100.0, "native.sdpa_flash", 10.0)
TABLE = Table("prefill-b1", "backend", (), (("hip.flash",),), ("hip.wgmma: UNSUPPORTED",))


def test_bars_go_from_slow_to_fast_with_their_ideas(check_page: Check, read_tooltip: Any) -> None:
    """Speedups over the base, the reference as a line, what was not timed last, and the tables folded below."""
    ideas = {"hip.flash": "online softmax: no score matrix"}
    tables = {"prefill-b1": [TABLE], "": [replace(TABLE, title="gfx942, compiled")]}
    source, section = build_sections([LADDER], tables, base="hip.naive", lead=["H200"], ideas=ideas)
    (figure,) = section.figures
    assert [(bar["name"], bar["text"]) for bar in figure.data["bars"]] == [
        ("hip.naive", "1.00x"),
        ("hip.flash: online softmax: no score matrix", "5.00x"),
        ("native.sdpa_flash", "10.0x"),
        ("hip.wgmma", "UNSUPPORTED"),
    ]
    assert figure.data["marks"] == [{"at": 10.0, "label": "native.sdpa_flash"}]
    assert [part["kind"] for part in figure.data["parts"]] == ["step", "step", "reference"]
    assert (section.lead, section.folded) == (("hip.wgmma: UNSUPPORTED",), True)
    assert [table.caption for table in source.tables] == ["gfx942, compiled"]
    check_page(render_document("Ladder", [source, section]), 1)
    told = read_tooltip('.mark-rect path[aria-label^="hip.flash"]')
    assert (told["time"], told["speedup"], told["of the reference's speed"]) == ("20.00 us", "5.00x", "50 %")


def test_times_are_shown_where_the_base_has_none(check_page: Check) -> None:
    """Without a time of the base there is no speedup: bars are times, and the caption says so."""
    section = build_sections([replace(LADDER, base_us=None)], {}, base="hip.naive")[1]
    (figure,) = section.figures
    assert figure.title == "Time of each backend"
    assert "Shorter is faster; hip.naive has no time here." in figure.caption
    assert [part["end"] for part in figure.data["parts"]] == [100.0, 20.0, 10.0]
    check_page(render_document("Ladder", [section]), 1)


def test_page_is_bounded() -> None:
    """Of many workloads and backends the first are shown, and the page says what is not."""
    many = replace(LADDER, cases=tuple(case(f"b{number}", 1.0 + number) for number in range(100)))
    source, first, *others = build_sections([many] * 100, {}, base="hip.naive")
    assert len(others) + 1 == LADDERS
    assert f"the first {LADDERS} of 100 workloads" in source.lead[-1]
    assert len(first.figures[0].data["bars"]) == DRAWN
    assert f"Not drawn: {100 - DRAWN}." in first.figures[0].caption


def test_hostile_names_stay_names(check_page: Check) -> None:
    """Backends, ideas, workloads and tables that are scripts, control characters or lone surrogates."""
    cases = tuple(case(text, 1.0 + number) for number, text in enumerate(HOSTILE))
    ladder = Ladder(HOSTILE[0], cases, 2.0, HOSTILE[1], 2.0)
    table = Table(HOSTILE[0], HOSTILE[1], (), tuple((text,) for text in HOSTILE), HOSTILE)
    sections = build_sections(
        [ladder], {HOSTILE[0]: [table]}, base=HOSTILE[0], lead=HOSTILE, ideas={text: text for text in HOSTILE}
    )
    check_page(render_document("Ladder", sections), 1)
