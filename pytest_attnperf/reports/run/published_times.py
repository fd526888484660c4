"""Shows published figures beside a run's own, in a table of their own with their sources. They are never gated."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from pytest_attnperf.records.published import PublishedTimes
from pytest_attnperf.records.time_units import format_time
from pytest_attnperf.reports.text.colour import PLAIN, Ink
from pytest_attnperf.reports.text.figures import one_line
from pytest_attnperf.reports.text.grid import GridColumn, GridGroup, GridRow, render_grid
from pytest_attnperf.reports.text.text_width import wrap_text
from pytest_attnperf.results import RunResult

DEFAULT_WIDTH = 110
NAME_LIMIT = 60
SOURCE_LIMIT = 4000
"""Most characters of a source with its method and caveats, which no table may cut."""

HEADING = "published elsewhere, never gated"
UNNAMED = "a device that is not named"


@dataclass(frozen=True)
class PublishedLine:
    """A published time as texts; `number` is that of its source among those shown, from 1 on."""

    workload: str
    backend: str
    time: str
    device: str
    number: int


def list_published(reports: Iterable[PublishedTimes]) -> tuple[list[PublishedLine], list[str]]:
    """Returns the times of published reports as lines of a table, sorted by workload, and their sources in the order of
    their numbers. A report that several runs stored counts once."""
    numbers: dict[str, int] = {}
    lines: dict[PublishedLine, None] = {}
    for report in reports:
        number = numbers.setdefault(one_line(report.source, SOURCE_LIMIT), len(numbers) + 1)
        for row in report.rows:
            texts = (one_line(row.workload, SOURCE_LIMIT), one_line(row.backend, NAME_LIMIT))
            device = one_line(report.device, NAME_LIMIT) or UNNAMED
            lines[PublishedLine(*texts, format_time(row.time_us), device, number)] = None
    return sorted(lines, key=lambda line: (line.workload, line.number)), list(numbers)


def of_runs(runs: Iterable[RunResult]) -> list[PublishedTimes]:
    """Returns the published figures of several runs, those of the runs' own devices first."""
    found = [report for run in runs for report in run.published]
    return sorted(found, key=lambda report: not report.same_device)


def published_table(reports: Sequence[PublishedTimes], *, width: int = DEFAULT_WIDTH, ink: Ink = PLAIN) -> str:
    """Returns a table of published figures, with numbered sources below it; '' without rows."""
    lines, sources = list_published(reports)
    if not lines:
        return ""
    body = tuple(GridRow(line.workload, (line.backend, line.time, f"[{line.number}]")) for line in lines)
    columns = (GridColumn("backend", align="left"), GridColumn("time"), GridColumn("source", align="left"))
    table = render_grid([GridGroup("", body)], columns, corner="workload", width=width, ink=ink, before=0)
    wrapped = (line for number, source in enumerate(sources, 1) for line in wrap_text(f"[{number}] {source}", width))
    return "\n".join([ink.bold(HEADING), table, *wrapped])


def only_workloads(reports: Iterable[PublishedTimes], workloads: Iterable[str]) -> list[PublishedTimes]:
    """Returns the figures for these workloads alone; reports without any are left out."""
    wanted = set(workloads)
    found = []
    for report in reports:
        rows = tuple(row for row in report.rows if row.workload in wanted)
        if rows:
            found.append(PublishedTimes(report.source, report.device, report.same_device, rows))
    return found


def hidden_line(reports: Iterable[PublishedTimes]) -> str:
    """Returns one line on how many published figures are of other devices, and how to see them; '' for none."""
    hidden = [report for report in reports if not report.same_device]
    count = sum(len(report.rows) for report in hidden)
    names = " and ".join(dict.fromkeys(one_line(report.device, NAME_LIMIT) or UNNAMED for report in hidden))
    figures = f"{count} published figure{'s' * (count != 1)}"
    return f"{figures} of {names} {'is' if count == 1 else 'are'} not shown (-v shows all)" if hidden else ""
