"""The report as lines of a terminal: groups, worst first, what it means and what mends it below each finding."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Protocol

from pytest_attnperf.records import Verdict
from pytest_attnperf.tools.doctor.engine import Report
from pytest_attnperf.tools.doctor.finding import Finding, Status

WORST_FIRST = (Status.PROBLEM, Status.UNKNOWN, Status.WARNING, Status.NOTE, Status.OK)
STYLE_OF = {Status.PROBLEM: Verdict.ERROR, Status.WARNING: Verdict.UNDECIDED, Status.UNKNOWN: Verdict.UNDECIDED}
"""Verdicts whose colour a status has; the word stands beside it in any case."""

WORD_WIDTH = max(len(status.value) for status in Status)
NAME_WIDTH = 24
"""Cells of the names' column at most; a longer name pushes its value to the right."""

Wrap = Callable[[str, int, str], list[str]]
"""(text, width, indent of the lines after the first) -> lines."""


class Ink(Protocol):
    """What colours text, or leaves it."""

    def verdict(self, text: str, verdict: Verdict | None) -> str:
        """Text in the colour of a verdict."""

    def bold(self, text: str) -> str:
        """A heading."""


def report_lines(report: Report, *, width: int, wrap: Wrap, ink: Ink, verbose: bool = False) -> list[str]:
    """All of it. Without `verbose`, what is OK has one line, and details are left out."""
    name_width = min(NAME_WIDTH, max((len(each.name) for each in report.findings), default=0))
    lines: list[str] = []
    for title, findings in grouped(report):
        lines += [*([""] if lines else []), ink.bold(title)]
        for finding in findings:
            lines += _lines_of(finding, name_width, width, wrap, ink, verbose=verbose)
    if report.not_run:
        lines += ["", *wrap(f"not looked at without a GPU: {', '.join(report.not_run)}", width, "  ")]
    closing = [summary(report), *(f"next: {step}" for step in next_step(report))]
    return [*lines, "", *(part for line in closing for part in wrap(line, width, "  "))]


def grouped(report: Report) -> list[tuple[str, list[Finding]]]:
    """(title, findings) in the order of the probes; within a title the worst first."""
    groups: dict[str, list[Finding]] = {}
    for each in report.examined:
        groups.setdefault(each.title, []).extend(each.findings)
    return [
        (title, sorted(found, key=lambda finding: WORST_FIRST.index(finding.status)))
        for title, found in groups.items()
        if found
    ]


def summary(report: Report) -> str:
    """'doctor: 14 ok, 1 note, 2 warnings, 1 problem, 0 unknown in 2.1 s; timer: graph'."""
    counts = report.counts
    parts = [
        f"{counts['ok']} ok",
        _several(counts["note"], "note"),
        _several(counts["warning"], "warning"),
        _several(counts["problem"], "problem"),
        f"{counts['unknown']} unknown",
    ]
    return f"doctor: {', '.join(parts)} in {report.seconds:.1f} s; timer: {report.timer}"


def next_step(report: Report) -> Sequence[str]:
    """What to type now: the fix of the first problem, how to get cases, or a run that this machine is good for."""
    problem = next((each for each in report.findings if each.status is Status.PROBLEM), None)
    if problem is not None:
        return (f"{problem.name}: {problem.fix or problem.meaning}",)
    suites = next((each for each in report.findings if each.name == "suites"), None)
    if suites is not None and suites.fix:
        return (suites.fix,)
    where = _suites(suites)
    if report.not_run:
        return (f"pytest{where} (proofs; nothing is timed without a GPU)",)
    return (f"pytest --attnperf{where}",)


def _suites(found: Finding | None) -> str:
    """The folder that most files with cases lie in, as an argument; suites/ where there are any; '' for all."""
    tops = Counter(file.partition("/")[0] for file in found.details) if found is not None else Counter()
    if not tops:
        return ""
    top = "suites" if "suites" in tops else tops.most_common(1)[0][0]
    return f" {shlex.quote(top if top in (found.details if found else ()) else f'{top}/')}"


def _several(count: int, word: str) -> str:
    return f"{count} {word}" if count == 1 else f"{count} {word}s"


def _lines_of(finding: Finding, name_width: int, width: int, wrap: Wrap, ink: Ink, *, verbose: bool) -> Iterator[str]:
    word = f"{finding.status.value:<{WORD_WIDTH}}"
    margin = " " * (2 + WORD_WIDTH + 2)
    plain = f"{finding.name:<{name_width}}  {finding.value}"
    first, *rest = wrap(plain, width - len(margin), " " * (name_width + 2))
    yield f"  {ink.verdict(word, STYLE_OF.get(finding.status))}  {first}"
    yield from (f"{margin}{line}" for line in rest)
    if finding.status is Status.OK and not verbose:
        return
    below = [finding.meaning, f"fix: {finding.fix}" if finding.fix else "", *(finding.details if verbose else ())]
    for text in filter(None, below):
        yield from (f"{margin}  {line}" for line in wrap(text, width - len(margin) - 2, "  "))
