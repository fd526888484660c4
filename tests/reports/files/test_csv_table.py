from __future__ import annotations

import csv
import io
from dataclasses import replace

import pytest

from pytest_attnperf.records import CaseKey, Verdict
from pytest_attnperf.records.code import CodeResult
from pytest_attnperf.reports.files.csv_table import COLUMNS, render_csv
from pytest_attnperf.reports.run.joined import join_runs, join_single
from pytest_attnperf.results import CaseResult, RunResult
from pytest_attnperf.testing.sample_runs import sample_run


def read_rows(run: RunResult) -> list[dict[str, str]]:
    """The rows of one run, by column."""
    return list(csv.DictReader(io.StringIO(render_csv(join_single(run)))))


def only_case(**fields: object) -> CaseResult:
    """A case with these fields."""
    return replace(sample_run(1).cases[0], **fields)  # type: ignore[arg-type]


def test_a_row_a_case() -> None:
    """The header has the columns in their order; key, device, verdict and commit are those of the results file."""
    run = sample_run(3, verdicts=[Verdict.SAME, Verdict.SLOWER])
    rows = read_rows(run)
    assert tuple(rows[0]) == COLUMNS
    assert [row["key"] for row in rows] == [str(case.key) for case in run.cases]
    assert {(row["arch"], row["product"], row["commit"]) for row in rows} == {("sm_90", "sample", run.commit)}
    assert [row["verdict"] for row in rows] == [case.verdict.value for case in run.cases]
    assert [row["median_us"] for row in rows] == [f"{case.median_us:.10g}" for case in run.cases]


def test_figures_have_the_units_of_their_columns() -> None:
    """Changes and their interval are in percent, and as times beside the baseline in microseconds."""
    case = only_case(median_us=105.0, baseline_us=100.0, ratio=1.05, interval=(1.04, 1.06), second=(), pairs=())
    (row,) = read_rows(replace(sample_run(1), cases=(case,)))
    names = ("change_percent", "change_low_percent", "change_high_percent", "interval_low_us", "interval_high_us")
    assert [float(row[name]) for name in names] == pytest.approx([5.0, 4.0, 6.0, 104.0, 106.0])
    assert row["processes"] == str(len(case.first))
    assert case.figures is not None
    assert float(row["gbytes_per_s"]) == pytest.approx(case.figures.bytes_min / 105.0 / 1e3)


def test_what_is_not_known_is_empty() -> None:
    """A case without a time, and a run without a device, leave their cells empty."""
    case = only_case(median_us=None, baseline_us=None, ratio=None, interval=None, first=(), second=(), pairs=())
    (row,) = read_rows(replace(sample_run(1), cases=(case,), device=None))
    empty = {name for name, text in row.items() if not text}
    assert {"median_us", "interval_low_us", "change_percent", "tflops", "arch", "product"} <= empty
    assert row["processes"] == "0"


def test_compiled_kernels_follow() -> None:
    """A kernel has its architecture, verdict and the commit of its run, and no times."""
    kernel = CodeResult(CaseKey("code_objects", "hip.flash", "d64", "gfx942"), "n", Verdict.SAME, "as stored")
    runs = [("a", replace(sample_run(1), commit="c1")), ("b", replace(sample_run(0), commit="c2", code=(kernel,)))]
    row = list(csv.DictReader(io.StringIO(render_csv(join_runs(runs)))))[-1]
    assert (row["key"], row["arch"], row["verdict"], row["reason"], row["commit"]) == (
        *("code_objects/hip.flash/d64/gfx942", "gfx942", "SAME", "as stored", "c2"),
    )
    assert row["median_us"] == row["processes"] == ""


@pytest.mark.parametrize(
    ("text", "cell"),
    [
        ("=cmd|' /C calc'!A0", "'=cmd|' /C calc'!A0"),
        ("@a", "'@a"),
        ('says "no", twice', 'says "no", twice'),
        ("two\nlines \x1b[2J", "two lines  [2J"),
    ],
)
def test_a_strangers_text_is_one_cell(text: str, cell: str) -> None:
    """No text becomes a formula, a row or a control character."""
    (row,) = read_rows(replace(sample_run(1), cases=(only_case(summary=text, reasons=()),)))
    assert row["reason"] == cell
