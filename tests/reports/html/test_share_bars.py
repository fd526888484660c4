from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from pytest_attnperf.reports.html.document import render_document
from pytest_attnperf.reports.html.sections import Section
from pytest_attnperf.reports.html.share_bars import ShareBar, build_share_bars

pytest.importorskip("jinja2", reason="a page needs jinja2")
pytest.importorskip("vl_convert", reason="a page needs vl_convert")

Open = Callable[..., None]


def test_names_and_labels_are_whole(browser: Any, open_page: Open) -> None:
    """Every name and label of the bars is text of the chart, at 360 pixels too, and none is outside of it."""
    bars = [ShareBar("k" * 45 + f"{n}", n / 10, f"{10 * n} %", "#0072B2", (("calls", f"{n}"),)) for n in range(1, 11)]
    figure = build_share_bars("Shares", bars, "of all")
    assert figure is not None
    size = {"width": 360, "height": 800, "deviceScaleFactor": 1, "mobile": True}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    try:
        open_page(render_document("A page", [Section("s", "S", figures=(figure,))]))
        script = (
            "const edge = document.querySelector('.chart').getBoundingClientRect().right + 1;"
            "return [...document.querySelectorAll('.chart text')].filter((text) => text.textContent)"
            ".map((text) => [text.textContent, text.getBoundingClientRect().right <= edge])"
        )
        found = browser.execute_script(script)
    finally:
        browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
    assert {text for text, _ in found} == {bar.name for bar in bars} | {bar.label for bar in bars}
    assert all(inside for _, inside in found)


def test_bars_of_nothing_end_somewhere() -> None:
    """Shares of 0 have an axis; no bars have no chart."""
    figure = build_share_bars("Shares", [ShareBar("a", 0.0, "0 %", "#0072B2")], "")
    assert figure is not None
    assert figure.spec["layer"][0]["encoding"]["x"]["scale"]["domain"] == [0, 1.0]
    assert build_share_bars("Shares", [], "") is None
