"""What changed beside the time: what ran, configuration, toolchain, policy, sources; and the device during the run."""

from __future__ import annotations

from pytest_attnperf.records.notes import NoteKind, kind_of
from pytest_attnperf.reports.explain.facts import Told
from pytest_attnperf.reports.run.conditions import SHOWN, condition_lines
from pytest_attnperf.reports.run.overview import device_of
from pytest_attnperf.reports.text.figures import one_line
from pytest_attnperf.results import CaseResult, RunResult

TEXT_LIMIT = 600
LAUNCHES_SHOWN = 8
ENTRIES_SHOWN = 12
SAID = frozenset(
    {NoteKind.NOISE, NoteKind.LIMIT, NoteKind.CYCLES, NoteKind.CANARY, NoteKind.FIRST_LOOK, NoteKind.DETECTS}
)
"""Reasons whose figures stand in the table."""


def change_lines(told: Told) -> list[str]:
    """Everything that the run, or the baseline's folder, says has changed; then what the case ran."""
    case, stored = told.case, told.facts.stored
    lines = [one_line(text, TEXT_LIMIT) for text in _reasons(case)]
    lines += [one_line(note, TEXT_LIMIT) for note in case.notes]
    if stored is not None:
        if stored.other:
            lines.append(f"{one_line(stored.where)}: {one_line(stored.other, TEXT_LIMIT)}")
        found = [f"launches: {text}" for text in stored.launches] + [f"configuration: {text}" for text in stored.config]
        found += [f"toolchain: {text}" for text in stored.toolchain] + [stored.canary] * bool(stored.canary)
        lines += [one_line(text, TEXT_LIMIT) for text in found if not any(text[:60] in line for line in lines)]
    return list(dict.fromkeys(lines)) + _ran(case)


def device_lines(run: RunResult, case: CaseResult) -> list[str]:
    """The device before and after, and who else was there."""
    lines = [one_line(f"{run.device.name or run.device.product} ({device_of(run)})")] if run.device else []
    ids = dict.fromkeys(process.device_id for process in (*case.first, *case.second) if process.device_id)
    lines += [f"on {one_line(', '.join(ids), TEXT_LIMIT)}"] if ids else []
    lines += [one_line(line, TEXT_LIMIT) for line in condition_lines(run)]
    state = run.device_state
    if state is None:
        return [*lines, "what the device did during the run was not recorded"]
    if not state.throttled_s:
        lines.append("it was not held back (throttled) as far as its tools say")
    if not state.other_processes:
        lines.append("no other compute process was on it at the beginning")
    moved = [
        name
        for name in state.before
        if name not in SHOWN and state.after.get(name, state.before[name]) != state.before[name]
    ]
    return lines + [one_line(f"{name}: {state.before[name]} -> {state.after[name]}") for name in moved]


def _reasons(case: CaseResult) -> list[str]:
    """Reasons that are no figures of the table and not the summary."""
    return [
        line
        for reason in case.reasons
        if reason != case.summary and kind_of(reason) not in SAID
        for line in reason.splitlines()[:ENTRIES_SHOWN]
        if line.strip()
    ]


def _ran(case: CaseResult) -> list[str]:
    lines = []
    for launch in case.launches[:LAUNCHES_SHOWN]:
        hashed = f", machine code {launch.isa_hash[:12]}" if launch.isa_hash else ""
        grid = f", grid {_dims(launch.grid)}" if launch.grid else ""
        block = f", block {_dims(launch.block)}" if launch.block else ""
        lines.append(one_line(f"ran: {launch.calls:g} x {launch.name}{grid}{block}{hashed}", 160))
    more = len(case.launches) - LAUNCHES_SHOWN
    lines += [f"ran: ... and {more} more kinds of work"] if more > 0 else []
    if case.config:
        listed = [f"{name}={value}" for name, value in sorted(case.config.items())]
        lines.append(one_line(f"configuration now: {', '.join(listed[:ENTRIES_SHOWN])}", TEXT_LIMIT))
    if case.fingerprint is not None and case.fingerprint.named:
        named = [f"{name} {value}" for name, value in sorted(case.fingerprint.named.items())]
        lines.append(one_line(f"toolchain now: {', '.join(named)}", TEXT_LIMIT))
    if case.sources:
        lines.append(f"{len(case.sources)} source files of this tree were loaded (their hashes are in the file)")
    return lines


def _dims(values: tuple[int, ...]) -> str:
    return "x".join(map(str, values))
