"""The words and tables in a case's panel, as blocks that the page's script only has to lay out.

A block is {'kind', 'heading', ...}: 'lines' and 'text' of lines, 'facts' of (name, value), 'table' of head and rows,
'command' of one text to copy. Every text in it is safe for one line and cut.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from pytest_attnperf.records import CheckReport, Launch
from pytest_attnperf.records.code import KernelCode, Occupancy
from pytest_attnperf.records.rooflines import Ceiling
from pytest_attnperf.records.time_units import choose_time_unit, format_time
from pytest_attnperf.reports.html.embedding import Json
from pytest_attnperf.reports.html.roofline import roof_share
from pytest_attnperf.reports.html.rows import CaseRow
from pytest_attnperf.reports.run.tables import compute_gb_s, compute_tflops, share_of_floor
from pytest_attnperf.reports.text.commands import format_repeat_command
from pytest_attnperf.reports.text.figures import (
    ABSENT,
    format_around,
    format_bytes,
    format_change,
    format_interval,
    format_rate,
    format_share,
    format_speedup,
    format_tolerance,
    one_line,
    safe_lines,
)
from pytest_attnperf.results import CaseResult

TEXT_LIMIT = 2000
VALUE_LIMIT = 300
NAME_LIMIT = 200
MOST_ROWS = 40
LOG_LINES = 40
HASH_LENGTH = 12


def build_blocks(
    row: CaseRow,
    *,
    reference: str = "",
    ceilings: Sequence[Ceiling] = (),
    occupancies: Mapping[str, Occupancy] | None = None,
) -> list[Json]:
    """Returns the blocks (dicts for the script) of a case's panel, without samples and empty ones. `occupancies` are of
    compiled kernels, by their code's hash."""
    case = row.shown.case
    found = [
        _make_lines_block("Quarantined", (case.quarantined,) if case.quarantined else ()),
        _make_lines_block("Reasons", case.reasons),
        _make_lines_block("Notes", case.notes),
        _make_command_block(format_repeat_command(case.reproduce, case.nodeid)),
        _make_facts_block("Figures", _list_figures(row, reference, ceilings)),
        _make_proof_block(case.checks),
        _make_facts_block("Config", case.config.items()),
        _make_launches_block(case.launches),
        _make_code_block(case.code, occupancies or {}),
        _make_stages_block(case),
        _make_facts_block("Policy", ((name, _format_value(value)) for name, value in case.policy.items())),
        _make_software_block(case),
        _make_log_block(case.log),
    ]
    return [block for block in found if block]


def _make_lines_block(heading: str, lines: Sequence[str]) -> Json:
    shown = [one_line(line, TEXT_LIMIT) for line in lines[:MOST_ROWS]]
    more = [f"... {len(lines) - MOST_ROWS} more in results.json"] if len(lines) > MOST_ROWS else []
    return {"kind": "lines", "heading": heading, "lines": shown + more} if lines else None


def _make_command_block(command: str) -> Json:
    return {"kind": "command", "heading": "Reproduce", "text": one_line(command, TEXT_LIMIT)} if command else None


def _make_facts_block(heading: str, facts: object) -> Json:
    shown = [
        [one_line(str(name), NAME_LIMIT), one_line(str(value), VALUE_LIMIT)]
        for name, value in list(facts)[:MOST_ROWS]  # type: ignore[call-overload]
        if value and value != ABSENT
    ]
    return {"kind": "facts", "heading": heading, "facts": shown} if shown else None


def _make_table_block(heading: str, head: Sequence[str], rows: Sequence[Sequence[str]]) -> Json:
    """Returns a block with a table of at most MOST_ROWS rows, without empty columns; None without rows."""
    if not rows:
        return None
    kept = [index for index in range(len(head)) if any(row[index] not in (ABSENT, "") for row in rows)]
    body = [[one_line(row[index], VALUE_LIMIT) for index in kept] for row in rows[:MOST_ROWS]]
    more = f"{len(rows) - MOST_ROWS} more rows are in results.json" if len(rows) > MOST_ROWS else ""
    return {"kind": "table", "heading": heading, "head": [head[index] for index in kept], "rows": body, "more": more}


def _list_figures(row: CaseRow, reference: str, ceilings: Sequence[Ceiling]) -> list[tuple[str, str]]:
    case = row.shown.case
    limit = case.detection_limit
    stored = f"{len(case.stored_us)} processes, {case.stored_commit or 'unknown commit'}, {case.stored_at}"
    kind, share = roof_share(case, ceilings)
    return [
        ("time", format_time(case.median_us) if case.median_us else ""),
        ("stored", format_time(case.baseline_us) if case.baseline_us else ""),
        ("stored by", stored if case.stored_us else ""),
        ("compared with", case.against),
        ("change", format_change(case.ratio)),
        ("95 % interval", format_interval(case.interval).partition(": ")[2]),
        ("limit", format_change(case.threshold)),
        ("detects", f"{format_change(1 + limit)} or more, 99 % of the time" if limit is not None else ""),
        ("rate", f"{format_rate(compute_tflops(case))} TFLOP/s" if compute_tflops(case) else ""),
        ("bandwidth", f"{format_rate(compute_gb_s(case))} GB/s of compulsory bytes" if compute_gb_s(case) else ""),
        (f"share of the floor ({case.floor_bound})", format_share(share_of_floor(case))),
        (f"share of the {kind} roofline", format_share(share)),
        (f"speedup over {reference}", format_speedup(row.speedup)),
        ("peak memory", f"{format_bytes(case.peak_memory_bytes)} MiB" if case.peak_memory_bytes else ""),
        ("cache", case.figures.cache_state if case.figures else ""),
        ("took", f"{case.seconds:.1f} s" if case.seconds else ""),
        ("test", case.nodeid),
    ]


def _make_proof_block(checks: Sequence[CheckReport]) -> Json:
    """Returns a block with errors and budgets of every output, and problems as notes (only these without figures)."""
    head = (
        "check",
        "output",
        "max error",
        "budget",
        "rms error",
        "budget",
        "worst line",
        "beyond",
        "NaN/Inf",
        "worst element",
    )
    rows = [
        (
            figures.check,
            figures.output,
            f"{figures.max_error:.3g}",
            f"{figures.max_budget:.3g}",
            f"{figures.rms_error:.3g}",
            f"{figures.rms_budget:.3g}",
            f"{figures.line}: {figures.line_error:.3g} of {figures.line_budget:.3g}" if figures.line else "",
            f"{figures.beyond_count} of {figures.elements}" if figures.beyond_count else "",
            str(figures.nan_count + figures.inf_count + figures.finite_count or ""),
            f"{list(figures.worst_index)} {format_around(figures)}".strip() if figures.worst_index else "",
        )
        for check in checks
        for figures in check.figures
    ]
    found = _make_table_block("Proof", head, rows)
    problems = [problem for check in checks for problem in check.problems]
    if found is None:
        return _make_lines_block("Proof: problems", problems)
    sourced = [format_tolerance(check.tolerance) for check in checks if check.tolerance.source]
    found["notes"] = [one_line(text, TEXT_LIMIT) for text in dict.fromkeys((*problems, *sourced))][:MOST_ROWS]
    return found


def _make_launches_block(launches: Sequence[Launch]) -> Json:
    head = ("launched", "kind", "calls", "grid", "block", "LDS bytes", "code hash")
    rows = [
        (
            launch.name,
            launch.kind,
            f"{launch.calls:g}",
            _format_dimensions(launch.grid),
            _format_dimensions(launch.block),
            str(launch.shared_bytes or ""),
            launch.isa_hash[:HASH_LENGTH],
        )
        for launch in launches
    ]
    return _make_table_block("Launches of one call", head, rows)


def _make_code_block(code: Sequence[KernelCode], occupancies: Mapping[str, Occupancy]) -> Json:
    return _make_table_block(
        "Code objects", code_head(), [code_cells(kernel, occupancies.get(kernel.isa_hash)) for kernel in code]
    )


def code_head() -> tuple[str, ...]:
    """Returns the column headings for the texts of `code_cells`, in the same order."""
    return tuple(heading for heading, _ in _CODE_CELLS)


def code_cells(code: KernelCode | None, occupancy: Occupancy | None) -> list[str]:
    """Returns a compiled kernel's figures (registers, spills, occupancy, ...) as texts; '' for unknown ones."""
    return ["" if code is None else cell(code, occupancy) for _, cell in _CODE_CELLS]


def _format_occupancy(_: KernelCode, occupancy: Occupancy | None) -> str:
    if occupancy is None:
        return ""
    by = f", limited by {', '.join(occupancy.limiters)}" if occupancy.limiters else ""
    return f"{occupancy.waves_per_simd} of {occupancy.max_waves_per_simd} waves/SIMD{by}"


def _format_count(value: int | None) -> str:
    return "" if value is None else str(value)


_CODE_CELLS: tuple[tuple[str, Callable[[KernelCode, Occupancy | None], str]], ...] = (
    ("kernel", lambda code, _: one_line(code.name, NAME_LIMIT)),
    ("arch", lambda code, _: one_line(code.arch, NAME_LIMIT)),
    ("VGPRs", lambda code, _: f"{code.vgprs}+{code.agprs}" if code.agprs else str(code.vgprs)),
    ("SGPRs", lambda code, _: str(code.sgprs or "")),
    ("VGPR spills", lambda code, _: _format_count(code.vgpr_spills)),
    ("SGPR spills", lambda code, _: _format_count(code.sgpr_spills)),
    ("scratch bytes", lambda code, _: str(code.scratch_bytes)),
    ("LDS bytes", lambda code, _: str(code.lds_bytes)),
    ("occupancy", _format_occupancy),
    ("threads", lambda code, _: str(code.workgroup or "")),
    ("code bytes", lambda code, _: str(code.code_bytes)),
    ("code hash", lambda code, _: one_line(code.isa_hash[:HASH_LENGTH])),
)


def _make_stages_block(case: CaseResult) -> Json:
    if case.breakdown is None:
        return None
    whole = case.breakdown.call_us
    unit = choose_time_unit([whole, *(stage.median_us for stage in case.breakdown.stages)])
    rows = [
        (stage.name, unit.format_number(stage.median_us), format_share(stage.median_us / whole if whole else None))
        for stage in case.breakdown.stages
    ]
    rows.append(("whole call", unit.format_number(whole), ""))
    return _make_table_block("Stages", ("stage", f"time {unit.name}", "share of the call"), rows)


def _make_software_block(case: CaseResult) -> Json:
    if case.fingerprint is None:
        return None
    return _make_facts_block("Measured with", [*case.fingerprint.must_match.items(), *case.fingerprint.named.items()])


def _make_log_block(log: str) -> Json:
    lines = safe_lines(log[-LOG_LINES * VALUE_LIMIT :], LOG_LINES) if log else []
    return {"kind": "text", "heading": "End of the worker's log", "lines": lines} if lines else None


def _format_value(value: object) -> str:
    return ", ".join(str(item) for item in value) if isinstance(value, (list, tuple)) else f"{value}"


def _format_dimensions(sizes: Sequence[int]) -> str:
    return " x ".join(str(size) for size in sizes)
