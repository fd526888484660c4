"""Times in cells of tables, whose unit is chosen when the table is drawn, because it depends on all of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pytest_attnperf.records.time_units import TimeUnit, choose_time_unit

SHARED, ONCE, TOTAL = "", "once", "total"
"""Scales: of calls; of what happens once, such as a build; and of sums over many calls."""


@dataclass(frozen=True)
class TimeCell:
    """A time in a cell, in microseconds; None is not known.

    scale    times of one scale have one unit in a table, so that they can be compared across its columns
    after    text behind the number
    """

    us: float | None
    scale: str = SHARED
    after: str = ""


Cell = str | TimeCell
"""What a cell of a table holds."""


def fix_units(headers: Sequence[str], rows: Sequence[Sequence[Cell]]) -> tuple[list[str], list[list[str]]]:
    """Returns headers and rows as text: times as numbers of one unit, which their columns' headers name at the end."""
    times = [cell for row in rows for cell in row if isinstance(cell, TimeCell)]
    if not times:
        return list(headers), [list(map(str, row)) for row in rows]
    units = {
        scale: choose_time_unit(time.us for time in times if time.scale == scale)
        for scale in dict.fromkeys(time.scale for time in times)
    }
    named = list(headers)
    for index, header in enumerate(headers):
        scales = [cell.scale for cell in (row[index] for row in rows) if isinstance(cell, TimeCell)]
        named[index] = f"{header} {units[scales[0]].name}".strip() if scales else header
    return named, [[_format_cell(cell, units) for cell in row] for row in rows]


def _format_cell(cell: Cell, units: dict[str, TimeUnit]) -> str:
    return f"{units[cell.scale].format_number(cell.us)}{cell.after}" if isinstance(cell, TimeCell) else cell
