"""Commands of the Markdown report, each in a fenced block that GitHub offers to copy: repeat, explain, accept.

A reader of a comment has a checkout, but not the results file of the run. So its commands first fetch that file, where
its place is known; else they measure the case again, and work with what that writes.
"""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass

from pytest_attnperf.errors import UsageError
from pytest_attnperf.records import Verdict
from pytest_attnperf.reports.explain import steps
from pytest_attnperf.reports.files.markdown_details import (
    NAME_LIMIT,
    MarkdownSection,
    count_bytes,
    is_open,
    sort_code_worst_first,
    sort_shown_worst_first,
)
from pytest_attnperf.reports.files.markdown_text import LINE_LIMIT, format_code, format_code_block, make_visible
from pytest_attnperf.reports.run.joined import Joined
from pytest_attnperf.reports.text.commands import can_be_offered
from pytest_attnperf.reports.text.figures import one_line
from pytest_attnperf.results import CaseResult

COMMANDS = 10
COMMANDS_BYTES = 3_000
EXPLAINED = 5
"""Most cases whose commands to explain and accept them are shown."""

FOLDER = ".attnperf/run-{run}"
"""Where a run's results are fetched to. Git ignores `.attnperf/`."""

_RUN = re.compile(r"https://(?P<host>[\w.-]+)/(?P<repo>[\w.-]+/[\w.-]+)/actions/runs/(?P<run>\d{1,20})(?:/.*)?")
_ARTIFACT = re.compile(r"[A-Za-z0-9][\w.-]{0,99}", re.ASCII)


@dataclass(frozen=True)
class FetchedResults:
    """Where a reader elsewhere has the results once `fetch` was typed, and that command."""

    fetch: str
    path: str


def locate_results(run_url: str, artifact: str) -> FetchedResults | None:
    """Returns how to fetch the artifact of a run of GitHub Actions with GitHub's own command `gh`; None for an address
    that is none. Raises UsageError for a name that no artifact of ours has."""
    if not _ARTIFACT.fullmatch(artifact):
        raise UsageError(
            f"the artifact's name is {one_line(artifact)!r}; it may have 100 letters, digits, '.', '_' and '-', the "
            "first of them a letter or digit"
        )
    found = _RUN.fullmatch(run_url)
    if found is None:
        return None
    host = "" if found["host"] == "github.com" else f"{found['host']}/"
    folder = FOLDER.format(run=found["run"])
    fetch = f"gh run download {found['run']} --repo {host}{found['repo']} --name {artifact} --dir {folder}"
    return FetchedResults(fetch, f"{folder}/results.json")


def reproduce_section(joined: Joined) -> MarkdownSection | None:
    """Returns a block of commands that repeat the worst cases, or else the runs; None if none is safe to paste."""
    wanted = sort_shown_worst_first(one for one in joined.cases if is_open(one.case))
    commands = [one.case.reproduce for one in wanted if one.case.reproduce]
    commands += [result.reproduce for result in sort_code_worst_first(joined.code) if result.fails and result.reproduce]
    commands = list(dict.fromkeys(commands or [run.command for run in joined.runs if run.command]))
    shown: list[str] = []
    for command in commands[:COMMANDS]:
        if not _is_whole(command) or not can_be_offered(command):
            continue
        if sum(map(count_bytes, shown)) + count_bytes(command) <= COMMANDS_BYTES:
            shown.append(command)
    if not shown:
        return None
    title = f"how to reproduce{f' the worst {len(shown)} of {len(commands)}' if len(shown) < len(commands) else ''}"
    return MarkdownSection(title, (), [format_code_block(shown, "sh")], 1)


def explain_section(joined: Joined, fetched: FetchedResults | None) -> MarkdownSection | None:
    """Returns the commands that explain the worst cases, and those that accept a slowdown, in a block each; None if
    none is safe to paste. `fetched` is where the reader gets the results from; None if that is not known."""
    wanted = sort_shown_worst_first(one for one in joined.cases if is_open(one.case) and _is_typeable(one.case))
    if not wanted:
        return None
    head = () if fetched is None else ("Results of this run:", "", format_code_block([fetched.fetch], "sh"), "")
    shown = wanted[:EXPLAINED]
    title = f"how to explain or accept{f' the worst {len(shown)} of {len(wanted)}' if len(shown) < len(wanted) else ''}"
    return MarkdownSection(title, head, (_format_blocks(one.case, fetched) for one in shown), len(shown), unit="case")


def _format_blocks(case: CaseResult, fetched: FetchedResults | None) -> str:
    """Returns the block that explains a case, then the one that stores its new time, if that is to be offered."""
    if fetched is not None:
        explain = [steps.format_explain_command(case, fetched.path)]
    else:
        explain = [steps.format_pytest_command(case), steps.format_explain_command(case)]
    text = _format_block(f"Why {format_code(str(case.key), NAME_LIMIT)} is {case.verdict.value}:", explain)
    why, accept = _list_accepting(case, fetched)
    return f"{text}\n{_format_block(why, accept)}" if accept else text


def _list_accepting(case: CaseResult, fetched: FetchedResults | None) -> tuple[str, list[str]]:
    """Returns when to type them, and the commands that store the case's new time or its first one; ('', []) if neither
    is to be done, or the baseline is in a folder that only the run's machine has."""
    if case.verdict is Verdict.NO_BASELINE:
        return "On the same device, to store its time:", [steps.format_recording_command(case)]
    folder = steps.choose_baselines(case)
    if case.verdict is not Verdict.SLOWER or not case.stored_us or folder == steps.LOCAL:
        return "", []
    if fetched is not None and steps.is_enough_to_accept(case):
        return "If the change is wanted:", [steps.format_accept_command(case, fetched.path, folder)]
    measure = steps.format_measuring_command(case)
    return "If the change is wanted, on the same device:", [measure, steps.format_accept_command(case, "", folder)]


def _format_block(why: str, commands: list[str]) -> str:
    return f"{why}\n\n{format_code_block(commands, 'sh')}\n"


def _is_typeable(case: CaseResult) -> bool:
    """Returns whether key and node id can be arguments: shown as they are, no options, and inert in a shell."""
    names = (str(case.key), case.nodeid)
    commands = [steps.format_explain_command(case), steps.format_measuring_command(case)]
    inert = all(can_be_offered(f"pytest {shlex.quote(name)}") for name in names)
    shown = all(name and not name.startswith("-") and _is_whole(name) for name in names)
    return inert and shown and all(map(_is_whole, commands)) and can_be_offered(commands[1])


def _is_whole(command: str) -> bool:
    """Returns whether a command or a word of it is shown as it is. A shortened one would do something else."""
    return len(command) <= LINE_LIMIT and make_visible(command, LINE_LIMIT) == command
