"""Tables of where the time of calls goes: a row per backend, and in full a row per stage.

Stages are timed alone, on values kept from one call, interleaved with the whole call. A stage that launches nothing
takes no time. '-' means not known.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from pytest_attnperf.records import Launch
from pytest_attnperf.records.stages import Breakdown, StageTime
from pytest_attnperf.records.time_units import format_time
from pytest_attnperf.reports.run.ladder_cases import is_timed
from pytest_attnperf.reports.text.figures import (
    ABSENT,
    BYTES_PER_MIB,
    format_share,
    format_speedup,
    one_line,
)
from pytest_attnperf.reports.text.time_cells import ONCE, Cell, TimeCell
from pytest_attnperf.reports.text.wide_tables import Column, Table, render_terminal_tables
from pytest_attnperf.results import CaseResult

WIDTH = 110
NAME_LIMIT = 44
RUNS_LIMIT = 56
US_PER_MS = 1e3
TITLE_LIMIT = 200

WHOLE_COLUMNS = ("call", "first", "build", "launches", "allocs", "sum/call")
STAGE_COLUMNS = ("time", "of call", "launches", "allocs", "MiB", "cache", "runs")
LEFT = frozenset({"cache", "runs"})

LEGEND = (
    "call: the whole call, timed in turns with its stages; first: the first call after the build, which is in "
    "no other time; build: compiling, converting and copying before it, without what the process had built",
    "stages: time of each run alone on values kept from one call; sum/call: all of them together over the whole; "
    "launches (on a CPU torch's operators) and allocs: of one whole call",
)

Groups = dict[str, list[CaseResult]]
"""Workload, and label if it has one -> its cases that have a breakdown, in canonical order."""


def group_by_workload(cases: Iterable[CaseResult]) -> Groups:
    """Returns workload[/label] -> its cases with a breakdown into stages; leaves out cases without a meaningful
    time."""
    found: Groups = {}
    for case in cases:
        if case.breakdown is not None and is_timed(case):
            title = f"{case.key.workload}/{case.key.label}" if case.key.label else case.key.workload
            found.setdefault(title, []).append(case)
    return found


def stage_text(cases: Iterable[CaseResult], width: int = WIDTH) -> str:
    """Returns tables of where the time goes, one per workload with breakdowns, to stand below a suite's table; else
    ''."""
    groups = group_by_workload(cases)
    if not groups:
        return ""
    tables = [make_fitting_table(title, members, width) for title, members in groups.items()]
    return render_terminal_tables(("where the time goes", *LEGEND), tables, width)


def make_fitting_table(title: str, cases: Sequence[CaseResult], width: int) -> Table:
    """Returns the overview table of a workload; if it is wider than `width`, a terminal shows its stages as a separate
    part."""
    table = make_overview_table(title, cases)
    longest = max(
        map(len, render_terminal_tables((), [table], 10 * WIDTH * len(table.columns)).splitlines()[1:]), default=0
    )
    return table if longest <= width else make_overview_table(title, cases, apart=True)


def make_overview_table(title: str, cases: Sequence[CaseResult], *, apart: bool = False) -> Table:
    """Returns a table with a row per backend: whole call, build and first call, and stages ('a.x' counts as 'a').

    apart   a terminal shows the stages as a separate part of the table
    """
    summed = {case.key: sum_stages(case.breakdown) for case in cases}
    names = list(dict.fromkeys(name for stages in summed.values() for name in stages))
    idle = [name for name in names if all(stages.get(name, (0.0, 0))[0] == 0 for stages in summed.values())]
    shown = [name for name in names if name not in idle]
    columns = [Column(header) for header in WHOLE_COLUMNS]
    columns += [Column(one_line(name, NAME_LIMIT), begins=apart and name == shown[0]) for name in shown]
    rows = tuple(
        (
            one_line(case.key.backend, NAME_LIMIT),
            *_format_whole_call(case.breakdown),
            *(_format_cell(summed[case.key], n) for n in shown),
        )
        for case in cases
        if case.breakdown is not None
    )
    notes = [f"launch nothing here: {one_line(', '.join(idle), TITLE_LIMIT)}"] if idle else []
    return Table(one_line(title, TITLE_LIMIT), "backend", tuple(columns), rows, (*notes, *_without_stages(cases)))


def make_stage_table(title: str, case: CaseResult) -> Table:
    """Returns a table with a row per stage of one backend, then the sum of the stages and the whole call."""
    found = case.breakdown
    assert found is not None, "cases are chosen by having a breakdown"
    columns = tuple(Column(name, align="left" if name in LEFT else "right") for name in STAGE_COLUMNS)
    rows = [_stage_row(stage, found) for stage in found.stages]
    rows.append(("sum of stages", *_format_stage_total(found)))
    count, size = _format_count(found.launch_count), _format_mib(found.allocated_bytes)
    rows.append(("whole call", TimeCell(found.call_us), "", count, _format_count(found.allocations), size, "", ""))
    before = (
        f"{one_line(case.key.backend, NAME_LIMIT)}: build {format_time(found.build_ms * US_PER_MS)}, first call "
        f"{format_time(found.first_call_ms * US_PER_MS)}"
    )
    notes = (f"{before}, timer {found.timer}",)
    return Table(one_line(f"{title}: {case.key.backend}", TITLE_LIMIT), "stage", columns, tuple(rows), notes)


def _format_stage_total(found: Breakdown) -> tuple[Cell, ...]:
    launches = [stage.launch_count for stage in found.stages]
    counts = [stage.allocations for stage in found.stages]
    sizes = [stage.allocated_bytes for stage in found.stages]
    return (
        TimeCell(found.sum_us),
        format_share(found.share),
        ABSENT if None in launches else _format_count(sum(count or 0 for count in launches)),
        ABSENT if None in counts else _format_count(sum(count or 0 for count in counts)),
        ABSENT if None in sizes else _format_mib(sum(size or 0 for size in sizes)),
        "",
        "",
    )


def _stage_row(stage: StageTime, found: Breakdown) -> tuple[Cell, ...]:
    return (
        one_line(stage.name, NAME_LIMIT),
        TimeCell(stage.median_us),
        format_share(stage.median_us / found.call_us if found.call_us else None),
        _format_count(stage.launch_count),
        _format_count(stage.allocations),
        _format_mib(stage.allocated_bytes),
        stage.cache_state,
        _format_launched_kernel(stage.launches),
    )


def _format_whole_call(found: Breakdown | None) -> tuple[Cell, ...]:
    assert found is not None, "cases are chosen by having a breakdown"
    return (
        TimeCell(found.call_us),
        TimeCell(found.first_call_ms * US_PER_MS, ONCE),
        TimeCell(found.build_ms * US_PER_MS, ONCE),
        _format_count(found.launch_count),
        _format_count(found.allocations),
        format_share(found.share),
    )


def sum_stages(found: Breakdown | None) -> dict[str, tuple[float, int]]:
    """Returns stage -> (microseconds, number of parts). 'attention.x', a part of a stage, counts under 'attention'."""
    sums: dict[str, tuple[float, int]] = {}
    for stage in found.stages if found is not None else ():
        name = stage.name.partition(".")[0]
        us, count = sums.get(name, (0.0, 0))
        sums[name] = (us + stage.median_us, count + 1)
    return sums


def _format_cell(sums: dict[str, tuple[float, int]], name: str) -> Cell:
    if name not in sums:
        return ABSENT
    us, count = sums[name]
    return TimeCell(us, after=f" ({count})" if count > 1 else "")


def _without_stages(cases: Sequence[CaseResult]) -> list[str]:
    names = [case.key.backend for case in cases if case.breakdown is not None and not case.breakdown.stages]
    return [f"no stages of their own: {one_line(', '.join(names), TITLE_LIMIT)}"] if names else []


def _format_count(count: float | None) -> str:
    return ABSENT if count is None else f"{count:g}"


def _format_mib(size: int | None) -> str:
    return ABSENT if size is None else "0" if size == 0 else f"{size / BYTES_PER_MIB:.3g}"


def _format_launched_kernel(launches: Sequence[Launch] | None) -> str:
    """Returns the kernel that a stage launches most often and the number of other kinds: 'NAME +2'; or 'nothing',
    '-'."""
    if not launches:
        return ABSENT if launches is None else "nothing"
    first = one_line(max(launches, key=lambda one: (one.kind == "kernel", one.calls)).name, RUNS_LIMIT)
    return f"{first} +{len(launches) - 1}" if len(launches) > 1 else first


def make_cpu_speedup_table(title: str, cases: Sequence[CaseResult], cpu_us: float | None, cpu_backend: str) -> Table:
    """Returns a table of each backend's speedup over `cpu_backend` on a CPU. `cpu_us` is the latter's time; None:
    unknown."""
    notes = () if cpu_us is not None else (f"the CPU's results hold no time of {cpu_backend} on this workload",)
    rows: list[tuple[Cell, ...]] = []
    if cpu_us is not None:
        rows.append((f"{cpu_backend} on the CPU", TimeCell(cpu_us), format_speedup(1.0)))
    for case in cases:
        ratio = cpu_us / case.median_us if cpu_us is not None and case.median_us else None
        rows.append((one_line(case.key.backend, NAME_LIMIT), TimeCell(case.median_us), format_speedup(ratio)))
    heading = one_line(f"{title}: over a CPU", TITLE_LIMIT)
    return Table(heading, "backend", (Column("time"), Column("times as fast")), tuple(rows), notes)
