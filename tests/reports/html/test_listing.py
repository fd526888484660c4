from __future__ import annotations

from pytest_attnperf.reports.html.listing import ROWS, list_cells
from pytest_attnperf.reports.html.sections import TableHead
from pytest_attnperf.reports.text.time_cells import TimeCell
from pytest_attnperf.reports.text.wide_tables import Column, Table

COLUMNS = (Column("time"), Column("limit", "left"))


def test_times_have_one_unit_in_the_heading() -> None:
    """The cells are those of the terminal: numbers of one unit, words flush left, headings with their explanation."""
    table = Table("t", "backend", COLUMNS, (("a", TimeCell(1500.0), "LDS"), ("b", TimeCell(2.5), "")))
    found = list_cells(table, "Times", {"time": "median of a call"})
    assert found.heads == (
        TableHead("backend"), TableHead("time us", True, "median of a call"), TableHead("limit")
    )  # fmt: skip
    assert found.rows == (("a", "1500", "LDS"), ("b", "2.500", ""))


def test_long_table_is_cut_and_says_so() -> None:
    """Ten thousand rows do not make a page of megabytes."""
    table = Table("t", "backend", (), tuple((f"b{number}",) for number in range(10_000)))
    found = list_cells(table, "Times")
    assert (len(found.rows), found.caption) == (ROWS, f"Times, the first {ROWS} of 10000")
