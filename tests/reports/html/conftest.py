"""A page read without a browser, runs full of hostile text, and one headless Chromium per module."""

from __future__ import annotations

import base64
import json
import os
import shutil
import zlib
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from pytest_attnperf.records import CaseKey, DeviceInfo, Fingerprint, Launch, Tolerance, Verdict
from pytest_attnperf.records.code import CodeResult, KernelCode
from pytest_attnperf.records.histories import CaseHistory, ChangePoint, HistoryPoint
from pytest_attnperf.results import CaseResult, RunResult
from pytest_attnperf.testing.sample_runs import sample_run

HOSTILE = (
    "</script><script>window.pwned=1</script>",
    '"><img src=x onerror="window.pwned=1">',
    "{{7*7}}{% raw %}",
    "<svg onload=window.pwned=1>",
    "\x1b[31m|\n`*\u2028\u202e\ud800",
    "javascript:window.pwned=1",
    "]]><!--<script>window.pwned=1",
)
DRAWN = "return document.documentElement.dataset.drawn === 'charts'"
FLAGS = (
    *("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync", "--window-size=1280,900"),
)


@dataclass
class Parsed:
    """What a page consists of. scripts: (attributes, text); links: every address that a tag names."""

    ids: Counter[str] = field(default_factory=Counter)
    tags: Counter[str] = field(default_factory=Counter)
    headings: list[int] = field(default_factory=list)
    links: list[tuple[str, str, str]] = field(default_factory=list)
    handlers: list[str] = field(default_factory=list)
    scripts: list[tuple[dict[str, str | None], str]] = field(default_factory=list)
    styles: list[str] = field(default_factory=list)
    metas: dict[str, str] = field(default_factory=dict)
    text: str = ""

    def data(self, name: str) -> Any:
        """A script element's JSON, or the packed one behind it."""
        (text,) = [text for attributes, text in self.scripts if attributes.get("id") == name]
        if name == "data":
            return json.loads(text)
        unpacked = zlib.decompress(base64.b64decode(text)).decode()
        return [json.loads(line) for line in unpacked.splitlines()] if name == "details" else json.loads(unpacked)


class _Reader(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.parsed = Parsed()
        self.inside = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found, self.inside = dict(attrs), tag
        self.parsed.tags[tag] += 1
        if found.get("id"):
            self.parsed.ids[str(found["id"])] += 1
        if tag in ("h1", "h2", "h3"):
            self.parsed.headings.append(int(tag[1]))
        if tag == "script":
            self.parsed.scripts.append((found, ""))
        if tag == "meta":
            self.parsed.metas[str(found.get("http-equiv") or found.get("name"))] = str(found.get("content"))
        for name, value in attrs:
            if name in ("src", "href", "action", "data", "srcset", "poster", "formaction"):
                self.parsed.links.append((tag, name, value or ""))
            if name.startswith("on") or name == "style":
                self.parsed.handlers.append(f"{tag} {name}")

    def handle_endtag(self, tag: str) -> None:
        self.inside = ""

    def handle_data(self, data: str) -> None:
        if self.inside == "script":
            attributes, text = self.parsed.scripts[-1]
            self.parsed.scripts[-1] = attributes, text + data
        elif self.inside == "style":
            self.parsed.styles.append(data)
        else:
            self.parsed.text += data


def parse(html: str) -> Parsed:
    """Read a page."""
    reader = _Reader()
    reader.feed(html)
    reader.close()
    return reader.parsed


def _hostile_case(case: CaseResult, text: str) -> CaseResult:
    wrong = tuple(replace(check, problems=(text,), tolerance=Tolerance(3.0, text)) for check in case.checks)
    return replace(
        case,
        key=CaseKey(text, text, f"a-s128-{text}", text),
        nodeid=text,
        summary=text,
        reasons=(text,),
        notes=(text, "z" * 100_000),
        against=text,
        checks=wrong,
        first=tuple(replace(process, process=text, timer=text) for process in case.first),
        policy={text: text},
        fingerprint=Fingerprint({text: text}, {text: text}),
        config={text: text},
        launches=(Launch(text, kind=text, isa_hash=text),),
        code=(_kernel(text),),
        reproduce=text,
        log=text,
        stored_commit=text,
        stored_at=text,
        floor_bound=text,
    )


def _kernel(name: str) -> KernelCode:
    return KernelCode(name, name, 128, 0, 128, 40, 2, 0, 16, 32768, 0, 64, 256, 256, 64, None, False, 9000, name)


def hostile_run() -> RunResult:
    """Every text of it is one of HOSTILE, in turn."""
    run = sample_run(28, verdicts=(Verdict.SLOWER, Verdict.SAME))
    cases = tuple(_hostile_case(case, HOSTILE[index % len(HOSTILE)]) for index, case in enumerate(run.cases))
    script = HOSTILE[0]
    return replace(
        run,
        cases=cases,
        version=script,
        mode=script,
        command=script,
        commit=script,
        against=HOSTILE[1],
        findings=HOSTILE,
        notes=HOSTILE,
        baseline_paths=HOSTILE,
        device=DeviceInfo("cuda", script, HOSTILE[1], HOSTILE[2]),
        fingerprint=Fingerprint({}, {text: text for text in HOSTILE}),
        code=tuple(
            CodeResult(CaseKey(text, text, text), text, Verdict.WORSE, text, code=_kernel(text)) for text in HOSTILE
        ),
        provenance={"branch": script, "ci": script, "ci_url": "javascript:window.pwned=1", "pull_request": script},
    )


def history_of(key: str, arch: str = "sm_90", product: str = "sample") -> CaseHistory:
    """Six runs; the last three are 5 % slower."""
    points = tuple(
        HistoryPoint(f"2026-01-0{day}T00:00:00Z", f"c0ffee{day}", "SAME", us, (us - 0.1, us + 0.1))
        for day, us in enumerate((10.0, 10.01, 9.99, 10.5, 10.51, 10.49), 1)
    )
    change = ChangePoint(3, 10.0, 10.5, "c0ffee3", "c0ffee4", ("torch: 2.10.0 -> 2.11.0",), 9.0)
    return CaseHistory(key, arch, product, points, (change,))


@pytest.fixture
def read_page() -> Callable[[str], Parsed]:
    """`parse`."""
    return parse


@pytest.fixture(scope="session")
def hostile() -> RunResult:
    """`hostile_run`."""
    return hostile_run()


@pytest.fixture(scope="session")
def history() -> Callable[..., CaseHistory]:
    """`history_of`."""
    return history_of


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """A headless Chromium that keeps what it logs and asks the network for; skips where there is none."""
    webdriver = pytest.importorskip("selenium.webdriver", reason="needs selenium to drive a browser")
    chromium = shutil.which("chromium") or shutil.which("google-chrome")
    driver = shutil.which("chromedriver")
    if chromium is None or driver is None:
        pytest.skip("needs chromium and chromedriver, which are not on PATH")
    options = webdriver.ChromeOptions()
    options.binary_location = chromium
    for flag in (*FLAGS, f"--user-data-dir={tmp_path_factory.mktemp('profile')}"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    environment = {**os.environ, "TMPDIR": "/tmp"}  # a socket lies there, whose path holds 107 characters
    found = webdriver.Chrome(options=options, service=webdriver.ChromeService(driver, env=environment))
    found.set_script_timeout(10)
    yield found
    found.quit()


@pytest.fixture(scope="module")
def open_page(browser: Any, tmp_path_factory: pytest.TempPathFactory) -> Callable[..., None]:
    """Opens a page from a file, at an address behind '#', and waits until its charts are drawn or `until` is true."""
    folder = tmp_path_factory.mktemp("pages")

    def opened(html: str, address: str = "", until: str = DRAWN) -> None:
        path: Path = folder / "page.html"
        path.write_text(html, encoding="utf-8")
        browser.get("about:blank")
        browser.get(path.as_uri() + address)
        wait_for(browser, until)

    return opened


def wait_for(browser: Any, script: str) -> Any:
    """The script's value as soon as it is true; fails after ten seconds."""
    from selenium.webdriver.support.ui import WebDriverWait

    return WebDriverWait(browser, 10, poll_frequency=0.03).until(lambda found: found.execute_script(script), script)


@pytest.fixture
def complaints(browser: Any) -> Callable[[], list[str]]:
    """What the browser has complained of since it was last asked."""
    return lambda: [entry["message"] for entry in browser.get_log("browser") if entry["level"] in ("SEVERE", "WARNING")]


@pytest.fixture
def resize(browser: Any) -> Iterator[Callable[[int, int], None]]:
    """Gives the browser's window a width and a height for one test; a window of its own is never so narrow."""

    def resized(width: int, height: int) -> None:
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
        browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)

    yield resized
    browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})


@pytest.fixture
def wait() -> Callable[[Any, str], Any]:
    """`wait_for`."""
    return wait_for


LOOK = """const found = {cut: [], over: [], charts: 0};
for (const svg of document.querySelectorAll('.chart svg')) {
  const frame = svg.getBoundingClientRect(), texts = [];
  if (!frame.width) continue;
  found.charts++;
  for (const text of svg.querySelectorAll('text')) {
    const box = text.getBoundingClientRect(), words = text.textContent;
    if (!words || !box.width || text.closest('[opacity="0"]') || text.getAttribute('opacity') === '0') continue;
    const aside = Math.max(frame.left - box.left, box.right - frame.right);
    const out = Math.max(aside, frame.top - box.top, box.bottom - frame.bottom);
    if (out > 1.5) found.cut.push([words, out]);
    for (const [other, its] of texts)
      if (Math.min(box.right, its.right) - Math.max(box.left, its.left) > 1 &&
          Math.min(box.bottom, its.bottom) - Math.max(box.top, its.top) > 3) found.over.push([words, other]);
    texts.push([words, box]);
  }
}
found.wide = document.documentElement.scrollWidth - document.documentElement.clientWidth;
found.pwned = window.pwned ?? null;
return found;"""
"""Counts the charts; finds text outside of its chart and text over text, a page that scrolls sideways, and scripts."""


@pytest.fixture
def check_page(browser: Any, open_page: Callable[..., None]) -> Iterator[Callable[[str, int], None]]:
    """`check_page(html, charts)`: the page draws so many charts at 1280 and 360 px; in none is a text cut or over
    another, the page is no wider than the window, no foreign script runs, and the browser has nothing to say."""

    def checked(html: str, charts: int) -> None:
        for width in (1280, 360):
            screen = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": False}
            browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", screen)
            open_page(html)
            found = browser.execute_script(LOOK)
            assert found == {"charts": charts, "cut": [], "over": [], "wide": 0, "pwned": None}, width
        said = [entry["message"] for entry in browser.get_log("browser") if entry["level"] in ("SEVERE", "WARNING")]
        assert said == []

    yield checked
    browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})


@pytest.fixture
def read_tooltip(browser: Any) -> Callable[[str], dict[str, str]]:
    """`read_tooltip(css)`: what the page says of the first mark of this selector while the pointer is on it."""

    def read(css: str) -> dict[str, str]:
        from selenium.webdriver import ActionChains

        mark = browser.find_elements("css selector", css)[0]
        browser.execute_script("arguments[0].scrollIntoView({block: 'center'})", mark)
        ActionChains(browser, duration=0).move_to_element(mark).perform()
        wait_for(browser, "return !document.getElementById('tooltip').hidden")
        names, texts = (
            [node.text for node in browser.find_elements("css selector", f"#tooltip {tag}")] for tag in ("dt", "dd")
        )
        return dict(zip(names, texts, strict=True))

    return read


def messages(browser: Any) -> list[str]:
    """What the browser complained of."""
    return [entry["message"] for entry in browser.get_log("browser") if entry["level"] in ("SEVERE", "WARNING")]


def list_fields(node: Any) -> Iterator[str]:
    """The fields of data that a chart names."""
    if isinstance(node, dict):
        if isinstance(node.get("field"), str):
            yield node["field"]
        for child in node.values():
            yield from list_fields(child)
    elif isinstance(node, list):
        for child in node:
            yield from list_fields(child)
