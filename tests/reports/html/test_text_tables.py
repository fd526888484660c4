from __future__ import annotations

from pytest_attnperf.reports.html.sections import TableHead
from pytest_attnperf.reports.html.text_tables import convert_table
from pytest_attnperf.reports.text.time_cells import TimeCell
from pytest_attnperf.reports.text.wide_tables import Column, Table, render_markdown_tables


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
