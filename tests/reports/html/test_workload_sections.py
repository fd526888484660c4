from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from pytest_attnperf.records import CaseKey, Verdict
from pytest_attnperf.records.stages import Breakdown, StageTime
from pytest_attnperf.reports.html.document import render_document
from pytest_attnperf.reports.html.workload_sections import (
    DRAWN,
    WORKLOADS,
    build_ladder_sections,
    build_stage_sections,
)
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
    source, section = build_ladder_sections([LADDER], tables, base="hip.naive", lead=["H200"], ideas=ideas)
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
    section = build_ladder_sections([replace(LADDER, base_us=None)], {}, base="hip.naive")[1]
    (figure,) = section.figures
    assert figure.title == "Time of each backend"
    assert "Shorter is faster; hip.naive has no time here." in figure.caption
    assert [part["end"] for part in figure.data["parts"]] == [100.0, 20.0, 10.0]
    check_page(render_document("Ladder", [section]), 1)


def test_page_is_bounded() -> None:
    """Of many workloads and backends the first are shown, and the page says what is not."""
    many = replace(LADDER, cases=tuple(case(f"b{number}", 1.0 + number) for number in range(100)))
    source, first, *others = build_ladder_sections([many] * 100, {}, base="hip.naive")
    assert len(others) + 1 == WORKLOADS
    assert f"the first {WORKLOADS} of 100 workloads" in source.lead[-1]
    assert len(first.figures[0].data["bars"]) == DRAWN
    assert f"Not drawn: {100 - DRAWN}." in first.figures[0].caption


def test_hostile_names_stay_names(check_page: Check) -> None:
    """Backends, ideas, workloads and tables that are scripts, control characters or lone surrogates."""
    cases = tuple(case(text, 1.0 + number) for number, text in enumerate(HOSTILE))
    ladder = Ladder(HOSTILE[0], cases, 2.0, HOSTILE[1], 2.0)
    table = Table(HOSTILE[0], HOSTILE[1], (), tuple((text,) for text in HOSTILE), HOSTILE)
    sections = build_ladder_sections(
        [ladder], {HOSTILE[0]: [table]}, base=HOSTILE[0], lead=HOSTILE, ideas={text: text for text in HOSTILE}
    )
    check_page(render_document("Ladder", sections), 1)


def call(backend: str, call_us: float, **stages: float) -> CaseResult:
    """A case whose call has these stages; '__' in a name is a dot."""
    times = tuple(StageTime(name.replace("__", "."), us) for name, us in stages.items())
    found = Breakdown(times, call_us, "graph", 12.0, 3.0)
    key = CaseKey("layer", backend, "block-b1")
    return CaseResult(key, "n", Verdict.RECORDED, "", median_us=call_us, breakdown=found)


def test_calls_are_bars_of_their_stages(check_page: Check, read_tooltip: Any) -> None:
    """Fastest first; parts of a stage are one, a stage that launches nothing has no part, a call without stages one."""
    cases = [
        call("layer.plain", 62.0, qkv=30.0, split=0.0, attention__scores=10.0, attention__values=20.0),
        call("layer.fused", 31.0),
    ]
    table = Table("block-b1", "backend", (), (("layer.plain",),), ("launch nothing here: split",))
    source, section = build_stage_sections({"block-b1": cases}, {"block-b1": [table]}, {}, lead=["device: H200"])
    (figure,) = section.figures
    assert [(bar["name"], bar["text"]) for bar in figure.data["bars"]] == [
        ("layer.fused", "31.00 us"), ("layer.plain", "62.00 us")
    ]  # fmt: skip
    assert [(part["kind"], part["end"]) for part in figure.data["parts"]] == [
        ("whole call", 31.0), ("qkv", 30.0), ("attention", 60.0)
    ]  # fmt: skip
    assert section.lead == ("launch nothing here: split",)
    check_page(render_document("Stages", [source, section]), 1)
    told = read_tooltip('.mark-rect path[aria-label^="layer.plain, qkv"]')
    assert (told["length"], told["share"], told["sum of stages over it"]) == ("30.00 us", "50 %", "97 %")


def test_staged_attention_stands_beside_fused(check_page: Check) -> None:
    """A bar of stages for each library, one part for each whole call; a library without any time is last."""
    bars = [("hip.staged", {"qk_scores": 2.0, "row_softmax": 3.0}), ("none", {}), ("hip.best", {"whole call": 1.0})]
    source, section = build_stage_sections({}, {}, {"prefill-b1": bars})
    assert [(bar["name"], bar["text"]) for bar in section.figures[0].data["bars"]] == [
        ("hip.best", "1.000 us"), ("hip.staged", "5.000 us"), ("none", "-")
    ]  # fmt: skip
    check_page(render_document("Stages", [source, section]), 1)


def test_page_of_stages_is_bounded() -> None:
    """Of many workloads the first are shown, and the page says so."""
    groups = {f"block-b{number}": [call("a", 1.0)] for number in range(100)}
    source, *sections = build_stage_sections(groups, {}, {})
    assert len(sections) == WORKLOADS
    assert f"the first {WORKLOADS} of 100" in source.lead[0]


def test_hostile_names_of_stages_stay_names(check_page: Check) -> None:
    """Backends, stages and workloads that are scripts, control characters or lone surrogates."""
    groups = {HOSTILE[0]: [call(text, 3.0, **{text.replace(".", ""): 2.0}) for text in HOSTILE]}
    staged = {HOSTILE[1]: [(text, {text: 1.0}) for text in HOSTILE]}
    check_page(render_document("Stages", build_stage_sections(groups, {}, staged, lead=HOSTILE)), 2)
