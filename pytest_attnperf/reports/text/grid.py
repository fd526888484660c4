"""Tables that adapt to a width: names are cut in the middle, and the least important columns are left out first."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from pytest_attnperf.records import Verdict
from pytest_attnperf.reports.text.colour import PLAIN, Ink
from pytest_attnperf.reports.text.figures import ABSENT
from pytest_attnperf.reports.text.text_width import (
    GAP,
    both_ends,
    cut_text,
    display_width,
    pad_text,
    plain_line,
    shorten_distinctly,
)

NAME = -1
LEAST_NAME = 8
NAME_SHARE = 0.4
"""Least share of the width for names, if they need it; they also get what the columns leave."""


@dataclass(frozen=True)
class GridColumn:
    """A column. `rank` 0 is always shown; the others are added in this order while they fit."""

    header: str
    align: str = "right"
    rank: int = 0


@dataclass(frozen=True)
class GridRow:
    """A name, foreign and of any length, and a safe text for every column. `verdict` colours the first one."""

    name: str
    cells: tuple[str, ...]
    verdict: Verdict | None = None


@dataclass(frozen=True)
class GridGroup:
    """Rows under a heading on its own line; '' for none. Cut names stay distinct within a group."""

    heading: str
    rows: tuple[GridRow, ...]


def render_grid(
    groups: Sequence[GridGroup],
    columns: Sequence[GridColumn],
    *,
    corner: str,
    width: int,
    ink: Ink = PLAIN,
    before: int = 1,
    share: float = NAME_SHARE,
) -> str:
    """Returns the groups of rows as one table for a terminal; '' without rows.

    corner   header of the names
    before   number of columns before the names
    share    of the width that names get, if they need it, before any column that may be left out

    Columns without a figure are left out. No line is wider than `width`, unless the columns of rank 0 already are.
    """
    rows = [row for group in groups for row in group.rows]
    if not rows:
        return ""
    widths = _compute_widths(rows, columns)
    natural = max(map(display_width, [corner, *map(both_ends, dict.fromkeys(row.name for row in rows))]))
    filled = [column.rank == 0 or _has_figure(rows, index) for index, column in enumerate(columns)]
    wanted = min(natural, max(LEAST_NAME, int(width * share)))
    shown = _choose_fitting_columns([index for index, has in enumerate(filled) if has], columns, widths, width - wanted)
    room = width - sum(widths[index] + GAP for index in shown)
    name_width = min(natural, max(LEAST_NAME, room))
    slots = [*(index for index in shown if index < before), NAME, *(index for index in shown if index >= before)]
    stands = tuple(name_width if index == NAME else widths[index] for index in slots)
    aligns = tuple("left" if index == NAME else columns[index].align for index in slots)
    return "\n".join(
        _render_lines(groups, columns, _Layout(tuple(slots), stands, aligns, name_width, ink), corner, width)
    )


@dataclass(frozen=True)
class _Layout:
    """The layout of a line: `slots` are indices of columns, and `NAME`; each has its width and alignment."""

    slots: tuple[int, ...]
    widths: tuple[int, ...]
    aligns: tuple[str, ...]
    name_width: int
    ink: Ink

    def format_line(self, name: str, cells: Sequence[str], verdict: Verdict | None = None) -> str:
        """Returns one line of a table, padded and coloured, without spaces at its end; colours do not count as
        width."""
        parts = []
        for index, width, align in zip(self.slots, self.widths, self.aligns, strict=True):
            text = name if index == NAME else cells[index]
            parts.append(pad_text(text, width, align, self.ink.paint_verdict(text, verdict) if index == 0 else text))
        return plain_line(parts)


def _render_lines(
    groups: Sequence[GridGroup], columns: Sequence[GridColumn], layout: _Layout, corner: str, width: int
) -> Iterable[str]:
    yield layout.ink.bold(
        layout.format_line(cut_text(corner, layout.name_width), [column.header for column in columns])
    )
    yield layout.ink.dim(plain_line("-" * size for size in layout.widths))
    headings = shorten_distinctly((group.heading for group in groups if group.heading), width)
    for group in groups:
        if group.heading:
            yield layout.ink.bold(headings[group.heading])
        names = shorten_distinctly((row.name for row in group.rows), layout.name_width)
        for row in group.rows:
            yield layout.format_line(names[row.name], row.cells, row.verdict)


def _compute_widths(rows: Sequence[GridRow], columns: Sequence[GridColumn]) -> list[int]:
    return [
        max(display_width(column.header), *(display_width(row.cells[index]) for row in rows))
        for index, column in enumerate(columns)
    ]


def _has_figure(rows: Sequence[GridRow], index: int) -> bool:
    return any(row.cells[index] != ABSENT for row in rows)


def _choose_fitting_columns(
    filled: list[int], columns: Sequence[GridColumn], widths: Sequence[int], room: int
) -> list[int]:
    """Returns the indices of `filled` whose columns are shown in `room` cells: all of rank 0, then by rank as fit."""
    shown = [index for index in filled if columns[index].rank == 0]
    room -= sum(widths[index] + GAP for index in shown)
    others = [index for index in filled if columns[index].rank]
    for index in sorted(others, key=lambda index: columns[index].rank):
        room -= widths[index] + GAP
        if room < 0:
            break
        shown.append(index)
    return sorted(shown)
