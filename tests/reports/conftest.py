"""Cases and a run as reports see them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from pytest_attnperf.records import (
    CaseKey,
    CheckReport,
    DeviceInfo,
    ErrorFigures,
    Fingerprint,
    ProcessSummary,
    Verdict,
    WorkloadFigures,
)
from pytest_attnperf.results import RESULTS_SCHEMA, CaseResult, RunResult

WORKLOAD = "prefill-b4-s512-h8-d256-f16-causal"


def make_case(
    backend: str = "triton.flash", *, workload: str = WORKLOAD, label: str = "", **fields: object
) -> CaseResult:
    """A SLOWER case: 24.6 us stored, 26.1 us now."""
    nodeid = f"suites/test_prefill.py::test_prefill[{backend}-{workload}]"
    case = CaseResult(
        key=CaseKey("prefill", backend, workload, label),
        nodeid=nodeid,
        verdict=Verdict.SLOWER,
        summary="+6.1 % against stored",
        fails=True,
        median_us=26.1,
        baseline_us=24.6,
        ratio=1.061,
        interval=(1.052, 1.07),
        threshold=1.02,
        first=tuple(process(us) for us in (26.0, 26.2, 26.1)),
        second=tuple(process(us) for us in (26.05, 26.15)),
        checks=(CheckReport((ErrorFigures("seed 1", "out", 1e-3, 2e-3, 1e-4, 2e-4),)),),
        figures=WorkloadFigures(17.1e9, 33554432.0, "f16", "hot", {"batch": 4}),
        floor_us=16.0,
        floor_bound="compute",
        peak_memory_bytes=134217728,
        policy={"threshold_percent": 2.0},
        fingerprint=Fingerprint({"arch": "sm_90"}, {"torch": "2.11.0"}),
        config={"BLOCK_M": "128", "BLOCK_N": "64"},
        reproduce=f'pytest --attnperf "{nodeid}"',
    )
    return replace(case, **fields)  # type: ignore[arg-type]


def process(us: float) -> ProcessSummary:
    """A process whose median is this."""
    return ProcessSummary(us, us - 0.1, us + 0.05, (us - 0.1, us, us + 0.2), 40, "graph", "GPU-1", "pid 7")


def make_run(*cases: CaseResult, **fields: object) -> RunResult:
    """A gating run on an H200."""
    run = RunResult(
        schema=RESULTS_SCHEMA,
        version="0.1.0",
        mode="gate",
        started="2026-01-01T00:00:00Z",
        command="pytest --attnperf suites/",
        commit="4f2c1ab",
        device=DeviceInfo("cuda", "sm_90", "h200"),
        fingerprint=Fingerprint({"arch": "sm_90"}, {}),
        cases=cases,
        gated=len(cases),
        selected=len(cases),
    )
    return replace(run, **fields)  # type: ignore[arg-type]


@pytest.fixture
def case() -> Callable[..., CaseResult]:
    """`make_case`."""
    return make_case


@pytest.fixture
def run() -> Callable[..., RunResult]:
    """`make_run`."""
    return make_run
