from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from pytest_attnperf.records import Launch, Verdict
from pytest_attnperf.records.stages import Breakdown, StageTime
from pytest_attnperf.reports.run.stage_tables import (
    group_by_workload,
    make_cpu_speedup_table,
    make_overview_table,
    make_stage_table,
    stage_text,
)
from pytest_attnperf.reports.text.time_cells import TimeCell
from pytest_attnperf.reports.text.wide_tables import render_terminal_tables
from pytest_attnperf.results import CaseResult

Make = Callable[..., CaseResult]

WORKLOAD = "block-b1-s512-e4096-h32-hk8-d128-bf16"
KERNEL = Launch("gemm", calls=1.0)
FUSED = Breakdown((), 139.0, "graph", 20412.0, 812.4)
STAGES = (
    StageTime("qkv_projection", 42.0, (KERNEL,), 1, 2**20, "cold"),
    StageTime("split", 0.0, (), 0, 0),
    StageTime("attention.qk_scores", 30.0, (KERNEL,), 1, 2**20),
    StageTime("attention.row_softmax", 26.0, (KERNEL, Launch("copy", "copy")), 2, 2**21),
)
STAGED = Breakdown(STAGES, 100.0, "graph", 812.2, 3.21, (replace(KERNEL, calls=3.0), Launch("copy")), 4, 2**22)


@pytest.fixture
def cases(case: Make) -> list[CaseResult]:
    """A staged and a fused layer on one workload, and a case without a breakdown."""
    return [
        case("layer.hip.staged", workload=WORKLOAD, median_us=101.0, breakdown=STAGED),
        case("layer.native.compiled", workload=WORKLOAD, median_us=139.0, breakdown=FUSED),
        case("layer.triton.flash", workload=WORKLOAD),
    ]


def test_cases_with_stages_stand_together(cases: list[CaseResult], case: Make) -> None:
    """A group per workload and label; what has no breakdown is in none."""
    labelled = case("layer.plain", workload=WORKLOAD, label="cold", breakdown=FUSED)
    groups = group_by_workload([*cases, labelled])
    assert {title: len(members) for title, members in groups.items()} == {WORKLOAD: 2, f"{WORKLOAD}/cold": 1}
    assert stage_text(cases[2:]) == ""


def test_attention_is_one_column(cases: list[CaseResult]) -> None:
    """Its stages are summed and counted; what launches nothing anywhere is named below instead of being a column."""
    table = make_overview_table(WORKLOAD, cases)
    headers = [column.header for column in table.columns]
    assert headers == [
        "call", "first", "build", "launches", "allocs", "sum/call", "qkv_projection", "attention",
    ]  # fmt: skip
    text = render_terminal_tables((), [table], 200).splitlines()
    assert text[1].split()[:7] == ["backend", "call", "us", "first", "ms", "build", "ms"]
    assert [row.split() for row in text[3:5]] == [
        ["layer.hip.staged", "100.0", "3.210", "812.2", "4", "4", "98", "%", "42.00", "56.00", "(2)"],
        ["layer.native.compiled", "139.0", "812.4", "20412", "-", "-", "-", "-", "-"],
    ]
    assert table.notes == ("launch nothing here: split", "no stages of their own: layer.native.compiled")


def test_a_wide_table_has_its_stages_apart(cases: list[CaseResult]) -> None:
    """What fits is one table; what does not is the whole calls, then their stages, in at most the width."""
    short = replace(STAGED, stages=STAGES[1:])
    assert stage_text([replace(cases[0], breakdown=short)]).count("backend") == 1
    names = ("output_projection", "cache_append", "rope")
    wide = replace(STAGED, stages=(*STAGES, *(StageTime(name, 5.0) for name in names)))
    text = stage_text([replace(cases[0], breakdown=wide), cases[1]])
    assert max(map(len, text.splitlines())) <= 110
    first, second = (line.split() for line in text.splitlines() if line.startswith("backend"))
    assert first[-1] == "sum/call"
    assert [word for word in second if word != "us"] == ["backend", "qkv_projection", "attention", *names]


def test_every_stage_in_full(cases: list[CaseResult]) -> None:
    """TimeCell, share of the call, launches, allocations, memory, cache and what runs; sum and whole below them."""
    table = make_stage_table(WORKLOAD, cases[0])
    assert table.rows == (
        ("qkv_projection", TimeCell(42.0), "42 %", "1", "1", "1", "cold", "gemm"),
        ("split", TimeCell(0.0), "0 %", "0", "0", "0", "hot", "nothing"),
        ("attention.qk_scores", TimeCell(30.0), "30 %", "1", "1", "1", "hot", "gemm"),
        ("attention.row_softmax", TimeCell(26.0), "26 %", "2", "2", "2", "hot", "gemm +1"),
        ("sum of stages", TimeCell(98.0), "98 %", "4", "4", "4", "", ""),
        ("whole call", TimeCell(100.0), "", "4", "4", "4", "", ""),
    )
    assert table.notes == ("layer.hip.staged: build 812.2 ms, first call 3.210 ms, timer graph",)


def test_what_nobody_knows_is_not_summed(cases: list[CaseResult]) -> None:
    """One stage whose launches and allocations are unknown leaves the sums of these unknown."""
    unknown = replace(STAGED, stages=(*STAGES, StageTime("rope", 4.0)))
    rows = make_stage_table(WORKLOAD, replace(cases[0], breakdown=unknown)).rows
    assert rows[-3] == ("rope", TimeCell(4.0), "4 %", "-", "-", "-", "hot", "-")
    assert rows[-2] == ("sum of stages", TimeCell(102.0), "102 %", "-", "-", "-", "", "")


def test_over_a_cpu(cases: list[CaseResult]) -> None:
    """Each backend's time under the CPU's; without one, the reason."""
    table = make_cpu_speedup_table(WORKLOAD, cases[:2], 10100.0, "layer.plain")
    assert table.rows[0] == ("layer.plain on the CPU", TimeCell(10100.0), "1.00x")
    assert table.rows[1] == ("layer.hip.staged", TimeCell(101.0), "100.0x")
    missing = make_cpu_speedup_table(WORKLOAD, cases[:2], None, "layer.plain")
    assert [row[2] for row in missing.rows] == ["-", "-"]
    assert missing.notes == ("the CPU's results hold no time of layer.plain on this workload",)


def test_foreign_names_cannot_repaint_a_terminal(case: Make) -> None:
    """Names of backends, stages and kernels are shown without control characters, and cut."""
    evil = "\x1b[2Jx" * 30
    found = replace(STAGED, stages=(StageTime(evil, 1.0, (Launch(evil),)),))
    made = case(f"{evil}.a", workload=WORKLOAD, breakdown=found)
    text = stage_text([made]) + render_terminal_tables((), [make_stage_table(WORKLOAD, made)])
    assert "\x1b" not in text


def test_times_of_a_wrong_result_are_not_shown(cases: list[CaseResult]) -> None:
    """A case that was found wrong after its stages were timed is no row of any table."""
    wrong = replace(cases[0], verdict=Verdict.INCORRECT)
    assert [case.key.backend for case in group_by_workload([wrong, cases[1]])[WORKLOAD]] == ["layer.native.compiled"]
