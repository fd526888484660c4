from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from pytest_attnperf.records import CaseKey, Verdict
from pytest_attnperf.records.stages import Breakdown, StageTime
from pytest_attnperf.reports.html.document import render_document
from pytest_attnperf.reports.html.stages_page import WORKLOADS, build_sections
from pytest_attnperf.reports.text.wide_tables import Table
from pytest_attnperf.results import CaseResult
from tests.reports.html.conftest import HOSTILE

pytest.importorskip("jinja2", reason="the HTML report needs jinja2")
pytest.importorskip("vl_convert", reason="the HTML report needs vl_convert")

Check = Callable[[str, int], None]


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
    source, section = build_sections({"block-b1": cases}, {"block-b1": [table]}, {}, lead=["device: H200"])
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
    source, section = build_sections({}, {}, {"prefill-b1": bars})
    assert [(bar["name"], bar["text"]) for bar in section.figures[0].data["bars"]] == [
        ("hip.best", "1.000 us"), ("hip.staged", "5.000 us"), ("none", "-")
    ]  # fmt: skip
    check_page(render_document("Stages", [source, section]), 1)


def test_page_is_bounded() -> None:
    """Of many workloads the first are shown, and the page says so."""
    groups = {f"block-b{number}": [call("a", 1.0)] for number in range(100)}
    source, *sections = build_sections(groups, {}, {})
    assert len(sections) == WORKLOADS
    assert f"the first {WORKLOADS} of 100" in source.lead[0]


def test_hostile_names_stay_names(check_page: Check) -> None:
    """Backends, stages and workloads that are scripts, control characters or lone surrogates."""
    groups = {HOSTILE[0]: [call(text, 3.0, **{text.replace(".", ""): 2.0}) for text in HOSTILE]}
    staged = {HOSTILE[1]: [(text, {text: 1.0}) for text in HOSTILE]}
    check_page(render_document("Stages", build_sections(groups, {}, staged, lead=HOSTILE)), 2)
