"""Compiled kernels in words and tables: what each needs of a compute unit, what changed, and why a test failed."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

from pytest_attnperf.records import Verdict
from pytest_attnperf.records.code import (
    NOT_EXECUTED,
    RIGHT,
    UNPROVEN,
    WRONG,
    CodeFinding,
    CodeResult,
    KernelCode,
    Occupancy,
)
from pytest_attnperf.reports.text.colour import PLAIN, Ink
from pytest_attnperf.reports.text.commands import format_repeat_command, format_typed_command
from pytest_attnperf.reports.text.figures import ABSENT, one_line, safe_lines
from pytest_attnperf.reports.text.grid import GridColumn, GridGroup, GridRow, render_grid

Property = tuple[str, str | float | int]

ORDER = (
    Verdict.ERROR,
    Verdict.INCORRECT,
    Verdict.SUSPICIOUS,
    Verdict.WORSE,
    Verdict.INCOMPARABLE,
    Verdict.NO_BASELINE,
    Verdict.UNSUPPORTED,
    Verdict.SAME,
    Verdict.RECORDED,
    Verdict.RIGHT,
)
"""Verdicts of code objects, worst first."""

OUTCOMES = (WRONG, UNPROVEN, RIGHT, NOT_EXECUTED)
WORDS = {Verdict.NO_BASELINE: "without baseline", Verdict.RIGHT: "tried, not gated"}
TEXT_LIMIT = 2000
LOG_LINES = 40
NOTE_LINES = 12
SHOWN_WARNINGS = 8
BYTES_PER_KIB = 1024
_BETWEEN_CAUSES = re.compile(r"; (?=[^`]*(?:`[^`]*`[^`]*)*$)")
"""Pattern of the separator between parts of a finding; it skips separators in a quoted source line."""


@dataclass(frozen=True)
class _CodeColumn:
    """A column, and its text for a kernel."""

    column: GridColumn
    cell: Callable[[CodeResult], str]


def _make_cell_getter(get: Callable[[KernelCode], object]) -> Callable[[CodeResult], str]:
    def format_cell(result: CodeResult) -> str:
        value = None if result.code is None else get(result.code)
        return ABSENT if value is None else str(value)

    return format_cell


def _format_spills(code: KernelCode) -> str | None:
    """Returns '0', spilled VGPRs and SGPRs ('4v 2s'), or scratch bytes without spills ('96 B scratch'); None if
    unknown."""
    if code.vgpr_spills or code.sgpr_spills:
        return f"{code.vgpr_spills or 0}v {code.sgpr_spills or 0}s"
    if code.scratch_bytes:
        return f"{code.scratch_bytes} B scratch"
    return None if code.vgpr_spills is None or code.sgpr_spills is None else "0"


def _format_matrix_counts(code: KernelCode) -> str | None:
    """Returns the number of matrix instructions and of those in loops: '24/16'; '0' for none, None if unknown."""
    if not code.instructions:
        return None
    count = code.instructions.get("matrix", 0)
    return f"{count}/{code.in_loops.get('matrix', 0)}" if count else "0"


def waves_text(occupancy: Occupancy | None) -> str:
    """Returns waves per SIMD and their maximum: '2 of 8', '3 (2) of 8' if whole workgroups allow only 2; '-' for
    None."""
    if occupancy is None:
        return ABSENT
    whole = f"{occupancy.whole_waves_per_simd:g}"
    forms = str(occupancy.waves_per_simd) if whole == str(occupancy.waves_per_simd) else None
    return f"{forms or f'{occupancy.waves_per_simd} ({whole})'} of {occupancy.max_waves_per_simd}"


def _format_limiter(result: CodeResult) -> str:
    return ABSENT if result.occupancy is None else one_line(", ".join(result.occupancy.limiters)) or "full"


def _is_unchanged(result: CodeResult) -> bool:
    """Returns whether a kernel equals the stored one and is SAME; False for one that still breaks a rule."""
    return result.unchanged and result.verdict is Verdict.SAME


def _format_verdict(result: CodeResult) -> str:
    return "SAME, unchanged" if _is_unchanged(result) else result.verdict.value


def _format_execution(result: CodeResult) -> str:
    return ABSENT if result.executed is None else result.executed.outcome


LEGENDS = {
    "spills": "registers kept in memory, v of VGPRs and s of SGPRs",
    "LDS B": "bytes of shared memory of a workgroup",
    "waves/SIMD": "as compiled, in brackets of whole workgroups",
    "matrix": "matrix instructions/those of them in loops",
    "KiB": "size of the machine code",
    "executed": "by an interpreter of machine code, against the reference",
}
"""What columns hold, where their headers do not say it."""

COLUMNS = (
    _CodeColumn(GridColumn("verdict", align="left"), _format_verdict),
    _CodeColumn(GridColumn("executed", align="left", rank=1), _format_execution),
    _CodeColumn(GridColumn("VGPRs", rank=2), _make_cell_getter(lambda code: code.vgprs)),
    _CodeColumn(GridColumn("AGPRs", rank=8), _make_cell_getter(lambda code: code.agprs)),
    _CodeColumn(GridColumn("SGPRs", rank=9), _make_cell_getter(lambda code: code.sgprs)),
    _CodeColumn(GridColumn("spills", rank=1), _make_cell_getter(_format_spills)),
    _CodeColumn(GridColumn("LDS B", rank=4), _make_cell_getter(lambda code: code.lds_bytes)),
    _CodeColumn(GridColumn("waves/SIMD", rank=3), lambda result: waves_text(result.occupancy)),
    _CodeColumn(GridColumn("limited by", align="left", rank=5), _format_limiter),
    _CodeColumn(GridColumn("matrix", rank=6), _make_cell_getter(_format_matrix_counts)),
    _CodeColumn(GridColumn("KiB", rank=7), _make_cell_getter(lambda code: f"{code.code_bytes / BYTES_PER_KIB:.1f}")),
)
TABLE_WIDTH = 110


def code_table(
    results: Sequence[CodeResult],
    *,
    width: int = TABLE_WIDTH,
    ink: Ink = PLAIN,
    legend: list[str] | None = None,
) -> str:
    """Returns a table of compiled kernels by architecture and kernel, a line per configuration; '' without any.

    A heading names the kernel of the lines below. If every kernel has one configuration, each line names its kernel.
    Columns that are empty or 0 in every row are left out, then those of the highest rank that do not fit.
    `legend` gets a line for each column that needs one.
    """
    shown = [column for column in COLUMNS if any(column.cell(result) not in (ABSENT, "0") for result in results)]
    kernels = Counter((result.key.label, result.key.backend) for result in results)
    headed = any(count > 1 for count in kernels.values())
    groups: dict[str, list[GridRow]] = {}
    for result in results:
        arch, kernel, config = result.key.label, result.key.backend, result.key.workload
        heading, name = (f"{arch} {kernel}", config) if headed else (arch, f"{kernel} {config}")
        row = GridRow(name, tuple(column.cell(result) for column in shown), result.verdict)
        groups.setdefault(heading, []).append(row)
    made = [GridGroup(heading, tuple(rows)) for heading, rows in groups.items()]
    columns = [replace(column.column, legend=LEGENDS.get(column.column.header, "")) for column in shown]
    return render_grid(made, columns, corner="config", width=width, ink=ink, legend=legend)


def code_line(results: Sequence[CodeResult]) -> str:
    """Returns the counts of kernels in one line: 'code objects: 1 worse, 23 same (20 unchanged) on gfx942'; '' for
    none."""
    if not results:
        return ""
    counts = Counter(result.verdict for result in results)
    parts = []
    for verdict in ORDER:
        if counts[verdict]:
            unchanged = sum(_is_unchanged(result) for result in results) if verdict is Verdict.SAME else 0
            aside = f" ({unchanged} unchanged)" if unchanged else ""
            parts.append(f"{counts[verdict]} {WORDS.get(verdict, verdict.value.lower())}{aside}")
    archs = ", ".join(dict.fromkeys(result.key.label for result in results))
    return f"code objects: {', '.join(parts)} on {one_line(archs)}{_format_executed(results)}"


def _format_executed(results: Sequence[CodeResult]) -> str:
    """Returns what the execution of kernels showed: '; executed: 3 right, 1 not executed'; '' if none was asked for."""
    counts = Counter(result.executed.outcome for result in results if result.executed is not None)
    said = ", ".join(f"{counts[outcome]} {outcome}" for outcome in OUTCOMES if counts[outcome])
    return f"; executed: {said}" if said else ""


def code_warning_lines(results: Iterable[CodeResult]) -> list[str]:
    """Returns a line per finding that fails no test, the first SHOWN_WARNINGS, and the number of others; [] for
    none."""
    found = [
        one_line(f"warning: {result.key}: {finding.text}", TEXT_LIMIT)
        for result in results
        if not result.fails
        for finding in result.findings
    ]
    more = [f"warning: {len(found) - SHOWN_WARNINGS} more, see the results"] if len(found) > SHOWN_WARNINGS else []
    return found[:SHOWN_WARNINGS] + more


def code_failure_text(result: CodeResult, *, own: bool = False) -> str:
    """Returns the text of a kernel's failing test: verdict, findings, notes, compiler, log, and a command to repeat it.

    `own` says that the kernel was compiled in this run, so the command may hold everything that the user typed.
    """
    lines = [f"{result.verdict.value}: {one_line(str(result.key))}", one_line(result.summary, TEXT_LIMIT)]
    lines += _finding_lines(sorted(result.findings, key=lambda finding: not finding.fails))
    lines += [f"  note: {one_line(note, TEXT_LIMIT)}" for note in result.notes[:NOTE_LINES]]
    if len(result.notes) > NOTE_LINES:
        lines.append(f"  note: ... and {len(result.notes) - NOTE_LINES} more")
    if result.compiler:
        made = (
            f", the baseline by {result.stored_compiler}" if result.stored_compiler not in ("", result.compiler) else ""
        )
        lines.append(f"  compiled by {one_line(result.compiler)}{one_line(made)}")
    if result.log:
        lines += ["end of the worker's log:", *(f"  | {line}" for line in safe_lines(result.log, LOG_LINES))]
    if (
        repeat := format_typed_command(result.reproduce)
        if own
        else format_repeat_command(result.reproduce, result.nodeid)
    ):
        lines += ["reproduce with:", repeat]
    return "\n".join(lines)


def list_code_properties(result: CodeResult) -> list[Property]:
    """Returns (name, value) of a kernel's known figures, for JUnit: ('attnperf.verdict', 'WORSE'), ('attnperf.vgprs',
    236)."""
    code, occupancy = result.code, result.occupancy
    values: dict[str, str | float | int | None] = {
        "verdict": result.verdict.value,
        "summary": result.summary,
        "kernel": result.key.backend,
        "config": result.key.workload,
        "arch": result.key.label,
        "compiler": result.compiler or None,
        "isa_hash": code.isa_hash if code else None,
        "vgprs": code.vgprs if code else None,
        "agprs": code.agprs if code else None,
        "sgprs": code.sgprs if code else None,
        "vgpr_spills": code.vgpr_spills if code else None,
        "sgpr_spills": code.sgpr_spills if code else None,
        "scratch_bytes": code.scratch_bytes if code else None,
        "lds_bytes": code.lds_bytes if code else None,
        "code_bytes": code.code_bytes if code else None,
        "waves_per_simd": occupancy.waves_per_simd if occupancy else None,
        "executed": result.executed.outcome if result.executed else None,
        "reproduce": format_repeat_command(result.reproduce, result.nodeid) or None,
    }
    return [(f"attnperf.{name}", value) for name, value in values.items() if value is not None]


def _finding_lines(findings: Sequence[CodeFinding]) -> list[str]:
    """Returns a line per finding, with its causes below it; a cause that several findings share is given once."""
    lines: list[str] = []
    said: set[str] = set()
    for finding in findings:
        first, *causes = _BETWEEN_CAUSES.split(one_line(finding.text, TEXT_LIMIT))
        lines.append(f"  {'' if finding.fails else 'warning: '}{first}")
        lines += [f"      {cause}" for cause in causes if cause not in said]
        said.update(causes)
    return lines
