from __future__ import annotations

import pytest

from pytest_attnperf.reports.text.wide_tables import Column, Table, render_markdown_tables, render_terminal_tables

ROWS = (("hip.naive", "10", "20", "64"), ("hip.split", "5", "40", ""), ("hip.split: reduce", "", "", "32"))
COLUMNS = (Column("us"), Column("speedup"), Column("regs", begins=True))
TABLE = Table("prefill", "backend", COLUMNS, ROWS, ("a note",))


def test_a_terminal_shows_parts() -> None:
    """A part begins where a column says so; a row that has nothing in it is left out of it; notes come last."""
    lines = render_terminal_tables(["header"], [TABLE]).split("\n\n")
    assert lines[0] == "header"
    assert lines[1].splitlines() == [
        "prefill",
        "backend    us  speedup",
        "---------  --  -------",
        "hip.naive  10       20",
        "hip.split   5       40",
    ]
    assert lines[2].splitlines()[2:] == ["hip.naive            64", "hip.split: reduce    32"]
    assert lines[3:] == ["a note"]


def test_markdown_shows_a_table_whole() -> None:
    """A heading, every column and row, and notes as a list."""
    blocks = render_markdown_tables(["header"], [TABLE]).split("\n\n")
    assert blocks[:2] == ["- header", "### prefill"]
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in blocks[2].splitlines()]
    assert rows[0] == ["backend", "us", "speedup", "regs"]
    assert rows[2:] == [list(row) for row in ROWS]
    assert blocks[3:] == ["- a note"]


@pytest.mark.parametrize("width", [60, 100])
def test_no_line_is_too_wide(width: int) -> None:
    """Twenty columns and long lines stay within the width, and no figure is lost."""
    columns = tuple(Column(f"column{index}") for index in range(20))
    table = Table(
        "title " * 30, "name", columns, (("row", *(str(1000 + index) for index in range(20))),), ("note " * 40,)
    )
    text = render_terminal_tables(["word " * 50], [table], width)
    assert max(map(len, text.splitlines())) <= width
    assert all(str(1000 + index) in text for index in range(20))


def test_a_heading_of_rows_stays_with_every_part() -> None:
    """A row without any cell is a heading: each part repeats it."""
    table = Table("", "kernel", (Column("a"), Column("b", begins=True)), (("hip.flash", "", ""), ("- d64", "1", "2")))
    first, second = render_terminal_tables([], [table]).split("\n\n")
    assert [part.splitlines()[2].strip() for part in (first, second)] == ["hip.flash", "hip.flash"]


def test_a_name_is_no_markup() -> None:
    """What a results file says cannot end a cell or a comment of the page that the table is written into."""
    table = Table("<b>", "name", (Column("a|b"),), (("x|y <!-- ladder:end --> `z` *", "1"),))
    text = render_markdown_tables([], [table])
    assert "<" not in text
    assert "x\\|y &lt;!-- ladder:end --> \\`z\\` \\*" in text
    assert "a\\|b" in text


def test_a_table_without_rows() -> None:
    """Headers alone are no error."""
    table = Table("", "name", (Column("a"),), ())
    assert render_terminal_tables([], [table]).split() == ["name", "a", "----", "-"]
