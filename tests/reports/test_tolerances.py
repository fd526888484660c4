"""How a budget wider than the default is told, in tables and in failures."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import pytest

from pytest_attnperf.records import CheckReport, ErrorFigures, Tolerance, Verdict
from pytest_attnperf.reports.run.tables import suite_table, tolerance_notes
from pytest_attnperf.reports.text.figures import format_around, format_tolerance
from pytest_attnperf.results import CaseResult

CaseFactory: TypeAlias = Callable[..., CaseResult]

WIDE = CheckReport((ErrorFigures("seed 1", "out", 1e-3, 2e-3, 1e-4, 2e-4),), tolerance=Tolerance(10.0, "CK's tests"))
NOTE = "errors up to 10 x the plain computation's are allowed (CK's tests)"


@pytest.mark.parametrize(
    ("tolerance", "text"),
    [
        (Tolerance(), "errors up to 2 x the plain computation's are allowed"),
        (Tolerance(10.0, "CK's tests"), NOTE),
        (
            Tolerance(2.0, "a paper", (("dq", 3.0),)),
            "errors up to 3 x the plain computation's in dq and 2 x in others are allowed (a paper)",
        ),
        (
            Tolerance(2.5, "a paper", (("dq", 3.0), ("dk", 4.0))),
            "errors up to 3 x the plain computation's in dq, 4 x in dk and 2.5 x in others are allowed (a paper)",
        ),
    ],
)
def test_a_tolerance_in_words(tolerance: Tolerance, text: str) -> None:
    """Every multiplier with the outputs it is of, and the source."""
    assert format_tolerance(tolerance) == text


def test_a_sourced_tolerance_stands_below_the_table_of_right_cases(case: CaseFactory) -> None:
    """A case that passes by a wider budget says so, once per backend, whatever its label and workload are."""
    cases = [
        case("ck", verdict=Verdict.SAME, checks=(WIDE, WIDE)),
        case("ck", verdict=Verdict.SAME, checks=(WIDE,), label="x"),
        case("aiter.triton", verdict=Verdict.RIGHT, checks=(WIDE,)),
        case(),
    ]
    table = suite_table(cases)
    assert table.splitlines()[-2:] == [f"ck: {NOTE}", f"aiter.triton: {NOTE}"]
    assert table.count("errors up to") == 2


def test_the_default_tolerance_needs_no_note(case: CaseFactory) -> None:
    """Without a source there is nothing below the table, and without cases no note."""
    assert tolerance_notes([case(), case("ck", checks=())]) == []
    assert "errors up to" not in suite_table([case()])
    assert tolerance_notes([]) == []


def test_two_tolerances_of_one_backend_are_both_named(case: CaseFactory) -> None:
    """A backend that allows itself more for some workloads does not hide it behind the first."""
    wider = CheckReport(WIDE.figures, tolerance=Tolerance(20.0, "nobody\x1b[2J"))
    notes = tolerance_notes([case("ck", checks=(WIDE,)), case("ck", workload="other", checks=(wider,))])
    assert notes == [
        f"ck: {NOTE}",
        "ck: errors up to 20 x the plain computation's are allowed (nobody [2J)",
    ]


def test_an_element_is_shown_between_its_neighbours() -> None:
    """The worst one is marked; NaN and Inf are words; an element alone, or of no dimension, shows none."""
    figures = ErrorFigures(
        "c", "out", 1.0, 0.1, 0.0, 0.1, (2, 0), around_got=("nan", 2.0), around_expected=(1.0, "-inf")
    )
    assert format_around(figures) == "got *nan* 2, expected 1 -inf"
    assert format_around(ErrorFigures("c", "out", 1.0, 0.1, 0.0, 0.1, (0,), around_got=(1.0,))) == ""
    assert format_around(ErrorFigures("c", "out", 1.0, 0.1, 0.0, 0.1)) == ""
