from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from pytest_attnperf.codeobject.occupancy import Resources, occupancy_with
from pytest_attnperf.reports.html.document import render_document
from pytest_attnperf.tools.occupancy.occupancy_page import MOST_DETAILED, build_sections
from pytest_attnperf.tools.occupancy.occupancy_rows import OccupancyPoint
from tests.reports.html.conftest import messages

pytest.importorskip("jinja2", reason="a page needs jinja2")
pytest.importorskip("vl_convert", reason="a page needs vl_convert")

Open = Callable[..., None]
SCRIPT = "</script><script>window.pwned=1</script>"
LONG = f"void kernel<{', '.join(f'Trait<{n}>' for n in range(300))}>()"


def make_point(name: str = "", arch: str = "gfx942", asked: Resources | None = None) -> OccupancyPoint:
    """A kernel with its occupancy."""
    asked = asked or Resources(96, 0, 40, 8192, 256)
    return OccupancyPoint(name, arch, asked, occupancy_with(arch, asked))


@pytest.mark.parametrize("width", [1280, 360])
@pytest.mark.parametrize(
    ("arch", "asked"),
    [
        ("gfx942", Resources(96, 0, 40, 8192, 256)),
        ("gfx942", Resources(256, 256, 100, 65536, 1024)),
        ("gfx1100", Resources(100, 0, 0, 20000, 192)),
        ("gfx90a", Resources(0, 0, 0, 0, 1)),
    ],
)
def test_curves_are_drawn_and_no_label_is_cut(
    width: int, arch: str, asked: Resources, browser: Any, open_page: Open
) -> None:
    """Three charts, each text inside its chart, at both widths; the browser is silent."""
    size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 500}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    try:
        open_page(render_document("Occupancy", build_sections([make_point(arch=arch, asked=asked)])))
        script = (
            "return [...document.querySelectorAll('.chart')].map((chart) => {"
            "const box = chart.getBoundingClientRect();"
            "return [...chart.querySelectorAll('text')].filter((text) => text.textContent).every((text) => {"
            "const own = text.getBoundingClientRect();"
            "return own.left >= box.left - 1 && own.right <= box.right + 1; }) })"
        )
        inside = browser.execute_script(script)
        fits = browser.execute_script("return document.documentElement.scrollWidth <= innerWidth")
    finally:
        browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
    assert (inside, fits) == ([True] * 3, True)
    assert messages(browser) == []


def test_a_kernel_has_its_limits_and_its_next_step() -> None:
    """What binds, what raises it, and the same steps in the curves."""
    limits, curves = build_sections([make_point()])
    assert limits.lead[0].startswith("gfx942: 5 of 8 waves per SIMD, limited by VGPRs")
    assert limits.lead[1] == "one more wave per SIMD: 16 VGPRs fewer (at most 80)"
    assert [row[0] for row in limits.tables[0].rows if row[5] == "binds"] == ["VGPRs"]
    assert "16 VGPRs fewer: 6 waves" in [mark["label"] for mark in curves.figures[0].data["marks"]]
    assert len(curves.figures) == len(curves.tables) == 3


def test_reserved_registers_are_marked_where_they_count() -> None:
    """A kernel whose descriptor reserves more stands at the registers that it is given."""
    asked = replace(Resources(20, 0, 40, 0, 256), reserved_vgprs=128)
    _, curves = build_sections([make_point(asked=asked)])
    assert curves.figures[0].data["marks"][0]["label"].startswith("128 VGPRs")


def test_several_kernels_have_an_overview(browser: Any, open_page: Open) -> None:
    """A bar and a row for each; curves for the first; hostile names stay names."""
    names = [SCRIPT, LONG, f"{LONG}x", "\ud800\x1b[31m", *(f"k{n}" for n in range(20))]
    sections = build_sections([make_point(name) for name in names])
    assert len(sections) == 1 + 2 * MOST_DETAILED
    assert len(sections[0].figures[0].data["bars"]) == len(sections[0].tables[0].rows) == len(names)
    open_page(render_document("Occupancy", sections))
    assert browser.execute_script("return window.pwned") is None
    assert browser.execute_script("return document.documentElement.scrollWidth <= innerWidth")
    assert messages(browser) == []
