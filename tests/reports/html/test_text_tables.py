from __future__ import annotations

from pytest_attnperf.reports.html.sections import TableHead
from pytest_attnperf.reports.html.text_tables import ROWS, convert_table
from pytest_attnperf.reports.text.time_cells import TimeCell
from pytest_attnperf.reports.text.wide_tables import Column, Table, render_markdown_tables

COLUMNS = (Column("time"), Column("limit", "left"))


def test_a_page_has_the_terminals_figures() -> None:
    """Headings, units and cells are those that the terminal shows; what is flush right there is a number here."""
    columns = (Column("time"), Column("does", "left"))
    table = Table("kernels", "kernel", columns, (("a", TimeCell(2500.0), "copy"), ("b", TimeCell(None), "")), ("note",))
    found = convert_table(table)
    assert found.caption == "kernels"
    assert found.heads == (TableHead("kernel"), TableHead("time ms", True), TableHead("does"))
    assert found.rows == (("a", "2.500", "copy"), ("b", "-", ""))
    printed = render_markdown_tables((), [table])
    assert all(text in printed for row in found.rows for text in row)


def test_a_table_without_a_title_gets_one() -> None:
    """The caption that is given takes the title's place."""
    assert convert_table(Table("", "kernel", (), ()), "all kernels").caption == "all kernels"


def test_times_have_one_unit_in_the_heading() -> None:
    """The cells are those of the terminal: numbers of one unit, words flush left, headings with their explanation."""
    table = Table("t", "backend", COLUMNS, (("a", TimeCell(1500.0), "LDS"), ("b", TimeCell(2.5), "")))
    found = convert_table(table, "Times", {"time": "median of a call"})
    assert found.heads == (
        TableHead("backend"), TableHead("time us", True, "median of a call"), TableHead("limit")
    )  # fmt: skip
    assert found.rows == (("a", "1500", "LDS"), ("b", "2.500", ""))


def test_long_table_is_cut_and_says_so() -> None:
    """Ten thousand rows do not make a page of megabytes."""
    table = Table("t", "backend", (), tuple((f"b{number}",) for number in range(10_000)))
    found = convert_table(table, "Times")
    assert (len(found.rows), found.caption) == (ROWS, f"Times, the first {ROWS} of 10000")
