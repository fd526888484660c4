"""An audit of tuned tables as text and as JSON."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict

from pytest_attnperf.records.tuned_tables import Coverage
from pytest_attnperf.reports.text.figures import one_line, printable_json
from pytest_attnperf.reports.text.wide_tables import WIDTH, Column, Table, render_terminal_tables
from pytest_attnperf.tools.tuner.audit import AUDIT_SCHEMA, Age, Audit, AuditRow

COLUMNS = (Column("fit", "left"), Column("entry"), Column("idle"), Column("taken although", "left"))
IDLE = (
    "idle: an estimate, nothing was timed. The share of the GPU lost to padded tiles and the last wave, with one "
    "program per CU at a time and equal programs. Other tiles win back at most "
    "that; -: the file does not say how work is cut."
)
EXACT = "exact: in every size that the entry's key names. For sizes that it does not name nothing was looked up."
UNKNOWN_AGE = "age unknown: the entry records no version of Triton, or none is installed here."


def render_audit(audit: Audit, width: int = WIDTH) -> str:
    """Returns the audit for a terminal: a table per file, what has none, the totals, and the commands that would
    measure the gaps."""
    by_file: dict[tuple[str, str, str], list[AuditRow]] = {}
    for row in audit.rows:
        by_file.setdefault((row.backend, row.entry.kernel, row.entry.file), []).append(row)
    tables = [_make_table(where, rows) for where, rows in by_file.items()]
    text = render_terminal_tables([describe_target(audit)], tables, width)
    ends = _describe_unaudited(audit)
    if any(not row.is_gap for row in audit.rows):
        ends.append(EXACT)
    if any(row.idle is not None for row in audit.rows):
        ends.append(IDLE)
    if any(row.age is Age.UNKNOWN and row.entry.file for row in audit.rows):
        ends.append(UNKNOWN_AGE)
    blocks = [text, render_terminal_tables([*ends, summarise(audit)], [], width)]
    if commands := audit.list_commands():
        blocks.append("\n".join([f"to measure them, on a {audit.device.name}:", *(f"  {each}" for each in commands)]))
    return "\n\n".join(blocks)


def describe_target(audit: Audit) -> str:
    """Returns the line that says for which device and software the tables were looked up."""
    device = audit.device
    used = ", ".join(f"{name} {version}" for name, version in audit.in_use.items())
    return one_line(f"tables for {device.arch} ({device.name}, {device.compute_units} CUs); in use here: {used}")


def summarise(audit: Audit) -> str:
    """Returns the line of totals, e.g. '3 entries taken: 1 exact, 2 nearest; 1 STALE, 2 of unknown age'."""
    fits, ages = Counter(row.entry.coverage for row in audit.rows), Counter(row.age for row in audit.rows)
    told = ", ".join(f"{fits[each]} {each.value}" for each in Coverage if fits[each]) or "nothing"
    left = f"; {audit.unsupported} unsupported pairs left out" if audit.unsupported else ""
    return f"{len(audit.rows)} looked up: {told}; {ages[Age.STALE]} STALE, {ages[Age.UNKNOWN]} of unknown age{left}"


def format_apart(apart: Mapping[str, tuple[object, object]]) -> str:
    """Returns where a key differs from the workload, and for sizes how far: 'head_dim_max 128 for 96 (x1.33)'."""
    return ", ".join(
        f"{name} {held} for {wanted}{_format_factor(held, wanted)}" for name, (held, wanted) in apart.items()
    )


def audit_json(audit: Audit) -> str:
    """Returns the audit as JSON, printable on a terminal."""
    content = {
        "schema": AUDIT_SCHEMA,
        "arch": audit.device.arch,
        "device": audit.device.name,
        "compute_units": audit.device.compute_units,
        "in_use": dict(audit.in_use),
        "clean": audit.is_clean,
        "rows": [_row_json(row) for row in audit.rows],
        "unaudited": [
            {"backend": name, "family": family, "why": why} for (name, family), why in audit.unaudited.items()
        ],
        "unsupported": audit.unsupported,
        "commands": audit.list_commands(),
    }
    return printable_json(json.dumps(content, indent=2))


def _row_json(row: AuditRow) -> dict[str, object]:
    entry: dict[str, object] = asdict(row.entry)
    apart = {name: {"entry": held, "workload": wanted} for name, (held, wanted) in row.entry.apart.items()}
    named = {"backend": row.backend, "family": row.family, "workload": row.workload}
    return {**named, **entry, "apart": apart, "age": row.age.value, "idle_estimate": row.idle}


def _make_table(where: tuple[str, str, str], rows: Sequence[AuditRow]) -> Table:
    backend, kernel, file = where
    numbers = {
        key: number for number, key in enumerate(dict.fromkeys(row.entry.key for row in rows if row.entry.key), 1)
    }
    firsts = {row.entry.key: row for row in reversed(rows)}
    notes = [one_line(f"[{number}] {_describe_entry(firsts[key])}", 400) for key, number in numbers.items()]
    body = [
        (
            one_line(row.workload),
            f"{row.entry.coverage.value}, STALE" if row.age is Age.STALE else row.entry.coverage.value,
            f"[{numbers[row.entry.key]}]" if row.entry.key else "-",
            "-" if row.idle is None else f"{100 * row.idle:.0f} %",
            one_line(format_apart(row.entry.apart)) or "-",
        )
        for row in rows
    ]
    title = one_line(f"{backend}, {kernel}: {file or 'no file has an entry'}")
    return Table(title, "workload", COLUMNS, tuple(body), tuple(notes))


def _describe_entry(row: AuditRow) -> str:
    """Returns an entry's key, what it serves alike, its age and its source, as one text."""
    entry = row.entry
    versions = ", ".join(f"{name} {version}" for name, version in entry.versions.items())
    parts = [
        entry.key,
        f"any {', '.join(entry.unnamed)}" if entry.unnamed else "",
        f"age {row.age.value}" + (f" ({versions})" if versions else ""),
        f"source: {entry.source}" if entry.source else "",
    ]
    return "; ".join(filter(None, parts))


def _describe_unaudited(audit: Audit) -> list[str]:
    """Returns a line for each reason why backends have no table, with their names."""
    by_reason: dict[str, dict[str, list[str]]] = {}
    for (name, family), why in audit.unaudited.items():
        by_reason.setdefault(why, {}).setdefault(name, []).append(family)
    return [
        one_line(f"not audited ({why}): {'; '.join(_join_families(*each) for each in named.items())}", 4000)
        for why, named in by_reason.items()
    ]


def _join_families(name: str, families: Sequence[str]) -> str:
    return f"{name} {', '.join(families)}"


def _format_factor(held: object, wanted: object) -> str:
    """Returns by which factor two sizes differ; '' for what are no sizes."""
    if type(held) is not int or type(wanted) is not int or not (held > 0 and wanted > 0):
        return ""
    return f" (x{max(held, wanted) / min(held, wanted):.3g})"
