"""Renders an explanation as text and as plain values: words, inputs of the decision, other changes, the device."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any

from pytest_attnperf.records import Verdict
from pytest_attnperf.records.code import CodeResult
from pytest_attnperf.records.notes import NoteKind, filter_notes, kind_of
from pytest_attnperf.reports.explain import by_proof, by_time
from pytest_attnperf.reports.explain.code_words import code_changes, code_inputs, explain_code
from pytest_attnperf.reports.explain.facts import DecisionOption, Facts, NextStep, Told, Words
from pytest_attnperf.reports.explain.inputs import Row, list_input_rows
from pytest_attnperf.reports.run.conditions import SHOWN, condition_lines
from pytest_attnperf.reports.run.overview import format_device
from pytest_attnperf.reports.text.colour import PLAIN, Ink
from pytest_attnperf.reports.text.figures import one_line, safe_lines
from pytest_attnperf.reports.text.text_width import wrap_text
from pytest_attnperf.results import CaseResult, RunResult

MARGIN = "  "
NAME_WIDTH = 16
TEXT_LIMIT = 2000
LOG_LINES = 20

LINK_LIMIT = 300

BY_VERDICT: dict[Verdict, Callable[[Told], Words]] = {
    Verdict.SAME: by_time.explain_same,
    Verdict.FASTER: by_time.explain_faster,
    Verdict.SLOWER: by_time.explain_slower,
    Verdict.GREW: by_time.explain_grew,
    Verdict.UNDECIDED: by_time.explain_undecided,
    Verdict.ENVIRONMENT: by_time.explain_environment,
    Verdict.MOVED: by_time.explain_moved,
    Verdict.DRIFT: by_time.explain_drift,
    Verdict.STALE: by_time.explain_stale,
    Verdict.RECORDED: by_time.explain_recorded,
    Verdict.RIGHT: by_time.explain_right,
    Verdict.INCORRECT: by_proof.explain_incorrect,
    Verdict.SUSPICIOUS: by_proof.explain_suspicious,
    Verdict.ERROR: by_proof.explain_error,
    Verdict.UNSUPPORTED: by_proof.explain_unsupported,
    Verdict.INCOMPARABLE: by_proof.explain_incomparable,
    Verdict.NO_BASELINE: by_proof.explain_no_baseline,
    Verdict.WORSE: by_time.explain_slower,
}
"""The function that explains each verdict. A case has WORSE, a verdict of compiled kernels, only in an edited file."""

CHANGE_LIMIT = 600
LAUNCHES_SHOWN = 8
ENTRIES_SHOWN = 12
IN_TABLE = frozenset(
    {NoteKind.NOISE, NoteKind.LIMIT, NoteKind.CYCLES, NoteKind.CANARY, NoteKind.FIRST_LOOK, NoteKind.DETECTS}
)
"""Kinds of reasons whose figures are in the table."""


def render_explanation(told: Told, *, width: int, ink: Ink = PLAIN) -> str:
    """Returns the explanation of a case, as text of at most `width` cells per line; commands are never wrapped."""
    case, words = told.case, explain_case(told)
    blocks = [_render_head(case, width, ink), _render_paragraph(words, width), _render_steps(words.steps, width, ink)]
    if told.facts.contradicted:
        blocks.append(_render_section("What contradicts the file's own samples", told.facts.contradicted, width, ink))
    if case.verdict is Verdict.UNDECIDED:
        blocks.append(_render_options(told.facts, width, ink))
    blocks += [
        _render_table("How it was decided", list_input_rows(told), width, ink),
        _render_section("What changed, and what ran", _change_lines(told), width, ink),
        _render_section("The device during the run", _device_lines(told.run, case), width, ink),
        _render_section("The end of the worker's log", safe_lines(case.log, LOG_LINES) if case.log else (), width, ink),
        _render_closing(told.run, told.facts, width),
    ]
    return "\n\n".join(filter(None, blocks))


def explain_case(told: Told) -> Words:
    """Returns sentences and next steps on a case's verdict, after remarks on a contradictory file and a quarantine."""
    said = BY_VERDICT[told.case.verdict](told)
    contradicted = told.facts.contradicted
    before = [f"This file contradicts itself, so believe none of it: {text}." for text in contradicted[:1]]
    return replace(said, sentences=(*before, *_describe_quarantine(told), *said.sentences))


def _describe_quarantine(told: Told) -> list[str]:
    case = told.case
    if case.quarantined:
        return [
            f"The case is quarantined ({one_line(case.quarantined, LINK_LIMIT)}): the verdict below holds, but cannot "
            "fail the test until that date."
        ]
    if filter_notes(case.reasons, NoteKind.EXPIRED):
        return [
            f"The test fails because its {one_line(case.summary, LINK_LIMIT)}. It fails for any time, "
            "because otherwise nobody would notice that the date has passed."
        ]
    return []


def render_code_explanation(result: CodeResult, run: RunResult, source: str, *, width: int, ink: Ink = PLAIN) -> str:
    """Returns the explanation of a compiled kernel, as text of at most `width` cells per line."""
    words = explain_code(result)
    blocks = [
        _render_head(result, width, ink),
        _render_paragraph(words, width),
        _render_steps(words.steps, width, ink),
        _render_table("How it was decided (stored -> now)", code_inputs(result), width, ink),
        _render_section("What changed", code_changes(result), width, ink),
        _render_section(
            "The end of the worker's log", safe_lines(result.log, LOG_LINES) if result.log else (), width, ink
        ),
        _render_closing(run, Facts(source=source), width),
    ]
    return "\n\n".join(filter(None, blocks))


def build_case_values(told: Told) -> dict[str, Any]:
    """Returns the explanation of a case for programs (--json): a dict of builtins; figures are numbers."""
    case, facts, words = told.case, told.facts, explain_case(told)
    return {
        **_build_result_values(case, words),
        "quarantined": case.quarantined,
        "unchanged": case.unchanged,
        "contradicted": list(facts.contradicted),
        "options": [
            {"what": one.what, "seconds": one.seconds, "commands": list(one.commands)} for one in facts.options
        ],
        "undecidable": facts.undecidable,
        "figures": {
            "median_us": case.median_us,
            "baseline_us": case.baseline_us,
            "ratio": case.ratio,
            "interval95": None if case.interval is None else list(case.interval),
            "tolerated": facts.tolerated,
            "threshold": case.threshold,
            "standard_error": case.standard_error,
            "degrees_of_freedom": case.degrees_of_freedom,
            "relative_sd": facts.relative_sd,
            "z": facts.z,
            "false_alarm_share": facts.share,
            "detection_limit": case.detection_limit,
            "stored_us": list(case.stored_us),
            "first_us": [process.median_us for process in case.first],
            "second_us": [process.median_us for process in case.second],
            "pair_ratios": [pair.ratio for pair in case.pairs],
        },
        "inputs": _plain_rows(list_input_rows(told)),
        "changes": _change_lines(told),
        "device": _device_lines(told.run, case),
    }


def build_code_values(result: CodeResult) -> dict[str, Any]:
    """Returns the explanation of a compiled kernel for programs (--json): a dict of builtins."""
    rows = _plain_rows(code_inputs(result))
    return {**_build_result_values(result, explain_code(result)), "inputs": rows, "changes": code_changes(result)}


def _build_result_values(result: CaseResult | CodeResult, words: Words) -> dict[str, Any]:
    return {
        "case": str(result.key),
        "nodeid": result.nodeid,
        "verdict": result.verdict.value,
        "fails": result.fails,
        "summary": result.summary,
        "words": list(words.sentences),
        "next": [{"why": step.why, "command": step.command} for step in words.steps],
    }


def _plain_rows(rows: Iterable[Row]) -> list[list[str]]:
    return [[name, value] for name, value in rows]


def _render_head(result: CaseResult | CodeResult, width: int, ink: Ink) -> str:
    fails = "fails its test" if result.fails else "does not fail its test"
    verdict = ink.paint_verdict(result.verdict.value, result.verdict)
    lines = [f"{verdict} ({fails})", *wrap_text(one_line(str(result.key), TEXT_LIMIT), width)]
    lines += wrap_text(one_line(result.nodeid, TEXT_LIMIT), width)
    return "\n".join([*lines, *(wrap_text(one_line(result.summary, TEXT_LIMIT), width) if result.summary else ())])


def _render_paragraph(words: Words, width: int) -> str:
    return "\n".join(wrap_text(" ".join(one_line(text, TEXT_LIMIT) for text in words.sentences), width, ""))


def _render_steps(steps: Sequence[NextStep], width: int, ink: Ink) -> str:
    """Returns a section of next steps. Each command is on its own line, unwrapped, so that it can be copied."""
    lines = [ink.bold("What to do next")]
    for step in steps:
        lines += [f"{MARGIN}{line}" for line in wrap_text(step.why, width - len(MARGIN), "")] if step.why else []
        lines += [f"{MARGIN * 2}{one_line(step.command, TEXT_LIMIT)}"] if step.command else []
    return "\n".join(lines)


def _render_options(facts: Facts, width: int, ink: Ink) -> str:
    lines = [ink.bold("What would decide it")]
    if facts.undecidable:
        lines += [f"{MARGIN}{line}" for line in wrap_text(facts.undecidable, width - len(MARGIN), "")]
    for option in facts.options:
        text = one_line(f"{option.what}: {_format_option_seconds(option)}", TEXT_LIMIT)
        lines += [f"{MARGIN}{line}" for line in wrap_text(text, width - len(MARGIN), "")]
        lines += [f"{MARGIN * 2}{one_line(command, TEXT_LIMIT)}" for command in option.commands]
    lines += [f"{MARGIN}{line}" for line in wrap_text(facts.counted, width - len(MARGIN), "")] if facts.counted else []
    return "\n".join(lines) if len(lines) > 1 else ""


def _format_option_seconds(option: DecisionOption) -> str:
    if option.seconds is None:
        return "its duration is not known, because the file holds no time of this case"
    return f"about {option.seconds:.0f} s" if option.seconds >= 1 else "about a second"


def _render_table(title: str, rows: Sequence[Row], width: int, ink: Ink) -> str:
    """Returns names in a column, wrapped values beside them; '' without rows. A row without a name adds to the last."""
    if not rows:
        return ""
    lines = [ink.bold(title)]
    for name, value in rows:
        room = max(20, width - len(MARGIN) - NAME_WIDTH)
        first, *rest = wrap_text(one_line(value, TEXT_LIMIT), room, "")
        lines.append(f"{MARGIN}{one_line(name):{NAME_WIDTH}}{first}".rstrip())
        lines += [f"{MARGIN}{'':{NAME_WIDTH}}{line}" for line in rest]
    return "\n".join(lines)


def _render_section(title: str, texts: Sequence[str], width: int, ink: Ink) -> str:
    if not texts:
        return ""
    lines = [line for text in texts for line in wrap_text(one_line(text, TEXT_LIMIT), width - len(MARGIN))]
    return "\n".join([ink.bold(title), *(f"{MARGIN}{line}" for line in lines)])


def _render_closing(run: RunResult, facts: Facts, width: int) -> str:
    """Returns the last lines, which name the results file, and the mode, time, commit and command of its run."""
    commit = f", commit {run.commit}" if run.commit else ""
    text = f"from {facts.source}: {run.mode} run of {run.started}{commit}, {run.command}"
    return "\n".join(wrap_text(one_line(text, TEXT_LIMIT), width))


def _change_lines(told: Told) -> list[str]:
    """Returns lines on what changed since the baseline (reasons, notes, stored entry), then on the kernels that ran."""
    case, stored = told.case, told.facts.stored
    lines = [one_line(text, CHANGE_LIMIT) for text in _list_reasons(case)]
    lines += [one_line(note, CHANGE_LIMIT) for note in case.notes]
    if stored is not None:
        if stored.other:
            lines.append(f"{one_line(stored.where)}: {one_line(stored.other, CHANGE_LIMIT)}")
        found = [f"launches: {text}" for text in stored.launches] + [f"configuration: {text}" for text in stored.config]
        found += [f"toolchain: {text}" for text in stored.toolchain] + [stored.canary] * bool(stored.canary)
        lines += [one_line(text, CHANGE_LIMIT) for text in found if not any(text[:60] in line for line in lines)]
    return list(dict.fromkeys(lines)) + _list_launched_work(case)


def _device_lines(run: RunResult, case: CaseResult) -> list[str]:
    """Returns lines on the device: name, ids, throttling, other processes, and readings that changed during the run."""
    lines = [one_line(f"{run.device.name or run.device.product} ({format_device(run)})")] if run.device else []
    ids = dict.fromkeys(process.device_id for process in (*case.first, *case.second) if process.device_id)
    lines += [f"on {one_line(', '.join(ids), CHANGE_LIMIT)}"] if ids else []
    lines += [one_line(line, CHANGE_LIMIT) for line in condition_lines(run)]
    state = run.device_state
    if state is None:
        return [*lines, "what the device did during the run was not recorded"]
    if not state.throttled_s:
        lines.append("its tools report no throttling")
    if not state.other_processes:
        lines.append("no other compute process was on it at the beginning")
    moved = [
        name
        for name in state.before
        if name not in SHOWN and state.after.get(name, state.before[name]) != state.before[name]
    ]
    return lines + [one_line(f"{name}: {state.before[name]} -> {state.after[name]}") for name in moved]


def _list_reasons(case: CaseResult) -> list[str]:
    """Returns the lines of the case's reasons that neither its summary nor the table of inputs shows."""
    return [
        line
        for reason in case.reasons
        if reason != case.summary and kind_of(reason) not in IN_TABLE
        for line in reason.splitlines()[:ENTRIES_SHOWN]
        if line.strip()
    ]


def _list_launched_work(case: CaseResult) -> list[str]:
    lines = []
    for launch in case.launches[:LAUNCHES_SHOWN]:
        hashed = f", machine code {launch.isa_hash[:12]}" if launch.isa_hash else ""
        grid = f", grid {_format_dimensions(launch.grid)}" if launch.grid else ""
        block = f", block {_format_dimensions(launch.block)}" if launch.block else ""
        lines.append(one_line(f"ran: {launch.calls:g} x {launch.name}{grid}{block}{hashed}", 160))
    more = len(case.launches) - LAUNCHES_SHOWN
    lines += [f"ran: ... and {more} more kinds of work"] if more > 0 else []
    if case.config:
        listed = [f"{name}={value}" for name, value in sorted(case.config.items())]
        lines.append(one_line(f"configuration now: {', '.join(listed[:ENTRIES_SHOWN])}", CHANGE_LIMIT))
    if case.fingerprint is not None and case.fingerprint.named:
        named = [f"{name} {value}" for name, value in sorted(case.fingerprint.named.items())]
        lines.append(one_line(f"toolchain now: {', '.join(named)}", CHANGE_LIMIT))
    if case.sources:
        lines.append(f"{len(case.sources)} source files of this tree were loaded (their hashes are in the file)")
    return lines


def _format_dimensions(values: tuple[int, ...]) -> str:
    return "x".join(map(str, values))
