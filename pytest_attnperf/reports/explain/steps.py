"""Commands at the end of an explanation. Everything that comes from a file is quoted for a shell."""

from __future__ import annotations

import re
import shlex

from pytest_attnperf.records.code import CodeResult
from pytest_attnperf.records.notes import NoteKind, filter_notes
from pytest_attnperf.reports.explain.facts import NextStep, Told
from pytest_attnperf.reports.text.commands import format_repeat_command, split_command
from pytest_attnperf.reports.text.figures import one_line
from pytest_attnperf.results import CaseResult

PAIRS = 8
"""Pairs of an interleaved look by default."""

ENOUGH = 7
"""Processes or pairs that `attnperf baselines accept` needs."""

DOCTOR = "attnperf doctor"
TEXT_LIMIT = 2000
LOCAL = ".attnperf/local"
BASELINES_OPTION = "--attnperf-baselines="
_REVISION = re.compile(r"[0-9A-Za-z][0-9A-Za-z_./-]*")
_NEVER_STORED = ("--attnperf-workload", "--attnperf-model")
_SELECTS = (*_NEVER_STORED, "--attnperf-arch", "--attnperf-baselines", "--attnperf-code-set", "--attnperf-device")
_NOT_A_COMMIT = frozenset({"", "unknown"})


def choose_baselines(case: CaseResult) -> str:
    """Returns the folder of the baseline that the case was compared with, as its notes or its command name it; '' for
    the usual one."""
    if filter_notes(case.notes, NoteKind.LOCAL, NoteKind.LOCAL_NEW):
        return LOCAL
    words = split_command(case.reproduce)
    return next((word.removeprefix(BASELINES_OPTION) for word in words if word.startswith(BASELINES_OPTION)), "")


def quote_word(text: str) -> str:
    """Returns the text quoted as one word for a shell, without control characters and cut."""
    return shlex.quote(one_line(text, TEXT_LIMIT))


def suggest_repeat(case: CaseResult | CodeResult) -> NextStep:
    """Returns the step 'measure it again', with the case's own stored command, or one made from its node id."""
    command = format_repeat_command(case.reproduce, case.nodeid) or _format_command(case, "--attnperf")
    return NextStep("measure it again as it was:", command)


def format_pytest_command(case: CaseResult, *options: str) -> str:
    """Returns `pytest --attnperf OPTIONS NODEID`, the command that measures this case alone."""
    return _format_command(case, "--attnperf", *options)


def format_proof_command(case: CaseResult) -> str:
    """Returns `pytest NODEID`, the command that proves this case alone and times nothing."""
    return _format_command(case)


def format_recording_command(case: CaseResult | CodeResult, *options: str) -> str:
    """Returns `pytest --update-baselines OPTIONS NODEID`, the command that stores this case; '' for a workload of the
    command line, which is never stored."""
    replaced = any(word.startswith(_NEVER_STORED) for word in _list_kept_options(case))
    return "" if replaced else _format_command(case, "--update-baselines", *options)


def _format_command(case: CaseResult | CodeResult, *options: str) -> str:
    return " ".join(["pytest", *options, *_list_kept_options(case), quote_word(case.nodeid)])


def _list_kept_options(case: CaseResult | CodeResult) -> list[str]:
    """Returns the options of the case's run without which its node id selects nothing, or another folder is used."""
    words = split_command(format_repeat_command(case.reproduce, case.nodeid))
    return [quote_word(word) for word in words if word.startswith(_SELECTS)]


def list_bases(told: Told) -> list[str]:
    """Returns the revisions that a case may be compared with, if they exist: the base side's, then its baseline's."""
    against = told.case.against or told.run.against
    label = against.partition(" ")[0]
    return [name for name in (label, parse_commit(told.case.stored_commit)) if name and _REVISION.fullmatch(name)]


def parse_commit(text: str) -> str:
    """Returns a commit without '+dirty' or the like; '' if it is unknown or git would not accept it."""
    commit = text.partition("+")[0]
    return "" if commit in _NOT_A_COMMIT or not _REVISION.fullmatch(commit) else commit


def format_pairs_command(told: Told, pairs: int = PAIRS) -> tuple[str, ...]:
    """Returns the command that measures `pairs` pairs of the case against the base revision, without a stored baseline;
    () where no revision to compare with is known here."""
    base = told.facts.here.base
    number = [] if pairs == PAIRS else [f"--attnperf-pairs={pairs}"]
    option = f"--attnperf-against={quote_word(base)}"
    return (format_pytest_command(told.case, option, *number),) if base else ()


def name_base(told: Told) -> str:
    """Returns the base revision as a text names it, or how a copy of the tree is named where there is none."""
    return told.facts.here.base or "a copy of the tree as it was (--attnperf-against=DIR)"


def suggest_side_by_side(told: Told) -> NextStep:
    """Returns the step 'measure pairs with the base revision', which excludes machine, driver and day as causes.
    Without a revision here it says what to compare with instead."""
    if not told.facts.here.base:
        return NextStep(
            "side by side with a copy of the tree as it was, which excludes machine, driver and day as causes: add "
            "--attnperf-against=DIR (no revision to compare with is known here)"
        )
    what = "the last commit" if told.facts.here.base == "HEAD" else "the base revision"
    return NextStep(
        f"side by side with {what}, which excludes machine, driver and day as causes:", *format_pairs_command(told)
    )


def suggest_bisect(told: Told) -> NextStep:
    """Returns the step 'search the first slow commit' by attnperf bisect where both ends are commits of this history.
    Else it says what is known of the cause: uncommitted changes, the machine, or that a fast commit must be named."""
    here = told.facts.here
    if here.good and here.bad:
        but = " (your uncommitted changes are in none)" if here.dirty else ""
        words = " ".join(map(quote_word, (here.good, here.bad, told.case.nodeid)))
        return NextStep(f"find the commit that caused it{but}:", f"attnperf bisect {words}")
    if here.dirty and here.same_commit:
        return NextStep(
            "the baseline is of the last commit, so no commit caused it: look at your uncommitted changes:", "git diff"
        )
    if here.same_commit:
        return NextStep("the baseline is of the same commit, so no commit caused it; check the machine:", DOCTOR)
    why = "was measured with code that no commit has" if here.untraced else "names none of this history"
    return NextStep(f"to search the commit that caused it, name one that was fast: the baseline {why}")


def suggest_accept(told: Told) -> tuple[NextStep, ...]:
    """Returns steps to accept an intended slowdown: measure ENOUGH processes unless done, then accept them. Where
    nothing is stored, nothing is to be accepted: the step stores the new time."""
    if not told.case.stored_us:
        return (suggest_recording(told.case, "if the change is wanted, store its time:"),)
    case, here = told.case, told.facts.here
    enough = is_enough_to_accept(case)
    author = "" if here.author else ' --author "..."'
    take = format_accept_command(case, told.facts.source if enough else "", here.baselines, author)
    if enough:
        return (NextStep("if the change is wanted:", take),)
    measure = format_measuring_command(case)
    return (
        NextStep("if the change is wanted, measure it in enough processes and accept it by name:", measure),
        NextStep("", take),
    )


def is_enough_to_accept(case: CaseResult) -> bool:
    """Returns whether the case was measured in as many processes or pairs as `attnperf baselines accept` needs."""
    return max(len(case.second), len(case.pairs)) >= ENOUGH


def format_measuring_command(case: CaseResult) -> str:
    """Returns the command that measures this case alone in as many processes as an acceptance needs."""
    return format_pytest_command(case, f"--attnperf-second-look={ENOUGH}")


def format_accept_command(case: CaseResult, results: str = "", baselines: str = "", author: str = "") -> str:
    """Returns the command that accepts the case's new time; '' for `results` and `baselines` leaves the usual ones.
    `author` is text behind them, such as ' --author "..."'."""
    source = f" --results {quote_word(results)}" if results else ""
    folder = f" --baselines {quote_word(baselines)}" if baselines else ""
    return f'attnperf baselines accept {quote_word(str(case.key))}{source}{folder}{author} --reason "..."'


def format_explain_command(case: CaseResult, results: str = "") -> str:
    """Returns the command that explains the case; '' for `results` leaves the usual file."""
    source = f" --results {quote_word(results)}" if results else ""
    return f"attnperf explain {quote_word(str(case.key))}{source}"


def suggest_recording(case: CaseResult, why: str) -> NextStep:
    """Returns the step to measure the case and store it as its baseline, with the reason `why`. A workload of the
    command line must be in the suite's list first."""
    command = format_recording_command(case)
    return NextStep(why if command else "to store a time of this workload, add it to the suite's list first", command)


def suggest_doctor() -> NextStep:
    """Returns the step to check the machine by `attnperf doctor`."""
    return NextStep("check the machine:", DOCTOR)


def suggest_history(told: Told) -> NextStep:
    """Returns the step to look at earlier runs of the case by `attnperf history`, or how runs are kept from now on."""
    if not told.facts.here.history:
        return NextStep("to see a case over time, keep its runs: add --attnperf-history=.attnperf/history.sqlite")
    return NextStep("look at earlier runs:", f"attnperf history {quote_word(str(told.case.key))}")


def suggest_quarantine() -> NextStep:
    """Returns the step to quarantine a known problem, with the link of an issue and a date, in the test's marker."""
    return NextStep(
        "if it is known and will be fixed later, name the issue and a date in the test's marker:",
        '@pytest.mark.attnperf(..., quarantine="https://...", until="YYYY-MM-DD")',
    )
