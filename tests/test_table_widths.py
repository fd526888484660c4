"""Every table of text with the longest ids of the suites: it fits 80 and 120 columns, and no id is cut."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest

from pytest_attnperf.cli.report_modes.by_step import find_occupancy, ladder_tables
from pytest_attnperf.codeobject.occupancy import Resources, occupancy_with
from pytest_attnperf.records import CaseKey, Launch, WorkloadFigures
from pytest_attnperf.records.gpus import Together, TogetherGpu
from pytest_attnperf.records.histories import CaseHistory, ChangePoint, HistoryPoint
from pytest_attnperf.records.profiles import CaseProfile, KernelShape, LiveKernel
from pytest_attnperf.records.published import PublishedTime, PublishedTimes
from pytest_attnperf.records.rooflines import BoundClass, BoundVerdict, RooflinePoint
from pytest_attnperf.records.stages import Breakdown, StageTime
from pytest_attnperf.reports.run.compared import ComparedRow, case_table
from pytest_attnperf.reports.run.joined import join_single
from pytest_attnperf.reports.run.ladder_cases import Ladder
from pytest_attnperf.reports.run.profile_cases import bound_table
from pytest_attnperf.reports.run.published_times import published_table
from pytest_attnperf.reports.run.run_text import run_text
from pytest_attnperf.reports.run.stage_tables import make_stage_table, stage_text
from pytest_attnperf.reports.run.tables import together_table
from pytest_attnperf.reports.run.terminal import missing_lines
from pytest_attnperf.reports.text.text_width import display_width
from pytest_attnperf.reports.text.wide_tables import Table, render_terminal_tables
from pytest_attnperf.results import CaseResult, RunResult
from pytest_attnperf.testing.sample_runs import sample_run
from pytest_attnperf.tools.dispatch import dispatch_text
from pytest_attnperf.tools.dispatch.measured_points import BackendTime, make_points
from pytest_attnperf.tools.dispatch.regions import make_dispatch_table
from pytest_attnperf.tools.history.history_text import ListedCase, render_cases, render_histories
from pytest_attnperf.tools.occupancy.occupancy_text import OverviewRow, render_overview_table
from pytest_attnperf.tools.tuner.tuned_files import changes_table
from pytest_attnperf.tuning_records import WorkloadChange

BASELINES = Path(__file__).parents[1] / "baselines"
KERNEL = "flash_attention_forward_kernel<128, 64, 8, true, __hip_bfloat16>"
STAGES = Breakdown(
    tuple(StageTime(name, 5.4, (Launch(KERNEL),), 1, 2**20) for name in ("qkv_projection", "attention", "projection")),
    *(210_820.0, "graph", 812.2, 3.21, (Launch(KERNEL),), 4, 2**22),
)
GPU = "GPU-22e33a7a-1b2c-4d5e-8f90-123456789abc"
BOTH = Together((TogetherGpu(GPU, 100.0, 125.0, 90), TogetherGpu("GPU-2", 100.0, 100.0, 91)), "graph", 0.5)
PROFILE = CaseProfile(
    calls=2,
    kernels=(LiveKernel(KernelShape(KERNEL), (90_000, 110_000)),),
    profiler_ns=210_000,
    bound=BoundVerdict(
        BoundClass.UNDECIDED, "a reason", "a counter", RooflinePoint(1.0, 5e7, 2e6, 5e11, 2e10, 25.0, 40.0, "DRAM", 0.4)
    ),
)


@cache
def run_of_longest() -> RunResult:
    """A sample run, with the longest id of every suite in place of its own."""
    cases = sample_run(60).cases
    keys = []
    for path in sorted(BASELINES.glob("sm_90/h200/*.json")):
        entries = [entry.partition("/")[::2] for entry in json.loads(path.read_text())["entries"]]
        for place in (0, 1):
            backend, workload = max(entries, key=lambda entry: len(entry[place]))
            keys.append(CaseKey(path.stem, backend, workload))
    assert max(len(key.workload) for key in keys) > 60
    made = [_rename(case, key) for case, key in zip(cases, dict.fromkeys(keys), strict=False)]
    return replace(sample_run(1), cases=tuple(made), selected=len(made))


def _rename(case: CaseResult, key: CaseKey) -> CaseResult:
    nodeid = f"suites/test_{key.suite}.py::test_{key.suite}[{key.backend}-{key.workload}]"
    figures = WorkloadFigures(1e12, 1e9, "f16", "hot", {})
    extra = {"breakdown": STAGES, "together": BOTH, "profile": PROFILE, "peak_memory_bytes": 2**27}
    timed = {**extra, "median_us": 210_820.0, "figures": figures} if case.median_us else {}
    return replace(case, key=key, nodeid=nodeid, **timed)


def _timed() -> list[CaseResult]:
    return [case for case in run_of_longest().cases if case.median_us]


def _run(verbosity: int) -> Callable[[int], str]:
    return lambda width: run_text(join_single(run_of_longest()), width=width, verbosity=verbosity)


def _compared(width: int) -> str:
    rows = [ComparedRow(str(one.key), "undecided", 2e5, 2e5, 1.0, (0.9, 1.2), 1.02) for one in run_of_longest().cases]
    return case_table(rows, width=width)


def _tables(make: Callable[[CaseResult], Iterable[Table]]) -> Callable[[int], str]:
    return lambda width: render_terminal_tables((), [table for one in _timed() for table in make(one)], width)


def _listed(width: int) -> str:
    change = ChangePoint(10, 105.0, 115.5, "a" * 40, "b" * 40, ("torch: 1 -> 2",), 12.34)
    listed = [
        ListedCase(str(one.key), device, 20, 1, "2026-01-20", change, "2026-01-11")
        for one in run_of_longest().cases
        for device in ("sm_90/h200", "gfx942/mi300x")
    ]
    return render_cases(listed, [], width)


def _histories(width: int) -> str:
    points = tuple(
        HistoryPoint(
            f"2026-01-{day:02}T12:30:00+00:00", "a" * 40 + "+dirty", "UNDECIDED", 2e5, (1.0, 2.0), branch="b" * 24
        )
        for day in range(1, 21)
    )
    points = (*points, replace(points[-1], branch="main"))
    change = ChangePoint(10, 105.0, 115.5, "a" * 40 + "+dirty", "b" * 40 + "+dirty", (), 12.34)
    return render_histories(
        [CaseHistory(str(one.key), "sm_90", "h200", points, (change,)) for one in run_of_longest().cases], width
    )


def _occupancy(width: int) -> str:
    found = occupancy_with("gfx942", Resources(128, 64, 104, 32_768, 512))
    rows = [OverviewRow(str(one.key), "gfx1100", 238, 128, 104, 65_536, 1024, found) for one in run_of_longest().cases]
    return render_overview_table(rows, width)


def _dispatch(width: int) -> str:
    times = [
        BackendTime(backend, case.key.workload, us, "run.json", "2026-01-01", ())
        for case in run_of_longest().cases
        for backend, us in ((case.key.backend, 1.0), ("layer.triton.flash_persistent", 1.5))
    ]
    return dispatch_text.render_table(make_dispatch_table(*make_points(times), margin=0.02), (), (), width)


def _ladder(case: CaseResult) -> Iterable[Table]:
    return ladder_tables(Ladder(case.key.workload, (case,), 1e6, case.key.backend, 1e6), find_occupancy)


def _tuned(case: CaseResult) -> Iterable[Table]:
    return [changes_table([WorkloadChange(case.key.workload, True, 2e5, 2e5, 1.0, (0.9, 1.2), "SLOWER")])]


def _published(width: int) -> str:
    rows = tuple(
        PublishedTime(case.key.workload, "native.eager_fp32 (before tuning)", 210_800.0)
        for case in run_of_longest().cases
    )
    return published_table([PublishedTimes("a report", "", False, rows)], width=width)


TEXTS: dict[str, tuple[Callable[[int], str], str]] = {
    "run": (_run(0), "workload"),
    "run -v": (_run(1), "workload"),
    "run -q": (_run(-1), ""),
    "compare": (_compared, "key"),
    "where the time goes": (lambda width: stage_text(_timed(), width), "timed"),
    "stages in full": (_tables(lambda case: [make_stage_table(case.key.workload, case)]), "timed"),
    "all GPUs at once": (lambda width: together_table(_timed(), width), "timed"),
    "profiled": (
        lambda width: render_terminal_tables((), [bound_table([(one, PROFILE) for one in _timed()])], width),
        "timed",
    ),
    "history --list": (_listed, "key"),
    "history": (_histories, "key"),
    "occupancy": (_occupancy, "key"),
    "dispatch": (_dispatch, ""),
    "ladder": (_tables(_ladder), "timed"),
    "tune": (_tables(_tuned), "timed"),
    "published": (_published, "workload"),
    "missing": (lambda _: "\n".join(missing_lines(run_of_longest().cases[:5], "sm_90/h200")[:-1]), ""),
}


@pytest.mark.parametrize("width", [80, 120])
@pytest.mark.parametrize("name", TEXTS)
def test_every_table_fits_and_cuts_no_id(name: str, width: int) -> None:
    """Only a line that holds a single word, which is copied, is wider; every id of the data occurs whole."""
    render, holds = TEXTS[name]
    lines = render(width).splitlines()
    assert lines
    closing = "; slowest: "  # the closing line of a run is a sentence, which terminals wrap
    wide = [line for line in lines if display_width(line) > width and " " in line.strip() and closing not in line]
    assert wide == []
    cases = _timed() if holds == "timed" else run_of_longest().cases
    ids = [str(case.key) if holds == "key" else case.key.workload for case in cases] if holds else []
    text = "\n".join(lines)
    assert [one for one in dict.fromkeys(ids) if one not in text] == []
