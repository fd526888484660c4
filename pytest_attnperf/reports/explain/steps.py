"""Commands at the end of an explanation. Everything that comes from a file is quoted for a shell."""

from __future__ import annotations

import re
import shlex

from pytest_attnperf.records import CaseKey
from pytest_attnperf.records.code import CodeResult
from pytest_attnperf.reports.explain.facts import NextStep, Told
from pytest_attnperf.reports.text.commands import format_repeat_command
from pytest_attnperf.reports.text.figures import one_line
from pytest_attnperf.results import CaseResult

PAIRS = 8
"""Pairs of an interleaved look by default."""

ENOUGH = 7
"""Processes or pairs that `attnperf baselines accept` needs."""

TEXT_LIMIT = 2000
_REVISION = re.compile(r"[0-9A-Za-z][0-9A-Za-z_./-]*")
_NOT_A_COMMIT = frozenset({"", "unknown"})


def quote_word(text: str) -> str:
    """Returns the text quoted as one word for a shell, without control characters and cut."""
    return shlex.quote(one_line(text, TEXT_LIMIT))


def suggest_repeat(case: CaseResult | CodeResult) -> NextStep:
    """Returns the step 'measure it again', with the case's own stored command, or one made from its node id."""
    return NextStep(
        "measure it again as it was:",
        format_repeat_command(case.reproduce, case.nodeid) or format_pytest_command(case.nodeid),
    )


def format_pytest_command(nodeid: str, *options: str) -> str:
    """Returns `pytest --attnperf OPTIONS NODEID`, the command that measures this case alone."""
    return " ".join(["pytest --attnperf", *options, quote_word(nodeid)])


def choose_base(told: Told) -> str:
    """Returns the revision to compare a case with: the base side's, else its baseline's commit, else origin/main."""
    against = told.case.against or told.run.against
    label = against.partition(" ")[0]
    if label and _REVISION.fullmatch(label):
        return label
    return parse_commit(told.case.stored_commit) or "origin/main"


def parse_commit(text: str) -> str:
    """Returns a commit without '+dirty' or the like; '' if it is unknown or git would not accept it."""
    commit = text.partition("+")[0]
    return "" if commit in _NOT_A_COMMIT or not _REVISION.fullmatch(commit) else commit


def format_pairs_command(told: Told, pairs: int = PAIRS) -> str:
    """Returns the command that measures `pairs` pairs of the case against `choose_base`, without a stored baseline."""
    number = [] if pairs == PAIRS else [f"--attnperf-pairs={pairs}"]
    return format_pytest_command(told.case.nodeid, f"--attnperf-against={quote_word(choose_base(told))}", *number)


def suggest_side_by_side(told: Told) -> NextStep:
    """Returns the step 'measure pairs with the base revision', which excludes machine, driver and day as causes."""
    return NextStep(
        "side by side with the base revision, which excludes machine, driver and day as causes:",
        format_pairs_command(told),
    )


def suggest_bisect(told: Told) -> NextStep:
    """Returns the step 'search the first slow commit' by attnperf bisect; GOOD and HEAD stand for unknown commits."""
    good = parse_commit(told.case.stored_commit) or "GOOD"
    bad = parse_commit(told.run.commit) or "HEAD"
    return NextStep(
        "find the commit that caused it:",
        f"attnperf bisect {quote_word(good)} {quote_word(bad)} {quote_word(told.case.nodeid)}",
    )


def suggest_accept(told: Told) -> tuple[NextStep, ...]:
    """Returns steps to accept an intended slowdown: measure ENOUGH processes unless done, then accept them."""
    case, key = told.case, quote_word(str(told.case.key))
    take = f'attnperf baselines accept {key} --results {quote_word(told.facts.source)} --reason "..."'
    if max(len(case.second), len(case.pairs)) >= ENOUGH:
        return (NextStep("if the change is wanted:", take),)
    measure = format_pytest_command(case.nodeid, f"--attnperf-second-look={ENOUGH}")
    return (
        NextStep("if the change is wanted, measure it in enough processes and accept it by name:", measure),
        NextStep("", take),
    )


def suggest_recording(nodeid: str, why: str) -> NextStep:
    """Returns the step to measure the case and store it as its baseline, with the reason `why`."""
    return NextStep(why, f"pytest --update-baselines {quote_word(nodeid)}")


def suggest_doctor() -> NextStep:
    """Returns the step to check the machine by `attnperf doctor`."""
    return NextStep("check the machine:", "attnperf doctor")


def suggest_history(key: CaseKey) -> NextStep:
    """Returns the step to look at earlier runs of the case by `attnperf history`."""
    return NextStep("look at earlier runs, if there is a history:", f"attnperf history {quote_word(str(key))}")


def suggest_quarantine() -> NextStep:
    """Returns the step to quarantine a known problem, with the link of an issue and a date, in the test's marker."""
    return NextStep(
        "if it is known and will be fixed later, name the issue and a date in the test's marker:",
        '@pytest.mark.attnperf(..., quarantine="https://...", until="YYYY-MM-DD")',
    )
