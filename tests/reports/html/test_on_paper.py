from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest

from pytest_attnperf.reports.html.page import render_page
from pytest_attnperf.reports.run.joined import join_runs
from pytest_attnperf.testing.sample_runs import sample_run

pytest.importorskip("jinja2", reason="the HTML report needs jinja2")
pytest.importorskip("vl_convert", reason="the HTML report needs vl_convert")

PAPER_WIDTH, PAPER_HEIGHT = 718, 1047
"""A4 in portrait, less the margins of a printer, in pixels of the style sheet."""

BEYOND = """return [...document.querySelectorAll(arguments[0])].filter((one) => {
    const {right, width} = one.getBoundingClientRect();
    return width > 0 && right > innerWidth + 1;
}).map((one) => one.textContent.slice(0, 80))"""


@pytest.fixture(autouse=True)
def _paper(browser: Any, open_page: Callable[..., None], resize: Callable[[int, int], None]) -> Iterator[None]:
    """A page of two suites, drawn in a wide window and then printed."""
    run = sample_run(30, seed=3)
    other = replace(run, cases=tuple(replace(case, key=replace(case.key, suite="decode")) for case in run.cases))
    resize(1280, 900)
    open_page(render_page(join_runs([("a.json", run), ("b.json", other)])))
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "print"})
    resize(PAPER_WIDTH, PAPER_HEIGHT)
    yield
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": ""})


def test_nothing_is_cut_at_the_edge(browser: Any, wait: Callable[[Any, str], Any]) -> None:
    """Tables, cards and charts end before the paper does."""
    wait(browser, "return document.querySelector('#picture svg').getBoundingClientRect().right <= innerWidth + 1")
    assert browser.execute_script(BEYOND, "#table :is(td, th), #suites :is(td, th), .cards li, .chart svg") == []


def test_rows_are_rows(browser: Any) -> None:
    """A printed row is one of a table, not a card, and says its verdict, workload, backend, time and change."""
    shown = browser.execute_script(
        """const row = document.querySelector('#table tbody tr');
        return [getComputedStyle(row).display, ...['verdict', 'workload', 'backend', 'ms', 'change'].map(
            (name) => row.querySelector(`.cell-${name}`).getBoundingClientRect().width > 0)]"""
    )
    assert shown == ["table-row", True, True, True, True, True]
