"""Tables with more columns than a terminal has room for: split into several there, whole in Markdown."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pytest_attnperf.reports.text.text_width import GAP, display_width, pad_text, plain_line, wrap_text
from pytest_attnperf.reports.text.time_cells import Cell, fix_units

WIDTH = 100
"""Columns of a terminal that every table and line fits, except for a single name that is longer."""

NAME_SHARE = 0.4
"""Share of the width that names get beside columns at most, where not all of a table fits."""

HEADER_ROOM = 2
"""Cells by which a Markdown column is at least wider than its header."""


@dataclass(frozen=True)
class Column:
    """A column's header, and whether it begins a part of the table that a terminal shows separately."""

    header: str
    align: str = "right"
    begins: bool = False


@dataclass(frozen=True)
class Table:
    """One table: rows of a name and a cell per column.

    title    line above; '' for none
    corner   header of the names
    notes    lines below
    """

    title: str
    corner: str
    columns: tuple[Column, ...]
    rows: tuple[tuple[Cell, ...], ...]
    notes: tuple[str, ...] = ()


def render_terminal_tables(lines: Sequence[str], tables: Sequence[Table], width: int = WIDTH) -> str:
    """Returns lines, then tables, in at most `width` columns; a wider table is split, and each part has the names. A
    long name is on a line of its own, above its row."""
    blocks = ["\n".join(filled for line in lines for filled in _wrap_line(line, width))]
    for table in tables:
        first, *parts = _render_parts(table, width)
        notes = [filled for note in table.notes for filled in _wrap_line(note, width)]
        blocks += ["\n".join([*_wrap_line(table.title, width), first]), *parts, "\n".join(notes)]
    return "\n\n".join(block for block in blocks if block)


def render_markdown_tables(lines: Sequence[str], tables: Sequence[Table]) -> str:
    """Returns lines and tables as Markdown: each table whole, under a heading; `lines` and notes as lists."""
    blocks = [_render_list(lines)]
    for table in tables:
        heading = f"### {_escape_text(table.title)}" if table.title else ""
        headers, rows, aligns = _fix_table(table)
        escaped = [[_escape_text(cell) for cell in row] for row in rows]
        blocks += [heading, _render_pipes([*map(_escape_text, headers)], escaped, aligns), _render_list(table.notes)]
    return "\n\n".join(block for block in blocks if block)


_Texts = tuple[list[str], list[list[str]], list[str]]
"""Headers, rows and alignments of a table, names first."""


def _fix_table(table: Table) -> _Texts:
    headers, rows = fix_units([table.corner, *(column.header for column in table.columns)], table.rows)
    return headers, rows, ["left", *(column.align for column in table.columns)]


def _render_parts(table: Table, width: int) -> list[str]:
    """Returns the parts of a table: as many columns as fit into `width` each, and a new part at `begins`."""
    texts = _fix_table(table)
    parts: list[list[int]] = [[]]
    for index, column in enumerate(table.columns):
        longer = [*parts[-1], index]
        if parts[-1] and (column.begins or _compute_width(*_select_cells(texts, longer), width) > width):
            parts.append([index])
        else:
            parts[-1] = longer
    return [plain_table(*_select_cells(texts, part), width) for part in parts]


def _compute_width(headers: Sequence[str], rows: Sequence[Sequence[str]], aligns: Sequence[str], width: int) -> int:
    """Returns the width of a part in which names have NAME_SHARE of `width` at most, and longer ones lines of their
    own."""
    dashes, *_ = _pad_columns(headers, rows, aligns)
    beside = [size for row in rows if (size := display_width(row[0])) <= width * NAME_SHARE]
    return max([display_width(headers[0]), *beside]) + sum(GAP + len(dash) for dash in dashes[1:])


def _select_cells(texts: _Texts, part: Sequence[int]) -> _Texts:
    """Returns the names and the columns `part`. Leaves out rows without cells in them, except headings."""
    headers, rows, aligns = texts
    places = [0, *(index + 1 for index in part)]
    kept = [[row[place] for place in places] for row in rows if _has_part_cells(row, part)]
    return [headers[place] for place in places], kept, [aligns[place] for place in places]


def plain_table(
    headers: Sequence[str], rows: Sequence[Sequence[str]], aligns: Sequence[str], width: int = WIDTH
) -> str:
    """Returns rows under headers and a line of dashes, for a terminal; `aligns` has 'left' or 'right' per column. In a
    table that is wider than `width`, names that are too long for it are on lines of their own, above their rows."""
    dashes, *_ = _pad_columns(headers, rows, aligns)
    room = max(width - sum(GAP + len(dash) for dash in dashes[1:]), display_width(headers[0]))
    moved = [display_width(row[0]) > room for row in rows]
    short = [["", *row[1:]] if away else row for row, away in zip(rows, moved, strict=True)]
    dashes, head, *body = _pad_columns(headers, short, aligns)
    lines = [head, dashes]
    for row, away, line in zip(rows, moved, body, strict=True):
        lines += [[row[0].strip()]] if away else []
        lines += [line] if not away or any(row[1:]) else []
    return "\n".join(map(plain_line, lines))


def _render_pipes(headers: Sequence[str], rows: Sequence[Sequence[str]], aligns: Sequence[str]) -> str:
    """Returns rows as a Markdown table of padded cells; `aligns` has 'left' or 'right' per column."""
    widths, *lines = _pad_columns(headers, rows, aligns, HEADER_ROOM)
    ends = [(":", "-") if align == "left" else ("-", ":") for align in aligns] if rows else [("-", "-")] * len(widths)
    rule = "|".join(f"{left}{each}{right}" for (left, right), each in zip(ends, widths, strict=True))
    head, *body = (f"| {' | '.join(line)} |" for line in lines)
    return "\n".join([head, f"|{rule}|", *body])


def _pad_columns(
    headers: Sequence[str], rows: Sequence[Sequence[str]], aligns: Sequence[str], room: int = 0
) -> list[list[str]]:
    """Returns headers and rows padded to the widths of their columns. The first line is dashes of those widths."""
    body = [[cell.strip() for cell in row] for row in rows]
    widths = [display_width(header) + room for header in headers]
    for row in body:
        widths = [max(width, display_width(cell)) for width, cell in zip(widths, row, strict=True)]
    columns = list(zip(widths, aligns if body else ["left"] * len(widths), strict=True))
    padded_lines = [
        [pad_text(cell, width, align) for cell, (width, align) in zip(line, columns, strict=True)]
        for line in (headers, *body)
    ]
    return [["-" * width for width in widths], *padded_lines]


def _has_part_cells(row: Sequence[str], part: Sequence[int]) -> bool:
    return not any(row[1:]) or any(row[index + 1] for index in part)


def _wrap_line(line: str, width: int) -> list[str]:
    return wrap_text(line, width) if line.strip() else []


def _render_list(lines: Sequence[str]) -> str:
    return "\n".join(f"- {_escape_text(line)}" for line in lines)


def _escape_text(text: str) -> str:
    """Returns text with escapes for '&', '<', '|', '*' and '`', so that it cannot end a Markdown cell or be markup."""
    for character, written in (("&", "&amp;"), ("<", "&lt;"), ("|", "\\|"), ("*", "\\*"), ("`", "\\`")):
        text = text.replace(character, written)
    return text
