"""The explanation as text and as plain values: words first, figures below."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from pytest_attnperf.records import Verdict
from pytest_attnperf.records.code import CodeResult
from pytest_attnperf.reports.explain.changes import change_lines, device_lines
from pytest_attnperf.reports.explain.code_words import code_changes, code_inputs, code_words
from pytest_attnperf.reports.explain.facts import Facts, Option, Step, Told, Words
from pytest_attnperf.reports.explain.inputs import Row, inputs_of
from pytest_attnperf.reports.explain.words import words_of
from pytest_attnperf.reports.text.colour import PLAIN, Ink
from pytest_attnperf.reports.text.figures import one_line, safe_lines
from pytest_attnperf.reports.text.text_width import wrapped
from pytest_attnperf.results import CaseResult, RunResult

MARGIN = "  "
NAME_WIDTH = 16
TEXT_LIMIT = 2000
LOG_LINES = 20


def explanation(told: Told, *, width: int, ink: Ink = PLAIN) -> str:
    """A case in words and figures, in lines of at most `width` cells; commands are never broken."""
    case, words = told.case, words_of(told)
    blocks = [_head(case, width, ink), _paragraph(words, width), _steps(words.steps, width, ink)]
    if told.facts.contradicted:
        blocks.append(_section("What contradicts the file's own samples", told.facts.contradicted, width, ink))
    if case.verdict is Verdict.UNDECIDED:
        blocks.append(_options(told.facts, width, ink))
    blocks += [
        _table("How it was decided", inputs_of(told), width, ink),
        _section("What changed, and what ran", change_lines(told), width, ink),
        _section("The device during the run", device_lines(told.run, case), width, ink),
        _section("The end of the worker's log", safe_lines(case.log, LOG_LINES) if case.log else (), width, ink),
        _closing(told.run, told.facts, width),
    ]
    return "\n\n".join(filter(None, blocks))


def code_explanation(result: CodeResult, run: RunResult, source: str, *, width: int, ink: Ink = PLAIN) -> str:
    """A compiled kernel in words and figures."""
    words = code_words(result)
    blocks = [
        _head(result, width, ink),
        _paragraph(words, width),
        _steps(words.steps, width, ink),
        _table("How it was decided (stored -> now)", code_inputs(result), width, ink),
        _section("What changed", code_changes(result), width, ink),
        _section("The end of the worker's log", safe_lines(result.log, LOG_LINES) if result.log else (), width, ink),
        _closing(run, Facts(source=source), width),
    ]
    return "\n\n".join(filter(None, blocks))


def as_values(told: Told) -> dict[str, Any]:
    """The explanation as plain builtins, for programs; figures are numbers, texts are as in the file."""
    case, facts, words = told.case, told.facts, words_of(told)
    return {
        **_named(case, words),
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
        "inputs": _plain_rows(inputs_of(told)),
        "changes": change_lines(told),
        "device": device_lines(told.run, case),
    }


def code_values(result: CodeResult) -> dict[str, Any]:
    """The explanation of a compiled kernel as plain builtins."""
    rows = _plain_rows(code_inputs(result))
    return {**_named(result, code_words(result)), "inputs": rows, "changes": code_changes(result)}


def _named(result: CaseResult | CodeResult, words: Words) -> dict[str, Any]:
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


def _head(result: CaseResult | CodeResult, width: int, ink: Ink) -> str:
    fails = "fails its test" if result.fails else "does not fail its test"
    verdict = ink.verdict(result.verdict.value, result.verdict)
    lines = [f"{verdict} ({fails})", *wrapped(one_line(str(result.key), TEXT_LIMIT), width)]
    lines += wrapped(one_line(result.nodeid, TEXT_LIMIT), width)
    return "\n".join([*lines, *(wrapped(one_line(result.summary, TEXT_LIMIT), width) if result.summary else ())])


def _paragraph(words: Words, width: int) -> str:
    return "\n".join(wrapped(" ".join(one_line(text, TEXT_LIMIT) for text in words.sentences), width, ""))


def _steps(steps: Sequence[Step], width: int, ink: Ink) -> str:
    """Commands stand on lines of their own, whole, so that they can be copied."""
    lines = [ink.bold("What to do next")]
    for step in steps:
        lines += [f"{MARGIN}{line}" for line in wrapped(step.why, width - len(MARGIN), "")] if step.why else []
        lines += [f"{MARGIN * 2}{one_line(step.command, TEXT_LIMIT)}"] if step.command else []
    return "\n".join(lines)


def _options(facts: Facts, width: int, ink: Ink) -> str:
    lines = [ink.bold("What would decide it")]
    if facts.undecidable:
        lines += [f"{MARGIN}{line}" for line in wrapped(facts.undecidable, width - len(MARGIN), "")]
    for option in facts.options:
        text = one_line(f"{option.what}: {_seconds(option)}", TEXT_LIMIT)
        lines += [f"{MARGIN}{line}" for line in wrapped(text, width - len(MARGIN), "")]
        lines += [f"{MARGIN * 2}{one_line(command, TEXT_LIMIT)}" for command in option.commands]
    lines += [f"{MARGIN}{line}" for line in wrapped(facts.counted, width - len(MARGIN), "")] if facts.counted else []
    return "\n".join(lines) if len(lines) > 1 else ""


def _seconds(option: Option) -> str:
    if option.seconds is None:
        return "how long it takes is not known, because the file holds no time of this case"
    return f"about {option.seconds:.0f} s" if option.seconds >= 1 else "about a second"


def _table(title: str, rows: Sequence[Row], width: int, ink: Ink) -> str:
    """Names in one column, values wrapped beside them; a row without a name goes on with the one before."""
    if not rows:
        return ""
    lines = [ink.bold(title)]
    for name, value in rows:
        room = max(20, width - len(MARGIN) - NAME_WIDTH)
        first, *rest = wrapped(one_line(value, TEXT_LIMIT), room, "")
        lines.append(f"{MARGIN}{one_line(name):{NAME_WIDTH}}{first}".rstrip())
        lines += [f"{MARGIN}{'':{NAME_WIDTH}}{line}" for line in rest]
    return "\n".join(lines)


def _section(title: str, texts: Sequence[str], width: int, ink: Ink) -> str:
    if not texts:
        return ""
    lines = [line for text in texts for line in wrapped(one_line(text, TEXT_LIMIT), width - len(MARGIN))]
    return "\n".join([ink.bold(title), *(f"{MARGIN}{line}" for line in lines)])


def _closing(run: RunResult, facts: Facts, width: int) -> str:
    """Where all of this comes from."""
    commit = f", commit {run.commit}" if run.commit else ""
    text = f"from {facts.source}: {run.mode} run of {run.started}{commit}, {run.command}"
    return "\n".join(wrapped(one_line(text, TEXT_LIMIT), width))
