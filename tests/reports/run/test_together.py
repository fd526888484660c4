"""The table of cases that ran on all cards at once."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from pytest_attnperf.records import WorkloadFigures
from pytest_attnperf.records.gpus import Together, TogetherGpu
from pytest_attnperf.reports.run.together import together_table
from pytest_attnperf.results import CaseResult

Make = Callable[..., CaseResult]
UUID = "GPU-22e33a7a-1b2c-4d5e-8f90-123456789abc"
FREE = Together((TogetherGpu(UUID, 100.0, 100.0, 90), TogetherGpu("GPU-2", 100.0, 100.0, 91)), "graph", 0.5)
HELD = Together((TogetherGpu(UUID, 100.0, 125.0, 90), TogetherGpu("GPU-2", 100.0, 100.0, 91)), "graph", 0.5)
COPY = WorkloadFigures(None, 4e8, "f16", "cold", {})


@pytest.fixture
def cases(case: Make) -> list[CaseResult]:
    """One that scales, one that does not, and one that did not run so."""
    return [
        case("triton.bandwidth", workload="copy", together=FREE, figures=COPY),
        case("native.copy", workload="copy", together=HELD, figures=COPY, label="x"),
        case("native.other", workload="copy"),
    ]


def test_every_case_shows_times_scaling_and_what_all_cards_did(cases: list[CaseResult]) -> None:
    """A row has the median times, 'x of N', the worst interference with its card, and rates in sum."""
    table = together_table(cases, 110)
    row = next(line for line in table.splitlines() if line.startswith("native.copy"))
    assert row.split() == ["native.copy", "100.0", "112.5", "1.80x", "of", "2", "+25.0", "%", "7200", "GPU-22e33a7a"]
    assert "native.other" not in table
    assert "TFLOP/s" not in table, "the workload has no useful operations"


def test_a_suite_is_summed_up_by_the_geometric_mean(cases: list[CaseResult]) -> None:
    """The last line says how the suite scales, and which case met the most interference, on which card."""
    *_, last = together_table(cases, 200).splitlines()
    assert last == (
        "2 cases, 1.90x of 2 GPUs in the geometric mean; most interference +25.0 %: native.copy on copy on GPU-22e33a7a"
    )


def test_a_narrow_terminal_gets_what_matters(cases: list[CaseResult]) -> None:
    """At 60 columns no line is wider, and times, scaling and interference still stand."""
    table = together_table(cases, 60)
    assert max(map(len, table.splitlines())) <= 60
    assert "1.80x of 2" in table
    assert "+25.0 %" in table


def test_cases_that_ran_otherwise_have_no_table(case: Make) -> None:
    """A run of any other kind prints nothing of this."""
    assert together_table([case(), case("native.sdpa")], 80) == ""
