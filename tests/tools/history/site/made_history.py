"""A made history: eight cases in thirty runs, two lasting changes, a wrong result, two devices, an unknown commit."""

from __future__ import annotations

import hashlib
import math
import random
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from pathlib import Path

from pytest_attnperf.records import CaseKey, DeviceInfo, Fingerprint, Verdict
from pytest_attnperf.results import CaseResult, RunResult
from pytest_attnperf.testing.sample_runs import sample_run
from pytest_attnperf.tools.history.bulk_reading import BulkFilter
from pytest_attnperf.tools.history.history_store import open_store
from pytest_attnperf.tools.history.site.write_site import WrittenSite, write_site

CASES, RUNS, ELSEWHERE = 8, 30, 2
SLOWER_FROM, FASTER_FROM, WRONG_AT, UNKNOWN_AT = 20, 12, 5, 3
SLOWER, FASTER = "triton.flash", "hip.flash"
FIRST = datetime(2026, 1, 1, 8, tzinfo=timezone.utc)
JOB = "https://github.com/example/kernels/actions/runs/7"


def commit_of(number: int) -> str:
    """Returns the commit of a run."""
    return "unknown" if number == UNKNOWN_AT else hashlib.sha1(str(number).encode()).hexdigest()


def make_run(number: int, cases: int = CASES, names: Sequence[str] = ()) -> RunResult:
    """Returns one run; `names` replace the backends of its first cases."""
    run = sample_run(cases, verdicts=[Verdict.SAME])
    draw = random.Random(number)
    software = {"torch": "2.12.0" if number >= SLOWER_FROM else "2.11.0", "driver": "580.00"}
    made = tuple(
        _make_case(case, number, place, Fingerprint({"timer": "graph"}, software), draw)
        for place, case in enumerate(run.cases)
    )
    renamed = tuple(
        replace(case, key=CaseKey(name, name, f"w-{name}", name), nodeid=name)
        for case, name in zip(made, names, strict=False)
    )
    return replace(
        run,
        cases=(*renamed, *made[len(renamed) :]),
        started=(FIRST + timedelta(days=number)).isoformat(),
        commit=commit_of(number),
        run_id=f"run {number}",
        provenance={"branch": "main", "ci_url": JOB},
    )


def _make_case(case: CaseResult, number: int, place: int, software: Fingerprint, draw: random.Random) -> CaseResult:
    level = 100.0 + 10 * place
    level *= 1.1 if case.key.backend == SLOWER and number >= SLOWER_FROM else 1.0
    level *= 0.92 if case.key.backend == FASTER and number >= FASTER_FROM else 1.0
    us = level * math.exp(draw.gauss(0, 0.003))
    processes = tuple(replace(case.first[0], median_us=us * scale) for scale in (0.99, 1.0, 1.01))
    case = replace(case, median_us=us, first=processes, second=(), fingerprint=software)
    if place == 0 and number == WRONG_AT:
        return replace(case, verdict=Verdict.INCORRECT, median_us=None, baseline_us=None, first=())
    return case


def fill_store(path: Path, runs: int = RUNS, cases: int = CASES, names: Sequence[str] = ()) -> Path:
    """Appends runs to a store; every third is followed by one of fewer cases on another device."""
    with open_store(str(path)) as store:
        for number in range(runs):
            run = make_run(number, cases, names)
            store.append(run)
            if number % 3 == 0:
                device = DeviceInfo("cuda", "gfx942", "mi300x", "mi300x")
                few = replace(run, device=device, cases=run.cases[:ELSEWHERE], run_id=f"elsewhere {number}")
                store.append(few)
    return path


def write_made_site(store: Path, folder: Path, asked: BulkFilter | None = None) -> WrittenSite:
    """Writes a site without a word."""
    with open_store(str(store), read_only=True) as opened:
        return write_site(opened, str(store), folder, asked or BulkFilter(), lambda _: None)
