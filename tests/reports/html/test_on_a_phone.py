from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from pytest_attnperf.records.histories import CaseHistory
from pytest_attnperf.reports.html.page import render_page
from pytest_attnperf.reports.run.joined import join_single
from pytest_attnperf.results import RunResult
from pytest_attnperf.testing.sample_runs import sample_run

pytest.importorskip("jinja2", reason="the HTML report needs jinja2")
pytest.importorskip("vl_convert", reason="the HTML report needs vl_convert")

Open = Callable[..., None]
WIDTH = 360
OUTSIDE = """return [...document.querySelectorAll(arguments[0])].filter((one) => {
    const {left, right, width} = one.getBoundingClientRect();
    return width > 0 && (left < 0 || right > innerWidth);
}).map((one) => one.textContent)"""
ROWS = """return [...document.querySelectorAll('#table tbody tr')].map((row) =>
    ['.cell-verdict', '.cell-backend', '.cell-ms'].map((name) => {
        const {left, right, height} = row.querySelector(name).getBoundingClientRect();
        return height > 0 && left >= 0 && right <= innerWidth && left < right;
    }))"""


@pytest.fixture(scope="module")
def run() -> RunResult:
    """A run with every verdict of the sample mix."""
    return sample_run(60)


@pytest.fixture(scope="module")
def html(run: RunResult, history: Callable[..., CaseHistory]) -> str:
    """Its page, with the histories of five cases."""
    return render_page(join_single(run), histories=[history(str(case.key)) for case in run.cases[:5]])


@pytest.fixture(autouse=True)
def _phone(open_page: Open, resize: Callable[[int, int], None], html: str) -> None:
    """The window of a small phone, with the page in it."""
    resize(WIDTH, 740)
    open_page(html)


def test_rows_need_no_scrolling_sideways(browser: Any, run: RunResult) -> None:
    """Verdict, backend and time of every timed row are in sight, and so are workloads."""
    timed = {f"{case.key.workload}" for case in run.cases if case.median_us}
    shown = browser.execute_script(ROWS)
    assert len(shown) == len(run.cases)
    assert sum(all(row) for row in shown) == sum(case.median_us is not None for case in run.cases)
    assert all(row[0] and row[1] for row in shown)
    assert timed
    assert browser.execute_script(OUTSIDE, "#table tbody th button") == []


def test_page_is_no_wider_than_the_window(browser: Any) -> None:
    """Neither the page nor a chart's text goes beyond it."""
    assert browser.execute_script("return document.documentElement.scrollWidth <= innerWidth")
    assert browser.execute_script(OUTSIDE, "#picture svg text, #charts svg text, .cards li, #filters *, .top *") == []


def test_figures_have_their_names(browser: Any) -> None:
    """Where headings are away from their columns, each figure stands behind its heading."""
    script = "return getComputedStyle(document.querySelector('#table tbody .cell-ms'), '::before').content"
    assert browser.execute_script(script).startswith('"time ')


def test_headings_still_sort(browser: Any) -> None:
    """They stand above the rows as buttons, all in sight."""
    assert browser.execute_script(OUTSIDE, "#table thead button") == []
    browser.execute_script("document.querySelector('[data-column=ms] button').click()")
    script = "return [...document.querySelectorAll('#table tbody .cell-ms')].map((one) => one.textContent)"
    times = [float(text) for text in browser.execute_script(script) if text != "-"]
    assert times == sorted(times, reverse=True)


def test_histories_are_lines_in_their_rows(browser: Any) -> None:
    """A row with a history has a line with a point per run."""
    script = """return [...document.querySelectorAll('#table tbody .sparkline path')].map((one) =>
        one.getAttribute('d').split('L').length)"""
    assert browser.execute_script(script) == [6] * 5


def test_panel_fits(browser: Any, wait: Callable[[Any, str], Any]) -> None:
    """A case's panel, with its charts, is no wider than the window."""
    browser.execute_script("document.querySelector('#table tbody button').click()")
    wait(browser, "return document.querySelector('dialog[open] #case-body .facts') !== null")
    script = "const one = document.querySelector('dialog'); return [one.scrollWidth, one.clientWidth, innerWidth]"
    content, inside, window = browser.execute_script(script)
    assert content <= inside <= window
