from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pytest_attnperf.records import Verdict
from pytest_attnperf.records.rooflines import Ceiling
from pytest_attnperf.reports.html.page import render_page
from pytest_attnperf.reports.run.joined import Joined, join_runs, join_single
from pytest_attnperf.testing.sample_runs import sample_run

pytest.importorskip("jinja2", reason="the HTML report needs jinja2")
pytest.importorskip("vl_convert", reason="the HTML report needs vl_convert")

Wait = Callable[[Any, str], Any]
Open = Callable[..., None]

LEAST = 4.5
SCRIPT = (Path(__file__).parent / "contrast.js").read_text()
CEILINGS = {"sm_90/sample": [Ceiling(1e15, "FLOP/s", "peak", "f16 matrix"), Ceiling(4e12, "B/s", "measured", "DRAM")]}
EVERY = [verdict for verdict in Verdict if verdict is not Verdict.NO_BASELINE]


def every_verdict() -> Joined:
    """A run with each verdict, some failing, one quarantined, and findings."""
    run = sample_run(54, verdicts=EVERY)
    held = replace(run.cases[0], quarantined="a link", fails=False, verdict=Verdict.SLOWER)
    return join_single(replace(run, cases=(held, *run.cases[1:]), findings=("crept",), notes=("a note",)))


def two_suites() -> Joined:
    """A page of two suites, one of which fails."""
    run = sample_run(30, seed=3)
    other = replace(run, cases=tuple(replace(case, key=replace(case.key, suite="decode")) for case in run.cases))
    return join_runs([("a.json", run), ("b.json", other)])


def untimed_base() -> Joined:
    """Times without a baseline."""
    return join_single(sample_run(30, verdicts=[Verdict.RECORDED]))


@functools.cache
def page_of(make: Callable[[], Joined]) -> str:
    """The page, made once for both themes."""
    return render_page(make(), ceilings=CEILINGS)


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("make", [every_verdict, two_suites, untimed_base])
def test_every_text_can_be_read(browser: Any, open_page: Open, theme: str, make: Callable[[], Joined]) -> None:
    """Each text of the page, in charts too, has a contrast of at least 4.5 : 1 against what is behind it."""
    open_page(page_of(make))
    browser.execute_script("document.documentElement.dataset.theme = arguments[0]", theme)
    browser.execute_script("document.querySelectorAll('details').forEach((one) => (one.open = true))")
    seen, bad = browser.execute_script(SCRIPT, LEAST)
    assert bad == []
    assert seen > 200


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_panel_can_be_read(browser: Any, open_page: Open, theme: str, wait: Wait) -> None:
    """So has each text of a case's panel and its charts."""
    slower = next(shown.case for shown in two_suites().cases if shown.case.verdict is Verdict.SLOWER)
    open_page(page_of(two_suites), f"#case=sm_90/sample {slower.key}")
    wait(browser, "return document.querySelectorAll('#case .chart svg').length === 3")
    browser.execute_script("document.documentElement.dataset.theme = arguments[0]", theme)
    seen, bad = browser.execute_script(SCRIPT, LEAST)
    assert bad == []
    assert seen > 200


def test_pale_text_would_be_found(browser: Any, open_page: Open) -> None:
    """The check can fail: it finds one pale text of the page, and one of a chart."""
    open_page(page_of(two_suites))
    assert browser.execute_script(SCRIPT, LEAST)[1] == []
    browser.execute_script("document.getElementById('count').style.color = '#999'")
    browser.execute_script("document.querySelector('#picture svg text').style.fill = '#bbb'")
    found = [entry[0] for entry in browser.execute_script(SCRIPT, LEAST)[1]]
    assert len(found) == 2
    assert any("of 60" in text for text in found)
