"""The session's judge over in-memory pools: scripted subjects, no processes."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from pytest_attnperf.baselines.store import BaselineStore
from pytest_attnperf.baselines.writing import merge_entries, new_entry
from pytest_attnperf.gate.policy import Policy
from pytest_attnperf.records import CaseKey, DeviceInfo, Fingerprint, ProcessSummary, Role
from pytest_attnperf.records.final_report import FinalReport
from pytest_attnperf.results import CaseResult
from pytest_attnperf.session import looking
from pytest_attnperf.session.case_judge import Session
from pytest_attnperf.session.interleaved import Against
from pytest_attnperf.session.settings import Case, RunMode, RunSettings
from pytest_attnperf.testing.fake.device import FakeSubject
from pytest_attnperf.workers.controller import Ready
from pytest_attnperf.workers.conversation import Conversation, OpenRequest
from pytest_attnperf.workers.interleave import InterleavePlan
from pytest_attnperf.workers.local import LocalCase
from pytest_attnperf.workloads.prefill import Prefill

WORKLOAD = Prefill(batch=1, seq_q=64, heads=1, head_dim=16)
CASE = Case(CaseKey("prefill", "fake.a", WORKLOAD.id), "suites/test_prefill.py::test_prefill[fake.a]", Policy())
DEVICE = DeviceInfo("cpu", "fake", "fake1")
MACHINE = Fingerprint({"arch": "fake", "product": "fake1"}, {"driver": "1"})


@dataclass
class Served(LocalCase):
    """A case whose process says which files it loaded, and may have loaded some of another tree; `final` replaces
    fields of its report."""

    foreign: tuple[str, ...] = ()
    sources: dict[str, str] = field(default_factory=dict)
    final: dict[str, Any] = field(default_factory=dict)

    def finish(self) -> FinalReport:
        """The subject's report, with where code came from."""
        return replace(super().finish(), foreign_sources=self.foreign, sources=self.sources, **self.final)


@dataclass
class FakePool:
    """A Pool without processes: `common` scripts every place, `by_place` single ones, `error` is raised instead.

    `visited` holds the places whose process served a case, in order, and `pins` what each was told to run with.
    Processes differ by up to 0.3 %; `stride` deals these biases to places, so that two sides of a pair differ, too. A
    script's `canary_us` is the time of the canary's GEMM in that place, its `final` replaces fields of the last report.
    """

    common: dict[str, Any] = field(default_factory=lambda: {"time_us": 100.0})
    by_place: dict[int, dict[str, Any]] = field(default_factory=dict)
    visited: list[int] = field(default_factory=list)
    started: list[int] = field(default_factory=list)
    pins: list[dict[str, str]] = field(default_factory=list)
    stride: int = 1
    machine: Fingerprint = MACHINE
    cases: tuple[CaseKey, ...] = (CASE.key,)
    asked: bool = False

    @contextlib.contextmanager
    def case_at(self, place: int, request: OpenRequest) -> Iterator[Conversation]:
        """The scripted case in that place."""
        self.visited.append(place)
        self.pins.append(dict(request.pin))
        script = self._script(place)
        if "error" in script:
            raise script["error"]
        subject = FakeSubject(script, self._bias(place), (request.check_seed, request.final_seed), pin=request.pin)
        said = (script.get("foreign", ()), script.get("sources", {}), script.get("final", {}))
        yield Served(subject, WORKLOAD, request.repeats, request.trials, *said)

    def measure_canary(self, place: int) -> dict[str, ProcessSummary]:
        """One GEMM, moved by a tenth of the process's bias."""
        us = self._script(place).get("canary_us", 200.0) * (0.9 + 0.1 * self._bias(place))
        return {"gemm": ProcessSummary(us, us, us, (), 6, "host", process=f"pid {1000 + place}")}

    def _script(self, place: int) -> dict[str, Any]:
        return {**self.common, **self.by_place.get(place, {})}

    def _bias(self, place: int) -> float:
        return 1 + 0.001 * (place * self.stride % 7 - 3)

    def wait_until_ready(self, place: int) -> Ready:
        """Each place is a process of its own."""
        self.asked = True
        return Ready(1000 + place, Role.INTERPRET, DEVICE, self.machine, self.cases)

    def start(self, places: Sequence[int]) -> None:
        """Remember."""
        self.started += places

    def last_ready(self) -> Ready | None:
        """Some place, once one was asked."""
        return self.wait_until_ready(0) if self.asked else None

    def shutdown(self) -> None:
        """Nothing runs."""


class Bench:
    """Sessions over one store: `pool` is this side's, `base` the base side's where `against` has one."""

    def __init__(self, folder: Path) -> None:
        self.case = CASE
        self.store = BaselineStore(folder / "baselines", folder / "local")
        self.local = folder / "local"
        self.pool = FakePool()
        self.base = FakePool(stride=3)
        self.against: Against | None = None

    def against_base(self, *, everything: bool = False, **common: Any) -> Against:
        """Take interleaved looks of three pairs against a base side; `common` scripts each of its places."""
        self.base.common = {"time_us": 100.0, **common}
        plan = InterleavePlan(pairs=3, quads=8)
        self.against = Against(self.base, "main (4f2c1ab)", plan, everything=everything)
        return self.against

    def judge(
        self, mode: RunMode = RunMode.GATE, case: Case = CASE, settings: dict[str, Any] | None = None, **common: Any
    ) -> CaseResult:
        """One case judged; `common` scripts every place, `self.pool.by_place` those set before."""
        for pool in (self.pool, self.base):
            pool.visited.clear()
            pool.pins.clear()
        self.pool.common = {"time_us": 100.0, **common}
        run = RunSettings(mode, **{"cases": 1, "seed": 41, **(settings or {})})
        return Session(looking.RunBench(run, self.pool, self.store, self.local, against=self.against)).judge(case)

    def record(self, case: Case = CASE, **common: Any) -> None:
        """Store a baseline."""
        result = self.judge(RunMode.UPDATE, case, **common)
        merge_entries(
            self.store, self.store.roots[0], "fake", "fake1", "prefill", {case.key.entry: new_entry(result, "c0")}
        )


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    """Nothing is stored."""
    return Bench(tmp_path)


@pytest.fixture
def stored(bench: Bench) -> Bench:
    """The case is stored at 100 us."""
    bench.record()
    return bench
