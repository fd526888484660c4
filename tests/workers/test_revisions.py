from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from pytest_attnperf.errors import UsageError
from pytest_attnperf.workers import revisions
from pytest_attnperf.workers.revisions import Repository

if TYPE_CHECKING:
    from tests.workers.conftest import GitRepository


def around(repository: GitRepository) -> Repository:
    """The repository as the product sees it."""
    found = Repository.find_around(repository.path)
    assert found is not None
    return found


def test_a_repository_is_found_from_a_folder_inside(repository: GitRepository, tmp_path: Path) -> None:
    """The nearest repository above a folder is found; a folder without one, or with an empty .git, has none."""
    repository.write(a__b__c_py="")
    (repository.path / "a" / ".git").mkdir()
    found = Repository.find_around(repository.path / "a" / "b")
    assert found == Repository(repository.path, repository.path / ".git")
    assert Repository.find_around(tmp_path) is None


def test_names_become_commits(repository: GitRepository) -> None:
    """Branches, tags, short ids and expressions name the commit that they name for git."""
    first = repository.commit("first")
    repository.git("tag", "-a", "v1", "-m", "one")
    second = repository.commit("second")
    asked = around(repository)
    names = ["v1", "HEAD~1", first[:8], "main", "HEAD", ":/first"]
    assert [asked.commit_of(name) for name in names] == [first, first, first, second, second, first]
    assert asked.has_commit("v1")
    assert not any(asked.has_commit(name) for name in ("v2", "-v1", "v1..main"))


def test_what_lies_between_two_names(repository: GitRepository) -> None:
    """Two names of one commit are the same; a later commit lies behind an earlier one, and never the other way round
    nor behind a name that is none."""
    first, last = repository.commit("first"), repository.commit("last")
    found = around(repository)
    assert found.is_same("HEAD", last)
    assert not any(found.is_same(*names) for names in ((first, "HEAD"), ("", ""), ("none", "none")))
    assert found.has_between(first, "HEAD")
    assert not any(found.has_between(*names) for names in (("HEAD", first), (first, first), ("none", "HEAD"), ("", "")))


def test_a_base_has_the_test_that_is_to_be_compared(repository: GitRepository) -> None:
    """The first revision that exists and has the file is taken, HEAD last; none for a test that was never committed. A
    file that is not in the tree, as where pytest started elsewhere, is not asked for."""
    first = repository.commit("first")
    test = repository.path / "test_new.py"
    found = around(repository)
    test.write_text("")
    assert found.choose_with_file([first, "none"], test) == ""
    repository.git("add", "test_new.py")
    last = repository.commit("last")
    assert [found.choose_with_file(names, test) for names in ([first, last], ["none"], [])] == [last, "HEAD", "HEAD"]
    assert found.choose_with_file(["none", first], repository.path / "gone.py") == first


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
    with pytest.raises(UsageError, match=r"git ls-tree -r failed in .*; repair the repository, or copy the base tree"):
        around(repository).list_submodules(commit)


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
