"""The commits between two revisions, from git."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path

from pytest_attnperf.errors import UsageError
from pytest_attnperf.workers.revisions import Repository

SEPARATOR = "\x1f"
FORMAT = "%x1f".join(("%H", "%h", "%as", "%P", "%s"))


@dataclass(frozen=True)
class Commit:
    """One commit; `author_date` is 2026-11-20."""

    sha: str
    short: str
    author_date: str
    parents: tuple[str, ...]
    subject: str

    @property
    def is_merge(self) -> bool:
        """Whether it has more than one parent."""
        return len(self.parents) > 1


@dataclass(frozen=True)
class History:
    """GOOD, and behind it the commits up to BAD in the order they came; `notes` are for the user."""

    commits: tuple[Commit, ...]
    notes: tuple[str, ...] = ()


def history(good: str, bad: str, folder: Path) -> History:
    """The first-parent line from GOOD to BAD: a merged branch is one commit.

    Raises UsageError where there is no git, no repository or no such revision, where the two are the same commit, or
    where GOOD does not lead to BAD.
    """
    if shutil.which("git") is None:
        raise UsageError("attnperf bisect reads commits with git, and no git is on PATH: install it")
    repository = Repository.around(folder)
    if repository is None:
        raise UsageError(
            f"{folder} is in no git repository: run attnperf bisect inside the one whose commits are to be searched"
        )
    first, last = _resolved(good, repository), _resolved(bad, repository)
    if first == last:
        raise UsageError(f"GOOD {good!r} and BAD {bad!r} are the same commit {first[:12]}: nothing lies between them")
    _check_ancestor(good, bad, first, last, repository)
    start = _commits(repository, "--max-count=1", first)
    line = _commits(repository, "--first-parent", "--reverse", f"{first}..{last}")
    notes: tuple[str, ...] = ()
    if line[0].parents[:1] != (first,):
        notes = (
            f"{good} is not on the first-parent line of {bad}: a slowdown of {line[0].short} may have come with any "
            "commit that leads to it and not to GOOD",
        )
    return History((*start, *line), notes)


def _resolved(revision: str, repository: Repository) -> str:
    """The full hash of a revision. A shallow clone may know it and still lack what lies between: it needs all."""
    if repository.is_shallow() and not repository.knows(revision):
        raise UsageError(f"no commit {revision!r} in {repository.top}{_if_shallow(repository)}")
    return repository.commit_of(revision)


def _check_ancestor(good: str, bad: str, first: str, last: str, repository: Repository) -> None:
    if _leads_to(first, last, repository):
        return
    text = f"GOOD {good!r} is no ancestor of BAD {bad!r}"
    if _leads_to(last, first, repository):
        raise UsageError(f"{text}, but BAD is one of GOOD: exchange them")
    base = repository.run("merge-base", first, last).stdout.strip()
    advice = f"; both come from {base[:12]}: use that as GOOD" if base else "; they have no commit in common"
    raise UsageError(f"{text}{advice}{_if_shallow(repository)}")


def _leads_to(first: str, last: str, repository: Repository) -> bool:
    answer = repository.run("merge-base", "--is-ancestor", first, last)
    # A commit that cannot be read is an error only on stderr: git goes on as if it had no parents, and answers 1.
    if answer.returncode not in (0, 1) or "error:" in answer.stderr:
        raise UsageError(_failed(repository, answer.stderr))
    return answer.returncode == 0


def _failed(repository: Repository, said: str) -> str:
    return f"git cannot walk the commits of {repository.top}: {said.strip()}; mend the repository"


def _if_shallow(repository: Repository) -> str:
    """What to type where commits are missing; empty where all are there."""
    if not repository.is_shallow():
        return ""
    return "; this clone is shallow, and a bisection needs all commits: git fetch --unshallow --tags"


def _commits(repository: Repository, *arguments: str) -> tuple[Commit, ...]:
    answer = repository.run("-c", "i18n.logOutputEncoding=UTF-8", "rev-list", f"--format={FORMAT}", *arguments)
    if answer.returncode:
        raise UsageError(_failed(repository, answer.stderr))
    lines = [line for line in answer.stdout.split("\n") if SEPARATOR in line]
    return tuple(_commit(*line.split(SEPARATOR, 4)) for line in lines)


def _commit(sha: str, short: str, author_date: str, parents: str, subject: str) -> Commit:
    """Bytes of a subject that are no UTF-8 are replaced: it will be printed."""
    return Commit(sha, short, author_date, tuple(parents.split()), subject.encode(errors="replace").decode())
