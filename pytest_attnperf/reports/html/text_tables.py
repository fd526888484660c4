"""Turns a table that a terminal shows into one of a page, so that both have the same figures."""

from __future__ import annotations

from collections.abc import Mapping

from pytest_attnperf.reports.html.sections import PageTable, TableHead
from pytest_attnperf.reports.text import wide_tables
from pytest_attnperf.reports.text.time_cells import fix_units

ROWS = 2_000
"""Most rows of a table."""


def convert_table(table: wide_tables.Table, caption: str = "", titles: Mapping[str, str] | None = None) -> PageTable:
    """Returns the table with its title, or `caption`, as the caption, which says if there are more than ROWS rows; its
    notes are left out.

    titles   header of a column -> its explanation
    """
    names = ["", *(column.header for column in table.columns)]
    headers, rows = fix_units([table.corner, *names[1:]], table.rows)
    aligns = ["left", *(column.align for column in table.columns)]
    heads = tuple(
        TableHead(text, align == "right", (titles or {}).get(name, ""))
        for text, align, name in zip(headers, aligns, names, strict=True)
    )
    more = f", the first {ROWS} of {len(rows)}" if len(rows) > ROWS else ""
    return PageTable(f"{caption or table.title}{more}", heads, tuple(map(tuple, rows[:ROWS])))
