from __future__ import annotations

import itertools
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pytest_attnperf.plugin.report_inputs import ceilings_of, read_runs
from pytest_attnperf.reports.html.page import render_page

pytest.importorskip("jinja2", reason="the HTML report needs jinja2")
pytest.importorskip("vl_convert", reason="the HTML report needs vl_convert")

Open = Callable[..., None]
Wait = Callable[[Any, str], Any]

ROOT = Path(__file__).parents[3]
TEXTS = "return [...document.querySelectorAll(arguments[0])].map((one) => one.textContent)"
ROUND = re.compile(r"(1|2|3|5)0*|0|0\.0*(1|2|3|5)")
"""A tick of a logarithmic axis without its prefix."""


@pytest.fixture(scope="module")
def html() -> str:
    """The page of every baseline that is stored for an H200."""
    joined = read_runs([ROOT / "baselines/sm_90/h200"])
    return render_page(joined, ceilings=ceilings_of(joined, [ROOT / "baselines"]))


def texts(browser: Any, selector: str) -> list[str]:
    """What elements say."""
    found: list[str] = browser.execute_script(TEXTS, selector)
    return found


@pytest.mark.parametrize("family", ["prefill", "gemm", "rmsnorm"])
def test_roofline_is_of_one_family(
    browser: Any, open_page: Open, html: str, complaints: Callable[[], list[str]], family: str
) -> None:
    """Its points are of the chosen op family, in at most eight colours, each named once at the right; its ticks are 1,
    2, 3 or 5 of a decade."""
    open_page(html, f"#family={family}")
    points = browser.execute_script(
        """return [...document.querySelectorAll('#chart-roofline .mark-symbol.role-mark path')].map((mark) =>
            [mark.__data__.datum.family, mark.__data__.datum.series, mark.__data__.fill])"""
    )
    assert {found for found, _, _ in points} == {family}
    series = {name for _, name, _ in points}
    assert len(series) == len({colour for _, _, colour in points}) <= 8
    written = texts(browser, "#chart-roofline .mark-text.role-mark text")
    assert series <= {name for text in written for name in series if text == name or "…" in text}
    ticks = texts(browser, "#chart-roofline .role-axis-label text")
    assert len(ticks) > 4
    assert [tick for tick in ticks if not ROUND.fullmatch(tick.rstrip("GTPk"))] == []
    assert complaints() == []


def test_bars_are_speedups_with_their_values(browser: Any, open_page: Open, html: str) -> None:
    """A bar per backend and workload, the fastest first, with its value; the reference is the line at 1x."""
    open_page(html, "#family=prefill")
    bars = browser.execute_script(
        """return [...document.querySelectorAll('#chart-speedups .mark-rect.role-mark path')].map((mark) =>
            [mark.__data__.datum.backend, mark.__data__.datum.speedup, mark.__data__.datum.speedup_text])"""
    )
    speedups = [speedup for _, speedup, _ in bars]
    assert len(bars) > 5
    assert speedups == sorted(speedups, reverse=True)
    assert "native.eager_fp32" not in {backend for backend, _, _ in bars}
    assert {text for _, _, text in bars} <= set(texts(browser, "#chart-speedups .mark-text.role-mark text"))
    assert "1x" in browser.execute_script("return document.getElementById('chart-speedups').textContent")


def test_lengths_have_names_at_their_lines(browser: Any, open_page: Open, html: str) -> None:
    """Each line's name stands at its end, no two at the same height; times have a unit at each tick."""
    open_page(html, "#family=prefill")
    places = browser.execute_script(
        """return [...document.querySelectorAll('#chart-length .mark-text.role-mark text')].map((one) =>
            one.getBoundingClientRect().top).sort((a, b) => a - b)"""
    )
    assert len(places) == 8
    assert min(below - above for above, below in itertools.pairwise(places)) >= 12
    ticks = texts(browser, "#chart-length .role-axis-label text")
    assert {"512", "4k"} <= set(ticks)
    assert sum(bool(re.fullmatch(r"(1|2|3|5)0*(µ|m)s", tick)) for tick in ticks) == len(ticks) - 2


def test_select_changes_the_family(browser: Any, open_page: Open, html: str, wait: Wait) -> None:
    """Its choice stands in the address, and the roofline follows."""
    open_page(html)
    script = """const select = document.getElementById('chart-family');
        select.value = 'gemm'; select.dispatchEvent(new Event('change')); select.scrollIntoView()"""
    browser.execute_script(script)
    drawn = (
        "return document.querySelector('#chart-roofline .role-mark path[tabindex]')?.__data__.datum.family === 'gemm'"
    )
    wait(browser, drawn)
    assert "family=gemm" in browser.current_url


@pytest.mark.parametrize(
    ("call", "expected"),
    [
        ("logTicks(0.0013, 0.9)", [0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5]),
        ("logTicks(3, 70)", [5, 10, 20, 50]),
        ("logTicks(1e-3, 1e9).every((tick) => Math.log10(tick) % 1 === 0)", True),
        ("logTicks(40, 43)", [40, 40.5, 41, 41.5, 42, 42.5, 43]),
        ("logTicks(0, 5)", []),
        ("logTicks(7, 7).length > 0", True),
        ("linearTicks(-3, 7)", [-2, 0, 2, 4, 6]),
        ("linearTicks(0, 0.0017).map(String).every((text) => text.length < 8)", True),
        ("linearTicks(5, 5).length > 0", True),
        ("spread([0.5, 0.5, 0.5], 0.1).map((place) => place.toFixed(1))", ["0.5", "0.6", "0.7"]),
        ("Math.max(...spread([0.98, 0.99, 1], 0.1))", 1),
        ("logDomain([])", [1, 10]),
        ("shortened('native.eager_fp32', 9)", "nati…fp32"),
        ("splitNames(['a-s1-h4', 'a-s2-h4'])", {"shared": "a h4", "own": ["s1", "s2"]}),
        ("splitNames(['one'])", {"shared": "", "own": ["one"]}),
    ],
)
def test_axes_are_what_a_person_would_draw(
    browser: Any, open_page: Open, html: str, call: str, expected: object
) -> None:
    """Ticks, domains, places of labels and short names, also of nothing and of one value."""
    if browser.execute_script("return typeof logTicks") != "function":
        open_page(html)
    assert browser.execute_script(f"return {call}") == expected
