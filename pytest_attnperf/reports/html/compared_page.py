"""Sections of a page that compares two results case by case, or the cards that measured one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType

from pytest_attnperf.records.card_offsets import MeasuredCard
from pytest_attnperf.records.time_units import choose_time_unit
from pytest_attnperf.reports.html.dots import DotKind, DotRow, make_dots, place_ends, place_ratio, thin_evenly
from pytest_attnperf.reports.html.row_layout import UprightLine
from pytest_attnperf.reports.html.sections import Figure, PageTable, Section, TableHead
from pytest_attnperf.reports.run.compared import ComparedRow, GroupRow, TwoTimersRow
from pytest_attnperf.reports.text.figures import ABSENT, format_change, one_line
from pytest_attnperf.reports.text.text_width import both_ends

DRAWN = 40
"""Most rows of a chart; the table has all."""

LISTED = 2_000
"""Most rows of a table."""

STRIP = 100
"""Most single values that are drawn for a card."""

FAR = 3.0
"""Ratio from which changes are drawn on a logarithmic axis: one large change would hide the others."""

LOOKS = {"slower": DotKind(1, 2), "undecided": DotKind(4, 3), "same": DotKind(6, 0), "faster": DotKind(2, 5)}
"""How each word of a comparison is drawn."""

CARDS = {"slow": DotKind(1, 2), "": DotKind(0, 0)}


def build_sections(
    cases: Sequence[ComparedRow],
    groups: Sequence[GroupRow] = (),
    two_timers: Sequence[TwoTimersRow] = (),
    *,
    by: str = "case",
    lead: Sequence[str] = (),
    fail_above: float | None = None,
    absent: Mapping[str, Sequence[str]] = MappingProxyType({}),
) -> list[Section]:
    """Returns the sections of a comparison of two results: its rows as dots with intervals, in the given order.

    groups       shown in place of the cases, if `by` is 'backend' or 'suite'
    lead         sentences above: counts, where each side is from
    fail_above   percent, drawn as a line; None for none
    absent       heading -> names of the cases of one side only
    """
    chart = _draw_groups(groups, by) if by != "case" else _draw_cases(cases, fail_above)
    table = _list_groups(groups, by) if by != "case" else _list_cases(cases)
    shown = bool(groups if by != "case" else cases)
    timed = [_list_timers(two_timers, timers) for timers in dict.fromkeys(row.timers for row in two_timers)]
    alone = [_list_absent(heading, names) for heading, names in absent.items() if names]
    tables = (*([table] if shown else ()), *timed, *alone)
    return [Section("changes", "Second against first", tuple(lead), (chart,) if shown else (), tables)]


def build_card_sections(
    devices: Sequence[tuple[str, Sequence[MeasuredCard]]],
    cases: Mapping[str, Mapping[str, Sequence[float]]],
    lead: Sequence[str] = (),
) -> list[Section]:
    """Returns a section with a strip for each card: its offset from the others with its interval, and single cases.

    devices   name ('sm_90/h200') and its cards, in order
    cases     device -> card -> its offset in each case, as fractions
    lead      sentences above
    """
    figures = [_draw_cards(device, cards, cases.get(device, {})) for device, cards in devices if cards]
    tables = [_list_cards(device, cards) for device, cards in devices if cards]
    return [Section("cards", "Cards against each other", tuple(lead), tuple(figures), tuple(tables))]


def _draw_cases(cases: Sequence[ComparedRow], fail_above: float | None) -> Figure:
    drawn = cases[:DRAWN]
    ratios = [end for row in drawn for end in (row.change, *(row.interval95 or ()))]
    is_log = bool(ratios) and (max(ratios) > FAR or min(ratios) < 1 / FAR)
    rows = [_make_case_row(number, row, is_log=is_log) for number, row in enumerate(drawn)]
    marks = [] if fail_above is None else [
        UprightLine(place_ratio(1 + fail_above / 100, is_log=is_log), f"--fail-above {fail_above:g} %")
    ]  # fmt: skip
    axis = "time of the second / time of the first" if is_log else "change of time, second against first (%)"
    said = "Triangles look slower or faster, diamonds are undecided, circles look the same. A thick line is the 95 % "
    said += "interval over processes, a short upright one the change from which the case looks slower."
    return make_dots(
        "Change of each case",
        axis,
        rows,
        kinds=LOOKS,
        origin=place_ratio(1.0, is_log=is_log),
        marks=marks,
        is_log=is_log,
        caption=_add_left_out(said, len(cases) - len(drawn)),
    )


def _make_case_row(number: int, row: ComparedRow, *, is_log: bool) -> DotRow:
    unit = choose_time_unit([row.base_us, row.new_us])
    interval = row.interval95
    return DotRow(
        name=row.name,
        at=place_ratio(row.change, is_log=is_log),
        text=format_change(row.change),
        interval=place_ends(interval, is_log=is_log),
        limit=None if row.limit is None else place_ratio(row.limit, is_log=is_log),
        kind=row.looks,
        told={
            "change": f"{format_change(row.change)}, looks {row.looks}",
            "95 % interval": _format_ends(interval),
            "limit": ABSENT if row.limit is None else format_change(row.limit),
            "first": f"{unit.format_number(row.base_us)} {unit.name}",
            "second": f"{unit.format_number(row.new_us)} {unit.name}",
        },
    )


def _format_ends(interval: tuple[float, float] | None) -> str:
    return ABSENT if interval is None else " .. ".join(map(format_change, interval))


def _add_left_out(said: str, count: int) -> str:
    return f"{said} Drawn are the first {DRAWN}; {count} more are in the table." if count > 0 else said


def _bound(caption: str, count: int) -> str:
    return f"{caption}, the first {LISTED} of {count}" if count > LISTED else caption


def _list_cases(cases: Sequence[ComparedRow]) -> PageTable:
    unit = choose_time_unit([us for row in cases for us in (row.base_us, row.new_us)])
    heads = (
        TableHead("case"),
        TableHead("looks"),
        TableHead(f"first {unit.name}", True),
        TableHead(f"second {unit.name}", True),
        TableHead("change", True),
        TableHead("95 %", True, "confidence interval of the change"),
        TableHead("limit", True, "change from which a case looks slower"),
    )
    rows = tuple(
        (
            both_ends(row.name),
            row.looks,
            unit.format_number(row.base_us),
            unit.format_number(row.new_us),
            format_change(row.change),
            _format_ends(row.interval95),
            ABSENT if row.limit is None else format_change(row.limit),
        )
        for row in cases[:LISTED]
    )
    return PageTable(_bound("Compared cases", len(cases)), heads, rows)


def _draw_groups(groups: Sequence[GroupRow], by: str) -> Figure:
    drawn = groups[:DRAWN]
    rows = [
        DotRow(
            name=row.name,
            at=100 * (row.change - 1),
            text=format_change(row.change),
            told={
                "mean change": format_change(row.change),
                "cases": str(row.cases),
                "look slower": str(row.slower),
                "look faster": str(row.faster),
            },
        )
        for row in drawn
    ]
    said = _add_left_out("Geometric mean over the cases of each.", len(groups) - len(drawn))
    axis = "mean change of time, second against first (%)"
    return make_dots(f"Mean change by {by}", axis, rows, kinds={"": DotKind()}, origin=0.0, caption=said)


def _list_groups(groups: Sequence[GroupRow], by: str) -> PageTable:
    heads = (TableHead(by), *(TableHead(text, True) for text in ("cases", "mean change", "look slower", "look faster")))
    rows = tuple(
        (both_ends(row.name), str(row.cases), format_change(row.change), str(row.slower), str(row.faster))
        for row in groups[:LISTED]
    )
    return PageTable(_bound(f"Mean change by {by}", len(groups)), heads, rows)


def _list_timers(two_timers: Sequence[TwoTimersRow], timers: tuple[str, str]) -> PageTable:
    """Returns the table of the cases that this pair of timers timed."""
    own = [row for row in two_timers if row.timers == timers]
    unit = choose_time_unit([us for row in own for us in (row.first_us, row.second_us)])
    first, second = (one_line(name, 40) for name in timers)
    heads = (
        TableHead("case"),
        TableHead(f"first, {first} {unit.name}", True),
        TableHead(f"second, {second} {unit.name}", True),
    )
    rows = tuple(
        (both_ends(row.name), unit.format_number(row.first_us), unit.format_number(row.second_us))
        for row in own[:LISTED]
    )
    return PageTable(_bound("Timed by two timers, so not compared", len(own)), heads, rows)


def _list_absent(heading: str, names: Sequence[str]) -> PageTable:
    return PageTable(
        _bound(heading, len(names)), (TableHead("case"),), tuple((both_ends(name),) for name in names[:LISTED])
    )


def _draw_cards(device: str, cards: Sequence[MeasuredCard], cases: Mapping[str, Sequence[float]]) -> Figure:
    rows = [_make_card_row(card, cases.get(card.device_id, ())) for card in cards[:DRAWN]]
    strips = any(row.strip for row in rows)
    said = "Large dots are the mean without the outer fifths, with its 95 % interval"
    said += "; faint dots are single cases that other cards ran, too." if strips else "."
    if any(len(values) > STRIP for values in cases.values()):
        said += f" At most {STRIP} of a card's cases are drawn, evenly chosen by rank."
    axis = "offset from the other cards (%), more is slower"
    title = f"Offset of each card, {one_line(device, 80)}"
    return make_dots(title, axis, rows, kinds=CARDS, origin=0.0, caption=_add_left_out(said, len(cards) - len(rows)))


def _make_card_row(card: MeasuredCard, cases: Sequence[float]) -> DotRow:
    offset = card.offset
    change = ABSENT if offset is None else format_change(1 + offset.offset)
    interval = _find_interval(card)
    return DotRow(
        name=card.device_id,
        at=None if offset is None else 100 * offset.offset,
        text=f"SLOW {change}" if card.slow else change if offset else "too few cases",
        interval=None if interval is None else (100 * (interval[0] - 1), 100 * (interval[1] - 1)),
        kind="slow" if card.slow else "",
        strip=tuple(100 * value for value in thin_evenly(sorted(cases), STRIP)),
        told={
            "offset": change,
            "95 % interval": _format_ends(interval),
            "cases": str(card.cases),
            "clock": "" if card.clock_mhz is None else f"{card.clock_mhz:.0f} MHz",
            "power cap": one_line(f"{card.power_cap_w} W", 40) if card.power_cap_w else "",
        },
    )


def _find_interval(card: MeasuredCard) -> tuple[float, float] | None:
    """Returns the 95 % interval of a card's time / the others' time."""
    return None if card.offset is None else (1 + card.offset.interval95[0], 1 + card.offset.interval95[1])


def _list_cards(device: str, cards: Sequence[MeasuredCard]) -> PageTable:
    names = ("cases", "offset", "95 %", "over", "MHz", "W cap", "C", "partition")
    heads = (TableHead("card"), TableHead("slow"), *(TableHead(name, name != "partition") for name in names))
    rows = tuple(
        (
            both_ends(card.device_id),
            "SLOW" if card.slow else "",
            str(card.cases),
            ABSENT if card.offset is None else format_change(1 + card.offset.offset),
            _format_ends(_find_interval(card)),
            ABSENT if card.offset is None else str(card.offset.cases),
            ABSENT if card.clock_mhz is None else f"{card.clock_mhz:.0f}",
            *(one_line(text, 40) or ABSENT for text in (card.power_cap_w, card.temperature_c, card.partition)),
        )
        for card in cards[:LISTED]
    )
    return PageTable(_bound(f"Cards, {one_line(device, 80)}", len(cards)), heads, rows)
