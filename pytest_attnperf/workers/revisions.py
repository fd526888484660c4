"""Reads a git repository: revisions for a base side, and the commits between two revisions.

The repository's working tree and index are not changed.
"""

from __future__ import annotations

import difflib
import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from pytest_attnperf.errors import UsageError

GIT_LIMIT_SECONDS = 900.0
"""Limit of one git command: a partial clone downloads the files of an old revision at check-out."""

NAME_SECONDS = 20.0

DROPPED_VARIABLES = (
    "GIT_DIR",
    "GIT_WORK_TREE",
    "GIT_INDEX_FILE",
    "GIT_COMMON_DIR",
    "GIT_PREFIX",
    "GIT_NAMESPACE",
    "GIT_OBJECT_DIRECTORY",
    "GIT_ALTERNATE_OBJECT_DIRECTORIES",
)
"""Variables that git sets in a hook; they name the hook's repository."""

SETTINGS = (
    "core.hooksPath=/dev/null",  # post-index-change would run, also for a separate index
    "core.fsmonitor=false",
    "core.splitIndex=false",  # would write a shared index file into the repository
    "submodule.recurse=false",
)

USE_A_COPY = "copy the base tree somewhere and use --attnperf-against=DIR"
CLOSE_NAMES = 3
_PLAIN_NAME = re.compile(r"[\w./+-]+")
_SHA = re.compile(r"[0-9a-f]{7,64}")
_WHOLE_SHA = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")


@dataclass(frozen=True)
class Repository:
    """A git repository with a working tree: `top` is the tree, `git_dir` its `.git`, which may be a file.

    git gets the paths of the repository and does not check its owner: in a container that runs as root, the files
    belong to another user, and git would refuse ("dubious ownership"). pytest has already run this tree's conftest, so
    this trusts nothing new.
    """

    top: Path
    git_dir: Path

    @classmethod
    def find_around(cls, folder: Path) -> Repository | None:
        """Returns the repository whose working tree contains `folder`; None if there is none."""
        folder = folder.resolve()
        for top in (folder, *folder.parents):
            git_dir = top / ".git"
            if git_dir.is_file() or os.path.lexists(git_dir / "HEAD"):
                return cls(top, git_dir)
        return None

    def commit_of(self, revision: str) -> str:
        """Returns the full commit id of a revision, or of the merge base for `A...` and `A...B` (empty means HEAD).

        Raises UsageError that says what to fetch in a shallow clone, else which names are similar.
        """
        if "..." not in revision:
            return self._commit_of_one(revision)
        left, _, right = revision.partition("...")
        sides = [self._commit_of_one(side or "HEAD") for side in (left, right)]
        answer = self.run("merge-base", *sides)
        if answer.returncode == 0:
            return answer.stdout.splitlines()[0]
        text = f"{revision!r} in {self.top}: the two sides have no merge base"
        if self.is_shallow():
            text += f" in this shallow clone; fetch the history first: git fetch --unshallow {self._choose_remote()}"
        raise UsageError(text)

    def has_commit(self, revision: str) -> bool:
        """Returns whether git finds a commit by this name; False for a range such as `A..B`."""
        return self._look_up(revision)[0] != ""

    def choose_with_file(self, names: Iterable[str], file: Path) -> str:
        """Returns the first of the revisions, HEAD last, that exists and has this file of the working tree, so that its
        tests can be compared; '' if none does. A file that the tree does not have itself is not asked for."""
        path = file.resolve()
        known = path.is_file() and path.is_relative_to(self.top)
        tail = f":{path.relative_to(self.top).as_posix()}" if known else "^{commit}"
        return next((name for name in (*names, "HEAD") if self.has_commit(name) and self._has_object(name + tail)), "")

    def _has_object(self, name: str) -> bool:
        return self.run("rev-parse", "--verify", "--quiet", name).returncode == 0

    def has_between(self, first: str, last: str) -> bool:
        """Returns whether both commits exist, and the last comes after the first."""
        if not (self.has_commit(first) and self.has_commit(last)) or self.is_same(first, last):
            return False
        return self.run("merge-base", "--is-ancestor", first, last).returncode == 0

    def is_same(self, one: str, other: str) -> bool:
        """Returns whether both names are of one commit that exists."""
        commit = self._look_up(one)[0]
        return commit != "" and commit == self._look_up(other)[0]

    def is_shallow(self) -> bool:
        """Returns whether the repository is a shallow clone."""
        return self.run("rev-parse", "--is-shallow-repository").stdout.strip() == "true"

    def common_dir(self) -> Path:
        """Returns the folder that all worktrees of the repository share. Raises UsageError if git fails."""
        return (self.top / self._run_checked("rev-parse", "--git-common-dir").strip()).resolve()

    def state_of(self, folder: Path) -> str:
        """Returns the commit that HEAD names, with '+dirty' if tracked files of `folder` differ from it; '' if HEAD has
        no such folder."""
        part = folder.resolve().relative_to(self.top).as_posix()
        if not self._has_object(f"HEAD:{'' if part == '.' else part}"):
            return ""
        commit = self._run_checked("rev-parse", "HEAD").strip()
        changed = self.run("status", "--porcelain", "--untracked-files=no", "--ignore-submodules", "--", part)
        return commit + ("+dirty" if changed.stdout.strip() else "")

    def list_uncommitted(self, besides: Path) -> list[str]:
        """Returns the tracked files that differ from HEAD, relative to the repository's top; those in the folder
        `besides` are left out. Raises UsageError if git fails."""
        folder = besides.resolve()
        kept = [f":(exclude,literal){folder.relative_to(self.top)}"] if folder.is_relative_to(self.top) else []
        return _split_names(self._run_checked("diff", "--name-only", "--no-renames", "-z", "HEAD", "--", ".", *kept))

    def list_untracked(self, folder: Path) -> list[str]:
        """Returns the files in `folder` that git would add but does not have, relative to it; ignored ones are left
        out. Raises UsageError if git fails."""
        options = ("--others", "--exclude-standard", "-z", "--full-name")
        part = folder.resolve().relative_to(self.top)
        listed = _split_names(self._run_checked("ls-files", *options, "--", f":(literal){part.as_posix()}"))
        return [Path(name).relative_to(part).as_posix() for name in listed]

    def list_submodules(self, commit: str) -> list[str]:
        """Returns the paths of a commit's submodules, relative to the repository's top."""
        listed = self._run_checked("ls-tree", "-r", "-z", "--full-tree", commit).split("\0")
        return [line.partition("\t")[2] for line in listed if line.startswith("160000 ")]

    def check_out(self, commit: str, folder: Path, index: Path) -> None:
        """Writes every file of a commit into the new folder, and git's index of these files to `index`.

        `git archive` is not used, because it leaves out files marked as export-ignore. Raises UsageError if git fails.
        """
        folder.mkdir(parents=True)
        self._run_checked("read-tree", commit, index=index, work_tree=folder)
        self._run_checked("checkout-index", "--all", "--force", "--index", "--quiet", index=index, work_tree=folder)

    def list_changed_files(self, folder: Path, index: Path) -> list[str]:
        """Returns the files under `folder` that changed since `check_out` wrote them and `index`, relative to it."""
        options = ("--name-only", "-z", "--ignore-submodules")
        return _split_names(self._run_checked("diff-files", *options, index=index, work_tree=folder))

    def run(
        self, *args: str, index: Path | None = None, work_tree: Path | None = None
    ) -> subprocess.CompletedProcess[str]:
        """Runs a git command on this repository, without hooks, and returns its exit status and output, also if it
        fails. Raises UsageError if git is missing or exceeds GIT_LIMIT_SECONDS."""
        tree = work_tree or self.top
        settings = [word for setting in (*SETTINGS, f"safe.directory={self.top}") for word in ("-c", setting)]
        try:
            return subprocess.run(
                [_find_git(), *settings, f"--git-dir={self.git_dir}", f"--work-tree={tree}", *args],
                cwd=tree,
                env=_git_environment(index),
                stdin=subprocess.DEVNULL,
                capture_output=True,
                encoding="utf-8",
                errors="surrogateescape",
                timeout=GIT_LIMIT_SECONDS,
                check=False,
            )
        except subprocess.TimeoutExpired:
            raise UsageError(
                f"git {args[0]} in {self.top} took more than {GIT_LIMIT_SECONDS:.0f} s; run it by hand, or {USE_A_COPY}"
            ) from None

    def _run_checked(self, *args: str, index: Path | None = None, work_tree: Path | None = None) -> str:
        answer = self.run(*args, index=index, work_tree=work_tree)
        if answer.returncode != 0:
            raise UsageError(
                f"git {' '.join(args[:2])} failed in {self.top}: {answer.stderr.strip() or 'no message'}; "
                f"repair the repository, or {USE_A_COPY}"
            )
        return answer.stdout

    def _commit_of_one(self, revision: str) -> str:
        if revision.startswith("-") or "\n" in revision:
            raise UsageError(
                f"{revision!r} is not a revision: it begins with '-' or contains a line break; name a commit or branch"
            )
        commit, said = self._look_up(revision)
        if not commit:
            raise UsageError(self._describe_unknown(revision, said))
        return commit

    def _look_up(self, revision: str) -> tuple[str, str]:
        """Returns (full commit id, ''), or ('', git's message) if there is none. Two steps, because `:/text^{commit}`
        would search the suffix, too."""
        if revision.startswith(("-", "^")) or "\n" in revision or ".." in revision:
            return "", ""
        found = self.run("rev-parse", "--verify", revision)
        if found.returncode == 0:
            found = self.run("rev-parse", "--verify", f"{found.stdout.strip()}^{{commit}}")
        return (found.stdout.strip(), "") if found.returncode == 0 else ("", found.stderr.strip())

    def _describe_unknown(self, revision: str, said: str) -> str:
        text = f"no commit {revision!r} in {self.top}"
        if "ambiguous" in said or "corrupt" in said or "not a git repository" in said:
            return f"{text}; git said: {said}"
        if self.is_shallow():
            return f"{text}, which is a shallow clone; fetch it first: {self._how_to_fetch(revision)}"
        if ".." in revision:
            return f"{text}: A..B is a range; A...B, with three dots, is the merge base of the two"
        close = self._close_names(revision)
        known = f"; close: {', '.join(close)}" if close else ""
        return f"{text}{known}; `git branch -a` and `git tag` list what exists, `git fetch` brings what is newer"

    def _how_to_fetch(self, revision: str) -> str:
        remote, _, branch = revision.partition("/")
        if branch and remote in self.run("remote").stdout.split() and _PLAIN_NAME.fullmatch(branch):
            return f"git fetch --depth=1 {remote} {branch}:refs/remotes/{revision}"
        if _WHOLE_SHA.fullmatch(revision):
            return f"git fetch --depth=1 {self._choose_remote()} {revision}"
        if _SHA.fullmatch(revision) or not _PLAIN_NAME.fullmatch(revision) or revision.startswith("HEAD"):
            return f"git fetch --unshallow {self._choose_remote()}"
        fetch = f"git fetch --depth=1 {self._choose_remote()} {shlex.quote(revision)}"
        return f"{fetch}, then use --attnperf-against=FETCH_HEAD"

    def _choose_remote(self) -> str:
        remotes = self.run("remote").stdout.split()
        return "origin" if "origin" in remotes or not remotes else remotes[0]

    def _close_names(self, revision: str) -> list[str]:
        listed = self.run("for-each-ref", "--format=%(refname:short)", "refs/heads", "refs/remotes", "refs/tags")
        names = listed.stdout.split()
        same_end = [name for name in names if name.endswith(f"/{revision}")]
        similar = difflib.get_close_matches(revision, names, n=CLOSE_NAMES)
        return list(dict.fromkeys([*same_end, *similar]))[:CLOSE_NAMES]


def read_user_name(run: Callable[..., subprocess.CompletedProcess[str]] = subprocess.run) -> str:
    """Returns git's user.name, '' if it is not set or git is missing. Tests replace `run`."""
    command = ["git", "config", "user.name"]
    try:
        answer = run(command, capture_output=True, text=True, errors="replace", timeout=NAME_SECONDS, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return answer.stdout.strip() if answer.returncode == 0 else ""


def _split_names(listed: str) -> list[str]:
    return [name for name in listed.split("\0") if name]


def _find_git() -> str:
    found = shutil.which("git")
    if found is None:
        raise UsageError(f"git is not installed, so a revision cannot be read; {USE_A_COPY}")
    return found


def _git_environment(index: Path | None) -> dict[str, str]:
    kept = {key: value for key, value in os.environ.items() if key not in DROPPED_VARIABLES}
    # No lock is taken on the user's index to refresh it, nobody is asked for a password, and messages can be read.
    kept |= {"GIT_OPTIONAL_LOCKS": "0", "GIT_TERMINAL_PROMPT": "0", "LC_ALL": "C"}
    return kept if index is None else kept | {"GIT_INDEX_FILE": str(index)}


SEPARATOR = "\x1f"
FORMAT = "%x1f".join(("%H", "%h", "%as", "%P", "%s"))


@dataclass(frozen=True)
class Commit:
    """One commit; `author_date` is written as 2026-11-20."""

    sha: str
    short: str
    author_date: str
    parents: tuple[str, ...]
    subject: str

    @property
    def is_merge(self) -> bool:
        """Whether the commit has more than one parent."""
        return len(self.parents) > 1


@dataclass(frozen=True)
class History:
    """The commits from GOOD to BAD, oldest first; `notes` are for the user."""

    commits: tuple[Commit, ...]
    notes: tuple[str, ...] = ()


def read_history(good: str, bad: str, folder: Path) -> History:
    """Returns GOOD and the commits after it up to BAD along first parents, so that a merged branch is one commit.

    Raises UsageError if git, the repository or a revision is missing, if both are the same commit, or if GOOD is not an
    ancestor of BAD.
    """
    if shutil.which("git") is None:
        raise UsageError("attnperf bisect needs git, which is not on PATH: install it")
    repository = Repository.find_around(folder)
    if repository is None:
        raise UsageError(
            f"{folder} is not in a git repository: run attnperf bisect in the repository whose commits it must search"
        )
    first, last = _resolve_commit(good, repository), _resolve_commit(bad, repository)
    if first == last:
        raise UsageError(f"GOOD {good!r} and BAD {bad!r} are the same commit {first[:12]}; give an older GOOD")
    _check_ancestor(good, bad, first, last, repository)
    start = _list_commits(repository, "--max-count=1", first)
    line = _list_commits(repository, "--first-parent", "--reverse", f"{first}..{last}")
    notes: tuple[str, ...] = ()
    if line[0].parents[:1] != (first,):
        notes = (
            f"{good} is not on the first-parent line of {bad}: a slowdown at {line[0].short} may come from any "
            "ancestor of it that GOOD does not have",
        )
    return History((*start, *line), notes)


def _resolve_commit(revision: str, repository: Repository) -> str:
    """Returns the full commit id of a revision. Raises UsageError if there is none; in a shallow clone it says to fetch
    all commits, because a bisection needs them."""
    if repository.is_shallow() and not repository.has_commit(revision):
        raise UsageError(f"no commit {revision!r} in {repository.top}{_advice_if_shallow(repository)}")
    return repository.commit_of(revision)


def _check_ancestor(good: str, bad: str, first: str, last: str, repository: Repository) -> None:
    if _is_ancestor(first, last, repository):
        return
    text = f"GOOD {good!r} is not an ancestor of BAD {bad!r}"
    if _is_ancestor(last, first, repository):
        raise UsageError(f"{text}, but BAD is an ancestor of GOOD: swap them")
    base = repository.run("merge-base", first, last).stdout.strip()
    advice = f"; both come from {base[:12]}: use that as GOOD" if base else "; they have no commit in common"
    raise UsageError(f"{text}{advice}{_advice_if_shallow(repository)}")


def _is_ancestor(first: str, last: str, repository: Repository) -> bool:
    answer = repository.run("merge-base", "--is-ancestor", first, last)
    # For an unreadable commit git prints an error, but goes on as if it had no parents, and returns 1.
    if answer.returncode not in (0, 1) or "error:" in answer.stderr:
        raise UsageError(_describe_failure(repository, answer.stderr))
    return answer.returncode == 0


def _describe_failure(repository: Repository, said: str) -> str:
    return f"git cannot walk the commits of {repository.top}: {said.strip()}; repair the repository"


def _advice_if_shallow(repository: Repository) -> str:
    """Returns the end of an error that says how to fetch the missing commits of a shallow clone; '' if it is none."""
    if not repository.is_shallow():
        return ""
    return "; this clone is shallow, and a bisection needs all commits: git fetch --unshallow --tags"


def _list_commits(repository: Repository, *arguments: str) -> tuple[Commit, ...]:
    answer = repository.run("-c", "i18n.logOutputEncoding=UTF-8", "rev-list", f"--format={FORMAT}", *arguments)
    if answer.returncode:
        raise UsageError(_describe_failure(repository, answer.stderr))
    lines = [line for line in answer.stdout.split("\n") if SEPARATOR in line]
    return tuple(_make_commit(*line.split(SEPARATOR, 4)) for line in lines)


def _make_commit(sha: str, short: str, author_date: str, parents: str, subject: str) -> Commit:
    """Makes a commit from git's fields; bytes of the subject that are not UTF-8 become '?', for printing."""
    return Commit(sha, short, author_date, tuple(parents.split()), subject.encode(errors="replace").decode())
