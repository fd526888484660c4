"""Sections of a page that compares the backends of a workload: a bar for each, with its idea and its time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pytest_attnperf.records.time_units import choose_time_unit, format_time
from pytest_attnperf.reports.html.charts import COLOURS
from pytest_attnperf.reports.html.row_layout import UprightLine
from pytest_attnperf.reports.html.sections import Figure, Section
from pytest_attnperf.reports.html.stacks import StackPart, StackRow, make_stacks
from pytest_attnperf.reports.html.text_tables import convert_table
from pytest_attnperf.reports.run.ladder_cases import Ladder, is_timed
from pytest_attnperf.reports.run.overview import verdict_text
from pytest_attnperf.reports.text import wide_tables
from pytest_attnperf.reports.text.figures import format_speedup, one_line
from pytest_attnperf.reports.text.text_width import both_ends, cut_text
from pytest_attnperf.results import CaseResult

LADDERS = 24
"""Most workloads of a page."""

DRAWN = 40
"""Most bars of a chart."""

STEP, REFERENCE = "step", "reference"
KINDS = {STEP: COLOURS[0], REFERENCE: COLOURS[-1]}
NAME_CELLS = 24


def build_sections(
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
            (_draw(ladder, base, ideas or {}),),
            tuple(convert_table(table, one_line(table.title, 200)) for table in tables.get(ladder.title, ())),
            short=one_line(ladder.title, 40),
            folded=True,
        )
        for number, ladder in enumerate(ladders[:LADDERS], 1)
    ]
    others = tuple(convert_table(table, one_line(table.title, 200)) for table in tables.get("", ()))
    said = list(lead)
    if len(ladders) > LADDERS:
        said.append(f"Shown are the first {LADDERS} of {len(ladders)} workloads; --workload ID chooses others.")
    source = Section("source", "Where the times are from", tuple(said), (), others, short="source", folded=True)
    return [source, *sections]


def _draw(ladder: Ladder, base: str, ideas: Mapping[str, str]) -> Figure:
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
