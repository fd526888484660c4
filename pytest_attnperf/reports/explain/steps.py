"""Commands that an explanation ends with. Everything from a file is quoted for a shell."""

from __future__ import annotations

import re
import shlex

from pytest_attnperf.records import CaseKey
from pytest_attnperf.records.code import CodeResult
from pytest_attnperf.reports.explain.facts import Step, Told
from pytest_attnperf.reports.text.commands import repeatable
from pytest_attnperf.reports.text.figures import one_line
from pytest_attnperf.results import CaseResult

PAIRS = 8
"""Of an interleaved look unless it is told otherwise."""

ENOUGH = 7
"""Processes or pairs that `attnperf accept` asks for."""

TEXT_LIMIT = 2000
_REVISION = re.compile(r"[0-9A-Za-z][0-9A-Za-z_./-]*")
_NOT_A_COMMIT = frozenset({"", "unknown"})


def quoted(text: str) -> str:
    """One word of a shell's command, without what a terminal would obey."""
    return shlex.quote(one_line(text, TEXT_LIMIT))


def repeated(case: CaseResult | CodeResult) -> Step:
    """The run's own command for this case."""
    return Step("measure it again as it was:", repeatable(case.reproduce, case.nodeid) or gated(case.nodeid))


def gated(nodeid: str, *options: str) -> str:
    """pytest over this case alone."""
    return " ".join(["pytest --attnperf", *options, quoted(nodeid)])


def base_of(told: Told) -> str:
    """A revision to hold the case against: the base side's, else the commit of the baseline, else origin/main."""
    against = told.case.against or told.run.against
    label = against.partition(" ")[0]
    if label and _REVISION.fullmatch(label):
        return label
    return commit_of(told.case.stored_commit) or "origin/main"


def commit_of(text: str) -> str:
    """A commit without what marks a tree with changes; '' where there is none that git would take."""
    commit = text.partition("+")[0]
    return "" if commit in _NOT_A_COMMIT or not _REVISION.fullmatch(commit) else commit


def paired(told: Told, pairs: int = PAIRS) -> str:
    """The case alone, both revisions in turns; the stored baseline has no say where its entry cannot be compared."""
    number = [] if pairs == PAIRS else [f"--attnperf-pairs={pairs}"]
    return gated(told.case.nodeid, f"--attnperf-against={quoted(base_of(told))}", *number)


def side_by_side(told: Told) -> Step:
    """Take machine, driver and day out of it."""
    return Step("side by side with the base revision, which takes machine, driver and day out of it:", paired(told))


def bisected(told: Told) -> Step:
    """The first slow commit."""
    good = commit_of(told.case.stored_commit) or "GOOD"
    bad = commit_of(told.run.commit) or "HEAD"
    return Step(
        "find the commit that brought it:", f"attnperf bisect {quoted(good)} {quoted(bad)} {quoted(told.case.nodeid)}"
    )


def accepted(told: Told) -> tuple[Step, ...]:
    """Take a wanted slowdown over; a look of enough processes first, where there is none."""
    case, key = told.case, quoted(str(told.case.key))
    take = f'attnperf accept {key} --from {quoted(told.facts.source)} --reason "..."'
    if max(len(case.second), len(case.pairs)) >= ENOUGH:
        return (Step("if the change is wanted:", take),)
    measure = gated(case.nodeid, f"--attnperf-second-look={ENOUGH}")
    return (
        Step("if the change is wanted, measure it in enough processes and accept it by name:", measure),
        Step("", take),
    )


def recorded(nodeid: str, why: str) -> Step:
    """Measure and store."""
    return Step(why, f"pytest --update-baselines {quoted(nodeid)}")


def doctor() -> Step:
    """Ask what is wrong with the machine."""
    return Step("look at the machine:", "attnperf doctor")


def history(key: CaseKey) -> Step:
    """Earlier runs."""
    return Step("look at earlier runs, where a history is kept:", f"attnperf history {quoted(str(key))}")


def quarantined() -> Step:
    """Known, and not to be mended today: an issue and a date."""
    return Step(
        "if it is known and waits for somebody, name the issue and a date in the test's marker:",
        '@pytest.mark.attnperf(..., quarantine="https://...", until="YYYY-MM-DD")',
    )
