from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from pytest_attnperf.errors import UsageError
from pytest_attnperf.workers import revisions
from pytest_attnperf.workers.revisions import Repository, history

if TYPE_CHECKING:
    from tests.workers.conftest import GitRepository


def around(repository: GitRepository) -> Repository:
    """The repository as the product sees it."""
    found = Repository.around(repository.path)
    assert found is not None
    return found


def test_a_repository_is_found_from_a_folder_inside(repository: GitRepository, tmp_path: Path) -> None:
    """The nearest repository above a folder is found; a folder without one, or with an empty .git, has none."""
    repository.write(a__b__c_py="")
    (repository.path / "a" / ".git").mkdir()
    found = Repository.around(repository.path / "a" / "b")
    assert found == Repository(repository.path, repository.path / ".git")
    assert Repository.around(tmp_path) is None


def test_names_become_commits(repository: GitRepository) -> None:
    """Branches, tags, short ids and expressions name the commit that they name for git."""
    first = repository.commit("first")
    repository.git("tag", "-a", "v1", "-m", "one")
    second = repository.commit("second")
    asked = around(repository)
    names = ["v1", "HEAD~1", first[:8], "main", "HEAD", ":/first"]
    assert [asked.commit_of(name) for name in names] == [first, first, first, second, second, first]
    assert asked.knows("v1")
    assert not any(asked.knows(name) for name in ("v2", "-v1", "v1..main"))


def test_three_dots_are_the_merge_base(repository: GitRepository) -> None:
    """`A...B` is where A and B parted, and a missing side is HEAD."""
    base = repository.commit("base")
    repository.git("checkout", "--quiet", "-b", "topic")
    repository.commit("topic")
    repository.git("checkout", "--quiet", "main")
    repository.commit("main")
    asked = around(repository)
    assert [asked.commit_of(name) for name in ("main...topic", "topic...", "...topic")] == [base] * 3


def test_no_merge_base_is_an_error(repository: GitRepository) -> None:
    """Unrelated histories have none, and the error says so."""
    repository.commit("base")
    repository.git("checkout", "--quiet", "--orphan", "other")
    repository.commit("other")
    with pytest.raises(UsageError, match=r"'main\.\.\.' in .*: the two sides have no merge base$"):
        around(repository).commit_of("main...")


@pytest.mark.parametrize(
    ("revision", "message"),
    [
        ("orign/main", "no commit 'orign/main' in .*; close: origin/main; `git branch -a`"),
        ("release", "close: origin/release"),
        ("HEAD..main", r"A\.\.B is a range; A\.\.\.B, with three dots"),
        ("--all", "begins with '-'"),
        ("main...gone", "no commit 'gone'"),
    ],
)
def test_an_unknown_revision_is_named_with_what_is_close(
    repository: GitRepository, revision: str, message: str
) -> None:
    """The error names the revision, the repository, and names like it."""
    repository.commit()
    repository.git("branch", "release")
    with pytest.raises(UsageError, match=message):
        around(repository.clone()).commit_of(revision)


@pytest.mark.parametrize(
    ("revision", "fetch"),
    [
        ("origin/old", "git fetch --depth=1 origin old:refs/remotes/origin/old"),
        ("old", "git fetch --depth=1 origin old, then use --attnperf-against=FETCH_HEAD"),
        ("{first}", "git fetch --depth=1 origin {first}"),
        ("HEAD~1", "git fetch --unshallow origin"),
        ("origin/main...old", "git fetch --depth=1 origin old, then use --attnperf-against=FETCH_HEAD"),
    ],
)
def test_a_shallow_clone_is_told_what_to_fetch(repository: GitRepository, revision: str, fetch: str) -> None:
    """The line that the error prints, run as it stands, makes the revision known."""
    first = repository.commit("first")
    repository.git("branch", "old")
    repository.git("config", "uploadpack.allowAnySHA1InWant", "true")
    repository.commit("second")
    clone = repository.clone("--depth=1")
    revision = revision.format(first=first)
    with pytest.raises(UsageError, match="is a shallow clone; fetch it first: ") as caught:
        around(clone).commit_of(revision)
    printed = str(caught.value).partition("fetch it first: ")[2]
    assert printed == fetch.format(first=first)
    subprocess.run(printed.partition(",")[0], shell=True, cwd=clone.path, check=True, capture_output=True)
    wanted = "FETCH_HEAD" if "FETCH_HEAD" in printed else revision
    assert around(clone).commit_of(wanted) == first


def test_a_shallow_clone_without_merge_base_is_told_to_fetch_history(repository: GitRepository) -> None:
    """Both sides are known, but not where they parted."""
    base = repository.commit("base")
    repository.git("branch", "topic")
    repository.commit("main")
    repository.git("checkout", "--quiet", "topic")
    repository.commit("topic")
    clone = repository.clone("--depth=1", "--no-single-branch")
    with pytest.raises(UsageError, match="fetch the history first: git fetch --unshallow origin"):
        around(clone).commit_of("origin/main...origin/topic")
    clone.git("fetch", "--quiet", "--unshallow", "origin")
    assert around(clone).commit_of("origin/main...origin/topic") == base


def test_git_missing_is_said(repository: GitRepository, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Without git the error names the way that needs none."""
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(UsageError, match=r"git is not installed.*--attnperf-against=DIR"):
        around(repository).commit_of("main")


def test_git_that_hangs_is_ended(repository: GitRepository, monkeypatch: pytest.MonkeyPatch) -> None:
    """A git command has a limit."""
    monkeypatch.setattr(revisions, "GIT_LIMIT_SECONDS", -1.0)  # over before git can have answered
    with pytest.raises(UsageError, match=r"git rev-parse in .* took more than"):
        around(repository).commit_of("main")


def test_a_repository_of_another_owner_is_read(repository: GitRepository, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where plain git refuses for dubious ownership, a revision is found all the same."""
    commit = repository.commit(a_py="1\n")
    monkeypatch.setenv("GIT_TEST_ASSUME_DIFFERENT_OWNER", "1")
    refused = subprocess.run(["git", "-C", repository.path, "status"], capture_output=True, text=True, check=False)
    assert "dubious ownership" in refused.stderr
    assert around(repository).commit_of("main") == commit


def test_variables_of_a_git_hook_do_not_lead_astray(
    repository: GitRepository, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Inside a hook GIT_DIR and GIT_INDEX_FILE name another repository; they are not followed."""
    commit = repository.commit()
    monkeypatch.setenv("GIT_DIR", str(tmp_path / "other"))
    monkeypatch.setenv("GIT_INDEX_FILE", str(tmp_path / "other.index"))
    assert around(repository).commit_of("main") == commit


def test_a_broken_repository_is_quoted(repository: GitRepository) -> None:
    """What git says of a repository it cannot read is part of the error."""
    commit = repository.commit()
    (repository.path / ".git" / "HEAD").write_text("nonsense\n")
    with pytest.raises(UsageError, match=r"git said: .*not a git repository"):
        around(repository).commit_of(commit)
    with pytest.raises(UsageError, match=r"git ls-tree -r failed in .*; mend the repository, or copy the base tree"):
        around(repository).submodules(commit)


def test_the_state_of_a_folder(repository: GitRepository, tmp_path: Path) -> None:
    """Its commit, '+dirty' when a tracked file of it differs, nothing for a folder git does not have; the index, which
    git would refresh where a file was touched, stays as it is."""
    commit = repository.commit(a__x_py="1\n", b__x_py="1\n")
    repository.write(a__x_py="2\n", copy__x_py="1\n")
    top = repository.path
    os.utime(top / "b/x.py", (1, 1))
    before = repository.files()
    asked = around(repository)
    assert [asked.state_of(top / part) for part in ("a", "b", "copy", ".")] == [
        f"{commit}+dirty",
        commit,
        "",
        f"{commit}+dirty",
    ]
    assert repository.files() == before


class OwnRepository:
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
def repository(tmp_path: Path) -> OwnRepository:
    """Commits one, two, three; tag v1 at the first; a branch `side` from the first."""
    made = OwnRepository(tmp_path / "repository")
    made.commit("one")
    made.git("tag", "v1")
    made.commit("two")
    made.commit("three \x1b[31mred")
    made.git("branch", "side", "v1")
    return made


def test_commits_from_good_to_bad(repository: OwnRepository) -> None:
    """GOOD and the commits after it, oldest first, with short hash, author's date, parents and subject."""
    found = history("v1", "HEAD", repository.folder)
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


def test_from_a_subfolder(repository: OwnRepository) -> None:
    """A folder inside the work tree will do."""
    (repository.folder / "inside").mkdir()
    assert len(history("v1", "main", repository.folder / "inside").commits) == 3


def test_a_merged_branch_is_one_commit(repository: OwnRepository) -> None:
    """Only the first-parent line is followed: what a merge brings comes with the merge."""
    repository.git("checkout", "--quiet", "side")
    repository.commit("on side")
    repository.git("checkout", "--quiet", "main")
    repository.git("merge", "--quiet", "--no-ff", "-m", "merge side", "side")
    found = history("v1", "main", repository.folder)
    assert [commit.subject for commit in found.commits][3:] == ["merge side"]
    assert found.commits[3].is_merge
    assert not found.commits[2].is_merge


def test_good_on_a_merged_branch_is_told(repository: OwnRepository) -> None:
    """A GOOD beside the first-parent line is accepted, with a note of what that means for the oldest commit."""
    repository.git("checkout", "--quiet", "side")
    repository.commit("on side")
    repository.git("checkout", "--quiet", "main")
    repository.git("merge", "--quiet", "--no-ff", "-m", "merge side", "side")
    found = history("side", "main", repository.folder)
    assert [commit.subject for commit in found.commits][0::3] == ["on side", "merge side"]
    (note,) = found.notes
    assert note.startswith("side is not on the first-parent line of main: a slowdown of ")


def test_no_repository(tmp_path: Path) -> None:
    """A folder outside any repository is named, with what to do."""
    with pytest.raises(UsageError, match=re.escape(f"{tmp_path} is in no git repository: run attnperf bisect inside")):
        history("a", "b", tmp_path)


def test_no_git(repository: OwnRepository, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Without git the message says that it is needed."""
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(UsageError, match="no git is on PATH: install it"):
        history("v1", "main", repository.folder)


@pytest.mark.parametrize(
    ("revision", "message"),
    [("v11", "no commit 'v11' in"), ("mian", "close: main"), ("--all", "'--all' is no revision")],
)
def test_unknown_revision(repository: OwnRepository, revision: str, message: str) -> None:
    """A revision that does not exist is named, with close names where there are any."""
    with pytest.raises(UsageError, match=re.escape(message)):
        history(revision, "main", repository.folder)


def test_same_commit(repository: OwnRepository) -> None:
    """Two names of one commit leave nothing to search."""
    with pytest.raises(UsageError, match=r"GOOD 'main' and BAD 'HEAD' are the same commit [0-9a-f]{12}"):
        history("main", "HEAD", repository.folder)


def test_exchanged_ends(repository: OwnRepository) -> None:
    """A BAD that GOOD descends from is told apart from two branches."""
    with pytest.raises(UsageError, match="GOOD 'main' is no ancestor of BAD 'v1', but BAD is one of GOOD: exchange"):
        history("main", "v1", repository.folder)


def test_two_branches(repository: OwnRepository) -> None:
    """Ends on two branches are refused with the commit that both come from."""
    base = repository.git("rev-parse", "v1")
    repository.git("checkout", "--quiet", "side")
    repository.commit("on side")
    with pytest.raises(UsageError, match=f"GOOD 'side' is no ancestor of BAD 'main'; both come from {base[:12]}: use"):
        history("side", "main", repository.folder)


def test_no_common_commit(repository: OwnRepository) -> None:
    """Unrelated histories are called so."""
    repository.git("checkout", "--quiet", "--orphan", "other")
    repository.commit("alone")
    with pytest.raises(UsageError, match="is no ancestor of BAD 'other'; they have no commit in common"):
        history("main", "other", repository.folder)


def test_shallow_clone(repository: OwnRepository, tmp_path: Path) -> None:
    """In a shallow clone a missing revision comes with the command that fetches it."""
    repository.git("clone", "--quiet", "--depth=1", repository.folder.as_uri(), str(tmp_path / "clone"))
    with pytest.raises(UsageError, match=r"no commit 'v1' in .*shallow, and .* needs all commits: git fetch --unsh"):
        history("v1", "main", tmp_path / "clone")


def test_commit_fetched_into_a_shallow_clone(repository: OwnRepository, tmp_path: Path) -> None:
    """A GOOD that was fetched alone does not lead to BAD there, and the command that fetches the rest is named."""
    clone = tmp_path / "clone"
    repository.git("clone", "--quiet", "--depth=1", repository.folder.as_uri(), str(clone))
    repository.git("-C", str(clone), "fetch", "--quiet", "--depth=1", "origin", "tag", "v1")
    with pytest.raises(
        UsageError, match=r"GOOD 'v1' is no ancestor .*; this clone is shallow, .*git fetch --unshallow"
    ):
        history("v1", "main", clone)


def test_subject_that_is_no_utf8(repository: OwnRepository) -> None:
    """A subject in another encoding that does not say so can still be printed."""
    who = "a <a@example.org> 1795176000 +0000"
    parent, tree = repository.git("rev-parse", "HEAD", "HEAD^{tree}").split()
    head = f"tree {tree}\nparent {parent}\nauthor {who}\ncommitter {who}\n\n"
    command = ["git", "-C", str(repository.folder), "hash-object", "-t", "commit", "-w", "--stdin"]
    made = subprocess.run(command, input=head.encode() + b"na\xefve\n", capture_output=True, check=True).stdout
    found = history("v1", made.decode().strip(), repository.folder)
    assert found.commits[-1].subject.encode().startswith(b"na")


def test_broken_repository(repository: OwnRepository) -> None:
    """What git says of a commit that is missing is in the error."""
    two = repository.git("rev-parse", "main~1")
    (repository.folder / ".git" / "objects" / two[:2] / two[2:]).unlink()
    with pytest.raises(UsageError, match=r"git cannot walk the commits of .*; mend the repository"):
        history("v1", "main", repository.folder)


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to give a repository another owner")
def test_repository_of_another_owner(repository: OwnRepository) -> None:
    """A repository that git distrusts for its owner, as in a container, is read."""
    os.chown(repository.folder, 65534, 65534)
    os.chown(repository.folder / ".git", 65534, 65534)
    assert len(history("v1", "main", repository.folder).commits) == 3
