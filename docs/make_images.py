"""Makes the pictures of docs/images from the reports themselves: `make images`, or `python docs/make_images.py`.

Needs the extras `html` and `history`, matplotlib, selenium, and Debian's chromium and chromium-driver. Times that are
shown come from the stored baselines of an H200; verdicts and histories from drawn figures, whose device is called
'sample' in the pictures.
"""

from __future__ import annotations

import argparse
import html
import random
import re
import shutil
import statistics
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from make_pages import write_pages, write_site

from pytest_attnperf.plugin.report_inputs import ceilings_of, read_runs
from pytest_attnperf.records import Verdict
from pytest_attnperf.records.histories import CaseHistory, HistoryPoint
from pytest_attnperf.reports.files.folder import write_html
from pytest_attnperf.reports.run.joined import join_single
from pytest_attnperf.reports.run.run_text import run_text
from pytest_attnperf.reports.text.colour import Ink
from pytest_attnperf.testing.sample_runs import sample_run

ROOT = Path(__file__).parents[1]
IMAGES = ROOT / "docs" / "images"
STORED = ROOT / "baselines/sm_90/h200/prefill.json"
CASE = "sm_90/h200 prefill/triton.flash/prefill-b4-s4096-h8-d256-f16-causal"
SWEEP = "#view=charts&figure=ms"
FEW = (*(Verdict.SAME,) * 6, Verdict.FASTER, Verdict.SLOWER, Verdict.UNDECIDED, Verdict.UNSUPPORTED)
"""Verdicts of the terminal's run, which is small enough to be seen whole."""

COLUMNS = 100
RUNS, SLOWER_FROM, LEVEL_US = 40, 30, 40.0
FLAGS = (
    *("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--hide-scrollbars"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
)
ANSI = re.compile(r"\x1b\[([\d;]*)m")
STYLES = {
    "1": "font-weight:bold",
    "31": "color:#c0392b",
    "32": "color:#1e8449",
    "33": "color:#9a7d0a",
    "2": "color:#777",
}


def main() -> int:
    """Write every picture and say so."""
    parser = argparse.ArgumentParser(description="Pictures of every report, for the documentation.")
    parser.add_argument("--out", type=Path, default=IMAGES)
    out: Path = parser.parse_args().out
    out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder, browser() as driver:
        for path in pictures(Path(folder), driver, out):
            sys.stdout.write(f"{path}: {path.stat().st_size} bytes\n")
    return 0


def pictures(folder: Path, driver: Any, out: Path) -> Iterator[Path]:
    """One picture after the other."""
    sample, stored = folder / "sample.html", folder / "h200.html"
    run = sample_run(72)
    histories = [history_of(str(case.key)) for case in run.cases[:8]]
    write_html(sample, join_single(run, "results.json"), histories=histories)
    joined = read_runs([STORED])
    write_html(stored, joined, ceilings=ceilings_of(joined, [ROOT / "baselines"]))
    first = next(case for case in run.cases if case.verdict.value == "SLOWER")
    yield shot(driver, sample, "", out / "report-summary.png", 1280, 900)
    yield shot(driver, sample, "#view=cases&sort=-change", out / "report-table.png", 1280, 900)
    yield shot(driver, sample, f"#case=sm_90/sample {first.key}", out / "report-case.png", 1280, 1200)
    yield shot(driver, stored, SWEEP, out / "report-charts.png", 1280, 1200)
    yield shot(driver, stored, f"#case={CASE}", out / "report-case-dark.png", 1280, 1200, theme="dark")
    yield shot(driver, sample, "#view=changes", out / "report-history.png", 1280, 700)
    text = run_text(
        join_single(sample_run(20, verdicts=FEW), "results.json"), width=COLUMNS, ink=Ink.ansi(), verbosity=0
    )
    (folder / "terminal.html").write_text(terminal_page(text.splitlines()))
    yield shot(driver, folder / "terminal.html", "", out / "terminal.png", 830, 0, drawn=False)
    yield from history_plot(histories[0], out)
    yield shot(driver, sample, "", out / "report-phone.png", 360, 800)
    for name, page in write_pages(folder):
        yield shot(driver, page, "", out / name, 1280, 900)
    for name, page in write_site(folder):
        yield shot(driver, page, "", out / name, 1280, 900, drawn=False)


def history_of(case: str) -> CaseHistory:
    """Forty runs of a case that is 5 % slower from the thirtieth on."""
    from pytest_attnperf.tools.history.change_points import with_changes

    draw, points = random.Random(case), []
    for number in range(RUNS):
        level = LEVEL_US * (1.05 if number >= SLOWER_FROM else 1.0)
        times = tuple(level * draw.gauss(1, 0.003) for _ in range(7))
        points.append(
            HistoryPoint(
                started=f"2026-{1 + number // 28:02d}-{1 + number % 28:02d}T08:00:00+00:00",
                commit=f"{draw.getrandbits(48):012x}",
                verdict="SLOWER" if number >= SLOWER_FROM else "SAME",
                median_us=statistics.median(times),
                process_us=times,
                baseline_us=LEVEL_US,
                run_id=f"{draw.getrandbits(128):032x}",
            )
        )
    return with_changes(CaseHistory(case, "sm_90", "sample", tuple(points)))


def history_plot(history: CaseHistory, out: Path) -> Iterator[Path]:
    """What `attnperf history CASE --plot` draws."""
    from pytest_attnperf.tools.history.plot import write_plot

    write_plot(out / "history.png", [history])
    yield out / "history.png"


def terminal_page(lines: list[str]) -> str:
    """What a terminal shows, as a page: escapes of colour become colours."""
    body = "\n".join(_coloured(line) for line in lines)
    return (
        "<!doctype html><meta charset='utf-8'><body style='margin:16px;background:#fff'>"
        "<pre style='font:13px/1.35 DejaVu Sans Mono,monospace;color:#222;"
        f"width:{COLUMNS}ch;white-space:pre-wrap;overflow-wrap:anywhere;margin:0'>{body}</pre>"
    )


def _coloured(line: str) -> str:
    pieces, colour = [], ""
    for index, part in enumerate(ANSI.split(line)):
        if index % 2:
            codes = [code for code in part.split(";") if code not in ("", "0")]
            colour = ";".join(STYLES[code] for code in codes if code in STYLES)
        elif part:
            style = f" style='{colour}'" if colour else ""
            pieces.append(f"<span{style}>{html.escape(part)}</span>")
    return "".join(pieces)


@contextmanager
def browser() -> Iterator[Any]:
    """A headless Chromium; ends with a message where there is none."""
    from selenium import webdriver

    chromium, driver = shutil.which("chromium"), shutil.which("chromedriver")
    if chromium is None or driver is None:
        raise SystemExit("make_images: needs chromium and chromedriver: apt-get install chromium chromium-driver")
    chrome = webdriver.ChromeOptions()
    chrome.binary_location = chromium
    with tempfile.TemporaryDirectory() as profile:
        for flag in (*FLAGS, f"--user-data-dir={profile}"):
            chrome.add_argument(flag)
        opened = webdriver.Chrome(options=chrome, service=webdriver.ChromeService(driver))
        try:
            yield opened
        finally:
            opened.quit()


def shot(
    driver: Any, page: Path, view: str, path: Path, width: int, height: int, *, theme: str = "light", drawn: bool = True
) -> Path:
    """One view of a page as PNG; a height of 0 is as much as the page has."""
    from selenium.webdriver.support.ui import WebDriverWait

    _set_size(driver, width, height or 100)
    driver.get("about:blank")
    driver.get(f"{page.as_uri()}{view}")
    if not height:
        _set_size(driver, width, driver.execute_script("return document.documentElement.scrollHeight"))
    if drawn:
        wait = WebDriverWait(driver, 60)
        wait.until(lambda one: one.execute_script("return document.documentElement.dataset.drawn === 'charts'"))
        driver.execute_script("document.documentElement.dataset.theme = arguments[0]", theme)
        if view.startswith("#case="):
            wait.until(lambda one: one.execute_script("return !!document.querySelector('#case .chart svg')"))
    driver.save_screenshot(str(path))
    return path


def _set_size(driver: Any, width: int, height: int) -> None:
    """Of what is shown: a window's size has a frame in it, also where none is drawn."""
    size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
    driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)


if __name__ == "__main__":
    sys.exit(main())
