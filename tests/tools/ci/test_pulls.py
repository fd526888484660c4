from __future__ import annotations

import pytest

from pytest_attnperf.errors import UsageError
from pytest_attnperf.tools.ci import pulls
from pytest_attnperf.tools.ci.comments import Stamp
from pytest_attnperf.tools.ci.github import GitHubError
from pytest_attnperf.tools.ci.outcome import Conclusion, GateMode, GateOutcome
from pytest_attnperf.tools.ci.pulls import DESCRIPTION_LIMIT, format_description, put_status
from tests.tools.ci.fake_github import BASE, HEAD, NEWER, REPO, FakeGitHub

CONTEXT = "attnperf/gate"
PASSED = Conclusion(GateOutcome.PASSED, GateMode.BLOCK)
FAILED = Conclusion(GateOutcome.FAILED, GateMode.BLOCK)
UNMEASURED = Conclusion(GateOutcome.UNMEASURED, GateMode.BLOCK)


def test_pull_request_is_found_by_its_newest_commit(github: FakeGitHub) -> None:
    """On whatever page it stands; also of a fork."""
    for number in range(1, 5):
        github.pull(number, sha=NEWER)
    github.pull(5, repo="fork/kernels")
    found = pulls.find_open_pull(github.client(), REPO, HEAD, "Fork/Kernels")
    assert found == pulls.Pull(5, True, HEAD, "fork/kernels", "main", "main")


def test_closed_and_moved_pull_requests_are_not_found(github: FakeGitHub) -> None:
    """A commit that was the newest one once is nobody's head."""
    github.pull(1, state="closed")
    github.pull(2, sha=NEWER)
    assert pulls.find_open_pull(github.client(), REPO, HEAD) is None


def test_same_commit_in_somebody_s_fork_does_not_stand_in_the_way(github: FakeGitHub) -> None:
    """Whoever pushes a copy of the commit cannot take, or spoil, the comment."""
    github.pull(1, repo="evil/kernels")
    github.pull(2)
    found = pulls.find_open_pull(github.client(), REPO, HEAD, REPO)
    assert found is not None
    assert found.number == 2


def test_two_that_fit_are_not_guessed_between(github: FakeGitHub) -> None:
    """Both are named, and what to do."""
    github.pull(1)
    github.pull(2)
    with pytest.raises(UsageError, match=r"heads? a{12}: #1 into main, #2 into main; name one by --pull N"):
        pulls.find_open_pull(github.client(), REPO, HEAD, REPO)


def test_pull_request_of_a_deleted_fork_is_read(github: FakeGitHub) -> None:
    """GitHub then gives no repository."""
    github.pull(1)
    github.pulls[0]["head"]["repo"] = None
    assert pulls.fetch_pull(github.client(), REPO, 1).head_repo == ""


def test_pull_request_that_is_not_there_is_an_error(github: FakeGitHub) -> None:
    """With GitHub's 404."""
    with pytest.raises(GitHubError, match=r"404 to GET .*pulls/3: Not Found"):
        pulls.fetch_pull(github.client(), REPO, 3)


def test_branch_tip_is_a_full_commit(github: FakeGitHub) -> None:
    """A branch's name may hold slashes; what is no commit is refused."""
    github.tips = {"release/1": BASE, "odd": "HEAD"}
    assert pulls.fetch_branch_tip(github.client(), REPO, "release/1") == BASE
    with pytest.raises(UsageError, match="the tip of odd 'HEAD' is no full commit id"):
        pulls.fetch_branch_tip(github.client(), REPO, "odd")


def put(github: FakeGitHub, stamp: Stamp, conclusion: Conclusion, counted: str = "2 slower", **changes: bool) -> str:
    """As `attnperf report --comment --status` does it."""
    url = "https://github.com/octo/kernels/actions/runs/5"
    return put_status(github.client(), REPO, stamp, conclusion, counted, context=CONTEXT, url=url, **changes)


def test_status_is_set_on_the_measured_commit(github: FakeGitHub) -> None:
    """State, context, words, run, and where its log is."""
    assert put(github, Stamp(HEAD, 12), FAILED) == f"set the status attnperf/gate = failure on {HEAD[:12]}"
    assert github.statuses[HEAD] == [
        {
            "state": "failure",
            "context": "attnperf/gate",
            "description": "failed: 2 slower [run 12.1]",
            "target_url": "https://github.com/octo/kernels/actions/runs/5",
        }
    ]


def test_newer_run_sets_it_anew_and_an_older_one_does_not(github: FakeGitHub) -> None:
    """What stands is the newest run's."""
    put(github, Stamp(HEAD, 12), FAILED)
    put(github, Stamp(HEAD, 12, 2), PASSED)
    said = put(github, Stamp(HEAD, 11), FAILED)
    assert said == "left the status attnperf/gate as it is: it is of run 12.2, which is newer than 11.1"
    assert github.statuses[HEAD][0]["state"] == "success"


def test_run_without_results_does_not_undo_one_with(github: FakeGitHub) -> None:
    """It is set where there was none, and results replace it."""
    put(github, Stamp(HEAD, 1, measured=False), UNMEASURED)
    assert github.statuses[HEAD][0]["description"] == "nothing was measured: 2 slower [run 1.1, not measured]"
    put(github, Stamp(HEAD, 2), FAILED)
    assert "measured nothing" in put(github, Stamp(HEAD, 3, measured=False), UNMEASURED)
    assert github.statuses[HEAD][0]["state"] == "failure"


def test_other_checks_of_the_commit_are_none_of_ours(github: FakeGitHub) -> None:
    """Nor is one of ours in words that we do not write."""
    github.statuses[HEAD] = [{"context": "other", "description": "x [run 99.1]"}] * 3
    github.statuses[HEAD] += [{"context": CONTEXT, "description": None}]
    assert put(github, Stamp(HEAD, 1), PASSED).startswith("set the status")


def test_description_is_short_and_one_line() -> None:
    """GitHub takes 140 characters; the run stands in them whatever the counts say."""
    said = format_description(FAILED, "\x1b[31m@everyone\n" + "x" * 100_000, Stamp(HEAD, 12))
    assert len(said) <= DESCRIPTION_LIMIT
    assert said.endswith("... [run 12.1]")
    assert said.isprintable()


def test_dry_run_sets_nothing(github: FakeGitHub) -> None:
    """It says what it would set."""
    assert put(github, Stamp(HEAD, 1), PASSED, dry_run=True).startswith("would set the status attnperf/gate = success")
    assert github.written == []
