from __future__ import annotations

import pytest

from pytest_attnperf.errors import UsageError
from pytest_attnperf.tools.ci import pulls
from pytest_attnperf.tools.ci.github import GitHubError
from tests.tools.ci.fake_github import BASE, HEAD, NEWER, REPO, FakeGitHub


def test_pull_request_is_found_by_its_newest_commit(github: FakeGitHub) -> None:
    """On whatever page it stands; also of a fork."""
    for number in range(1, 5):
        github.pull(number, sha=NEWER)
    github.pull(5, repo="fork/kernels")
    found = pulls.by_head(github.client(), REPO, HEAD, "Fork/Kernels")
    assert found == pulls.Pull(5, True, HEAD, "fork/kernels", "main", "main")


def test_closed_and_moved_pull_requests_are_not_found(github: FakeGitHub) -> None:
    """A commit that was the newest one once is nobody's head."""
    github.pull(1, state="closed")
    github.pull(2, sha=NEWER)
    assert pulls.by_head(github.client(), REPO, HEAD) is None


def test_same_commit_in_somebody_s_fork_does_not_stand_in_the_way(github: FakeGitHub) -> None:
    """Whoever pushes a copy of the commit cannot take, or spoil, the comment."""
    github.pull(1, repo="evil/kernels")
    github.pull(2)
    found = pulls.by_head(github.client(), REPO, HEAD, REPO)
    assert found is not None
    assert found.number == 2


def test_two_that_fit_are_not_guessed_between(github: FakeGitHub) -> None:
    """Both are named, and what to do."""
    github.pull(1)
    github.pull(2)
    with pytest.raises(UsageError, match=r"heads? a{12}: #1 into main, #2 into main; name one by --pull N"):
        pulls.by_head(github.client(), REPO, HEAD, REPO)


def test_pull_request_of_a_deleted_fork_is_read(github: FakeGitHub) -> None:
    """GitHub then gives no repository."""
    github.pull(1)
    github.pulls[0]["head"]["repo"] = None
    assert pulls.by_number(github.client(), REPO, 1).head_repo == ""


def test_pull_request_that_is_not_there_is_an_error(github: FakeGitHub) -> None:
    """With GitHub's 404."""
    with pytest.raises(GitHubError, match=r"404 to GET .*pulls/3: Not Found"):
        pulls.by_number(github.client(), REPO, 3)


def test_branch_tip_is_a_full_commit(github: FakeGitHub) -> None:
    """A branch's name may hold slashes; what is no commit is refused."""
    github.tips = {"release/1": BASE, "odd": "HEAD"}
    assert pulls.branch_tip(github.client(), REPO, "release/1") == BASE
    with pytest.raises(UsageError, match="the tip of odd 'HEAD' is no full commit id"):
        pulls.branch_tip(github.client(), REPO, "odd")
