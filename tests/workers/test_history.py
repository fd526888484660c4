from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest

from pytest_attnperf.errors import UsageError
from pytest_attnperf.workers.revisions import read_history


class Repository:
    """A temporary git repository; commits are named by their subject."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir()
        self.git("init", "--quiet", "--initial-branch=main")

    def git(self, *arguments: str) -> str:
        """Run git here; what it prints."""
        identity = {
            "GIT_CONFIG_GLOBAL": os.devnull,
            "GIT_CONFIG_SYSTEM": os.devnull,
            "GIT_AUTHOR_NAME": "a",
            "GIT_AUTHOR_EMAIL": "a@example.org",
            "GIT_COMMITTER_NAME": "a",
            "GIT_COMMITTER_EMAIL": "a@example.org",
            "GIT_AUTHOR_DATE": "2026-11-20T12:00:00+0000",
        }
        command = ["git", "-C", str(self.folder), *arguments]
        ran = subprocess.run(command, env={**os.environ, **identity}, capture_output=True, text=True, check=True)
        return ran.stdout.strip()

    def commit(self, subject: str) -> str:
        """Make a commit without a change; its hash."""
        self.git("commit", "--quiet", "--allow-empty", "-m", subject)
        return self.git("rev-parse", "HEAD")


@pytest.fixture
def repository(tmp_path: Path) -> Repository:
    """Commits one, two, three; tag v1 at the first; a branch `side` from the first."""
    made = Repository(tmp_path / "repository")
    made.commit("one")
    made.git("tag", "v1")
    made.commit("two")
    made.commit("three \x1b[31mred")
    made.git("branch", "side", "v1")
    return made


def test_commits_from_good_to_bad(repository: Repository) -> None:
    """GOOD and the commits after it, oldest first, with short hash, author's date, parents and subject."""
    found = read_history("v1", "HEAD", repository.folder)
    assert [commit.subject for commit in found.commits] == ["one", "two", "three \x1b[31mred"]
    assert found.commits[-1].sha == repository.git("rev-parse", "HEAD")
    assert found.commits[-1].sha.startswith(found.commits[-1].short)
    assert found.commits[0].author_date == "2026-11-20"
    assert [commit.parents for commit in found.commits] == [
        (),
        (found.commits[0].sha,),
        (found.commits[1].sha,),
    ]
    assert found.notes == ()


def test_from_a_subfolder(repository: Repository) -> None:
    """A folder inside the work tree will do."""
    (repository.folder / "inside").mkdir()
    assert len(read_history("v1", "main", repository.folder / "inside").commits) == 3


def test_a_merged_branch_is_one_commit(repository: Repository) -> None:
    """Only the first-parent line is followed: what a merge brings comes with the merge."""
    repository.git("checkout", "--quiet", "side")
    repository.commit("on side")
    repository.git("checkout", "--quiet", "main")
    repository.git("merge", "--quiet", "--no-ff", "-m", "merge side", "side")
    found = read_history("v1", "main", repository.folder)
    assert [commit.subject for commit in found.commits][3:] == ["merge side"]
    assert found.commits[3].is_merge
    assert not found.commits[2].is_merge


def test_good_on_a_merged_branch_is_told(repository: Repository) -> None:
    """A GOOD beside the first-parent line is accepted, with a note of what that means for the oldest commit."""
    repository.git("checkout", "--quiet", "side")
    repository.commit("on side")
    repository.git("checkout", "--quiet", "main")
    repository.git("merge", "--quiet", "--no-ff", "-m", "merge side", "side")
    found = read_history("side", "main", repository.folder)
    assert [commit.subject for commit in found.commits][0::3] == ["on side", "merge side"]
    (note,) = found.notes
    assert note.startswith("side is not on the first-parent line of main: a slowdown at ")


def test_no_repository(tmp_path: Path) -> None:
    """A folder outside any repository is named, with what to do."""
    with pytest.raises(UsageError, match=re.escape(f"{tmp_path} is not in a git repository: run attnperf")):
        read_history("a", "b", tmp_path)


def test_no_git(repository: Repository, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Without git the message says that it is needed."""
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(UsageError, match="git, which is not on PATH: install it"):
        read_history("v1", "main", repository.folder)


@pytest.mark.parametrize(
    ("revision", "message"),
    [("v11", "no commit 'v11' in"), ("mian", "close: main"), ("--all", "'--all' is not a revision")],
)
def test_unknown_revision(repository: Repository, revision: str, message: str) -> None:
    """A revision that does not exist is named, with close names where there are any."""
    with pytest.raises(UsageError, match=re.escape(message)):
        read_history(revision, "main", repository.folder)


def test_same_commit(repository: Repository) -> None:
    """Two names of one commit leave nothing to search."""
    with pytest.raises(UsageError, match=r"GOOD 'main' and BAD 'HEAD' are the same commit [0-9a-f]{12}"):
        read_history("main", "HEAD", repository.folder)


def test_exchanged_ends(repository: Repository) -> None:
    """A BAD that GOOD descends from is told apart from two branches."""
    with pytest.raises(UsageError, match="not an ancestor of BAD 'v1', but BAD is an ancestor of GOOD: swap"):
        read_history("main", "v1", repository.folder)


def test_two_branches(repository: Repository) -> None:
    """Ends on two branches are refused with the commit that both come from."""
    base = repository.git("rev-parse", "v1")
    repository.git("checkout", "--quiet", "side")
    repository.commit("on side")
    with pytest.raises(UsageError, match=f"'side' is not an ancestor of BAD 'main'; both come from {base[:12]}: use"):
        read_history("side", "main", repository.folder)


def test_no_common_commit(repository: Repository) -> None:
    """Unrelated histories are called so."""
    repository.git("checkout", "--quiet", "--orphan", "other")
    repository.commit("alone")
    with pytest.raises(UsageError, match="is not an ancestor of BAD 'other'; they have no commit in common"):
        read_history("main", "other", repository.folder)


def test_shallow_clone(repository: Repository, tmp_path: Path) -> None:
    """In a shallow clone a missing revision comes with the command that fetches it."""
    repository.git("clone", "--quiet", "--depth=1", repository.folder.as_uri(), str(tmp_path / "clone"))
    with pytest.raises(UsageError, match=r"no commit 'v1' in .*shallow, and .* needs all commits: git fetch --unsh"):
        read_history("v1", "main", tmp_path / "clone")


def test_commit_fetched_into_a_shallow_clone(repository: Repository, tmp_path: Path) -> None:
    """A GOOD that was fetched alone does not lead to BAD there, and the command that fetches the rest is named."""
    clone = tmp_path / "clone"
    repository.git("clone", "--quiet", "--depth=1", repository.folder.as_uri(), str(clone))
    repository.git("-C", str(clone), "fetch", "--quiet", "--depth=1", "origin", "tag", "v1")
    with pytest.raises(
        UsageError, match=r"GOOD 'v1' is not an ancestor .*; this clone is shallow, .*git fetch --unshallow"
    ):
        read_history("v1", "main", clone)


def test_subject_that_is_no_utf8(repository: Repository) -> None:
    """A subject in another encoding that does not say so can still be printed."""
    who = "a <a@example.org> 1795176000 +0000"
    parent, tree = repository.git("rev-parse", "HEAD", "HEAD^{tree}").split()
    head = f"tree {tree}\nparent {parent}\nauthor {who}\ncommitter {who}\n\n"
    command = ["git", "-C", str(repository.folder), "hash-object", "-t", "commit", "-w", "--stdin"]
    made = subprocess.run(command, input=head.encode() + b"na\xefve\n", capture_output=True, check=True).stdout
    found = read_history("v1", made.decode().strip(), repository.folder)
    assert found.commits[-1].subject.encode().startswith(b"na")


def test_broken_repository(repository: Repository) -> None:
    """What git says of a commit that is missing is in the error."""
    two = repository.git("rev-parse", "main~1")
    (repository.folder / ".git" / "objects" / two[:2] / two[2:]).unlink()
    with pytest.raises(UsageError, match=r"git cannot walk the commits of .*; repair the repository"):
        read_history("v1", "main", repository.folder)


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to give a repository another owner")
def test_repository_of_another_owner(repository: Repository) -> None:
    """A repository that git distrusts for its owner, as in a container, is read."""
    os.chown(repository.folder, 65534, 65534)
    os.chown(repository.folder / ".git", 65534, 65534)
    assert len(read_history("v1", "main", repository.folder).commits) == 3
