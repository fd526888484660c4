"""Tables that adapt to a width: the least important columns are left out first. Names are never cut."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from pytest_attnperf.records import Verdict
from pytest_attnperf.reports.text.colour import PLAIN, Ink
from pytest_attnperf.reports.text.figures import ABSENT
from pytest_attnperf.reports.text.text_width import (
    GAP,
    LONGEST_NAME,
    both_ends,
    cut_text,
    display_width,
    pad_text,
    plain_line,
    shorten_distinctly,
)
from pytest_attnperf.reports.text.time_cells import Cell, fix_units

NAME = -1
LEAST_NAME = 8
NAME_SHARE = 0.4
"""Least share of the width for names, if they need it; they also get what the columns leave."""


@dataclass(frozen=True)
class GridColumn:
    """A column. `rank` 0 is always shown; the others are added in this order while they fit. `legend` says what its
    figures are; '' if the header does."""

    header: str
    align: str = "right"
    rank: int = 0
    legend: str = ""


@dataclass(frozen=True)
class GridRow:
    """A name, foreign and of any length, and a safe text or a time for every column. `verdict` colours the first."""

    name: str
    cells: tuple[Cell, ...]
    verdict: Verdict | None = None


@dataclass(frozen=True)
class GridGroup:
    """Rows under a heading on its own line; '' for none. Names stay distinct within a group."""

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
    legend: list[str] | None = None,
) -> str:
    """Returns the groups of rows as one table for a terminal; '' without rows.

    corner   header of the names
    before   number of columns before the names
    legend   gets the legends of the columns that are shown

    Columns without a figure are left out. No line is wider than `width`, unless the columns of rank 0 already are.
    Names are never cut, because they are copied: one that is too long is on a line of its own, above its row.
    """
    rows = [row for group in groups for row in group.rows]
    if not rows:
        return ""
    headers, texts = fix_units([column.header for column in columns], [row.cells for row in rows])
    widths = [max(map(display_width, column)) for column in zip(headers, *texts, strict=True)]
    sizes = [display_width(both_ends(row.name)) for row in rows]
    natural = max(display_width(corner), *sizes)
    kept = [i for i, column in enumerate(columns) if column.rank == 0 or any(text[i] != ABSENT for text in texts)]
    wanted = min(natural, max(LEAST_NAME, int(width * NAME_SHARE)))
    shown = _choose_fitting_columns(kept, columns, widths, width - wanted)
    room = _compute_room(shown, widths, width)
    if 2 * sum(size <= room for size in sizes) < len(sizes):
        room = max([min(display_width(corner), wanted), *(size for size in sizes if size <= wanted)])
        shown = _choose_fitting_columns(kept, columns, widths, width - room)
        room = min(room, _compute_room(shown, widths, width))
    name_width = max([min(display_width(corner), room), *(size for size in sizes if size <= room)])
    if legend is not None:
        legend += [f"{columns[index].header}: {columns[index].legend}" for index in shown if columns[index].legend]
    slots = [*(index for index in shown if index < before), NAME, *(index for index in shown if index >= before)]
    stands = tuple(name_width if index == NAME else widths[index] for index in slots)
    aligns = tuple("left" if index == NAME else columns[index].align for index in slots)
    layout = _Layout(tuple(slots), stands, aligns, name_width, ink)
    head = layout.format_line(cut_text(corner, name_width), headers)
    return "\n".join(
        [ink.bold(head), ink.dim(plain_line("-" * size for size in stands)), *_body(groups, texts, layout)]
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


def _body(groups: Sequence[GridGroup], texts: Sequence[Sequence[str]], layout: _Layout) -> Iterator[str]:
    left = iter(texts)
    headings = shorten_distinctly((group.heading for group in groups if group.heading), LONGEST_NAME)
    for group in groups:
        if group.heading:
            yield layout.ink.bold(headings[group.heading])
        names = shorten_distinctly((row.name for row in group.rows), LONGEST_NAME)
        for row in group.rows:
            name = names[row.name]
            if display_width(name) > layout.name_width:
                yield f"{' ' * GAP}{name}"
                name = ""
            yield layout.format_line(name, next(left), row.verdict)


def _compute_room(shown: Sequence[int], widths: Sequence[int], width: int) -> int:
    """Returns what the columns `shown` leave for names, at least LEAST_NAME."""
    return max(LEAST_NAME, width - sum(widths[index] + GAP for index in shown))


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
