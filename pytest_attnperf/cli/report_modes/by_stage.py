"""`attnperf report --by stage`: shows where the time of calls goes, and compares staged with fused attention."""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from pytest_attnperf.cli.output import asks_report, count_columns, write_report_page, write_text
from pytest_attnperf.errors import UnknownNameError, UsageError
from pytest_attnperf.records import DeviceInfo
from pytest_attnperf.reports.html.workload_sections import build_stage_sections
from pytest_attnperf.reports.run.ladder_cases import is_timed
from pytest_attnperf.reports.run.stage_tables import (
    LEGEND,
    WIDTH,
    Groups,
    group_by_workload,
    make_cpu_speedup_table,
    make_fitting_table,
    make_stage_table,
)
from pytest_attnperf.reports.text.figures import ABSENT, format_speedup, one_line
from pytest_attnperf.reports.text.time_cells import Cell, TimeCell
from pytest_attnperf.reports.text.wide_tables import Column, Table, render_markdown_tables, render_terminal_tables
from pytest_attnperf.results import CaseResult, RunResult

CPU_BACKEND = "layer.plain"
NOTE_LIMIT = 300

FAMILIES = ("qk_scores", "causal_mask", "row_softmax", "weighted_values")
STAGED = ".staged"
"""End of the name of each backend that computes attention, or one of these families, in stages."""

NAME_LIMIT = 44
TITLE_LIMIT = 200

_PREFILL = re.compile(
    r"prefill-(?P<pairs>b\d+-s\d+(?:-kv\d+)?-h\d+)(?P<product>(?:-hk\d+)?-d\d+)-(?P<dtype>[a-z0-9]+)(?P<causal>-causal)?"
)
"""Pattern of prefill ids that consist of the four stages only: no windows, no biases, no further outputs."""

STAGED_LEGEND = (
    "staged against fused: times of cases in us; 'over X': speedup over X, over its whole call if that was timed, "
    "else over the sum of its stages"
)


@dataclass(frozen=True)
class CpuTimes:
    """Times of `layer.plain` in another run: microseconds by workload, and the CPU's name."""

    device: str
    times_us: dict[str, float]


def show_stages(options: argparse.Namespace) -> int:
    """Prints tables of stages as text, or writes them as Markdown. Returns 0. Raises UsageError if there is
    nothing to show, ResultsFileError for an unreadable file."""
    from pytest_attnperf.plugin.report_inputs import read_run

    (path,) = options.results
    results, where = read_run(path), str(path)
    _refuse_unknown(results, options.workload)
    groups = {
        title: cases
        for title, cases in group_by_workload(results.cases).items()
        if not options.workload or cases[0].key.workload in options.workload
    }
    staged = staged_tables(results.cases, options.workload)
    if not groups and not staged:
        raise UsageError(_describe_no_stages(results, where, options.workload))
    cpu = _cpu_times(options.cpu, results) if options.cpu is not None else None
    lines = [_device_line(results.device), *(LEGEND if groups else ()), *((STAGED_LEGEND,) if staged else ())]
    lines += [f"CPU: {cpu.device}, {CPU_BACKEND}"] if cpu is not None else []
    if cpu is not None and (lacking := [w for w in _list_workloads(groups) if w not in cpu.times_us]):
        lines.append(f"no time of {CPU_BACKEND} on the CPU: {', '.join(lacking)}")
    of_groups = {title: _build_tables(title, cases, cpu) for title, cases in groups.items()}
    tables = [*(table for own in of_groups.values() for table in own), *staged.values()]
    if not staged:
        lines.append("staged against fused: no prefill here has cases of its stages")
    if asks_report(options):
        bars = {workload: _list_bars(results.cases, workload) for workload in staged}
        of_staged = {workload: [table] for workload, table in staged.items()}
        sections = build_stage_sections(groups, {**of_groups, **of_staged}, bars, lead=lines)
        write_report_page(options, "stages", "Where the time goes", sections)
    if options.markdown is not None:
        write_text(render_markdown_tables(lines, tables), options.markdown)
    elif not asks_report(options):
        sys.stdout.write(f"{render_terminal_tables(lines, tables, count_columns(WIDTH))}\n")
    return 0


def _list_workloads(groups: Groups) -> list[str]:
    """Returns the groups' workloads of family block, each once: the CPU's backend implements only that family."""
    found = dict.fromkeys(cases[0].key.workload for cases in groups.values())
    return [workload for workload in found if workload.startswith("block-")]


def _build_tables(title: str, cases: Sequence[CaseResult], cpu: CpuTimes | None) -> list[Table]:
    """Returns a workload's overview, its speedups over the CPU, and a table of stages per backend."""
    tables = [make_fitting_table(title, cases, count_columns(WIDTH))]
    if cpu is not None and cases[0].key.workload in cpu.times_us:
        tables.append(make_cpu_speedup_table(title, cases, cpu.times_us.get(cases[0].key.workload), CPU_BACKEND))
    shown = [case for case in cases if case.breakdown is not None and case.breakdown.stages]
    return [*tables, *(make_stage_table(title, case) for case in shown)]


def _cpu_times(path: Path, results: RunResult) -> CpuTimes:
    """Returns the times of the CPU run in `path`. Raises UsageError if it ran on another device, or has none of the
    workloads in `results`."""

    from pytest_attnperf.reports.files import json_results

    found = json_results.read(path)
    if found.device is None or found.device.kind != "cpu":
        raise UsageError(
            f"{path} was measured on {_format_device(found.device)}; --cpu needs a run on a CPU: pytest --attnperf "
            "--attnperf-device=cpu"
        )
    times_us = {
        case.key.workload: case.median_us
        for case in found.cases
        if case.key.backend == CPU_BACKEND and case.median_us is not None and is_timed(case)
    }
    wanted = {case.key.workload for case in results.cases if case.breakdown is not None}
    if not wanted & times_us.keys():
        has = ", ".join(times_us) or "none"
        raise UsageError(
            f"{path} has no time of {CPU_BACKEND} on a workload whose stages are shown; it has times of it on: {has}"
        )
    return CpuTimes(_format_device(found.device), times_us)


def _refuse_unknown(results: RunResult, names: Sequence[str]) -> None:
    workloads = dict.fromkeys(case.key.workload for case in results.cases)
    for name in names:
        if name not in workloads:
            raise UnknownNameError("workload", name, workloads)


def _describe_no_stages(results: RunResult, where: str, chosen: Sequence[str]) -> str:
    of = f" of {', '.join(chosen)}" if chosen else ""
    return (
        f"{where} holds no stages{of} (mode {results.mode!r}, {len(results.cases)} cases): stages are timed by "
        "pytest --attnperf for tests with breakdown=True, and attention is compared with its stages if a prefill "
        "and the families qk_scores, row_softmax and weighted_values of the same sizes were measured"
    )


def _device_line(device: DeviceInfo | None) -> str:
    return f"device: {_format_device(device)}"


def _format_device(device: DeviceInfo | None) -> str:

    if device is None:
        return "a device that is not known"
    return one_line(f"{device.name or device.product} ({device.arch})", NOTE_LIMIT)


@dataclass(frozen=True)
class Library:
    """Times of one library's stages of one prefill in microseconds, by family, and of the whole; None if not timed."""

    name: str
    stages: dict[str, float | None]
    whole_us: float | None

    @property
    def sum_us(self) -> float | None:
        """Returns the sum of this library's stage times in microseconds; None if one is missing."""
        known = [us for us in self.stages.values() if us is not None]
        return sum(known) if len(known) == len(self.stages) else None

    @property
    def base_us(self) -> float | None:
        """Returns the microseconds that other libraries are compared with: those of the whole prefill if it was
        timed, else the sum of all stages; None without both."""
        return self.sum_us if self.whole_us is None else self.whole_us


def stage_ids(prefill: str) -> dict[str, str]:
    """Returns stage family -> workload id of the stages of a prefill workload; empty if its id has other parts."""
    match = _PREFILL.fullmatch(prefill)
    if match is None:
        return {}
    pairs, product, dtype, causal = match["pairs"], match["product"], match["dtype"], match["causal"] or ""
    ids = {
        "qk_scores": f"qk_scores-{pairs}{product}-{dtype}",
        "causal_mask": f"causal_mask-{pairs}-f32",
        "row_softmax": f"row_softmax-{pairs}-{dtype}{causal}",
        "weighted_values": f"weighted_values-{pairs}{product}-{dtype}{causal}",
    }
    return ids if causal else {family: name for family, name in ids.items() if family != "causal_mask"}


def staged_tables(cases: Iterable[CaseResult], workloads: Sequence[str] = ()) -> dict[str, Table]:
    """Returns prefill workload -> table, for those some of whose stages were run alone: each library's times of
    stages, and the times of fused kernels.

    workloads   ids of the prefill workloads to show; empty shows all
    """
    every = list(cases)
    prefills = dict.fromkeys(case.key.workload for case in every if _PREFILL.fullmatch(case.key.workload))
    tables = {}
    for workload in prefills:
        libraries = _list_libraries(every, workload)
        if libraries and (not workloads or workload in workloads):
            own = [case for case in every if case.key.workload == workload]
            tables[workload] = _build_table(workload, libraries, own)
    return tables


def _list_bars(cases: Sequence[CaseResult], workload: str) -> list[tuple[str, dict[str, float]]]:
    """Returns a prefill's bars, name and parts: the timed stages of each library, and each whole call."""
    libraries = _list_libraries(cases, workload)
    bars = [
        (f"{library.name}, sum of stages", {name: us for name, us in library.stages.items() if us is not None})
        for library in libraries
    ]
    whole = [case for case in cases if case.key.workload == workload and is_timed(case)]
    return bars + [(case.key.backend, {"whole call": case.median_us}) for case in whole if case.median_us is not None]


def _list_libraries(cases: Sequence[CaseResult], workload: str) -> list[Library]:
    """Returns the libraries with a case of a stage of this prefill, with their times (None for a stage not timed)."""
    ids = stage_ids(workload)
    wanted = {*ids.values(), workload}
    own = [case for case in cases if case.key.workload in wanted and case.key.backend.endswith(STAGED)]
    names = dict.fromkeys(case.key.backend for case in own if case.key.workload != workload)
    times = {(case.key.backend, case.key.workload): case.median_us for case in own if is_timed(case)}
    return [
        Library(name, {family: times.get((name, ids[family])) for family in ids}, times.get((name, workload)))
        for name in names
    ]


def _build_table(workload: str, libraries: Sequence[Library], cases: Sequence[CaseResult]) -> Table:
    families = tuple(libraries[0].stages)
    bases = {library.name: library.base_us for library in libraries if library.base_us is not None}
    columns = [Column("time"), *(Column(f"over {one_line(name, NAME_LIMIT)}") for name in bases)]
    columns += [Column(family, begins=family == families[0]) for family in families]
    rows: list[tuple[Cell, ...]] = []
    for library in libraries:
        stages = [TimeCell(library.stages[family]) for family in families]
        rows.append((f"{library.name}, sum of {len(families)}", *_format_times(library.sum_us, bases), *stages))
    blank = ("",) * len(families)
    staged = {library.name for library in libraries}
    whole = sorted(filter(is_timed, cases), key=lambda case: case.key.backend not in staged)
    rows += [(one_line(case.key.backend, NAME_LIMIT), *_format_times(case.median_us, bases), *blank) for case in whole]
    title = one_line(f"staged against fused: {workload}", TITLE_LIMIT)
    return Table(title, "backend", tuple(columns), tuple(rows), tuple(_list_missing(workload, libraries, cases)))


def _format_times(us: float | None, bases: Mapping[str, float]) -> list[Cell]:
    return [TimeCell(us), *(format_speedup(base / us) if us else ABSENT for base in bases.values())]


def _list_missing(workload: str, libraries: Sequence[Library], cases: Sequence[CaseResult]) -> list[str]:
    """Returns notes on what a prefill's table lacks: untimed stages and backends, and no fused kernel."""
    ids = stage_ids(workload)
    notes = []
    for library in libraries:
        absent = [ids[family] for family, us in library.stages.items() if us is None]
        absent += [workload] if library.whole_us is None else []
        if absent:
            notes.append(one_line(f"{library.name} has no time of: {', '.join(absent)}", TITLE_LIMIT * 2))
    untimed = [f"{case.key.backend} ({case.verdict.value})" for case in cases if not is_timed(case)]
    if untimed:
        notes.append(one_line(f"not timed on this workload: {', '.join(untimed)}", TITLE_LIMIT * 2))
    if not any(is_timed(case) and not case.key.backend.endswith(STAGED) for case in cases):
        notes.append("no fused kernel was timed on this workload")
    return notes
