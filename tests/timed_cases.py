"""Cases that ran on the fake device and were all right, their baselines, and the results of a run with them."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path

from pytest_attnperf.baselines.store import BaselineStore
from pytest_attnperf.baselines.writing import merge_entries, new_entry
from pytest_attnperf.correctness.budget import LAST_CALL, PLANTED, TIMED
from pytest_attnperf.gate.policy import Policy
from pytest_attnperf.records import (
    CaseKey,
    CheckReport,
    DeviceInfo,
    ErrorFigures,
    Fingerprint,
    ProcessSummary,
    Samples,
    Verdict,
    WorkloadFigures,
)
from pytest_attnperf.results import RESULTS_SCHEMA, CaseResult, RunResult
from pytest_attnperf.stats.summaries import summarise_process

MACHINE = Fingerprint({"arch": "fake", "product": "fake1", "timer": "host"}, {})
RIGHT = CheckReport(
    tuple(ErrorFigures(check, "out", 1e-4, 1e-3, 1e-5, 1e-4, elements=64) for check in (TIMED, PLANTED, LAST_CALL))
)
POLICY = Policy().to_record()


def _process(us: float, number: int) -> ProcessSummary:
    draw = random.Random(f"{us} {number}")
    centre = us * (1 + 0.001 * (number % 5 - 2))
    return summarise_process(Samples(tuple(centre * (1 + draw.gauss(0, 0.0005)) for _ in range(9)), 5, "host"))


def timed_case(us: float, name: str = "fake.a") -> CaseResult:
    """A timed case; slower than 102 us it had a second look."""
    return CaseResult(
        CaseKey("prefill", name, "w"),
        f"suites/test_prefill.py::test[{name}]",
        Verdict.SAME,
        "so it says",
        first=(_process(us, 20),),
        second=tuple(_process(us, number) for number in (21, 22, 23)) if us > 102 else (),
        checks=(RIGHT,),
        figures=WorkloadFigures(None, None, "f16", "hot", {"s": 64}),
        policy=POLICY,
        fingerprint=MACHINE,
    )


def run_of(*cases: CaseResult) -> RunResult:
    """A gating run of these cases, all that were selected."""
    device = DeviceInfo("cpu", "fake", "fake1")
    return RunResult(RESULTS_SCHEMA, "0", "gate", "2026-01-01", "pytest", "c1", device, MACHINE, cases,
                     selected=len(cases))  # fmt: skip


def store_baselines(root: Path, *names: str, us: float = 100.0) -> None:
    """Baselines of these backends under `root`."""
    for name in names:
        first = tuple(_process(us, number) for number in range(7))
        recorded = replace(timed_case(us, name), verdict=Verdict.RECORDED, first=first, checks=(RIGHT,) * 7)
        entry = {recorded.key.entry: new_entry(recorded, "c0")}
        merge_entries(BaselineStore(root), root, "fake", "fake1", "prefill", entry)
