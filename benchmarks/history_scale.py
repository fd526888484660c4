"""What a history in PostgreSQL takes at the size of a team: 200 runs a day of 2,000 cases for two years.

    python benchmarks/history_scale.py --share 100 --shape long [--at FOLDER]
    python benchmarks/history_scale.py --share 30 --shape wide

The whole is 292 million measurements, more than a machine at hand holds, so that a share of it is stored: `long` keeps
all 146,000 runs of fewer cases (what one case takes depends on its runs), `wide` all 2,000 cases of fewer runs (what a
run, the list and a day's pruning take depends on the cases). A server of its own is started on a socket in FOLDER. The
rows are made in the server, run by run, as runs would have appended them. `cold` is the first call after a restart with
nothing of the files in memory, `warm` the median of the calls after it; CPU is that of the program and the server
together, in the median, and says what is left on a machine that does nothing else. Each plan is asked of the server,
and printed by the indexes that it reads; a scan of the whole table is said as such.
"""

from __future__ import annotations

import argparse
import os
import re
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta, timezone
from functools import partial
from pathlib import Path
from typing import Any

from sqlalchemy import delete
from tabulate import tabulate

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
sys.path.insert(0, str(Path(__file__).parent))

from postgres_server import PostgresServer, run_server

from pytest_attnperf.records import Verdict
from pytest_attnperf.results import RunResult
from pytest_attnperf.testing.sample_runs import sample_run
from pytest_attnperf.tools.history.change_points import with_changes
from pytest_attnperf.tools.history.history_store import HistoryStore, open_store
from pytest_attnperf.tools.history.history_tables import define_tables
from pytest_attnperf.tools.history.store_schema import fill_summaries

CASES, RUNS, DAYS = 2000, 146_000, 730
EVERY_S = DAYS * 86400 / RUNS
CALLS = 5
STEP_RUNS = 2000
"""Runs that are made by one statement."""

MAKE_RUNS = """
INSERT INTO attnperf_runs (id, digest, started, run_id, started_text, commit_id, branch, source, version, mode,
                           appended, complete, provenance)
SELECT 2 + n, 'made ' || n, %(first)s + n * %(every)s, 'made ' || n, to_timestamp(%(first)s + n * %(every)s)::text,
       md5(n::text), 'main', 'attnperf', '0.1.0', 'gate', '', true, '{"branch": "main", "machine": "node"}'
FROM generate_series(%(start)s::int, %(end)s::int) n
"""
MAKE_MEASUREMENTS = """
INSERT INTO attnperf_measurements (case_id, started, run_id, machine_id, environment_id, verdict, median_us,
                                   baseline_us, ratio, process_us)
SELECT c, %(first)s + n * %(every)s, 2 + n, %(machine)s, %(environment)s, 'SAME', us, 100.0, us / 100.0,
       %(processes)s::json
FROM generate_series(%(start)s::int, %(end)s::int) n, generate_series(1, %(cases)s) c,
     LATERAL (SELECT 100 * (CASE WHEN n > %(runs)s * 0.6 THEN 1.03 ELSE 1 END)
                     * exp(0.003 * sqrt(-2 * ln(1 - random())) * cos(6.2831853 * random() + 0 * c)) AS us) drawn
"""


SCALES = (0.9991, 0.9995, 1.0001, 1.0003, 1.0007, 1.0011, 1.0013)
PROCESSES = f"[{', '.join(f'{99.9999999 * scale:.14f}' for scale in SCALES)}]"
"""Times of seven processes, the same for all: they are as long as real ones, and nothing is computed from them."""


@dataclass
class Figures:
    """Rows of the printed table, and the server whose share of the CPU time they hold."""

    server: PostgresServer
    rows: list[tuple[str, ...]] = field(default_factory=list)

    def measure(self, what: str, works: Sequence[Callable[[], object]], note: str = "") -> None:
        """Calls each of `works` once, the first after a cold restart, and adds a row."""
        self.server.restart_cold()
        wall, cpu = [], []
        for work in works:
            before = time.process_time() + self.server.read_cpu_s()
            begun = time.perf_counter()
            work()
            wall.append(time.perf_counter() - begun)
            cpu.append(time.process_time() + self.server.read_cpu_s() - before)
        warm = (statistics.median(wall[1:]), max(wall[1:]), statistics.median(cpu[1:]))
        self.rows.append((what, *(f"{one:.2f}" for one in (wall[0], *warm, os.getloadavg()[0])), note))


def fill(server: PostgresServer, cases: int, runs: int) -> list[str]:
    """Makes a store of `cases` cases in `runs` runs, the newest of now; returns the cases' names."""
    import psycopg

    newest = datetime.now(timezone.utc)
    made = make_run(newest, cases)
    with open_store(server.url) as store:
        store.append(made)
    first = newest.timestamp() - runs * EVERY_S
    with psycopg.connect(server.url, autocommit=True) as connection:
        found = connection.execute("SELECT machine_id, environment_id FROM attnperf_measurements LIMIT 1").fetchone()
        assert found is not None
        given: dict[str, Any] = {"first": first, "every": EVERY_S, "cases": cases, "runs": runs}
        given |= {"machine": found[0], "environment": found[1], "processes": PROCESSES}
        connection.execute("SET session_replication_role = replica")  # the rows are known to refer to what is there
        for start in range(0, runs, STEP_RUNS):
            part = {**given, "start": start, "end": min(runs, start + STEP_RUNS) - 1}
            connection.execute(MAKE_RUNS, part)
            connection.execute(MAKE_MEASUREMENTS, part)
        connection.execute(f"ALTER SEQUENCE attnperf_runs_id_seq RESTART WITH {runs + 2}")
    summarise(server)
    with psycopg.connect(server.url, autocommit=True) as connection:
        connection.execute("VACUUM (ANALYZE)")
    return [str(case.key) for case in made.cases]


def summarise(server: PostgresServer) -> None:
    """Fills the tables that `append` keeps beside measurements, as a migration from version 1 does."""
    with open_store(server.url) as store:
        for table in (define_tables().totals, define_tables().uses):
            store.transactions.write(lambda connection, table=table: connection.execute(delete(table)))  # type: ignore[misc]
        store.transactions.write(fill_summaries)


def make_run(started: datetime, cases: int, run_id: str = "sample") -> RunResult:
    """A run as the plugin gives it to `append`."""
    return replace(sample_run(cases, verdicts=[Verdict.SAME], started=started.isoformat()), run_id=run_id)


def measure_reading(server: PostgresServer, names: list[str], figures: Figures) -> None:
    """Asks for the page of a case, each time another, for its change points, and for the list of cases."""
    seen: list[Any] = []

    def load(name: str, search: bool) -> None:
        with open_store(server.url, read_only=True) as store:
            (history,) = load_page(store, name)
        seen[:] = [with_changes(history) if search else history]

    def list_cases() -> None:
        with open_store(server.url, read_only=True) as store:
            seen[:] = store.list_cases()

    asked = names[1 : 2 + CALLS]
    figures.measure("page of a case", [partial(load, name, False) for name in asked], "its points are thinned to 2,000")
    figures.measure("page of a case with its change points", [partial(load, name, True) for name in asked])
    print(f"a page has {len(seen[0].points)} points and {len(seen[0].changes)} change", flush=True)
    figures.measure("list of cases with their runs", [list_cases] * (1 + CALLS), f"{len(names)} cases")


def load_page(store: HistoryStore, name: str) -> Any:
    """The series of a case as its page shows them; versions before 0.2 have no thinned one."""
    return getattr(store, "load_page", store.load_history)(name)


def measure_writing(server: PostgresServer, figures: Figures, held_days: float) -> None:
    """Appends runs of 2,000 cases, each by a connection of its own, as a pytest run does; then deletes the oldest day,
    three times, and asks for a rule by number that keeps all."""
    now = datetime.now(timezone.utc)

    def append(run: RunResult) -> None:
        with open_store(server.url) as store:
            assert store.append(run).rows == CASES

    def prune(rule: dict[str, Any]) -> None:
        with open_store(server.url) as store:
            store.prune(**rule)

    runs = [make_run(now + timedelta(seconds=number), CASES, f"new {number}") for number in range(1 + CALLS)]
    figures.measure(f"append of a run of {CASES} cases", [partial(append, run) for run in runs])
    if held_days > 5:
        days = [partial(prune, {"keep_days": held_days - day}) for day in (1, 2, 3)]
        figures.measure("prune of a day", days, "400,000 rows")
    figures.measure("prune by --keep-runs, which keeps all", [partial(prune, {"keep_runs": RUNS})] * 3)


def watch_plans(server: PostgresServer, work: Callable[[HistoryStore], object]) -> list[str]:
    """How the statements of `work` read measurements: the indexes of their plans, or that all are scanned."""
    server.stop()
    server.start({"session_preload_libraries": "auto_explain", "auto_explain.log_min_duration": "0"})
    with open_store(server.url) as store:
        work(store)
    server.stop()
    text = server.log.read_text(errors="replace")
    server.start()
    found = re.findall(r"((?:Seq|Index Only|Index|Bitmap Index) Scan[^\n(]*)", text)
    return sorted({one.strip() for one in found if "measurements" in one})


def print_plans(server: PostgresServer, name: str, keep_days: float) -> None:
    """Prints how measurements are read, by each thing that is measured."""
    works: list[tuple[str, Callable[[HistoryStore], object]]] = [
        ("page", lambda store: load_page(store, name)),
        ("list", lambda store: store.list_cases()),
        ("append", lambda store: store.append(make_run(datetime.now(timezone.utc), CASES, "planned"))),
        ("prune of a day", lambda store: store.prune(keep_days=keep_days)),
    ]
    for what, work in works:
        print(f"plan of {what}: {'; '.join(watch_plans(server, work)) or 'no measurement is read'}", flush=True)


def describe_size(server: PostgresServer) -> str:
    """Rows of the table, and the bytes of it and of its indexes."""
    import psycopg

    with psycopg.connect(server.url) as connection:
        row = connection.execute(
            "SELECT reltuples::bigint, pg_table_size(oid) / 1e9, pg_indexes_size(oid) / 1e9 FROM pg_class "
            "WHERE relname = 'attnperf_measurements'"
        ).fetchone()
    assert row is not None
    return f"{row[0]} measurements, table {row[1]:.2f} GB, indexes {row[2]:.2f} GB"


def main() -> None:
    """Fill, measure, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--share", type=int, default=100, help="the N-th part of the whole")
    parser.add_argument("--shape", choices=("long", "wide"), default="long")
    parser.add_argument(
        "--at", type=Path, default=Path(tempfile.gettempdir()), help="where the server's folder is made"
    )
    options = parser.parse_args()
    cases, runs = (CASES // options.share, RUNS) if options.shape == "long" else (CASES, RUNS // options.share)
    held_days = runs * EVERY_S / 86400
    with run_server(options.at) as server:
        figures = Figures(server)
        begun = time.perf_counter()
        names = fill(server, cases, runs)
        filled = time.perf_counter() - begun
        print(
            f"{options.shape}: {cases} cases, {runs} runs, {describe_size(server)}, made in {filled:.0f} s", flush=True
        )
        measure_reading(server, names, figures)
        if options.shape == "wide":
            measure_writing(server, figures, held_days)
        heads = ("what", "cold s", "warm s", "slowest s", "CPU s", "load", "")
        print(tabulate(figures.rows, heads, disable_numparse=True), flush=True)
        print_plans(server, names[0], held_days - 4)


if __name__ == "__main__":
    main()
