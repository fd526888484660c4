"""Tables of a terminal as tables of a page: the same cells, times in one unit for each column."""

from __future__ import annotations

from collections.abc import Mapping

from pytest_attnperf.reports.html.sections import Table, TableHead
from pytest_attnperf.reports.text import wide_tables
from pytest_attnperf.reports.text.time_cells import fix_units

ROWS = 2_000
"""Most rows of a table."""


def list_cells(table: wide_tables.Table, caption: str, titles: Mapping[str, str] | None = None) -> Table:
    """Returns the table with at most ROWS rows; its caption says if there are more.

    titles   header of a column -> its explanation
    """
    headers, rows = fix_units([table.corner, *(column.header for column in table.columns)], table.rows)
    numbers = [False, *(column.align == "right" for column in table.columns)]
    plain = ["", *(column.header for column in table.columns)]
    heads = tuple(
        TableHead(header, is_number, (titles or {}).get(name, ""))
        for header, is_number, name in zip(headers, numbers, plain, strict=True)
    )
    more = f", the first {ROWS} of {len(rows)}" if len(rows) > ROWS else ""
    return Table(f"{caption}{more}", heads, tuple(map(tuple, rows[:ROWS])))
