"""What a results file must be of, where the judge knows it: the commit under review, and a base side of its base.

Both are the file's word, as its samples are. What is found here is a file of another commit that was handed in again,
and a measuring job that was told to compare with something else.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from pytest_attnperf.errors import UsageError
from pytest_attnperf.records.notes import Note, NoteKind
from pytest_attnperf.results import RunResult

OTHER_BASE = "measured against another base:"
SHOWN_CHARACTERS = 80

_FULL = re.compile(r"[0-9a-f]{40}(?:[0-9a-f]{24})?")
_ABBREVIATED = re.compile(r"[0-9a-f]{12,64}")
_LABEL = re.compile(r".*\((?P<commit>[0-9a-f]{7,64})\)", re.DOTALL)


def require_full(commits: Sequence[str]) -> None:
    """Raises UsageError for what is no full commit id: a name, or a short one, may be another commit later."""
    for commit in commits:
        if not _FULL.fullmatch(commit):
            raise UsageError(
                f"--commit {commit[:SHOWN_CHARACTERS]!r} is no full commit id of 40 hexadecimal digits; "
                "`git rev-parse HEAD` prints one"
            )


def other_commit(run: RunResult, commits: Sequence[str]) -> list[str]:
    """A finding where the run is of none of these commits; any will do where none is given.

    A run without git history, or of a tree with changes, is of none: nobody knows what it measured.
    """
    if not commits or (_ABBREVIATED.fullmatch(run.commit) and any(full.startswith(run.commit) for full in commits)):
        return []
    known = " or ".join(full[:12] for full in commits)
    said = f"of another commit: the results say {run.commit[:SHOWN_CHARACTERS]!r}, to be judged is {known}"
    return [Note(NoteKind.OTHER_COMMIT, said)]


def other_base(run: RunResult, base_has: Callable[[str], bool] | None) -> list[str]:
    """A finding for each base side of interleaved cases that is no commit of the base's history.

    base_has   whether a commit is in that history; None where the base is no revision
    """
    if base_has is None:
        return []
    found = []
    for label in dict.fromkeys(case.against for case in run.cases if case.pairs):
        named = _LABEL.fullmatch(label)
        if named is None or not base_has(named["commit"]):
            found.append(f"{OTHER_BASE} {label[:SHOWN_CHARACTERS]!r} is no commit in the history of the base, "
                         "or this clone does not reach so far back")  # fmt: skip
    return found
