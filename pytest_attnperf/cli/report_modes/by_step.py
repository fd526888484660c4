"""`attnperf report --by step`: compares the backends of a workload, with the machine code that each ran."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from pytest_attnperf.backends import TRAFFIC_BYTES
from pytest_attnperf.cli.output import asks_report, count_columns, write_report_page, write_text
from pytest_attnperf.errors import UsageError
from pytest_attnperf.records import Verdict
from pytest_attnperf.records.atomic_file import write_atomically
from pytest_attnperf.records.code import CodeResult, KernelCode, Occupancy
from pytest_attnperf.records.counters import KernelCounter, filter_by_launches
from pytest_attnperf.records.regular_file import read_regular
from pytest_attnperf.reports.html.workload_sections import build_ladder_sections
from pytest_attnperf.reports.run.code_objects import waves_text
from pytest_attnperf.reports.run.ladder_cases import Ladder, Selection, build_ladders, is_timed, refuse_unknown_backends
from pytest_attnperf.reports.run.overview import verdict_text
from pytest_attnperf.reports.run.tables import compute_gb_s, compute_tflops
from pytest_attnperf.reports.text.figures import ABSENT, format_rate, format_speedup, one_line
from pytest_attnperf.reports.text.time_cells import Cell, TimeCell
from pytest_attnperf.reports.text.wide_tables import (
    WIDTH,
    Column,
    Table,
    render_markdown_tables,
    render_terminal_tables,
)
from pytest_attnperf.results import CaseResult, RunResult
from pytest_attnperf.tools.profilers.hardware_counters import read_counters

PAGE_BYTES_MAX = 1 << 24
AGAINST = "native.sdpa_flash"
BEGIN, END = "<!-- ladder:begin -->", "<!-- ladder:end -->"

OccupancyOf = Callable[[KernelCode], Occupancy | None]
"""Returns a kernel's occupancy, None if it is not known."""

NAME_LIMIT = 44
NOTE_LIMIT = 300
NAMED_VERSIONS = ("torch", "triton", "cuda", "rocm", "driver")
"""Software in `Fingerprint.named` that the header names."""

COMPILER = "compiler"
"""Key in a case's configuration: name and version of the compiler of its kernels."""

LIMITERS = {"vgprs": "registers", "sgprs": "SGPRs", "lds": "LDS", "workgroups": "workgroups", "slots": "wave slots"}
"""Printed names of the limits in `Occupancy.limits`."""

TIME_COLUMNS = ("time", "speedup", "% of other", "GB/s", "traffic GB/s", "TFLOP/s")
CODE_COLUMNS = ("LDS B", "regs", "waves/SIMD", "limit", "loads", "stores", "matrix", "spills")
TRAFFIC_DIGITS_MOST = 18
"""Of a number of bytes: a file may hold anything."""

COMPILED_COLUMNS = (*CODE_COLUMNS, "scratch B")
LEFT = frozenset({"limit"})


def show_steps(options: argparse.Namespace) -> int:
    """Prints the ladder (a table of a workload's backends), or writes it as Markdown, with --write into a page.
    Returns 0. Raises UsageError, and ResultsFileError for an unreadable file."""
    from pytest_attnperf.plugin.report_inputs import read_run

    (source,) = options.results
    results = read_run(source)
    ladders = _select_ladders(results, str(source), options)
    counters = _read_counters(ladders, options.profile)
    own = {ladder.title: ladder_tables(ladder, find_occupancy, counters) for ladder in ladders}
    compiled = _list_compiled(ladders, options)
    tables = [*(table for of_ladder in own.values() for table in of_ladder), *compiled]
    lines = [*header_lines(results, ladders), describe_reference(options.over, options.relative_to or AGAINST), *LEGEND]
    if asks_report(options):
        sections = build_ladder_sections(
            ladders, {**own, "": compiled}, base=options.over, lead=lines[:2], ideas=_read_ideas()
        )
        write_report_page(options, "steps", "Backends compared", sections)
        if options.write is None and options.markdown is None:
            return 0
    if options.write is not None:
        page = read_regular(options.write, PAGE_BYTES_MAX).decode()
        write_atomically(
            options.write, insert_ladder(page, render_markdown_tables(lines, tables), str(options.write)).encode()
        )
        sys.stdout.write(f"written: {options.write}\n")
    elif options.markdown is not None:
        write_text(render_markdown_tables(lines, tables), options.markdown)
    else:
        sys.stdout.write(f"{render_terminal_tables(lines, tables, count_columns(WIDTH))}\n")
    return 0


def insert_ladder(page: str, text: str, where: str) -> str:
    """Returns `page` with `text` between the markers BEGIN and END. Raises UsageError naming `where` unless each occurs
    once, in this order."""
    for marker in (BEGIN, END):
        if page.count(marker) != 1:
            raise UsageError(
                f"{where} has {page.count(marker)} times {marker!r}; put one {BEGIN} and one {END} where the ladder "
                "belongs"
            )
    before, _, rest = page.partition(BEGIN)
    _, found, after = rest.partition(END)
    if not found:
        raise UsageError(f"{where} has {END} before {BEGIN}; put the markers in order")
    return f"{before}{BEGIN}\n\n{text}\n\n{END}{after}"


def find_occupancy(code: KernelCode) -> Occupancy | None:
    """Returns a kernel's occupancy, for an NVIDIA or AMD architecture; None if it is not known."""
    from pytest_attnperf.codeobject.nvidia_occupancy import nvidia_occupancy_of
    from pytest_attnperf.session.code_session import known_occupancy

    return nvidia_occupancy_of(code) or known_occupancy(code)


def _select_ladders(results: RunResult, where: str, options: argparse.Namespace) -> list[Ladder]:
    if options.relative_to is not None:
        refuse_unknown_backends(results, [options.relative_to])
    names = tuple(name for part in options.backends.split(",") if (name := part.strip()))
    chosen = Selection(options.over, options.relative_to or AGAINST, names, tuple(options.workload))
    return build_ladders(results, chosen, where)


def _list_compiled(ladders: list[Ladder], options: argparse.Namespace) -> list[Table]:
    """Returns the tables of the files of --code. Raises UsageError for one without a kernel of the ladders."""
    tables: list[Table] = []
    for path in options.code:
        results = _read_compiled(path)
        found = compiled_tables(results, ladders, find_occupancy)
        if not found:
            kernels = ", ".join(dict.fromkeys(result.key.backend for result in results))
            raise UsageError(f"{path} holds none of the kernels of this ladder; it holds: {kernels}")
        tables += found
    return tables


def _read_ideas() -> dict[str, str]:
    """Returns backend -> its idea, of the project in the current folder; empty where there is none."""
    from pytest_attnperf.plugin.own_pytest import Registered, visit_project

    ideas: dict[str, str] = {}

    def read(found: Registered) -> int:
        ideas.update({backend.name: backend.idea for backend in found.backends if backend.idea})
        return 0

    if Path("conftest.py").exists():
        visit_project(read)
    return ideas


def _read_counters(ladders: list[Ladder], path: Path | None) -> tuple[KernelCounter, ...]:
    """Reads rocprofv3's hardware counters from `path`; empty for None. Raises UsageError if none is of a kernel that
    the ladder launched."""
    if path is None:
        return ()

    counters = read_counters(path)
    launches = [launch for ladder in ladders for case in ladder.cases for launch in case.launches]
    if not filter_by_launches(counters, launches):
        seen = ", ".join(dict.fromkeys(counter.kernel for counter in counters))
        ours = ", ".join(dict.fromkeys(launch.name for launch in launches)) or "none that is known"
        raise UsageError(f"{path} has no counters of this ladder's kernels: it has {seen}; the ladder launched: {ours}")
    return counters


def _read_compiled(path: Path) -> tuple[CodeResult, ...]:
    """Returns the compiled kernels in a results file. Raises UsageError if there are none."""
    from pytest_attnperf.reports.files import json_results

    results = json_results.read(path).code
    if not results:
        raise UsageError(
            f"{path} holds no compiled kernels; make some by pytest --attnperf --attnperf-arch=gfx942 "
            "suites/test_code_objects.py"
        )
    return results


def header_lines(run: RunResult, ladders: Iterable[Ladder]) -> list[str]:
    """Returns two lines: device and software versions; time, commit, plugin version and command of the run."""
    cases = [case for ladder in ladders for case in ladder.cases]
    prints = [found for found in (run.fingerprint, *(case.fingerprint for case in cases)) if found is not None]
    named = prints[0].named if prints else {}
    versions = [f"{name} {named[name]}" for name in NAMED_VERSIONS if named.get(name, "none") != "none"]
    compilers = dict.fromkeys(case.config[COMPILER] for case in cases if COMPILER in case.config)
    device = run.device
    where = f"{device.name or device.product} ({device.arch})" if device else "a device that is not known"
    made = f"{run.started}, commit {run.commit}, pytest-attnperf {run.version}"
    lines = (", ".join([where, *versions, *compilers]), f"{made}: {run.command}")
    return [one_line(line, NOTE_LIMIT) for line in lines]


def ladder_tables(ladder: Ladder, occupancy_of: OccupancyOf, counters: Sequence[KernelCounter] = ()) -> list[Table]:
    """Returns a table with a row per backend (per kernel, if a call launches several), and one of counters, if any."""
    rows = [row for case in ladder.cases for row in _build_rows(ladder, case, occupancy_of)]
    other = ladder.against_name.rpartition(".")[2] or "other"
    headers = [header.replace("other", one_line(other, 20)) for header in TIME_COLUMNS]
    columns = (*_make_columns(headers), *_make_columns(CODE_COLUMNS, begins=True))
    table = Table(one_line(ladder.title, NOTE_LIMIT), "backend", columns, tuple(rows), tuple(_list_notes(ladder)))
    return [table, *_counter_tables(ladder, counters)]


def describe_reference(base: str, against: str) -> str:
    """Returns the legend line that explains times, and names the backends that speedups and speeds refer to."""
    return one_line(f"us: median time of a call; speedup: over {base}; %: speed relative to {against}", NOTE_LIMIT)


LEGEND = (
    "GB/s: bytes that must be read and written once, per time; TFLOP/s: useful operations per time",
    "traffic GB/s: bytes that the step's own loads and stores name, per time; caches serve a part of them",
    "LDS B: LDS (shared memory) of a workgroup; regs: registers per lane, AGPRs as +Na",
    "waves/SIMD: waves that a SIMD holds (warps of a quarter SM); in brackets, with whole workgroups only",
    "limit: what prevents more waves; full: every wave slot is used; '-' in any column: not known",
    "loads, stores, matrix: instructions on global memory and matrices, of the kernel/of its loops",
    "spills: registers that did not fit; on NVIDIA the bytes of local memory of a thread",
)
"""What the columns mean, in the words of both vendors."""


def compiled_tables(results: Sequence[CodeResult], ladders: Sequence[Ladder], occupancy_of: OccupancyOf) -> list[Table]:
    """Returns a table per architecture of compiled kernels that belong to the ladders, with a row per configuration."""
    wanted = [result for result in results if _is_of_ladder(result, ladders)]
    tables = []
    for arch in dict.fromkeys(result.key.label for result in wanted):
        mine = [result for result in wanted if result.key.label == arch]
        compilers = ", ".join(dict.fromkeys(result.compiler for result in mine if result.compiler))
        title = f"{arch}, compiled{f' by {compilers}' if compilers else ''}, not run"
        rows: list[tuple[str, ...]] = []
        for kernel in dict.fromkeys(result.key.backend for result in mine):
            rows.append((one_line(kernel, NAME_LIMIT), *("" for _ in COMPILED_COLUMNS)))
            rows += [_compiled_row(result, occupancy_of) for result in mine if result.key.backend == kernel]
        tables.append(
            Table(one_line(title, NOTE_LIMIT), "kernel and config", _make_columns(COMPILED_COLUMNS), tuple(rows))
        )
    return tables


def _make_columns(headers: Sequence[str], *, begins: bool = False) -> tuple[Column, ...]:
    return tuple(
        Column(header, "left" if header in LEFT else "right", begins=begins and not index)
        for index, header in enumerate(headers)
    )


def _build_rows(ladder: Ladder, case: CaseResult, occupancy_of: OccupancyOf) -> Iterable[tuple[Cell, ...]]:
    """Yields a backend's row. If a call launches several kernels, a row of each kernel's code follows."""
    name = one_line(case.key.backend, NAME_LIMIT)
    if not is_timed(case):
        word = verdict_text(case)
        yield (name, word, *(ABSENT for _ in (*TIME_COLUMNS[1:], *CODE_COLUMNS)))
        return
    times = _time_cells(ladder, case)
    unknown = _unknown_kernels(case)
    if len(case.code) + unknown <= 1 or not case.code:
        cells = _code_cells(case.code[0] if case.code else None, occupancy_of)
        yield (name, *times, *cells)
        return
    yield (name, *times, *("" for _ in CODE_COLUMNS))
    for code in case.code:
        own = one_line(f"{case.key.backend}: {code.name}", NAME_LIMIT)
        yield (own, *("" for _ in TIME_COLUMNS), *_code_cells(code, occupancy_of))
    if unknown:
        rest = one_line(f"{case.key.backend}: {unknown} more of unknown code", NAME_LIMIT)
        yield (rest, *("" for _ in TIME_COLUMNS), *(ABSENT for _ in CODE_COLUMNS))


def _unknown_kernels(case: CaseResult) -> int:
    known = {code.isa_hash for code in case.code}
    kernels = {launch.name for launch in case.launches if launch.kind == "kernel" and launch.isa_hash not in known}
    return len(kernels)


def _time_cells(ladder: Ladder, case: CaseResult) -> tuple[Cell, ...]:
    us = case.median_us
    base, other = ladder.base_us, ladder.against_us
    return (
        TimeCell(us),
        format_speedup(base / us if base and us else None),
        format_rate(100 * other / us if other and us else None),
        format_rate(compute_gb_s(case)),
        format_rate(_compute_traffic_gb_s(case)),
        format_rate(compute_tflops(case)),
    )


def _compute_traffic_gb_s(case: CaseResult) -> float | None:
    """Returns GB/s (1e9 bytes) by the traffic that the backend states; None without a time or a number of bytes."""
    text = case.config.get(TRAFFIC_BYTES, "")
    known = text.isdecimal() and len(text) <= TRAFFIC_DIGITS_MOST
    return int(text) / case.median_us / 1e3 if case.median_us and known else None


def _code_cells(code: KernelCode | None, occupancy_of: OccupancyOf) -> tuple[str, ...]:
    if code is None:
        return tuple(ABSENT for _ in CODE_COLUMNS)
    found = occupancy_of(code)
    return (
        str(code.lds_bytes),
        f"{code.vgprs}+{code.agprs}a" if code.agprs else str(code.vgprs),
        waves_text(found),
        ABSENT if found is None else ", ".join(LIMITERS.get(name, name) for name in found.limiters) or "full",
        _format_instruction_counts(code, "global_load"),
        _format_instruction_counts(code, "global_store"),
        _format_instruction_counts(code, "matrix"),
        _format_spills(code),
    )


def _compiled_row(result: CodeResult, occupancy_of: OccupancyOf) -> tuple[str, ...]:
    name = one_line(f"- {result.key.workload}", NAME_LIMIT)
    if result.code is None:
        return (name, result.verdict.value, *(ABSENT for _ in COMPILED_COLUMNS[1:]))
    return (name, *_code_cells(result.code, occupancy_of), str(result.code.scratch_bytes))


def _format_instruction_counts(code: KernelCode, kind: str) -> str:
    """Returns the instructions whose class starts with `kind`, and those in loops: '24/16'; '-' if not counted."""
    if not code.instructions:
        return ABSENT
    count = _sum_counts(code.instructions, kind)
    return f"{count}/{ABSENT if code.undecoded else _sum_counts(code.in_loops, kind)}"


def _sum_counts(counts: dict[str, int], kind: str) -> int:
    return sum(count for name, count in counts.items() if name.startswith(kind))


def _format_spills(code: KernelCode) -> str:
    """Returns spilled registers: '0', '4 VGPRs', '2 SGPRs'; for NVIDIA, local memory such as '96 B' instead."""
    if code.vgpr_spills is None or code.sgpr_spills is None:
        return f"{code.scratch_bytes} B" if code.scratch_bytes else "0"
    kinds = (("VGPR", code.vgpr_spills), ("SGPR", code.sgpr_spills))
    return ", ".join(f"{count} {kind}{'s' * (count > 1)}" for kind, count in kinds if count) or "0"


def _list_notes(ladder: Ladder) -> Iterable[str]:
    """Yields why backends have no time or are INCOMPARABLE, one note for all backends with the same reason."""
    said: dict[tuple[Verdict, str], list[str]] = {}
    for case in ladder.cases:
        if not is_timed(case) or case.verdict is Verdict.INCOMPARABLE:
            said.setdefault((case.verdict, case.summary), []).append(case.key.backend)
    for (verdict, summary), backends in said.items():
        yield one_line(f"{', '.join(backends)}: {verdict.value}: {summary}", NOTE_LIMIT)


def _counter_tables(ladder: Ladder, counters: Sequence[KernelCounter]) -> list[Table]:
    """Returns a table, in a list, of the counters whose kernels the ladder's timed cases launched; else []."""
    rows = [
        (
            one_line(f"{case.key.backend}: {counter.kernel}", NAME_LIMIT),
            one_line(counter.counter, NAME_LIMIT),
            f"{counter.median:,.12g}",
            str(counter.dispatches),
        )
        for case in ladder.cases
        if is_timed(case)
        for counter in filter_by_launches(counters, case.launches)
    ]
    columns = (Column("counter", "left"), Column("median"), Column("dispatches"))
    return [Table("counters of a dispatch, as profiled", "kernel", columns, tuple(rows))] if rows else []


def _is_of_ladder(result: CodeResult, ladders: Sequence[Ladder]) -> bool:
    """Returns whether a compiled kernel has the name of a backend of the ladder, or of a kernel that one launched."""
    cases = [case for ladder in ladders for case in ladder.cases]
    names = {launch.name for case in cases for launch in case.launches if launch.kind == "kernel"}
    names |= {code.name for case in cases for code in case.code}
    backends = {case.key.backend for case in cases}
    return result.key.backend in backends or (result.code is not None and result.code.name in names)
