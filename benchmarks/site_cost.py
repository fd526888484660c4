"""What a site over a history costs to write and to open.

    python benchmarks/site_cost.py [--cases 2000] [--runs 500] [--at FILE] [--site DIR] [--browser]

Fills a SQLite store with runs of one commit each, seven processes a case, a third of the cases with a lasting change;
writes the site by the command; prints seconds, bytes, and the largest page. --at keeps the store, and uses it if it is
there. --browser also prints how long the first page takes in a headless Chromium until its table is there, and until a
filter is applied.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import random
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

from pytest_attnperf.cli.program import main as run_command
from pytest_attnperf.records import Verdict
from pytest_attnperf.testing.sample_runs import sample_run
from pytest_attnperf.tools.history.history_rows import make_rows
from pytest_attnperf.tools.history.history_store import open_store
from pytest_attnperf.tools.history.history_tables import define_tables

FIRST = datetime(2025, 1, 1, tzinfo=timezone.utc)
PROCESSES = 7
NOISE, STEP = 0.004, 0.05
OPENED = 5


def fill(path: Path, cases: int, runs: int) -> None:
    """Writes a store in which every third case is 5 % slower from a run of its own on."""
    from sqlalchemy import insert

    one = make_rows(sample_run(cases, verdicts=[Verdict.SAME]), "attnperf")
    known, draw = define_tables(), random.Random(0)
    steps = [draw.randrange(runs) if number % 3 == 0 else runs for number in range(cases)]
    with open_store(str(path)) as store, store.transactions.engine.begin() as connection:
        connection.execute(insert(known.facts), list(one.facts.values()))
        connection.execute(insert(known.cases), [{"id": n, **row} for n, row in enumerate(one.cases.values(), 1)])
        for number in range(runs):
            began = FIRST + timedelta(hours=8 * number)
            named = {"id": number + 1, "digest": f"run {number}", "run_id": f"run {number}"}
            commit = hashlib.sha256(str(number).encode()).hexdigest()[:40]
            said = {"started": began.timestamp(), "started_text": began.isoformat(), "commit_id": commit}
            connection.execute(insert(known.runs).values(**{**one.run, **said, **named}))
            rows = _measurements(one.measurements, number, began.timestamp(), steps, draw)
            connection.execute(insert(known.measurements), list(rows))


def _measurements(
    measured: Sequence[dict[str, Any]], run: int, started: float, steps: Sequence[int], draw: random.Random
) -> Iterator[dict[str, Any]]:
    for number, row in enumerate(measured):
        plain = {name: value for name, value in row.items() if name not in ("case", "machine", "environment")}
        us = row["median_us"] * (1 + STEP * (run >= steps[number])) * draw.gauss(1, NOISE)
        processes = [us * draw.gauss(1, NOISE) for _ in range(PROCESSES)]
        named = {"case_id": number + 1, "run_id": run + 1, "machine_id": 1, "environment_id": 2}
        yield {**plain, **named, "started": started, "median_us": us, "process_us": processes}


def print_site(store: Path, site: Path) -> None:
    """Writes the site and prints what that took."""
    begun, used = time.perf_counter(), _count_processor_seconds()
    run_command(["history", "--history", str(store), "--html", str(site)])
    seconds = time.perf_counter() - begun
    files = [path for path in site.rglob("*") if path.is_file()]
    sizes = {path: path.stat().st_size for path in files}
    largest = max(sizes, key=lambda path: sizes[path])
    computed = _count_processor_seconds() - used
    load = f"load {os.getloadavg()[0]:.1f} on {os.cpu_count()} processors"
    print(f"written in {seconds:.1f} s, with {computed:.1f} s of computing, {load}")
    print(
        f"{len(files)} files, {sum(sizes.values()) / 1e6:.1f} MB; largest {largest.name}, {sizes[largest] / 1e6:.2f} MB"
    )
    for folder in ("cases", "commits"):
        pages = [size for path, size in sizes.items() if path.parent.name == folder]
        print(f"{folder}: {len(pages)} pages, {sum(pages) / 1e6:.1f} MB")


def _count_processor_seconds() -> float:
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system


def print_opening(site: Path) -> None:
    """Prints milliseconds of the first page in a browser, the best and the worst of OPENED times."""
    from selenium import webdriver

    options = webdriver.ChromeOptions()
    options.binary_location = shutil.which("chromium") or ""
    for flag in ("--headless=new", "--no-sandbox", "--disable-gpu"):
        options.add_argument(flag)
    driver = webdriver.Chrome(options=options, service=webdriver.ChromeService(shutil.which("chromedriver")))
    filtered = """
        const box = document.getElementById("filter-text"), begun = performance.now();
        box.value = "flash s4096"; box.dispatchEvent(new Event("input")); document.body.getBoundingClientRect();
        return performance.now() - begun"""
    ready = "return performance.getEntriesByType('navigation')[0].domContentLoadedEventEnd"
    loads, filters = [], []
    try:
        for _ in range(OPENED):
            driver.get("about:blank")
            driver.get((site / "index.html").as_uri())
            loads.append(driver.execute_script(ready))
            filters.append(driver.execute_script(filtered))
    finally:
        driver.quit()
    print(f"first page usable after {min(loads):.0f} to {max(loads):.0f} ms of {OPENED} openings")
    print(f"a filter of two words is applied in {min(filters):.0f} to {max(filters):.0f} ms")


def main() -> int:
    """Prints what is asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", type=int, default=2000)
    parser.add_argument("--runs", type=int, default=500)
    parser.add_argument("--at", type=Path, help="the SQLite file; a temporary one without it")
    parser.add_argument("--site", type=Path, help="the site's folder; a temporary one without it")
    parser.add_argument("--browser", action="store_true")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        store, site = options.at or Path(folder) / "runs.sqlite", options.site or Path(folder) / "site"
        if not store.exists():
            fill(store, options.cases, options.runs)
        print(json.dumps({"store_mb": round(store.stat().st_size / 1e6), "cases": options.cases, "runs": options.runs}))
        print_site(store, site)
        if options.browser:
            print_opening(site)
    return 0


if __name__ == "__main__":
    sys.exit(main())
