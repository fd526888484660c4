"""Sections of a page for the two comparisons of a workload's backends: a ladder's steps, and the stages of calls."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from pytest_attnperf.records.stages import Breakdown
from pytest_attnperf.records.time_units import TimeUnit, choose_time_unit, format_time
from pytest_attnperf.reports.html.charts import COLOURS, Spec, make_base
from pytest_attnperf.reports.html.embedding import Json, round_figure
from pytest_attnperf.reports.html.labels import estimate_px, make_legend
from pytest_attnperf.reports.html.row_layout import (
    RowLayout,
    UprightLine,
    lay_out_rows,
    list_lines,
    make_row_texts,
    make_upright_lines,
)
from pytest_attnperf.reports.html.sections import Figure, Section
from pytest_attnperf.reports.html.text_tables import convert_table
from pytest_attnperf.reports.run.ladder_cases import Ladder, is_timed
from pytest_attnperf.reports.run.overview import verdict_text
from pytest_attnperf.reports.run.stage_tables import Groups, sum_stages
from pytest_attnperf.reports.text import wide_tables
from pytest_attnperf.reports.text.figures import ABSENT, format_share, format_speedup, one_line
from pytest_attnperf.reports.text.text_width import both_ends, cut_text, shorten_distinctly
from pytest_attnperf.results import CaseResult

OTHER = "other"
PART_CELLS = 34
PAD_PX = 8
BAR_PX = 14


@dataclass(frozen=True)
class StackPart:
    """A part of a bar: what it is, its length in the unit of the axis, and the length as people read it."""

    name: str
    length: float
    text: str


@dataclass(frozen=True)
class StackRow:
    """A bar. Without parts the row has its name and its text alone.

    name    whole; unique in the chart
    text    its value as people read it, at the right end
    told    what the tooltip says further: heading -> text
    """

    name: str
    parts: tuple[StackPart, ...]
    text: str = ""
    told: Mapping[str, str] = field(default_factory=dict)


def make_stacks(
    title: str,
    axis: str,
    rows: Sequence[StackRow],
    *,
    marks: Sequence[UprightLine] = (),
    colours: Mapping[str, str] | None = None,
    caption: str = "",
) -> Figure:
    """Returns a chart with a bar for each of `rows`, in their order.

    axis      its title, with the unit
    colours   of each kind of part, which then have no words and no legend; None names the longest kinds of parts, and
              the rest is 'other'
    """
    layout = lay_out_rows([row.name for row in rows], [row.text for row in rows])
    shown = colours if colours is not None else _choose_colours(rows)
    headings = list(dict.fromkeys(heading for row in rows for heading in row.told))
    parts = [
        datum for number, row in enumerate(rows) for datum in _make_parts(number, row, shown, headings)
    ]  # fmt: skip
    data: dict[str, list[Mapping[str, Json]]] = {
        "bars": [{"row": number, **layout.labels[row.name], "text": row.text} for number, row in enumerate(rows)],
        "parts": [*parts],
        "words": [*parts] if colours is None else [],
        "marks": list_lines(marks),
    }
    tooltip = [("name", "name"), ("part", "part"), ("length", "length"), ("share", "share")]
    tooltip = [pair for pair in tooltip if colours is None or pair[0] == "name"]
    tooltip += [(f"told{place}", heading) for place, heading in enumerate(headings)]
    spec = make_base(title, height=layout.height)
    spec["layer"] = _make_layers(axis, layout, shown, tooltip, has_legend=colours is None)
    return Figure(title, spec, data, caption)


def _choose_colours(rows: Sequence[StackRow]) -> dict[str, str]:
    """Returns kind of part -> colour: the longest kinds in the order in which they first stand, then OTHER."""
    lengths: dict[str, float] = {}
    for row in rows:
        for part in row.parts:
            lengths[part.name] = lengths.get(part.name, 0.0) + part.length
    most = sorted(lengths, key=lambda name: -lengths[name])
    most = most if len(most) <= len(COLOURS) else most[: len(COLOURS) - 1]
    found = {name: COLOURS[place] for place, name in enumerate(name for name in lengths if name in most)}
    return found if len(most) == len(lengths) else {**found, OTHER: COLOURS[-1]}


def _make_parts(
    number: int, row: StackRow, colours: Mapping[str, str], headings: Sequence[str]
) -> list[dict[str, Json]]:
    """Returns the data of a bar's parts, from left to right; those without a colour are one, the last."""
    whole = sum(part.length for part in row.parts)
    told = {f"told{place}": row.told.get(heading, "") for place, heading in enumerate(headings)}
    shown = shorten_distinctly(colours, PART_CELLS)
    found, start = [], 0.0
    for part in [*(part for part in row.parts if part.name in colours), *_join_others(row.parts, colours)]:
        end = start + part.length
        words = shown.get(part.name, OTHER)
        found.append(
            {
                "row": number,
                "start": round_figure(start),
                "end": round_figure(end),
                "middle": round_figure((start + end) / 2),
                "kind": words,
                "words_px": estimate_px(words) + PAD_PX,
                "name": both_ends(row.name),
                "part": both_ends(part.name),
                "length": part.text,
                "share": f"{100 * part.length / whole:.0f} %" if whole else "",
                "description": f"{both_ends(row.name)}, {both_ends(part.name)}: {part.text}",
                **told,
            }
        )
        start = end
    return found


def _join_others(parts: Sequence[StackPart], colours: Mapping[str, str]) -> list[StackPart]:
    """Returns the parts without a colour as one, in a list; [] without any."""
    others = [part for part in parts if part.name not in colours]
    said = ", ".join(f"{both_ends(part.name)} {part.text}" for part in others)
    return [StackPart(OTHER, sum(part.length for part in others), one_line(said, 200))] if others else []


def _make_layers(
    axis: str,
    layout: RowLayout,
    colours: Mapping[str, str],
    tooltip: Sequence[tuple[str, str]],
    *,
    has_legend: bool,
) -> list[Spec]:
    x: Spec = {"field": "start", "type": "quantitative", "title": axis, "scale": {"zero": True, "nice": False}}
    ticks = {"expr": "max(3, min(9, floor(width / 70)))"}
    x["axis"] = {"format": ".12~g", "tickCount": ticks, "labelFlush": True}
    middle = layout.middle_px
    top, bottom = (
        layout.at(middle - BAR_PX / 2),
        {"field": "row", "bandPosition": (middle + BAR_PX / 2) / layout.row_px},
    )
    scale = {"domain": list(shorten_distinctly(colours, PART_CELLS).values()), "range": list(colours.values())}
    colour: Spec = {"field": "kind", "type": "nominal", "scale": scale, "legend": None}
    if has_legend:
        colour["legend"] = make_legend(scale["domain"])
    told = [{"field": name, "title": heading, "type": "nominal"} for name, heading in tooltip]
    encoding = {"x": x, "x2": {"field": "end"}, "y": top, "y2": bottom, "color": colour, "tooltip": told}
    words = {"field": "kind", "type": "nominal"}
    fits = "scale('x', datum.end) - scale('x', datum.start) >= datum.words_px"
    inside = {"x": {"field": "middle", "type": "quantitative"}, "y": layout.at(middle)}
    return [
        *make_upright_lines("marks"),
        *make_row_texts(layout, "bars"),
        {
            "data": {"name": "parts"},
            "mark": {"type": "rect", "x2Offset": -1},
            "encoding": {**encoding, "description": {"field": "description"}},
        },
        {
            "name": "on_colour",
            "data": {"name": "words"},
            "mark": {"type": "text", "aria": False},
            "encoding": {**inside, "text": {"condition": {"test": fits, **words}, "value": ""}},
        },
    ]


WORKLOADS = 24
"""Most workloads of a page."""

DRAWN = 40
"""Most bars of a chart."""

STEP, REFERENCE = "step", "reference"
KINDS = {STEP: COLOURS[0], REFERENCE: COLOURS[-1]}
NAME_CELLS = 24

Bars = Sequence[tuple[str, Mapping[str, float]]]
"""Name of a bar, and its parts: stage -> microseconds; the whole call is one part."""


def build_ladder_sections(
    ladders: Sequence[Ladder],
    tables: Mapping[str, Sequence[wide_tables.Table]],
    *,
    base: str,
    lead: Sequence[str] = (),
    ideas: Mapping[str, str] | None = None,
) -> list[Section]:
    """Returns a section for each ladder, with its bars from the slowest to the fastest, and its tables folded.

    tables   title of a ladder -> its tables; '' holds those that belong to none, shown in a section of their own
    base     the backend that speedups are over
    lead     sentences above the first: device, software, what figures mean
    ideas    backend -> what it does to be fast
    """
    sections = [
        Section(
            f"ladder-{number}",
            one_line(ladder.title, 200),
            tuple(note for table in tables.get(ladder.title, ()) for note in table.notes),
            (_draw_ladder(ladder, base, ideas or {}),),
            tuple(convert_table(table, one_line(table.title, 200)) for table in tables.get(ladder.title, ())),
            short=one_line(ladder.title, 40),
            folded=True,
        )
        for number, ladder in enumerate(ladders[:WORKLOADS], 1)
    ]
    others = tuple(convert_table(table, one_line(table.title, 200)) for table in tables.get("", ()))
    said = list(lead)
    if len(ladders) > WORKLOADS:
        said.append(f"Shown are the first {WORKLOADS} of {len(ladders)} workloads; --workload ID chooses others.")
    source = Section("source", "Where the times are from", tuple(said), (), others, short="source", folded=True)
    return [source, *sections]


def _draw_ladder(ladder: Ladder, base: str, ideas: Mapping[str, str]) -> Figure:
    """Returns bars of speedups, or of times where the base has none."""
    timed = [case for case in ladder.cases if is_timed(case)]
    cases = sorted(timed, key=lambda case: (-(case.median_us or 0.0), case.key.backend))
    cases += [case for case in ladder.cases if not is_timed(case)]
    unit = choose_time_unit(case.median_us for case in timed)
    rows = [_make_row(ladder, case, ideas, unit.us) for case in cases[:DRAWN]]
    over = cut_text(both_ends(base), NAME_CELLS)
    axis = f"times as fast as {over}" if ladder.base_us else f"time of a call ({unit.name})"
    marks = []
    if ladder.against_us and any(row.parts for row in rows):
        value = ladder.base_us / ladder.against_us if ladder.base_us else ladder.against_us / unit.us
        marks = [UprightLine(value, ladder.against_name)]
    said = "Longer is faster." if ladder.base_us else f"Shorter is faster; {over} has no time here."
    said += " The slowest is first; the dashed line is the backend that speeds are relative to." if marks else ""
    said += f" Not drawn: {len(cases) - DRAWN}." if len(cases) > DRAWN else ""
    title = "Speedup of each backend" if ladder.base_us else "Time of each backend"
    return make_stacks(title, axis, rows, marks=marks, colours=KINDS, caption=said)


def _make_row(ladder: Ladder, case: CaseResult, ideas: Mapping[str, str], unit_us: float) -> StackRow:
    backend, us = case.key.backend, case.median_us
    idea = one_line(ideas.get(backend, ""), 120)
    name = f"{backend}: {idea}" if idea else backend
    if not us or not is_timed(case):
        return StackRow(name, (), verdict_text(case), {})
    speedup = ladder.base_us / us if ladder.base_us else None
    kind = REFERENCE if backend == ladder.against_name else STEP
    text = format_time(us) if speedup is None else format_speedup(speedup)
    told = {"time": format_time(us), "speedup": format_speedup(speedup)}
    if ladder.against_us:
        told["of the reference's speed"] = f"{100 * ladder.against_us / us:.3g} %"
    return StackRow(name, (StackPart(kind, speedup if speedup is not None else us / unit_us, text),), text, told)


def build_stage_sections(
    groups: Groups,
    tables: Mapping[str, Sequence[wide_tables.Table]],
    staged: Mapping[str, Bars],
    *,
    lead: Sequence[str] = (),
) -> list[Section]:
    """Returns a section for each workload whose calls have stages, then one for each attention that was run staged.

    tables   title of a group, or workload of `staged` -> its tables, which are folded
    staged   prefill workload -> a bar of stages for each library, and a bar for each whole call
    lead     sentences above the first: the device, what figures mean
    """
    drawn = [(title, _draw_calls(cases)) for title, cases in groups.items()]
    drawn += [(title, _draw_staged(bars)) for title, bars in staged.items()]
    sections = [
        Section(
            f"stages-{number}",
            one_line(title, 200),
            tuple(note for table in tables.get(title, ()) for note in table.notes),
            (figure,),
            tuple(convert_table(table, one_line(table.title, 200)) for table in tables.get(title, ())),
            short=one_line(title, 40),
            folded=True,
        )
        for number, (title, figure) in enumerate(drawn[:WORKLOADS], 1)
    ]
    said = list(lead)
    if len(drawn) > WORKLOADS:
        said.append(f"Shown are the first {WORKLOADS} of {len(drawn)} workloads; --workload ID chooses others.")
    return [Section("source", "Where the times are from", tuple(said), short="source"), *sections]


def _draw_calls(cases: Sequence[CaseResult]) -> Figure:
    """Returns a bar for each call, fastest first: its stages, or the whole of one without stages."""
    calls = [(case.key.backend, case.breakdown) for case in cases if case.breakdown is not None]
    calls.sort(key=lambda call: call[1].call_us)
    unit = choose_time_unit(call.call_us for _, call in calls)
    rows = [_make_call(backend, call, unit) for backend, call in calls[:DRAWN]]
    said = (
        "Each stage was timed alone, in turns with the whole call, whose time stands at the right; a bar is the sum of"
    )
    said += " its stages."
    said += f" Not drawn: {len(calls) - DRAWN} slower calls." if len(calls) > DRAWN else ""
    return make_stacks("Stages of each call", f"time of the stages ({unit.name})", rows, caption=said)


def _make_call(backend: str, call: Breakdown, unit: TimeUnit) -> StackRow:
    summed = {name: us for name, (us, _) in sum_stages(call).items() if us > 0} or {"whole call": call.call_us}
    parts = tuple(StackPart(name, us / unit.us, format_time(us)) for name, us in summed.items())
    told = {"whole call": format_time(call.call_us), "sum of stages over it": format_share(call.share)}
    return StackRow(backend, parts, f"{unit.format_number(call.call_us)} {unit.name}", told)


def _draw_staged(bars: Bars) -> Figure:
    """Returns a bar for each library's stages and for each whole call, fastest first."""
    ordered = sorted(bars, key=lambda bar: (not bar[1], sum(bar[1].values())))
    unit = choose_time_unit(sum(parts.values()) for _, parts in bars)
    rows = [
        StackRow(
            name,
            tuple(StackPart(stage, us / unit.us, format_time(us)) for stage, us in parts.items()),
            f"{unit.format_number(sum(parts.values()))} {unit.name}" if parts else ABSENT,
        )
        for name, parts in ordered[:DRAWN]
    ]
    said = "A library's stages one after the other, each timed as a case of its own, beside whole calls."
    said += f" Not drawn: {len(bars) - DRAWN}." if len(bars) > DRAWN else ""
    return make_stacks("Staged against fused attention", f"time ({unit.name})", rows, caption=said)
