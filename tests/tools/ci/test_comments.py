from __future__ import annotations

import pytest

from pytest_attnperf.tools.ci import comments
from pytest_attnperf.tools.ci.comments import Stamp
from pytest_attnperf.tools.ci.github import GitHubError
from tests.tools.ci.fake_github import BOT, HEAD, NEWER, REPO, FakeGitHub, Scripted

MARKER = "<!-- pytest-attnperf: attnperf -->"


def put(github: FakeGitHub, stamp: Stamp, text: str = "report", **changes: bool) -> str:
    """As `attnperf report --comment` does it."""
    body = f"{MARKER}\n{stamp.format_line()}\n\n{text}"
    return comments.put_comment(github.client(), REPO, 7, body, marker=MARKER, author=BOT, stamp=stamp, **changes)


def bodies(github: FakeGitHub) -> list[str]:
    """Of all comments, the last line."""
    return [comment["body"].rpartition("\n")[2] for comment in github.comments.get(7, [])]


def test_first_run_posts_and_the_second_updates(github: FakeGitHub) -> None:
    """Two runs are one comment."""
    assert put(github, Stamp(HEAD, 1), "first") == "posted comment 100 on #7"
    assert put(github, Stamp(NEWER, 2), "second") == "updated comment 100 on #7"
    assert bodies(github) == ["second"]


def test_other_comments_stay_and_ours_is_found_behind_them(github: FakeGitHub) -> None:
    """On a later page, between people's."""
    for number in range(3):
        github.comment(f"person {number}", login="person")
    put(github, Stamp(HEAD, 1), "first")
    github.comment("later", login="person")
    put(github, Stamp(HEAD, 2), "second")
    assert bodies(github) == ["person 0", "person 1", "person 2", "second", "later"]


@pytest.mark.parametrize("login", ["mallory", "github-actions", "github-actions[bot]x"])
def test_planted_marker_is_ignored(github: FakeGitHub, login: str) -> None:
    """A comment that begins as ours does, and is somebody else's, is neither updated nor believed."""
    planted = f"{MARKER}\n{Stamp(HEAD, 10**9).format_line()}\n\nall is well"
    github.comment(planted, login=login)
    assert put(github, Stamp(HEAD, 1)) == "posted comment 101 on #7"
    assert github.comments[7][0]["body"] == planted


def test_our_marker_inside_another_comment_of_the_bot_is_ignored(github: FakeGitHub) -> None:
    """Other workflows write as the same bot and may quote anything; only a first line counts."""
    github.comment(f"quoted:\n{MARKER}", login=BOT)
    assert put(github, Stamp(HEAD, 1)) == "posted comment 101 on #7"


def test_comment_of_another_name_is_another_comment(github: FakeGitHub) -> None:
    """Two gates do not write over each other."""
    github.comment("<!-- pytest-attnperf: other -->\nx", login=BOT)
    assert put(github, Stamp(HEAD, 1)) == "posted comment 101 on #7"


@pytest.mark.parametrize("newer", [Stamp(NEWER, 5), Stamp(HEAD, 4, 2)])
def test_older_run_never_replaces_a_newer_one(github: FakeGitHub, newer: Stamp) -> None:
    """Not a slow run of an older commit, and not the first attempt of a run that was repeated."""
    put(github, newer, "newer")
    said = put(github, Stamp(HEAD, 4, 1), "older")
    assert said == f"left #7 as it is: the comment is of run {newer.run}.{newer.attempt}, which is newer than 4.1"
    assert bodies(github) == ["newer"]


def test_run_without_results_does_not_replace_results_of_its_commit(github: FakeGitHub) -> None:
    """It does replace those of an older commit, and is itself replaced by results."""
    put(github, Stamp(HEAD, 1), "results")
    assert "this run measured nothing" in put(github, Stamp(HEAD, 2, measured=False), "nothing")
    put(github, Stamp(NEWER, 3, measured=False), "nothing of the newer")
    assert bodies(github) == ["nothing of the newer"]
    put(github, Stamp(NEWER, 4), "results of the newer")
    assert bodies(github) == ["results of the newer"]


@pytest.mark.parametrize(
    "line",
    ["", "<!-- attnperf-run: {} -->", '<!-- attnperf-run: {"sha": "x", "run": "y"} -->', "<!-- attnperf-run: [ -->"],
)
def test_comment_with_an_unreadable_stamp_is_updated(github: FakeGitHub, line: str) -> None:
    """It is ours all the same."""
    github.comment(f"{MARKER}\r\n{line}\r\nold", login=BOT)
    assert put(github, Stamp(HEAD, 1)) == "updated comment 100 on #7"


def test_stamp_is_read_as_written() -> None:
    """With everything in it."""
    stamp = Stamp(HEAD, 12, 3, measured=False)
    assert comments.parse_stamp(stamp.format_line()) == stamp


def test_lost_answer_does_not_make_a_second_comment(github: FakeGitHub) -> None:
    """After a 502 that posted all the same, the comment is found and updated."""
    github.script.append(Scripted("POST", "comments", 502, done_anyway=True))
    assert put(github, Stamp(HEAD, 1)) == "updated comment 100 on #7"
    assert len(github.comments[7]) == 1


def test_post_that_was_not_done_is_posted_again(github: FakeGitHub) -> None:
    """After a 502 that did nothing."""
    github.script.append(Scripted("POST", "comments", 502, times=2))
    assert put(github, Stamp(HEAD, 1)) == "posted comment 100 on #7"


def test_comment_that_was_deleted_meanwhile_is_posted_anew(github: FakeGitHub) -> None:
    """Between listing and updating."""
    put(github, Stamp(HEAD, 1))
    github.comments[7].clear()
    gone = {"id": 55, "body": f"{MARKER}\n", "user": {"login": BOT}}
    github.script.append(Scripted("GET", "issues/7/comments", 200, [gone]))
    assert put(github, Stamp(HEAD, 2)).startswith("posted comment")


@pytest.mark.parametrize("status", [403, 404, 422])
def test_refusal_to_post_is_an_error(github: FakeGitHub, status: int) -> None:
    """Once, with GitHub's words."""
    github.script.append(Scripted("POST", "comments", status, {"message": "refused here"}, times=9))
    with pytest.raises(GitHubError, match=f"answered {status} .*refused here"):
        put(github, Stamp(HEAD, 1))
    assert len(github.written) == 1


def test_dry_run_writes_nothing(github: FakeGitHub) -> None:
    """It says what it would have done."""
    assert put(github, Stamp(HEAD, 1), dry_run=True) == "would post a comment on #7"
    put(github, Stamp(HEAD, 1))
    assert put(github, Stamp(HEAD, 2), dry_run=True) == "would update comment 100 on #7"
    assert len(github.written) == 1


def test_token_s_own_account_is_asked_for(github: FakeGitHub) -> None:
    """A person's token may ask, a workflow's may not and is the bot's; any other refusal is one."""
    assert comments.fetch_login(github.client()) == BOT
    github.user = "me"
    assert comments.fetch_login(github.client()) == "me"
    github.script.append(Scripted("GET", "user", 401, {"message": "Bad credentials"}))
    with pytest.raises(GitHubError, match="Bad credentials"):
        comments.fetch_login(github.client())


def test_short_body_is_left_as_it_is() -> None:
    """And so is one of exactly what GitHub takes."""
    body = "x" * comments.BODY_LIMIT
    assert comments.cut_body(body) == body


@pytest.mark.parametrize("opened", ["<details><summary>s</summary>\n\n", "```\n", "<details>\n<details>\n```\n", ""])
def test_long_body_is_cut_at_a_line_and_closed(opened: str) -> None:
    """What was open at the cut is closed, and the cut is said."""
    body = comments.cut_body(opened + "| a row |\n" * 20_000)
    assert len(body) <= comments.BODY_LIMIT
    assert body.count("<details") == body.count("</details>")
    assert body.count("```") % 2 == 0
    assert body.endswith("*Cut here: the rest is in the report of the run.*\n")
    assert {line for line in body.splitlines() if line.startswith("|")} == {"| a row |"}
