from __future__ import annotations

import json
from typing import Any

import pytest

from pytest_attnperf.reports.html.charts import COLOURS, SHAPES, build_config, case_charts
from tests.reports.html.conftest import list_fields

DOT = {"row": "stored", "at": 0.1, "name": "stored process 1", "text": "26.10 us", "description": "d"}
BLOCK = {"us": 26.1, "mhz": 1830.0, "process": "p", "name": "p", "look": "first look", "description": "d"}
CASE_DATA: dict[str, list[dict[str, Any]]] = {
    "dots": [DOT, {**DOT, "row": "first look", "at": 2.0}],
    "marks": [
        {"kind": "limit", "at": 2.0, "text": "+2.0 %", "label": "limit +2.0 %"},
        {"kind": "change", "at": 1.0, "low": 0.5, "high": 1.5, "text": "+1.0 %"},
    ],
    "blocks": [{**BLOCK, "block": 1}, {**BLOCK, "block": 2, "us": 26.3}],
    "points": [
        {"at": 1e12 + day * 1e8, "us": 10.0 + day, "low": 9.0, "high": 12.0, "text": "10 us", "description": "d"}
        for day in range(3)
    ],
    "changes": [{"at": 1e12 + 1e8, "change": "+5.0 %", "commits": "a -> b", "environment": "", "started": "x"}],
}


@pytest.mark.parametrize("name", list(case_charts()))
def test_case_chart_is_drawn(name: str) -> None:
    """Every chart of a case compiles and draws what it is given."""
    vl_convert = pytest.importorskip("vl_convert", reason="drawing needs vl_convert")
    spec = {**case_charts()[name]["spec"], "datasets": CASE_DATA, "width": 500}
    svg = vl_convert.vegalite_to_svg(spec, config=build_config())
    least = {"history": 3}.get(name, 2)
    assert svg.count('aria-roledescription="point"') >= least
    assert (">limit +2.0 %<" in svg) is (name == "strip")


def test_charts_load_nothing_and_know_their_fields() -> None:
    """No specification names an address to load, and every field read is one that the data has."""
    known = {name for rows in CASE_DATA.values() for row in rows for name in row}
    for chart in case_charts().values():
        assert '"url"' not in json.dumps(chart)
        assert set(list_fields(chart["spec"])) <= known | {"commit", "started", "verdict"}


def test_every_colour_has_its_shape() -> None:
    """Eight series at most, the last of which is grey, each with a shape of its own."""
    assert len(set(COLOURS)) == len(set(SHAPES)) == 8
