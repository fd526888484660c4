from __future__ import annotations

import json
from typing import Any

import pytest

from pytest_attnperf.reports.html.charts import build_config
from pytest_attnperf.reports.html.page_charts import page_charts
from tests.reports.html.conftest import list_fields

COLUMNS = ("verdict", "backend", "ms", "change", "finds", "tflops", "speedup")
HOSTILE = "</svg><script>"
POINTS = [
    {
        "index": index,
        "name": f"case {index}",
        "backend": backend,
        "series": backend,
        "mark": "SLOWER",
        "slot": f"00{index} {backend}",
        "length": 512 * (1 + index),
        "ms": 0.1 + index,
        "ms_text": "0.1000",
        "tflops": 100.0 + index,
        "speedup": 1.5,
        "intensity": 50.0 + index,
        "finds": 2.5,
        "description": "a case",
    }
    for index, backend in enumerate(["a", "b", HOSTILE])
]
NAMED = [{**point, "label": point["backend"]} for point in POINTS]
ROOF = {"x": 1.0, "y": 4.0, "name": "DRAM", "kind": "peak", "label": "DRAM 4000 GB/s, peak", "slanted": True}
CEILINGS = [ROOF, {**ROOF, "x": 100.0, "y": 400.0, "label": ""}]
DATA: dict[str, list[dict[str, Any]]] = {
    "points": POINTS,
    "labels": NAMED,
    "leaders": NAMED,
    "heads": [{"slot": "009 ", "label": HOSTILE}],
    "ceilings": CEILINGS,
    "roofs": CEILINGS[:1],
    "thresholds": [{"at": 2.0, "label": "policy"}],
}
MARKS = {"speedups": "bar"}


@pytest.mark.parametrize("name", ["length_ms", "length_tflops", "length_speedup", "roofline", "speedups", "limits"])
def test_page_chart_is_drawn(name: str) -> None:
    """Vega-Lite compiles and draws the chart with a mark per case, and foreign text in it stays text."""
    vl_convert = pytest.importorskip("vl_convert", reason="drawing needs vl_convert")
    spec = {**page_charts(COLUMNS, "native")[name]["spec"], "datasets": DATA, "width": 500}
    svg = vl_convert.vegalite_to_svg(spec, config=build_config())
    assert svg.count(f'aria-roledescription="{MARKS.get(name, "point")}"') == len(POINTS)
    assert "<script" not in svg
    assert ("&lt;/svg&gt;" in svg) is (name != "limits")
    assert (">DRAM 4000 GB/s, peak</text>" in svg) is (name == "roofline")


def test_chart_without_figures_is_left_out() -> None:
    """A chart needs a column that holds something; the lengths are known of workloads."""
    assert set(page_charts(("ms",), "")) == {"length_ms"}
    assert set(page_charts(("verdict",), "")) == set()


def test_charts_load_nothing_and_know_their_fields() -> None:
    """No specification names an address to load, and every field read is one that the data has."""
    texts = {f"{name}_text" for name in COLUMNS}
    for chart in page_charts(COLUMNS, "native").values():
        assert '"url"' not in json.dumps(chart)
        assert set(list_fields(chart["spec"])) <= {*POINTS[0], *ROOF, *texts, "at", "time_text"}
