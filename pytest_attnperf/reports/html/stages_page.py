"""Sections of a page about where the time of calls goes: a bar of stages for each backend, or for each library."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pytest_attnperf.records.stages import Breakdown
from pytest_attnperf.records.time_units import TimeUnit, choose_time_unit, format_time
from pytest_attnperf.reports.html.sections import Figure, Section
from pytest_attnperf.reports.html.stacks import StackPart, StackRow, make_stacks
from pytest_attnperf.reports.html.text_tables import convert_table
from pytest_attnperf.reports.run.stage_tables import Groups, sum_stages
from pytest_attnperf.reports.text import wide_tables
from pytest_attnperf.reports.text.figures import ABSENT, format_share, one_line
from pytest_attnperf.results import CaseResult

WORKLOADS = 24
"""Most workloads of a page."""

DRAWN = 40
"""Most bars of a chart."""

Bars = Sequence[tuple[str, Mapping[str, float]]]
"""Name of a bar, and its parts: stage -> microseconds; the whole call is one part."""


def build_sections(
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
