from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.tools.history.site.made_history import CASES, ELSEWHERE, FASTER, RUNS, SLOWER, SLOWER_FROM, commit_of

Visit = Callable[..., Any]
Wait = Callable[[Any, str], Any]
ALL = CASES + ELSEWHERE
PHONE = {"width": 360, "height": 800, "deviceScaleFactor": 1, "mobile": False}


def texts(browser: Any, selector: str) -> list[str]:
    """The text of every element that is there, shown or not."""
    script = "return [...document.querySelectorAll(arguments[0])].map((one) => one.textContent.trim())"
    found: list[str] = browser.execute_script(script, selector)
    return found


def complaints(browser: Any) -> list[str]:
    """What is on the console, of any level."""
    return [entry["message"] for entry in browser.get_log("browser")]


def requests(browser: Any) -> Iterator[str]:
    """Every address that was asked for."""
    for entry in browser.get_log("performance"):
        message = json.loads(entry["message"])["message"]
        if message["method"] == "Network.requestWillBeSent":
            yield message["params"]["request"]["url"]


def case_page(site: Path, backend: str) -> str:
    """The page of a backend's first case on the device with most runs."""
    found = sorted(path for path in (site / "cases").glob(f"prefill-{backend}-prefill-b1-s128-*"))
    return next(f"cases/{path.name}" for path in found if "<dd>sm_90/sample</dd>" in path.read_text())


def commit_page(site: Path, number: int) -> str:
    """The page of a run's commit."""
    (found,) = (site / "commits").glob(f"{commit_of(number)[:12]}-*")
    return f"commits/{found.name}"


@pytest.mark.parametrize("kind", ["index", "case", "commit", "unknown commit"])
def test_pages_open_from_a_disk_alone(visit: Visit, site: Path, kind: str) -> None:
    """No page has a word for the console, and none asks for anything outside the site's folder."""
    unknown = min(path.name for path in (site / "commits").iterdir() if "-" not in path.name)
    page = {"index": "index.html", "case": case_page(site, "triton-flash"), "commit": commit_page(site, 20)}
    browser = visit(page.get(kind, f"commits/{unknown}"))
    assert complaints(browser) == []
    asked = {url for url in requests(browser) if url != "about:blank"}
    assert len(asked) >= 3
    assert [url for url in asked if not url.startswith((site.as_uri(), "data:"))] == []
    assert texts(browser, "#trouble") == [""]


def test_the_policy_refuses_what_is_not_the_sites(visit: Visit) -> None:
    """A script inside a page, a style attribute and another address do nothing, and the console says so."""
    browser = visit("index.html")
    browser.execute_script(
        "const made = document.createElement('script'); made.textContent = 'window.pwned = 1';"
        "document.body.append(made); document.body.append(Object.assign(new Image(), {src: 'http://127.0.0.1:9/x.png'}));"
    )
    assert browser.execute_script("return window.pwned") is None
    assert sum("Content Security Policy" in text for text in complaints(browser)) == 2


def test_the_first_page_lists_changes_of_the_latest_commit_first(visit: Visit, site: Path) -> None:
    """With their numbers and what else changed; the commit is a link to its page."""
    browser = visit("index.html")
    first = texts(browser, "#changes .cards > li")[0]
    assert f"{commit_of(SLOWER_FROM)[:12]}: 3 slower" in first or f"{commit_of(SLOWER_FROM)[:12]}: 2 slower" in first
    assert "torch: 2.11.0 -> 2.12.0" in first
    browser.find_element("css selector", "#changes h3 a").click()
    assert browser.current_url == (site / commit_page(site, SLOWER_FROM)).as_uri()


def test_search_and_filters_narrow_the_cases(visit: Visit) -> None:
    """Words, a backend and a device; the address opens the same view again, and a button clears all."""
    browser = visit("index.html")
    assert texts(browser, "#count") == [f"{ALL} of {ALL}"]
    browser.find_element("id", "filter-text").send_keys("TRITON s128-")
    assert texts(browser, "#count") == [f"1 of {ALL}"]
    browser.execute_script("const one = document.getElementById('filter-backend'); one.value = 'hip.flash';"
                           "one.dispatchEvent(new Event('change'))")  # fmt: skip
    assert texts(browser, "#count") == [f"0 of {ALL}"]
    browser.find_element("id", "clear").click()
    browser.execute_script("const one = document.getElementById('filter-device'); one.value = 'gfx942/mi300x';"
                           "one.dispatchEvent(new Event('change'))")  # fmt: skip
    rows = texts(browser, "#table tbody th a")
    assert len(rows) == ELSEWHERE
    address = browser.execute_script("return location.hash")
    visit("index.html", address)
    assert texts(browser, "#table tbody th a") == rows


def test_headings_and_the_list_of_orders_sort(visit: Visit) -> None:
    """The longest time first by a click, the shortest by the list; cases without a change come last in both orders."""
    browser = visit("index.html")
    browser.execute_script("document.querySelector('[data-column=time] button').click()")
    times = [float(text.split()[0]) for text in texts(browser, "#table tbody td.time")]
    assert times == sorted(times, reverse=True)
    assert len(times) == ALL
    browser.execute_script(
        "const one = document.getElementById('sort'); one.value = 'time'; one.dispatchEvent(new Event('change'))"
    )
    assert [float(text.split()[0]) for text in texts(browser, "#table tbody td.time")] == sorted(times)
    for order in ("change", "-change"):
        visit("index.html", f"#sort={order}")
        changes = texts(browser, "#table tbody td.change")
        known = [text for text in changes if text]
        assert known
        assert changes[: len(known)] == known
        assert known == sorted(known, key=lambda text: float(text.rstrip(" %")), reverse=order.startswith("-"))


def test_a_row_has_its_last_change_and_leads_to_its_page(visit: Visit, site: Path) -> None:
    """Percent, day, and both commits as links; a picture of its course; the name opens the case."""
    browser = visit("index.html", "#q=triton s128&device=sm_90/sample")
    (change,), (day,), (between,) = (
        texts(browser, f"#table tbody td.{one}") for one in ("change", "changed", "between")
    )
    assert float(change.rstrip(" %")) == pytest.approx(10, abs=0.5)
    assert day == "2026-01-21"
    assert between == f"{commit_of(SLOWER_FROM - 1)[:12]} .. {commit_of(SLOWER_FROM)[:12]}"
    assert browser.execute_script("return document.querySelectorAll('#table .spark path').length") == 2
    browser.find_element("css selector", "#table tbody th a").click()
    assert browser.current_url.startswith((site / "cases").as_uri())


def test_the_pointer_reads_a_run_and_opens_its_commit(visit: Visit, site: Path) -> None:
    """A tooltip has commit, time, processes and verdict of the run below the pointer; a click opens its commit."""
    from selenium.webdriver.common.action_chains import ActionChains

    browser = visit(case_page(site, "triton-flash"))
    plot = browser.find_element("css selector", ".trend .plot")
    width = browser.execute_script("return arguments[0].getBoundingClientRect().width", plot)
    ActionChains(browser).move_to_element_with_offset(plot, round(width * (24.5 / RUNS - 0.5)), 10).perform()
    said = dict(zip(texts(browser, "#tooltip dt"), texts(browser, "#tooltip dd"), strict=True))
    assert said["commit"] == commit_of(24)[:12]
    assert said["started"] == "2026-01-25 08:00"
    assert said["verdict"] == "SAME"
    low, high = (float(text.split()[0]) for text in said["processes"].split(" .. "))
    assert low < float(said["time"].split()[0]) < high
    ActionChains(browser).click().perform()
    assert browser.current_url == (site / commit_page(site, 24)).as_uri()


def test_the_keyboard_reads_runs_and_opens_a_commit(visit: Visit, site: Path, wait: Wait) -> None:
    """Arrow keys, Home and End move; a screen reader hears the run; Escape hides it, Enter opens the commit."""
    from selenium.webdriver.common.keys import Keys

    browser = visit(case_page(site, "triton-flash"))
    chart = browser.find_element("css selector", ".trend")
    browser.execute_script("arguments[0].focus()", chart)
    chart.send_keys(Keys.HOME, Keys.ARROW_RIGHT, Keys.ARROW_RIGHT)
    assert chart.get_attribute("role") == "slider"
    assert chart.get_attribute("aria-valuenow") == "3"
    assert chart.get_attribute("aria-valuetext").startswith(f"{commit_of(2)[:12]}, 2026-01-03 08:00: ")
    chart.send_keys(Keys.ESCAPE)
    assert browser.execute_script("return document.getElementById('tooltip').hidden") is True
    chart.send_keys(Keys.END, Keys.ENTER)
    wait(browser, "return document.body?.dataset.page === 'commit'")
    assert browser.current_url == (site / commit_page(site, RUNS - 1)).as_uri()


def test_a_case_has_all_its_runs_as_a_table(visit: Visit, site: Path) -> None:
    """Newest first, a wrong one without a time among them; changes and environment stand above."""
    browser = visit(case_page(site, "native-eager"))
    assert len(texts(browser, "#run-table tbody tr")) == RUNS
    assert texts(browser, "#run-table tbody th")[0] == "2026-01-30 08:00"
    (wrong,) = [text for text in texts(browser, "#run-table tbody tr") if "INCORRECT" in text]
    assert wrong.startswith("2026-01-06 08:00")
    visit(case_page(site, "triton-flash"))
    assert "torch: 2.11.0 -> 2.12.0" in texts(browser, "#series-1 tbody tr")[0]
    assert texts(browser, "#series-1 table")[1].count("torch: 2.11.0 -> 2.12.0") == 1


def test_a_commit_shows_what_changed_and_what_was_measured(visit: Visit, site: Path) -> None:
    """Dots within intervals, in order of size; all measured cases; a link to the source; the commits beside it."""
    browser = visit(commit_page(site, SLOWER_FROM))
    changes = texts(browser, "table.dots tbody td.number")
    assert changes == sorted(changes, key=lambda text: -float(text.rstrip(" %")))
    assert all(SLOWER in name for name in texts(browser, "table.dots tbody th"))
    for low, at, high in browser.execute_script(
        "return [...document.querySelectorAll('.dots tbody .dot-row')].map((row) => [row.querySelector('.interval')"
        ".getAttribute('x1'), row.querySelector('circle').getAttribute('cx'), row.querySelector('.interval')"
        ".getAttribute('x2')].map(parseFloat))"
    ):
        assert 0 <= low < at < high <= 100
    assert len(texts(browser, "#table tbody tr")) == CASES
    assert "torch" in texts(browser, "#environment p")[0]
    source = browser.find_element("css selector", ".facts a").get_attribute("href")
    assert source == f"https://github.com/example/kernels/commit/{commit_of(SLOWER_FROM)}"
    browser.find_element("css selector", "a[rel=next]").click()
    assert browser.current_url == (site / commit_page(site, SLOWER_FROM + 1)).as_uri()


def test_the_picture_of_all_cases_is_read_by_the_keyboard(visit: Visit) -> None:
    """At the last commit as many stand slower and faster as the sentence above it says."""
    from selenium.webdriver.common.keys import Keys

    browser = visit("index.html")
    chart = browser.find_element("css selector", ".trend")
    browser.execute_script("arguments[0].focus()", chart)
    chart.send_keys(Keys.END)
    slower, faster = texts(browser, "#fleet p b")
    assert chart.get_attribute("aria-valuetext").endswith(f": {slower}, {faster}")
    assert int(slower.split()[0]) >= 2
    assert int(faster.split()[0]) >= 1
    assert FASTER in " ".join(texts(browser, "#changes .cards > li"))


@pytest.mark.parametrize("kind", ["index", "case", "commit"])
@pytest.mark.parametrize("theme", ["light", "dark"])
def test_pages_fit_a_phone(visit: Visit, site: Path, kind: str, theme: str) -> None:
    """At 360 pixels nothing makes the page wider, and no texts of a chart overlap."""
    page = {"index": "index.html", "case": case_page(site, "triton-flash"), "commit": commit_page(site, SLOWER_FROM)}
    browser = visit(page[kind])
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", PHONE)
    try:
        browser.execute_script("document.documentElement.dataset.theme = arguments[0]", theme)
        assert browser.execute_script("return document.documentElement.scrollWidth") <= 360
        assert browser.execute_script(
            "const boxes = [...document.querySelectorAll('.trend .day')].map((one) => one.getBoundingClientRect())"
            ".filter((one) => one.width);"
            "return boxes.every((one, place) => !place || one.left > boxes[place - 1].right)"
        )
    finally:
        browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})


CONTRAST = """
const parse = (text) => text.match(/[\\d.]+/g).map(Number);
const linear = (c) => (c <= 0.03928 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4);
const light = (rgb) => rgb.reduce((sum, c, place) => sum + [0.2126, 0.7152, 0.0722][place] * linear(c / 255), 0);
const back = (one) => {
  for (; one; one = one.parentElement) {
    const found = parse(getComputedStyle(one).backgroundColor);
    if (found.length < 4 || found[3] > 0) return found.slice(0, 3);
  }
  return [255, 255, 255];
};
const low = [];
for (const one of document.querySelectorAll("main *, header *")) {
  const own = [...one.childNodes].some((node) => node.nodeType === 3 && node.textContent.trim());
  if (!own || !one.getClientRects().length || one.disabled) continue;
  const style = getComputedStyle(one);
  const front = parse(one.namespaceURI.includes("svg") ? style.fill : style.color).slice(0, 3);
  const [a, b] = [light(front), light(back(one))];
  const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
  if (ratio < 4.5) low.push(`${one.tagName} ${one.textContent.slice(0, 30)} ${ratio.toFixed(2)}`);
}
return low;
"""


@pytest.mark.parametrize("kind", ["index", "case", "commit"])
@pytest.mark.parametrize("theme", ["light", "dark"])
def test_texts_stand_out(visit: Visit, site: Path, kind: str, theme: str) -> None:
    """Every text has a contrast of at least 4.5 : 1 with what is behind it."""
    page = {"index": "index.html", "case": case_page(site, "triton-flash"), "commit": commit_page(site, SLOWER_FROM)}
    browser = visit(page[kind])
    browser.execute_script("document.documentElement.dataset.theme = arguments[0]", theme)
    assert browser.execute_script(CONTRAST) == []


def test_times_read_as_the_program_prints_them(visit: Visit) -> None:
    """The pages' script and the program give the same text for the same time and change."""
    from pytest_attnperf.records.time_units import format_time
    from pytest_attnperf.reports.text.figures import format_change

    browser = visit("index.html")
    times = [0.0123, 0.5, 0.99996, 1, 5.42, 9.9996, 99.996, 104.312, 999.96, 1234.5, 21e3, 3.5e6, 1.2346e9]
    assert browser.execute_script("return arguments[0].map(timeText)", times) == [format_time(us) for us in times]
    tenths = [-1000, -25, -1, 0, 1, 7, 100, 12345]
    assert browser.execute_script("return arguments[0].map(changeText)", tenths) == [
        format_change(1 + one / 1000) for one in tenths
    ]
