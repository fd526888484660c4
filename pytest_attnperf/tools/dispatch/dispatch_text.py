"""A dispatch table as text: a table per family, what was never measured, and which cases were left out."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from pytest_attnperf.reports.text.figures import ABSENT, one_line
from pytest_attnperf.reports.text.wide_tables import Column, Table, render_markdown_tables, render_terminal_tables

if TYPE_CHECKING:
    from pytest_attnperf.tools.dispatch.features import Value
    from pytest_attnperf.tools.dispatch.measured_points import LeftOut
    from pytest_attnperf.tools.dispatch.regions import DispatchTable, Region, ShapeGroup

    Missing = tuple[str, dict[str, Value]]

NAME_LIMIT = 60
REASON_LIMIT = 200
LEFT_OUT_SHOWN = 12
MIN_WIDTH = 80
UNLIMITED = 10_000
NO_SAMPLES = "no samples"

AXIS_NAMES = {"seq_q": "seq", "seq_kv": "kv", "size_m": "m"}

_COLUMNS = (
    Column("backend", "left"),
    Column("margin"),
    Column("confidence", "left"),
    Column("of"),
    Column("over", "left"),
)
"""Columns after the shape and its size. The last ones are dropped if a terminal is too narrow."""


def render_table(table: DispatchTable, told: Sequence[str], missing: Sequence[Missing], width: int) -> str:
    """Returns the dispatch table for a terminal of `width` columns, at least 80: the lines `told` (device, date ...), a
    legend, a table per family, and lists of what was never measured (`missing` combinations, too) or left out."""
    width = max(width, MIN_WIDTH)
    lines = [*(one_line(line, 1000) for line in told), *legend_lines(table)]
    body = [_fit_table(of_family, width) for of_family in make_tables(table)]
    listed = [
        "\n".join([heading, render_terminal_tables(_format_items(items), [], width)])
        for heading, items in closing_lists(table, missing)
    ]
    return "\n\n".join([render_terminal_tables(lines, [], width), *body, *listed])


def render_markdown(table: DispatchTable, told: Sequence[str], missing: Sequence[Missing]) -> str:
    """Returns the content of `render_table` as Markdown."""
    lines = [*(one_line(line, 1000) for line in told), *legend_lines(table)]
    listed = [
        f"### {heading}\n\n{render_markdown_tables(items, [])}" for heading, items in closing_lists(table, missing)
    ]
    return "\n\n".join([render_markdown_tables(lines, make_tables(table)), *listed])


def legend_lines(table: DispatchTable) -> list[str]:
    """Returns lines that explain the words 'incumbent', 'margin' and 'of' in a dispatch table, and name the families
    that have only one backend."""
    lines = [
        "incumbent: chosen at ties and for everything that was never measured",
        f"margin: extra time of the fastest other backend; it is a tie below {table.margin * 100:g} %, or if the 95 % "
        "interval over processes includes 1",
        "of: number of backends that were measured and right; alone: only one was",
    ]
    if not all(region.is_sampled for group in table.groups for region in group.regions):
        lines.append("no samples: confidence unknown; only the margin decides")
    undecided = [family for family in table.incumbents if family not in _decided_families(table)]
    if undecided:
        of = ", ".join(f"{_format_name(family)} ({_format_name(table.incumbents[family])})" for family in undecided)
        lines.append(f"nothing to choose, because no case has more than one backend: {of}")
    return lines


def make_tables(table: DispatchTable) -> list[Table]:
    """Returns one table per family and size field, for the families in which some workload has two or more backends."""
    decided = _decided_families(table)
    shown = sorted((group for group in table.groups if group.shape.family in decided), key=_table_key)
    found = []
    for (family, axis), groups in itertools.groupby(shown, key=lambda group: (group.shape.family, group.shape.axis)):
        rows = tuple(_format_row(group, region) for group in groups for region in group.regions)
        size = (Column(AXIS_NAMES.get(axis, axis)),) if axis else ()
        by = f", by {AXIS_NAMES.get(axis, axis)}" if axis else ""
        title = f"{_format_name(family)}{by}; incumbent {_format_name(table.incumbents[family])}"
        found.append(Table(title, "shape", (*size, *_COLUMNS), _blank_repeated_names(rows)))
    return found


def closing_lists(table: DispatchTable, missing: Sequence[Missing]) -> list[tuple[str, list[str]]]:
    """Returns (heading, lines) of unmeasured sizes and combinations, of backends absent at some sizes, and of cases
    that were left out."""
    unmeasured = [
        *_unmeasured_sizes(table.groups),
        *_unmeasured_combinations(missing),
        "every other shape than those in the table",
    ]
    lists = [("Never measured, so the incumbent is chosen", unmeasured)]
    absent = [line for group in table.groups for line in _describe_absent(group)]
    if absent:
        lists.append(("Measured at another size of the shape, but not at this one", absent))
    if table.left_out:
        more = len(table.left_out) - LEFT_OUT_SHOWN
        items = [
            *map(_describe_left_out, table.left_out[:LEFT_OUT_SHOWN]),
            *([f"{more} more, see --json"] if more > 0 else []),
        ]
        lists.append((f"Left out of all decisions: {_format_count(len(table.left_out), 'case')}", items))
    return lists


def _format_items(items: Iterable[str]) -> list[str]:
    return [f"- {item}" for item in items]


def _table_key(group: ShapeGroup) -> tuple[str, str, tuple[str, ...]]:
    return group.shape.family, group.shape.axis, group.shape.order


def _format_row(group: ShapeGroup, region: Region) -> tuple[str, ...]:
    over = " or ".join(map(_format_name, region.against)) or ABSENT
    size = (_format_span(region),) if group.shape.axis else ()
    fewest, most = region.backends
    of = str(most) if fewest == most else f"{fewest} .. {most}"
    return (
        _format_name(group.shape.label),
        *size,
        _format_name(region.backend),
        _format_margin(region),
        _format_confidence(region),
        of,
        over,
    )


def _decided_families(table: DispatchTable) -> set[str]:
    return {group.shape.family for group in table.groups if group.has_choice}


def _blank_repeated_names(rows: Iterable[tuple[str, ...]]) -> tuple[tuple[str, ...], ...]:
    """Returns the rows with a shape's name in its first row only."""
    kept: list[tuple[str, ...]] = []
    before = ""
    for row in rows:
        kept.append(("", *row[1:]) if row[0] == before else row)
        before = row[0]
    return tuple(kept)


def _format_span(region: Region) -> str:
    return str(region.first) if region.first == region.last else f"{region.first} - {region.last}"


def _format_margin(region: Region) -> str:
    if region.margins is None:
        return ABSENT
    low, high = (f"{margin * 100:.1f}" for margin in region.margins)
    return f"{low} %" if low == high else f"{low} .. {high} %"


def _format_confidence(region: Region) -> str:
    words = region.confidence
    if region.is_sampled:
        return words
    return NO_SAMPLES if words == "clear" else f"{words}, {NO_SAMPLES}"


def _describe_absent(group: ShapeGroup) -> list[str]:
    axis = AXIS_NAMES.get(group.shape.axis, group.shape.axis)
    return [
        f"{_format_shape(group)}, {axis} {size}: {one_line(', '.join(names), REASON_LIMIT)}"
        for size, names in group.absent.items()
    ]


def _unmeasured_sizes(groups: Iterable[ShapeGroup]) -> list[str]:
    lines = []
    single = 0
    for group in groups:
        if not group.shape.axis:
            continue
        first, last = group.regions[0].first, group.regions[-1].last
        if first == last:
            single += 1
            continue
        gaps = "".join(f"{_format_gap(gap)}, " for gap in group.gaps)
        axis = AXIS_NAMES.get(group.shape.axis, group.shape.axis)
        lines.append(f"{_format_shape(group)}: {axis} below {first}, {gaps}above {last}")
    if single:
        lines.append(f"{_format_count(single, 'shape')} with one size in the table: every other size")
    if any(not group.shape.axis for group in groups):
        lines.append("shapes without a size: every other list of lengths")
    return lines


def _format_gap(gap: tuple[int, int]) -> str:
    return str(gap[0]) if gap[0] == gap[1] else f"{gap[0]} to {gap[1]}"


def _unmeasured_combinations(missing: Sequence[Missing]) -> list[str]:
    """Returns lines such as 'prefill f16: head_dim 40, 59 with batch 1, 2'. Equal lists of batches share a line."""
    lines = []
    for (family, dtype), found in _group_by(missing, lambda case: (case[0], str(case[1].get("dtype", "")))).items():
        lacking = _group_by(found, lambda case: case[1].get("head_dim", ""))
        merged: dict[tuple[str, ...], list[str]] = {}
        for head_dim, cases in lacking.items():
            batches = tuple(str(case[1]["batch"]) for case in cases if "batch" in case[1])
            merged.setdefault(batches, []).append(str(head_dim))
        for batches, head_dims in merged.items():
            dims = f"head_dim {', '.join(head_dims)}" if any(head_dims) else ""
            batch = f"batch {', '.join(batches)}" if batches else ""
            said = " with ".join(part for part in (dims, batch) if part) or "never"
            lines.append(one_line(f"{family} {dtype}".rstrip() + f": {said}", REASON_LIMIT))
    return lines


def _group_by(cases: Sequence[Missing], key: Any) -> dict[Any, list[Missing]]:
    found: dict[Any, list[Missing]] = {}
    for case in cases:
        found.setdefault(key(case), []).append(case)
    return found


def _describe_left_out(case: LeftOut) -> str:
    return f"{_format_name(case.backend)} on {_format_name(case.workload)}: {one_line(case.why, REASON_LIMIT)}"


def _format_shape(group: ShapeGroup) -> str:
    return _format_name(f"{group.shape.family} {group.shape.label}")


def _format_name(text: str) -> str:
    return one_line(text, NAME_LIMIT)


def _format_count(number: int, what: str) -> str:
    return f"{number} {what}{'s' * (number != 1)}"


def _fit_table(table: Table, width: int) -> str:
    """Returns a table's text in the first form that fits: whole, with shapes on their own lines, or in parts."""
    forms = (_render_whole(table), _render_under_shapes(table))
    parts = render_terminal_tables([], [table], width)
    return next((form for form in forms if _longest_line(form) <= width), parts)


def _render_whole(table: Table) -> str:
    return render_terminal_tables([], [table], UNLIMITED)


def _render_under_shapes(table: Table) -> str:
    """Renders rows without their shape, which has a line of its own above them."""
    first, *columns = table.columns
    untitled = Table("", first.header, tuple(columns), tuple(row[1:] for row in table.rows))
    header, line, *rows = _render_whole(untitled).splitlines()
    named = zip(table.rows, rows, strict=True)
    body = (part for row, text in named for part in ([f"{row[0]}", f"  {text}"] if row[0] else [f"  {text}"]))
    return "\n".join([table.title, f"  {header}", f"  {line}", *body])


def _longest_line(text: str) -> int:
    return max(map(len, text.splitlines()), default=0)
