from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from pytest_attnperf.records import CaseKey, Verdict
from pytest_attnperf.records.code import CodeExecution, CodeResult
from pytest_attnperf.records.rooflines import Ceiling
from pytest_attnperf.reports.html.page import render_page
from pytest_attnperf.reports.run.joined import join_single
from pytest_attnperf.results import RunResult
from pytest_attnperf.testing.sample_runs import sample_run
from tests.reports.html.conftest import messages

pytest.importorskip("jinja2", reason="the HTML report needs jinja2")
pytest.importorskip("vl_convert", reason="the HTML report needs vl_convert")

Wait = Callable[[Any, str], Any]
Open = Callable[..., None]

CEILINGS = {
    "sm_90/sample": [
        Ceiling(1e15, "FLOP/s", "peak", "f16 matrix"),
        Ceiling(4e12, "B/s", "measured", "DRAM"),
    ]
}
CASES = 140


@pytest.fixture(scope="module")
def run() -> RunResult:
    """A run with more cases than the table shows at once."""
    return sample_run(CASES, seed=4)


@pytest.fixture(scope="module")
def html(run: RunResult) -> str:
    """Its page, with the history of its first case."""
    return render_page(join_single(run), ceilings=CEILINGS)


def _text(browser: Any, selector: str) -> list[str]:
    script = "return [...document.querySelectorAll(arguments[0])].map((each) => each.textContent)"
    found: list[str] = browser.execute_script(script, selector)
    return found


def _requests(browser: Any) -> list[str]:
    found = []
    for entry in browser.get_log("performance"):
        message = json.loads(entry["message"])["message"]
        if message["method"] == "Network.requestWillBeSent":
            found.append(message["params"]["request"]["url"])
    return found


def test_page_opens_from_a_file_alone(browser: Any, open_page: Open, html: str) -> None:
    """It loads with charts and without a word on the console, and asks for no address but its own file."""
    browser.get_log("performance")
    open_page(html)
    assert messages(browser) == []
    # A browser's own first tab may still be loading.
    requests = [url for url in _requests(browser) if not url.startswith(("about:blank", "chrome:"))]
    assert requests
    assert {url.partition(":")[0] for url in requests} <= {"file", "data"}
    assert len(_text(browser, "#charts svg")) == 4
    assert _text(browser, "#trouble") == [""]


def test_page_of_compiled_kernels_alone(browser: Any, open_page: Open) -> None:
    """A run without a case, but with an executed kernel: its row stands there, and the scripts have no trouble."""
    kernel = CodeResult(CaseKey("code", "a", "w"), "n", Verdict.SAME, "same", executed=CodeExecution("right"))
    open_page(render_page(join_single(replace(sample_run(1, seed=4), cases=(), code=(kernel,)))))
    assert messages(browser) == []
    assert _text(browser, "#trouble") == [""]
    assert _text(browser, "#kernels td")[1] == "right"


def test_console_errors_would_be_seen(browser: Any, open_page: Open, html: str) -> None:
    """The check above can fail: an image of another address is refused by the page's policy, and that is logged."""
    open_page(html)
    browser.get_log("browser")
    image = "document.body.append(Object.assign(new Image(), {src: 'http://127.0.0.1:9/x.png'}))"
    browser.execute_script(image)
    assert any("Content Security Policy" in text for text in messages(browser))


def test_heading_sorts(browser: Any, open_page: Open, html: str, run: RunResult, wait: Wait) -> None:
    """A click on a heading puts the largest first, a second one the smallest, and what has no figure stays last."""
    open_page(html)
    ratios = sorted((case.ratio for case in run.cases if case.ratio is not None), reverse=True)
    for order, state in ((ratios, "descending"), (ratios[::-1], "ascending")):
        browser.execute_script("document.querySelector('[data-column=change] button').click()")
        assert browser.execute_script("return document.querySelector('[data-column=change]').ariaSort") == state
        index = browser.execute_script("return document.querySelector('[data-column=change]').cellIndex + 1")
        shown = _text(browser, f"#table tbody td:nth-child({index})")
        values = [float(text.rstrip(" %")) for text in shown if text != "-"]
        assert values == pytest.approx([(ratio - 1) * 100 for ratio in order[: len(values)]], abs=0.051)
        assert values
    assert "sort=change" in browser.current_url


def test_filters_narrow_the_table_and_its_address(browser: Any, open_page: Open, html: str, run: RunResult) -> None:
    """Words, a verdict and a backend each narrow the table; the count says so, and the address opens the same view."""
    open_page(html)
    browser.find_element("id", "filter-text").send_keys("triton S512-")
    expected = [case for case in run.cases if case.key.backend == "triton.flash" and "-s512-" in case.key.workload]
    assert browser.find_element("id", "count").text == f"{len(expected)} of {CASES}"
    box = "document.querySelector('#filter-verdict input[value=SAME]').click()"
    browser.execute_script(box)
    same = [case for case in expected if case.verdict is Verdict.SAME]
    assert browser.find_element("id", "count").text == f"{len(same)} of {CASES}"
    rows = _text(browser, "#table tbody th")
    assert sorted(rows) == sorted(case.key.workload for case in same)
    address = browser.execute_script("return location.hash")
    open_page(html, address)
    assert _text(browser, "#table tbody th") == rows
    assert browser.find_element("id", "filter-text").get_attribute("value") == "triton S512-"
    browser.find_element("id", "clear").click()
    assert browser.find_element("id", "count").text == f"{CASES} of {CASES}"


def test_tables_fit_a_laptop(browser: Any, open_page: Open, html: str) -> None:
    """At 1,280 pixels no column is out of sight; the comparison has a row per backend, the fastest one first."""
    open_page(html)
    hidden = "return [...document.querySelectorAll('.wide')].filter((one) => one.scrollWidth > one.clientWidth).length"
    assert browser.execute_script(hidden) == 0
    lengths = _text(browser, "#length-table thead th")
    assert lengths[0] == "backend"
    assert [int(length) for length in lengths[1:]] == sorted(int(length) for length in lengths[1:])
    longest = [float(text.split()[0]) for text in _text(browser, "#length-table td:last-child") if text != "-"]
    assert longest == sorted(longest)
    assert _text(browser, "#length-table td:last-child.fastest")[0].split()[0] == f"{longest[0]:.4g}"


def test_rows_come_in_pages(browser: Any, open_page: Open, html: str) -> None:
    """A hundred rows at first, the others by a button, which then has nothing left to show."""
    open_page(html)
    assert len(_text(browser, "#table tbody tr")) == 100
    browser.execute_script("document.getElementById('more').click()")
    assert len(_text(browser, "#table tbody tr")) == CASES
    assert not browser.find_element("id", "more").is_displayed()


def test_keyboard_alone_opens_and_closes_a_case(browser: Any, open_page: Open, html: str, wait: Wait) -> None:
    """Tab from the top reaches a case, Enter opens it with its charts, Escape closes it, and the focus is back."""
    from selenium.webdriver import ActionChains, Keys

    open_page(html)
    on_a_case = "return document.activeElement.matches('button.name')"
    for _ in range(40):
        ActionChains(browser, duration=0).send_keys(Keys.TAB).perform()
        if browser.execute_script(on_a_case):
            break
    name = browser.execute_script("return document.activeElement.textContent")
    ActionChains(browser, duration=0).send_keys(Keys.ENTER).perform()
    wait(browser, "return document.querySelector('dialog[open] #case-body .facts') !== null")
    assert browser.execute_script("return document.activeElement.closest('dialog') !== null")
    assert name in browser.find_element("id", "case-title").text
    assert "case=" in browser.current_url
    ActionChains(browser, duration=0).send_keys(Keys.ESCAPE).perform()
    wait(browser, "return document.querySelector('dialog[open]') === null")
    assert "case=" not in browser.current_url
    assert browser.execute_script("return document.activeElement.textContent") == name


def test_address_opens_a_case(browser: Any, open_page: Open, html: str, run: RunResult, wait: Wait) -> None:
    """A link to a case opens its panel with its looks, blocks and clocks drawn and its command to copy."""
    slower = next(case for case in run.cases if case.verdict is Verdict.SLOWER)
    open_page(html, f"#case=sm_90/sample {slower.key}")
    wait(browser, "return document.querySelectorAll('#case .chart svg').length === 3")
    assert slower.reproduce in _text(browser, "#case pre")
    browser.execute_script("document.getElementById('case-next').click()")
    wait(browser, f"return !document.getElementById('case-title').textContent.includes({json.dumps(str(slower.key))})")
    assert messages(browser) == []


def test_mark_shows_a_tooltip_and_opens_its_case(browser: Any, open_page: Open, html: str, wait: Wait) -> None:
    """The pointer on a point of a chart shows the case's name and figures as text; a click opens it."""
    from selenium.webdriver import ActionChains

    open_page(html, "#view=charts")
    mark = browser.find_elements("css selector", "#chart-length .mark-symbol.role-mark path")[3]
    label = mark.get_attribute("aria-label")
    ActionChains(browser, duration=0).move_to_element(mark).perform()
    wait(browser, "return !document.getElementById('tooltip').hidden")
    shown = _text(browser, "#tooltip dd")
    assert label.startswith(f"{shown[0]}: ")
    assert shown[0].startswith("sm_90/sample prefill/")
    assert shown[2] in label
    ActionChains(browser, duration=0).click(mark).perform()
    wait(browser, "return document.querySelector('dialog[open]') !== null")
    assert shown[0] in browser.find_element("id", "case-title").text


def _luminance(colour: str) -> float:
    parts = [int(part) / 255 for part in colour[colour.index("(") + 1 : -1].split(",")[:3]]
    linear = [part / 12.92 if part <= 0.04045 else math.pow((part + 0.055) / 1.055, 2.4) for part in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def test_dark_is_dark_and_both_can_be_read(browser: Any, open_page: Open, html: str) -> None:
    """The button changes the page and its charts; in both colours every verdict, link and axis has 4.5 : 1."""
    open_page(html)
    script = """const seen = (node) => getComputedStyle(node);
        const back = seen(document.body).backgroundColor;
        const nodes = [...document.querySelectorAll('.verdict, .name, dt, caption, .outcome, .counts li')];
        const axes = [...document.querySelectorAll('.chart .role-axis-label text')];
        const colours = [...nodes.map((node) => seen(node).color), ...axes.map((node) => seen(node).fill)];
        return [back, [...new Set(colours)]]"""
    backs = []
    for _ in range(2):
        back, colours = browser.execute_script(script)
        for colour in colours:
            high, low = sorted((_luminance(back), _luminance(colour)), reverse=True)
            assert (high + 0.05) / (low + 0.05) >= 4.5, (back, colour)
        backs.append(_luminance(back))
        browser.find_element("id", "theme").click()
    assert min(backs) < 0.05 < 0.8 < max(backs)


def test_hostile_text_is_text(browser: Any, open_page: Open, hostile: RunResult, wait: Wait) -> None:
    """Nothing in a workload, backend, device, commit, note or command runs; it is shown as it is written."""
    html = render_page(join_single(hostile, "</title><script>window.pwned=1</script>"))
    open_page(html)
    for opener in ("#table tbody button", ".cards button"):
        browser.execute_script("document.querySelector(arguments[0]).click()", opener)
        wait(browser, "return document.querySelectorAll('#case .chart svg').length >= 2")
        assert messages(browser) == []
        browser.execute_script("document.getElementById('case-close').click()")
    assert browser.execute_script("return window.pwned") is None
    assert browser.execute_script("return document.querySelectorAll('img, [onload], [onerror]').length") == 0
    shown = "".join(_text(browser, "main"))
    assert "</script><script>window.pwned=1</script>" in shown
    assert "{{7*7}}" in shown
    assert browser.execute_script("return document.querySelectorAll('a[href^=javascript]').length") == 0


def test_browser_that_cannot_inflate_says_so(browser: Any, open_page: Open, html: str) -> None:
    """Without DecompressionStream the worst rows stand there, and the page says what it cannot show and why."""
    source = {"source": "delete window.DecompressionStream"}
    added = browser.execute_cdp_cmd("Page.addScriptToEvaluateOnNewDocument", source)
    try:
        open_page(html, until="return document.getElementById('trouble')?.hidden === false")
        assert "This browser has no DecompressionStream" in browser.find_element("id", "trouble").text
        assert len(_text(browser, "#table tbody tr")) == 100
    finally:
        browser.execute_cdp_cmd("Page.removeScriptToEvaluateOnNewDocument", added)


def test_paper_is_light_and_has_no_controls(browser: Any, open_page: Open, html: str) -> None:
    """Printed in dark colours, the page is black on white, without its navigation and filters."""
    open_page(html)
    browser.execute_script("document.documentElement.dataset.theme = 'dark'")
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "print"})
    try:
        colours = browser.execute_script(
            "const {color, backgroundColor} = getComputedStyle(document.body); return [color, backgroundColor]"
        )
        assert colours == ["rgb(0, 0, 0)", "rgb(255, 255, 255)"]
        assert not browser.find_element("id", "filters").is_displayed()
        assert not browser.find_element("id", "theme").is_displayed()
        assert browser.find_element("id", "table").is_displayed()
    finally:
        browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": ""})
