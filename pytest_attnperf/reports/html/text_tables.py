"""Turns a table that a terminal shows into one of a page, so that both have the same figures."""

from __future__ import annotations

from pytest_attnperf.reports.html.sections import Table, TableHead
from pytest_attnperf.reports.text import wide_tables
from pytest_attnperf.reports.text.time_cells import fix_units


def convert_table(table: wide_tables.Table, caption: str = "") -> Table:
    """Returns the table with its title, or `caption`, as the caption; its notes are left out."""
    headers, rows = fix_units([table.corner, *(column.header for column in table.columns)], table.rows)
    aligns = ["left", *(column.align for column in table.columns)]
    heads = (TableHead(text, align == "right") for text, align in zip(headers, aligns, strict=True))
    return Table(caption or table.title, tuple(heads), tuple(map(tuple, rows)))
