"""What a history costs, what concurrent writers lose, and how often change points are found or invented.

    python benchmarks/history_cost.py --rows 1000000 [--at FILE]
    python benchmarks/history_cost.py --writers 10 --runs 20 [--url postgresql://user@host/database]
    python benchmarks/history_cost.py --changes 1000

--rows fills a SQLite store and asks for one case: cold is a new connection after the system was told to forget the
file, warm a new connection. --writers starts processes that append to one store at the same time, and counts what is
there in the end. --changes draws series of log-normal points.
"""

from __future__ import annotations

import argparse
import math
import multiprocessing
import os
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

from tabulate import tabulate

from pytest_attnperf.records import Verdict
from pytest_attnperf.records.histories import CaseHistory, HistoryPoint
from pytest_attnperf.results import RunResult
from pytest_attnperf.testing.sample_runs import sample_run
from pytest_attnperf.tools.history.appending import add_to_totals
from pytest_attnperf.tools.history.change_points import with_changes
from pytest_attnperf.tools.history.history_rows import make_rows
from pytest_attnperf.tools.history.history_store import open_store
from pytest_attnperf.tools.history.history_tables import define_tables

CASES = 2000
FIRST = datetime(2025, 1, 1, tzinfo=timezone.utc)
ASKED = 20
POINTS = 100


def fill(path: Path, rows: int) -> list[str]:
    """A store of so many measurements, in runs of CASES cases an hour apart; the cases' names."""
    from sqlalchemy import insert

    run = sample_run(CASES, verdicts=[Verdict.SAME])
    one = make_rows(run, "attnperf")
    runs = -(-rows // CASES)
    known = define_tables()
    with open_store(str(path)) as store, store.transactions.engine.begin() as connection:
        connection.execute(insert(known.facts), list(one.facts.values()))
        connection.execute(insert(known.cases), [{"id": n, **row} for n, row in enumerate(one.cases.values(), 1)])
        for number in range(1, runs + 1):
            began = FIRST + timedelta(hours=number)
            said = {"started": began.timestamp(), "started_text": began.isoformat()}
            named = {"id": number, "digest": f"run {number}", "run_id": f"run {number}"}
            connection.execute(insert(known.runs).values(**{**one.run, **said, **named}))
            left = rows - (number - 1) * CASES
            connection.execute(insert(known.measurements), list(_points(one.measurements[:left], number, began)))
            add_to_totals(connection, known, number, sqlite=True)
    return [str(case.key) for case in run.cases]


def _points(measurements: Sequence[dict[str, Any]], run: int, began: datetime) -> Iterator[dict[str, Any]]:
    for number, row in enumerate(measurements, 1):
        plain = {name: value for name, value in row.items() if name not in ("case", "machine", "environment")}
        named = {"case_id": number, "run_id": run, "machine_id": 1, "environment_id": 2}
        yield {**plain, **named, "started": began.timestamp(), "median_us": row["median_us"] * random.gauss(1, 0.003)}


def ask(path: Path, names: Sequence[str], *, cold: bool) -> list[float]:
    """Milliseconds from opening the store to all points of one case, each time of another case."""
    taken = []
    for name in random.sample(list(names), ASKED):
        if cold:
            forget(path)
        begun = time.perf_counter()
        with open_store(str(path), read_only=True) as store:
            (history,) = store.load_history(name)
        taken.append((time.perf_counter() - begun) * 1e3)
        assert history.points
    return taken


def forget(path: Path) -> None:
    """Tell the system to drop the file from memory."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
    finally:
        os.close(descriptor)


def print_query_cost(path: Path, rows: int) -> None:
    """Fill, ask, print."""
    begun = time.perf_counter()
    names = fill(path, rows)
    filled = time.perf_counter() - begun
    ask(path, names, cold=False)
    table = [
        (how, f"{statistics.median(taken):.1f}", f"{max(taken):.1f}")
        for how, taken in (("cold", ask(path, names, cold=True)), ("warm", ask(path, names, cold=False)))
    ]
    begun = time.perf_counter()
    with open_store(str(path), read_only=True) as store:
        listed = len(store.list_cases())
    seconds = time.perf_counter() - begun
    print(f"{rows} measurements of {len(names)} cases, {path.stat().st_size / 1e6:.0f} MB, filled in {filled:.1f} s")
    print(tabulate(table, (f"one case, {ASKED} times", "median ms", "slowest ms"), disable_numparse=True))
    print(f"listing {listed} cases with their counts: {seconds * 1e3:.0f} ms")


def write_runs(url: str, writer: int, runs: int, cases: int) -> None:
    """One writer: opens the store for every run, as a pytest run does."""
    for number in range(runs):
        with open_store(url) as store:
            store.append(_run(writer, number, cases))


def _run(writer: int, number: int, cases: int) -> RunResult:
    started = (FIRST + timedelta(seconds=60 * number + writer)).isoformat()
    return replace(sample_run(cases, verdicts=[Verdict.SAME], started=started), run_id=f"{writer} {number}")


def print_writers(url: str, writers: int, runs: int, cases: int) -> bool:
    """Whether every measurement of every writer is there."""
    begun = time.perf_counter()
    context = multiprocessing.get_context("spawn")
    started = [context.Process(target=write_runs, args=(url, one, runs, cases)) for one in range(writers)]
    for process in started:
        process.start()
    for process in started:
        process.join()
    seconds = time.perf_counter() - begun
    failed = sum(process.exitcode != 0 for process in started)
    with open_store(url, read_only=True) as store:
        counts = [one.points for one in store.list_cases()]
        shown = store.address
    expected = writers * runs * cases
    print(f"{shown}: {writers} writers, {runs} runs of {cases} cases each, {seconds:.1f} s with their start")
    print(f"measurements: {sum(counts)} of {expected}; cases: {len(counts)} of {cases}; writers that failed: {failed}")
    return sum(counts) == expected and len(counts) == cases and not failed


def series(
    count: int, draw: random.Random, sd: float, step: float = 0.0, at: int = 0, drift: float = 0.0
) -> CaseHistory:
    """Points around 100 us, with a step before point `at`, and a drift per run."""
    points = tuple(
        HistoryPoint(
            "2026-01-01",
            f"{number}",
            "SAME",
            100 * (1 + step * (number >= at) + drift * number) * math.exp(draw.gauss(0, sd)),
        )
        for number in range(count)
    )
    return CaseHistory("suite/backend/workload", "sm_90", "sample", points)


def print_changes(count: int) -> None:
    """Rates over `count` series of each kind."""
    flat = [
        (f"flat, {points} points", f"{sd:.1%}", "", _share(count, lambda draw: _found(series(points, draw, sd))))  # noqa: B023
        for points in (8, 30, POINTS, 300)
        for sd in (0.003, 0.006, 0.02)
    ]
    steps = [
        (
            f"step before point {at} of {POINTS}",
            "0.3%",
            f"{step:.1%}",
            _share(count, lambda draw: _found_at(series(POINTS, draw, 0.003, step, at), at)),  # noqa: B023
        )
        for at in (POINTS // 2, POINTS - 3)
        for step in (0.01, 0.015, 0.02, 0.03)
    ]
    drifts = [
        (
            "drift of 0.05 % per run",
            "0.3%",
            "",
            _share(count, lambda draw: _found(series(POINTS, draw, 0.003, drift=5e-4))),
        )
    ]
    print(f"share of {count} series in which a change is found; of steps, one within a point of it")
    print(tabulate([*flat, *steps, *drifts], ("series", "noise", "step", "found"), disable_numparse=True))


def _share(count: int, found: Callable[[random.Random], bool]) -> str:
    hits = sum(found(random.Random(seed)) for seed in range(count))
    return f"{hits / count:.2%} ({hits})"


def _found(history: CaseHistory) -> bool:
    return bool(with_changes(history).changes)


def _found_at(history: CaseHistory, at: int) -> bool:
    return any(abs(change.index - at) <= 1 for change in with_changes(history).changes)


def main() -> int:
    """Print what is asked for; 1 where a writer's measurement is missing."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=0)
    parser.add_argument("--at", type=Path, help="the SQLite file to make; a temporary one without it")
    parser.add_argument("--writers", type=int, default=0)
    parser.add_argument("--runs", type=int, default=20)
    parser.add_argument("--cases", type=int, default=60)
    parser.add_argument("--url", default="", help="the store to write to; a temporary SQLite file without it")
    parser.add_argument("--changes", type=int, default=0)
    options = parser.parse_args()
    complete = True
    with tempfile.TemporaryDirectory() as folder:
        if options.rows:
            print_query_cost(options.at or Path(folder) / "rows.sqlite", options.rows)
        if options.writers:
            url = options.url or str(Path(folder) / "writers.sqlite")
            complete = print_writers(url, options.writers, options.runs, options.cases)
        if options.changes:
            print_changes(options.changes)
    return 0 if complete else 1


if __name__ == "__main__":
    sys.exit(main())
