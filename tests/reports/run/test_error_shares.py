from __future__ import annotations

import math
from collections.abc import Callable

import pytest

from pytest_attnperf.records import CheckReport, ErrorFigures
from pytest_attnperf.reports.files.csv_table import render_csv
from pytest_attnperf.reports.files.markdown import render_summary
from pytest_attnperf.reports.html.rows import build_table
from pytest_attnperf.reports.run.error_shares import compute_error_share, format_error_share
from pytest_attnperf.reports.run.joined import join_single
from pytest_attnperf.reports.run.tables import suite_table
from pytest_attnperf.results import CaseResult, RunResult


def figures(max_error: float = 1.0, rms_error: float = 1.0, budget: float = 4.0, **fields: object) -> ErrorFigures:
    """Errors of one output, all budgets alike."""
    return ErrorFigures("seed 1", "out", max_error, budget, rms_error, budget, **fields)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("checks", "share"),
    [
        ([], None),
        ([[figures()]], 0.25),
        ([[figures(), figures(rms_error=3.0)], [figures(2.0)]], 0.75),
        ([[figures(line="row 3", line_error=5.0, line_budget=4.0)]], 1.25),
        ([[figures(), figures(nan_count=1)]], math.inf),
        ([[figures(0.0, 0.0, 0.0)]], 0.0),
        ([[figures(0.1, 0.0, 0.0)]], math.inf),
    ],
)
def test_share_is_of_the_worst_error_of_all_checks(
    case: Callable[..., CaseResult], checks: list[list[ErrorFigures]], share: float | None
) -> None:
    """Largest, rms and single rows count, over all outputs and inputs; NaN and an error without a budget are beyond."""
    assert compute_error_share(case(checks=tuple(CheckReport(tuple(each)) for each in checks))) == share


@pytest.mark.parametrize(
    ("share", "text"),
    [(None, "-"), (0.0, "0 %"), (0.0004, "0.04 %"), (0.61, "61 %"), (3.1, "310 %"), (math.inf, "beyond")],
)
def test_share_is_printed_in_percent(share: float | None, text: str) -> None:
    """A small share keeps a digit, because 0 % would be a bit-equal result."""
    assert format_error_share(share) == text


def test_every_report_shows_it(case: Callable[..., CaseResult], run: Callable[..., RunResult]) -> None:
    """Beside the times of several backends stands how much of its budget each used: terminal, Markdown, HTML, CSV."""
    exact, rough = (
        case("a", checks=(CheckReport((figures(0.0, 0.0),)),)),
        case("b", checks=(CheckReport((figures(3.0),)),)),
    )
    joined = join_single(run(cases=(exact, rough)))
    legend: list[str] = []
    table = suite_table([exact, rough], width=140, legend=legend)
    assert [line.split()[6:8] for line in table.splitlines()[3:]] == [["0", "%"], ["75", "%"]]
    assert "error: largest error against the reference / what the tolerance allows" in "\n".join(legend)
    assert "| error / budget |" in render_summary(joined)
    column = next(one for one in build_table(joined).columns if one.name == "error")
    assert [column.text(row) for row in build_table(joined).rows] == ["0 %", "75 %"]
    header, *rows = render_csv(joined).splitlines()
    at = header.split(",").index("error_share")
    assert [row.split(",")[at] for row in rows] == ["0", "0.75"]
