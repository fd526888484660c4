from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from pytest_attnperf.reports.html.page import render_page
from pytest_attnperf.reports.run.joined import join_single
from pytest_attnperf.testing.sample_runs import sample_run

pytest.importorskip("jinja2", reason="the HTML report needs jinja2")
pytest.importorskip("vl_convert", reason="the HTML report needs vl_convert")

Open = Callable[..., None]
Wait = Callable[[Any, str], Any]

WANTED = """const open = document.querySelector('dialog[open]') ?? document;
    window.wanted = [...open.querySelectorAll('a[href], button, select, input, summary, [tabindex="0"]')]
        .filter((one) => one.checkVisibility() && !one.disabled);
    window.visited = new Set();
    return window.wanted.length"""
VISIT = "window.visited.add(document.activeElement); return window.wanted.every((one) => window.visited.has(one))"
MISSED = """return window.wanted.filter((one) => !window.visited.has(one)).map((one) => one.outerHTML.slice(0, 120))"""


def missed_by_tab(browser: Any) -> list[str]:
    """What could be used in the window, and is not reached by any number of Tab."""
    from selenium.webdriver import ActionChains, Keys

    for _ in range(2 * browser.execute_script(WANTED)):
        ActionChains(browser, duration=0).send_keys(Keys.TAB).perform()
        if browser.execute_script(VISIT):
            break
    missed: list[str] = browser.execute_script(MISSED)
    return missed


@pytest.fixture(scope="module")
def html() -> str:
    """A page with few rows."""
    return render_page(join_single(sample_run(10, seed=4)))


def test_tab_reaches_everything(browser: Any, open_page: Open, html: str) -> None:
    """Links, theme, dots, cards, filters, headings, rows and charts are all reached, each chart by one stop."""
    open_page(html)
    assert missed_by_tab(browser) == []
    stops = browser.execute_script("return window.wanted.filter((one) => one.closest('.chart')).length")
    charts = browser.execute_script("return [...document.querySelectorAll('.chart svg')].length")
    assert stops == charts > 2


def test_tab_reaches_everything_in_a_panel(browser: Any, open_page: Open, html: str, wait: Wait) -> None:
    """So are buttons, tables and commands of an open case."""
    open_page(html)
    browser.execute_script("document.querySelector('#table tbody button').click()")
    wait(browser, "return document.querySelector('dialog[open] #case-body .facts') !== null")
    assert missed_by_tab(browser) == []


def test_theme_is_switched_by_a_key(browser: Any, open_page: Open, html: str) -> None:
    """Space on the button changes the page's colours."""
    from selenium.webdriver import ActionChains, Keys

    open_page(html)
    before = browser.execute_script("return getComputedStyle(document.body).backgroundColor")
    browser.execute_script("document.getElementById('theme').focus()")
    ActionChains(browser, duration=0).send_keys(Keys.SPACE).perform()
    assert browser.execute_script("return getComputedStyle(document.body).backgroundColor") != before
