from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from pytest_attnperf.reports.html.charts import COLOURS, SHAPES, build_config, case_charts, page_charts

COLUMNS = ("verdict", "backend", "ms", "change", "finds", "tflops", "speedup")
POINTS = [
    {
        "index": index,
        "name": f"case {index}",
        "backend": backend,
        "length": 512 * (1 + index),
        "ms": 0.1 + index,
        "ms_text": "0.1000",
        "tflops": 100.0 + index,
        "speedup": 1.5,
        "intensity": 50.0 + index,
        "finds": 2.5,
        "description": "a case",
    }
    for index, backend in enumerate(["a", "b", "</svg><script>"])
]
LINE = {"name": "DRAM", "kind": "peak", "label": ""}
WORDS = {
    "x": 1.0,
    "y": 400.0,
    "name": "words",
    "kind": "",
    "label": "f16 matrix: peak 400 TFLOP/s\nDRAM: peak 4000 GB/s",
}
CEILINGS = [WORDS, {"x": 1.0, "y": 4.0, **LINE}, {"x": 100.0, "y": 400.0, **LINE}]
DATA: dict[str, list[dict[str, Any]]] = {
    "points": POINTS,
    "ceilings": CEILINGS,
    "thresholds": [{"at": 2.0, "label": "policy"}],
}
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


def _fields(node: Any) -> Iterator[str]:
    if isinstance(node, dict):
        if isinstance(node.get("field"), str):
            yield node["field"]
        for child in node.values():
            yield from _fields(child)
    elif isinstance(node, list):
        for child in node:
            yield from _fields(child)


@pytest.mark.parametrize("name", ["length_ms", "length_tflops", "length_speedup", "roofline", "limits"])
def test_page_chart_is_drawn(name: str) -> None:
    """Vega-Lite compiles and draws the chart with a mark per case, and foreign text in it stays text."""
    vl_convert = pytest.importorskip("vl_convert", reason="drawing needs vl_convert")
    spec = {**page_charts(COLUMNS, "native")[name]["spec"], "datasets": DATA, "width": 500}
    svg = vl_convert.vegalite_to_svg(spec, config=build_config())
    assert svg.count('aria-roledescription="point"') == len(POINTS)
    assert "<script" not in svg
    assert "&lt;/svg&gt;" in svg
    assert svg.count(">f16 matrix: peak 400 TFLOP/s</tspan>") == (name == "roofline")


@pytest.mark.parametrize("name", list(case_charts()))
def test_case_chart_is_drawn(name: str) -> None:
    """Every chart of a case compiles and draws what it is given."""
    vl_convert = pytest.importorskip("vl_convert", reason="drawing needs vl_convert")
    spec = {**case_charts()[name]["spec"], "datasets": CASE_DATA, "width": 500}
    svg = vl_convert.vegalite_to_svg(spec, config=build_config())
    least = {"history": 3}.get(name, 2)
    assert svg.count('aria-roledescription="point"') >= least
    assert (">limit +2.0 %<" in svg) is (name == "strip")


def test_chart_without_figures_is_left_out() -> None:
    """A chart needs a column that holds something; the lengths are known of workloads."""
    assert set(page_charts(("ms",), "")) == {"length_ms"}
    assert set(page_charts(("verdict",), "")) == set()


def test_charts_load_nothing_and_know_their_fields() -> None:
    """No specification names an address to load, and every field read is one that the data has."""
    for chart in page_charts(COLUMNS, "native").values():
        assert '"url"' not in json.dumps(chart)
        texts = {f"{name}_text" for name in COLUMNS}
        assert set(_fields(chart["spec"])) <= {*POINTS[0], *CEILINGS[0], *texts, "at", "time_text"}
    known = {name for rows in CASE_DATA.values() for row in rows for name in row}
    for chart in case_charts().values():
        assert set(_fields(chart["spec"])) <= known | {"commit", "started", "verdict"}


def test_backends_differ_in_colour_or_shape() -> None:
    """56 backends in a row share no pair of colour and shape."""
    pairs = [(COLOURS[index % len(COLOURS)], SHAPES[index % len(SHAPES)]) for index in range(56)]
    assert len(set(pairs)) == 56
