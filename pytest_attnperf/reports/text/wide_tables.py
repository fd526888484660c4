"""Tables with more columns than a terminal has room for: split into several there, whole in Markdown."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from pytest_attnperf.reports.text.text_width import display_width, pad_text, plain_line, wrap_text

WIDTH = 100
"""Columns of a terminal that every table and line fits, except for a single name that is longer."""

HEADER_ROOM = 2
"""Cells by which a column is at least wider than its header."""


@dataclass(frozen=True)
class Column:
    """A column's header, and whether it begins a part of the table that a terminal shows separately."""

    header: str
    align: str = "right"
    begins: bool = False


@dataclass(frozen=True)
class Table:
    """One table as text: rows of a name and a cell per column.

    title    line above; '' for none
    corner   header of the names
    notes    lines below
    """

    title: str
    corner: str
    columns: tuple[Column, ...]
    rows: tuple[tuple[str, ...], ...]
    notes: tuple[str, ...] = ()


def render_terminal_tables(lines: Sequence[str], tables: Sequence[Table], width: int = WIDTH) -> str:
    """Returns lines, then tables, in at most `width` columns; a wider table is split, and each part has the names."""
    blocks = ["\n".join(filled for line in lines for filled in _wrap_line(line, width))]
    for table in tables:
        parts = [_render_part(table, part) for part in _split_columns(table, width)]
        notes = [filled for note in table.notes for filled in _wrap_line(note, width)]
        blocks += ["\n".join([*_wrap_line(table.title, width), parts[0]]), *parts[1:], "\n".join(notes)]
    return "\n\n".join(block for block in blocks if block)


def render_markdown_tables(lines: Sequence[str], tables: Sequence[Table]) -> str:
    """Returns lines and tables as Markdown: each table whole, under a heading; `lines` and notes as lists."""
    blocks = [_render_list(lines)]
    for table in tables:
        every = range(len(table.columns))
        heading = f"### {_escape_text(table.title)}" if table.title else ""
        blocks += [heading, _render_pipes(*_select_cells(_escape_table(table), every)), _render_list(table.notes)]
    return "\n\n".join(block for block in blocks if block)


def _split_columns(table: Table, width: int) -> list[list[int]]:
    """Returns the column indices of each part of a table: as many as fit into `width`, and a new part at `begins`."""
    parts: list[list[int]] = [[]]
    for index, column in enumerate(table.columns):
        longer = [*parts[-1], index]
        if parts[-1] and (column.begins or _compute_width(_render_part(table, longer)) > width):
            parts.append([index])
        else:
            parts[-1] = longer
    return parts


def _render_part(table: Table, part: Sequence[int]) -> str:
    return plain_table(*_select_cells(table, part))


def _select_cells(table: Table, part: Sequence[int]) -> tuple[list[str], list[list[str]], list[str]]:
    """Returns (headers, rows, alignments) of the columns `part`, names first. Leaves out rows without cells in them,
    except headings."""
    shown = [[row[0], *(row[index + 1] for index in part)] for row in table.rows if _has_part_cells(row, part)]
    headers = [table.corner, *(table.columns[index].header for index in part)]
    return headers, shown, ["left", *(table.columns[index].align for index in part)]


def plain_table(headers: Sequence[str], rows: Sequence[Sequence[str]], aligns: Sequence[str]) -> str:
    """Returns rows under headers and a line of dashes, for a terminal; `aligns` has 'left' or 'right' per column."""
    widths, head, *body = _pad_columns(headers, rows, aligns)
    return "\n".join(map(plain_line, [head, widths, *body]))


def _render_pipes(headers: Sequence[str], rows: Sequence[Sequence[str]], aligns: Sequence[str]) -> str:
    """Returns rows as a Markdown table of padded cells; `aligns` has 'left' or 'right' per column."""
    widths, *lines = _pad_columns(headers, rows, aligns)
    ends = [(":", "-") if align == "left" else ("-", ":") for align in aligns] if rows else [("-", "-")] * len(widths)
    rule = "|".join(f"{left}{each}{right}" for (left, right), each in zip(ends, widths, strict=True))
    head, *body = (f"| {' | '.join(line)} |" for line in lines)
    return "\n".join([head, f"|{rule}|", *body])


def _pad_columns(headers: Sequence[str], rows: Sequence[Sequence[str]], aligns: Sequence[str]) -> list[list[str]]:
    """Returns headers and rows padded to the widths of their columns. The first line is dashes of those widths."""
    body = [[cell.strip() for cell in row] for row in rows]
    widths = [display_width(header) + HEADER_ROOM for header in headers]
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


def _compute_width(text: str) -> int:
    return max(map(len, text.splitlines()), default=0)


def _wrap_line(line: str, width: int) -> list[str]:
    return wrap_text(line, width) if line.strip() else []


def _render_list(lines: Sequence[str]) -> str:
    return "\n".join(f"- {_escape_text(line)}" for line in lines)


def _escape_table(table: Table) -> Table:
    columns = tuple(replace(column, header=_escape_text(column.header)) for column in table.columns)
    return replace(table, columns=columns, rows=tuple(tuple(map(_escape_text, row)) for row in table.rows))


def _escape_text(text: str) -> str:
    """Returns text with escapes for '&', '<', '|', '*' and '`', so that it cannot end a Markdown cell or be markup."""
    for character, written in (("&", "&amp;"), ("<", "&lt;"), ("|", "\\|"), ("*", "\\*"), ("`", "\\`")):
        text = text.replace(character, written)
    return text
