"""Sections of a page about which backend to use where: a map for each op family, coloured by the chosen backend."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from pytest_attnperf.records.time_units import format_time
from pytest_attnperf.reports.html.charts import COLOURS
from pytest_attnperf.reports.html.heat_map import Cell, Looks, draw_map
from pytest_attnperf.reports.html.sections import Figure, PageTable, Section, TableHead
from pytest_attnperf.reports.text.figures import ABSENT, format_change, one_line
from pytest_attnperf.reports.text.text_width import both_ends
from pytest_attnperf.tools.dispatch.dispatch_record import (
    SCHEMA,
    DispatchRecord,
    FieldValue,
    PointRecord,
    ShapeRecord,
    decode_record,
)
from pytest_attnperf.tools.dispatch.regions import ALONE, CLEAR, TIE

__all__ = ["SCHEMA", "build_sections", "read_sections"]

MAPS = 12
"""Most maps of a page."""

ROWS, COLUMNS = 24, 16
"""Most rows and columns of a map."""

DENSE = 4
"""Fewest cells of the mean map for which a family is split into a map for each combination of its other fields."""

LISTED = 2_000
NAME_LIMIT = 60

AXES = {
    "seq_q": "sequence length",
    "seq": "sequence length",
    "seq_kv": "keys and values (sequence length)",
    "past": "earlier tokens (sequence length)",
    "rows": "rows",
    "size_m": "rows of the product (m)",
}
"""Field that sizes belong to -> the words of an axis."""


@dataclass(frozen=True)
class _Row:
    """A row of a map: its label, and its points."""

    label: str
    points: tuple[PointRecord, ...]


@dataclass(frozen=True)
class _Map:
    """A map: its family, its other fields in words, the name of its size, and its rows."""

    family: str
    words: str
    axis: str
    rows: tuple[_Row, ...]

    @property
    def cells(self) -> int:
        """Number of measured workloads."""
        return sum(len(row.points) for row in self.rows)


def read_sections(data: bytes, where: str, prefix: str) -> list[Section]:
    """Returns the sections of what `attnperf dispatch --json` printed. Raises UsageError naming `where` for any other
    file."""
    return build_sections(decode_record(data, where), prefix)


def build_sections(found: DispatchRecord, prefix: str = "dispatch") -> list[Section]:
    """Returns the sections of a dispatch table: where its times are from, and a section for each op family in which
    something can be chosen, with maps and all points.

    prefix   begins the sections' names, which must be unique in a page
    """
    families = _group_by_family(found.groups)
    maps = [one for family, groups in families.items() for one in _make_maps(family, groups)]
    drawn = sorted(maps, key=lambda one: -one.cells)[:MAPS]
    sections = [_make_source(found, families, prefix)]
    for number, (family, groups) in enumerate(families.items(), 1):
        own = [one for one in maps if one.family == family]
        shown = [one for one in own if one in drawn]
        colours = _choose_colours(groups)
        figures = [_draw(one, colours, found, len(own) - len(shown)) for one in shown]
        sections.append(
            Section(
                f"{prefix}-{number}",
                f"{one_line(family, NAME_LIMIT)}: the backend to use",
                () if shown else ("No map: the page has the largest maps only.",),
                tuple(figures),
                (_list_points(family, groups),),
                short=one_line(family, 30),
                folded=True,
            )
        )
    return sections


def _group_by_family(groups: Iterable[ShapeRecord]) -> dict[str, list[ShapeRecord]]:
    """Returns family -> its shapes, for the families in which some workload has two or more backends."""
    found: dict[str, list[ShapeRecord]] = {}
    for group in groups:
        found.setdefault(group.family, []).append(group)
    return {family: own for family, own in found.items() if any(point.against for point in _points_of(own))}


def _points_of(groups: Iterable[ShapeRecord]) -> list[PointRecord]:
    return [point for group in groups for region in group.regions for point in region.points]


def _make_maps(family: str, groups: Sequence[ShapeRecord]) -> list[_Map]:
    """Returns the family's maps for each size field: one for each combination of the fields that vary, but for the one
    that varies most, which makes the rows. Where such maps would be nearly empty, one map with a row for each shape."""
    maps = []
    for axis, of_axis in itertools.groupby(sorted(groups, key=lambda group: group.axis), key=lambda group: group.axis):
        own = list(of_axis)
        varying = _list_varying(own)
        split = _split(family, axis, own, varying)
        if varying and axis and len(_points_of(own)) >= DENSE * len(split):
            maps += split
        else:
            rows = tuple(_Row(group.shape, tuple(_points_of([group]))) for group in own)
            maps.append(_Map(family, "", axis, rows))
    return maps


def _list_varying(groups: Sequence[ShapeRecord]) -> list[str]:
    """Returns the fields with several values, the one with most values first; head_dim before others with as many."""
    names = dict.fromkeys(name for group in groups for name in group.fields)
    counts = {name: len({repr(group.fields.get(name)) for group in groups}) for name in names}
    varying = [name for name in names if counts[name] > 1]
    return sorted(varying, key=lambda name: (-counts[name], name != "head_dim", name))


def _split(family: str, axis: str, groups: Sequence[ShapeRecord], varying: Sequence[str]) -> list[_Map]:
    panels: dict[str, list[_Row]] = {}
    for group in groups:
        words = ", ".join(_format_field(name, group.fields.get(name)) for name in varying[1:])
        label = _format_field(varying[0], group.fields.get(varying[0])) if varying else group.shape
        panels.setdefault(words, []).append(_Row(label, tuple(_points_of([group]))))
    return [_Map(family, words, axis, tuple(rows)) for words, rows in panels.items()]


def _format_field(name: str, value: FieldValue | None) -> str:
    if isinstance(value, bool):
        return name if value else f"not {name}"
    return f"{name} {ABSENT if value in (None, '') else value}"


def _choose_colours(groups: Sequence[ShapeRecord]) -> dict[str, str]:
    """Returns backend -> colour for those that are chosen, most often first; beyond the colours all share the last."""
    chosen = [name for name, _ in Counter(point.backend for point in _points_of(groups)).most_common()]
    own = chosen if len(chosen) <= len(COLOURS) else chosen[: len(COLOURS) - 1]
    return {name: COLOURS[own.index(name)] if name in own else COLOURS[-1] for name in chosen}


def _draw(one: _Map, colours: Mapping[str, str], found: DispatchRecord, left_out: int) -> Figure:
    rows = one.rows[:ROWS]
    sizes = sorted({point.size for row in rows for point in row.points})
    columns = [_format_size(size, one.axis) for size in sizes[:COLUMNS]]
    cells = [
        _make_cell(number, _format_size(point.size, one.axis), point, colours[point.backend])
        for number, row in enumerate(rows)
        for point in row.points
        if point.size in sizes[:COLUMNS]
    ]
    axis = AXES.get(one.axis, one.axis)
    title = one_line(", ".join(filter(None, (one.family, one.words, f"by {axis}" if axis else ""))), 200)
    incumbent = one_line(found.incumbents.get(one.family, ""), NAME_LIMIT)
    said = _describe(cells, len(columns) * len(rows), incumbent, found.margin_percent)
    said += _describe_left_out(len(one.rows) - len(rows), len(sizes) - len(columns), left_out)
    return draw_map(title, axis, columns, [row.label for row in rows], cells, colours, caption=said)


def _format_size(size: int, axis: str) -> str:
    return str(size) if axis else ""


def _make_cell(row: int, column: str, point: PointRecord, colour: str) -> Cell:
    margin = _format_margin(point)
    words = {CLEAR: margin, TIE: "tie", ALONE: "only one"}.get(point.confidence, margin)
    looks: Looks = "pale" if point.confidence == TIE else "outline" if point.confidence == ALONE else "full"
    told = {
        "workload": both_ends(point.workload),
        "backend": one_line(point.backend, NAME_LIMIT),
        "confidence": point.confidence if point.samples else f"{point.confidence}, no samples",
        "second": one_line(point.against, NAME_LIMIT),
        "margin": margin,
        "95 % interval": _format_interval(point),
    }
    return Cell(row, column, point.backend, words, looks, colour, told)


def _format_margin(point: PointRecord) -> str:
    return ABSENT if point.margin_percent is None else format_change(1 + point.margin_percent / 100)


def _format_interval(point: PointRecord) -> str:
    ends = point.interval95_percent
    return ABSENT if ends is None else " .. ".join(format_change(1 + end / 100) for end in ends)


def _describe(cells: Sequence[Cell], places: int, incumbent: str, margin: float) -> str:
    """Returns how to read a map, of the kinds of cells that it has."""
    looks = {cell.looks for cell in cells}
    said = []
    if "full" in looks:
        said.append("Full colour: the fastest backend, and how much longer the second takes.")
    if "pale" in looks:
        said.append(f"Pale: a tie, within {margin:g} % or not beyond chance.")
    if "outline" in looks:
        said.append("Outlined: only one backend was measured.")
    if len(cells) < places:
        said.append(f"Dotted: not measured, so the incumbent {incumbent} is chosen.")
    return " ".join(said)


def _describe_left_out(rows: int, columns: int, maps: int) -> str:
    counts = ((rows, "row"), (columns, "column"), (maps, "smaller map"))
    parts = [f"{count} {what}{'s' * (count != 1)}" for count, what in counts if count > 0]
    return f" Not drawn: {', '.join(parts)}; the table has all points." if parts else ""


def _make_source(found: DispatchRecord, families: Mapping[str, object], prefix: str) -> Section:
    """Returns the section of where the times are from, which families have nothing to choose, and what was left out."""
    alone = [family for family in found.incumbents if family not in families]
    lead = [one_line(text, 1000) for text in found.told]
    if alone:
        said = ", ".join(f"{one_line(name, 40)} ({one_line(found.incumbents[name], 40)})" for name in alone)
        lead.append(f"Nothing to choose, because no case has more than one backend: {said}.")
    tables = []
    if found.never_combined:
        rows = tuple(
            (str(fields.get("family", "")), ", ".join(_format_field(n, v) for n, v in fields.items() if n != "family"))
            for fields in found.never_combined[:LISTED]
        )
        names = (TableHead("family"), TableHead("combination"))
        tables.append(PageTable("Never measured, so the incumbent is chosen", names, rows))
    if found.left_out:
        cases = tuple(
            (one_line(case.backend, NAME_LIMIT), both_ends(case.workload), one_line(case.why, 300))
            for case in found.left_out[:LISTED]
        )
        heads = (TableHead("backend"), TableHead("workload"), TableHead("why"))
        tables.append(PageTable(f"Left out of all decisions: {len(found.left_out)}", heads, cases))
    return Section(prefix, "Where the times are from", tuple(lead), (), tuple(tables), short="source", folded=True)


def _list_points(family: str, groups: Sequence[ShapeRecord]) -> PageTable:
    names = ("shape", "size", "backend", "confidence", "margin", "95 %", "second", "all times")
    heads = tuple(TableHead(name, name in ("size", "margin", "95 %")) for name in names)
    rows = [
        _list_point(group, point) for group in groups for region in group.regions for point in region.points
    ]  # fmt: skip
    more = f", the first {LISTED} of {len(rows)}" if len(rows) > LISTED else ""
    return PageTable(f"All points of {one_line(family, NAME_LIMIT)}{more}", heads, tuple(rows[:LISTED]))


def _list_point(group: ShapeRecord, point: PointRecord) -> tuple[str, ...]:
    times = (f"{one_line(name, NAME_LIMIT)} {format_time(us)}" for name, us in point.times_us.items())
    return (
        one_line(group.shape, 120),
        _format_size(point.size, group.axis),
        one_line(point.backend, NAME_LIMIT),
        point.confidence if point.samples else f"{point.confidence}, no samples",
        _format_margin(point),
        _format_interval(point),
        one_line(point.against, NAME_LIMIT) or ABSENT,
        ", ".join(times),
    )
