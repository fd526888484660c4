from __future__ import annotations

from pytest_attnperf.tools.ci.comments import Stamp
from pytest_attnperf.tools.ci.outcome import Conclusion, Mode, Outcome
from pytest_attnperf.tools.ci.statuses import DESCRIPTION_LIMIT, description, put_status
from tests.tools.ci.fake_github import HEAD, REPO, FakeGitHub

CONTEXT = "attnperf/gate"
PASSED = Conclusion(Outcome.PASSED, Mode.BLOCK)
FAILED = Conclusion(Outcome.FAILED, Mode.BLOCK)
UNMEASURED = Conclusion(Outcome.UNMEASURED, Mode.BLOCK)


def put(github: FakeGitHub, stamp: Stamp, conclusion: Conclusion, counted: str = "2 slower", **changes: bool) -> str:
    """As `attnperf comment --status` does it."""
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
    said = description(FAILED, "\x1b[31m@everyone\n" + "x" * 100_000, Stamp(HEAD, 12))
    assert len(said) <= DESCRIPTION_LIMIT
    assert said.endswith("... [run 12.1]")
    assert said.isprintable()


def test_dry_run_sets_nothing(github: FakeGitHub) -> None:
    """It says what it would set."""
    assert put(github, Stamp(HEAD, 1), PASSED, dry_run=True).startswith("would set the status attnperf/gate = success")
    assert github.written == []
