"""Tables of two compared results, worst first, by case, backend or suite; and of the GPUs of runs: which is slow."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pytest_attnperf.records import CaseKey, Verdict
from pytest_attnperf.records.card_offsets import MeasuredCard
from pytest_attnperf.reports.text.colour import PLAIN, Ink
from pytest_attnperf.reports.text.figures import ABSENT, format_change, one_line
from pytest_attnperf.reports.text.grid import GridColumn, GridGroup, GridRow, render_grid
from pytest_attnperf.reports.text.text_width import both_ends, wrap_text
from pytest_attnperf.reports.text.time_cells import TimeCell

COLOURS = {"slower": Verdict.SLOWER, "faster": Verdict.FASTER, "undecided": Verdict.UNDECIDED}
"""Verdict whose colour each word has."""

LISTED = 5
REASON_LIMIT = 300

CELL_LIMIT = 24


@dataclass(frozen=True)
class ComparedRow:
    """One case, microseconds per call; `change` is second / first, `limit` the ratio from which it looks slower."""

    name: str
    looks: str
    base_us: float
    new_us: float
    change: float
    interval95: tuple[float, float] | None
    limit: float | None


@dataclass(frozen=True)
class TwoTimersRow:
    """One case that the sides timed with different timers, microseconds per call."""

    name: str
    timers: tuple[str, str]
    first_us: float
    second_us: float


@dataclass(frozen=True)
class GroupRow:
    """Cases of one backend or suite: the geometric mean of their changes, and how many look slower or faster."""

    name: str
    change: float
    cases: int
    slower: int
    faster: int


CASE_COLUMNS = (
    GridColumn("looks", "left"),
    GridColumn("first", rank=2),
    GridColumn("second", rank=1),
    GridColumn("change"),
    GridColumn("95 %", rank=3, legend="confidence interval of the change"),
    GridColumn("limit", rank=4, legend="change from which a case looks slower"),
)
GROUP_COLUMNS = (GridColumn("cases"), GridColumn("mean change"), GridColumn("look slower"), GridColumn("look faster"))


def case_table(rows: Sequence[ComparedRow], *, width: int, ink: Ink = PLAIN) -> str:
    """Returns a table of compared cases with a line for each, in the given order; '' without rows."""
    groups, legend = [GridGroup("", tuple(map(_make_case_row, rows)))], list[str]()
    table = render_grid(groups, CASE_COLUMNS, corner="case", width=width, ink=ink, legend=legend)
    return "\n".join([table, *legend])


def timer_table(rows: Sequence[TwoTimersRow], *, width: int, ink: Ink = PLAIN) -> str:
    """Returns a table of cases that two timers timed, in the given order; '' without rows."""
    shown = tuple(GridRow(row.name, (TimeCell(row.first_us), TimeCell(row.second_us))) for row in rows)
    if not shown:
        return ""
    first, second = rows[0].timers
    columns = (GridColumn(f"first, {first}"), GridColumn(f"second, {second}"))
    return render_grid([GridGroup("", shown)], columns, corner="two timers", width=width, ink=ink, before=0)


def group_table(rows: Sequence[GroupRow], corner: str, *, width: int, ink: Ink = PLAIN) -> str:
    """Returns a table with a line per group of cases; `corner`, 'backend' or 'suite', heads the names."""
    shown = tuple(
        GridRow(row.name, (str(row.cases), format_change(row.change), str(row.slower), str(row.faster))) for row in rows
    )
    return render_grid([GridGroup("", shown)], GROUP_COLUMNS, corner=corner, width=width, ink=ink, before=0)


def list_case_lines(what: str, names: Sequence[CaseKey], width: int) -> list[str]:
    """Returns `what` with the number of cases ('only in the first: 7 cases'), then the first LISTED names; [] for
    none."""
    if not names:
        return []
    lines = [f"{what}: {len(names)} case{'s' * (len(names) != 1)}"]
    shown = [f"  {line}" for name in names[:LISTED] for line in wrap_text(both_ends(str(name)), width - 2)]
    return [*lines, *shown, *([f"  and {len(names) - LISTED} more"] if len(names) > LISTED else [])]


def list_reason_lines(found: Sequence[tuple[CaseKey, str]], width: int) -> list[str]:
    """Returns a wrapped line per reason why cases cannot be compared: their number and one of them; most cases
    first."""
    by_reason: dict[str, list[CaseKey]] = {}
    for key, why in found:
        by_reason.setdefault(why, []).append(key)
    lines: list[str] = []
    for why, keys in sorted(by_reason.items(), key=lambda item: -len(item[1])):
        text = f"cannot be compared: {len(keys)} case{'s' * (len(keys) != 1)}, {one_line(why, REASON_LIMIT)}"
        lines += wrap_text(f"{text} ({both_ends(str(keys[0]))}{', ...' * (len(keys) > 1)})", width)
    return lines


def _make_case_row(row: ComparedRow) -> GridRow:
    interval = ABSENT if row.interval95 is None else " .. ".join(map(format_change, row.interval95))
    cells = (
        row.looks,
        TimeCell(row.base_us),
        TimeCell(row.new_us),
        format_change(row.change),
        interval,
        ABSENT if row.limit is None else format_change(row.limit),
    )
    return GridRow(row.name, cells, COLOURS.get(row.looks))


COLUMNS = (
    GridColumn("", "left"),
    GridColumn("cases"),
    GridColumn("offset"),
    GridColumn("95 %"),
    GridColumn("over", rank=1, legend="cases that other cards ran, too"),
    GridColumn("MHz", rank=2),
    GridColumn("W cap", rank=3),
    GridColumn("C", rank=4),
    GridColumn("partition", rank=5),
)


def card_table(groups: Sequence[tuple[str, Sequence[MeasuredCard]]], *, width: int, ink: Ink = PLAIN) -> str:
    """Returns a table with a line per GPU, under a heading per device; '' without GPUs."""
    shown = [GridGroup(heading, tuple(map(_make_card_row, cards))) for heading, cards in groups if cards]
    legend: list[str] = []
    table = render_grid(shown, COLUMNS, corner="card", width=width, ink=ink, legend=legend)
    return "\n".join([table, *legend])


def _make_card_row(card: MeasuredCard) -> GridRow:
    offset = card.offset
    interval = "" if offset is None else " .. ".join(format_change(1 + end) for end in offset.interval95)
    return GridRow(
        card.device_id,
        (
            "SLOW" if card.slow else "",
            str(card.cases),
            ABSENT if offset is None else format_change(1 + offset.offset),
            interval or ABSENT,
            ABSENT if offset is None else str(offset.cases),
            ABSENT if card.clock_mhz is None else f"{card.clock_mhz:.0f}",
            *(one_line(text, CELL_LIMIT) or ABSENT for text in (card.power_cap_w, card.temperature_c, card.partition)),
        ),
    )
