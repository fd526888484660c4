from __future__ import annotations

import time
import traceback

import pytest

from pytest_attnperf.errors import UsageError
from pytest_attnperf.tools.ci.github import GitHub, GitHubError, make_client, parse_full_sha, parse_repository
from tests.tools.ci.fake_github import REPO, TOKEN, FakeGitHub, Scripted

COMMENTS = f"repos/{REPO}/issues/7/comments"


def test_every_page_of_a_listing_is_read(github: FakeGitHub) -> None:
    """Five items on three pages are five items, in order."""
    for number in range(5):
        github.comment(f"comment {number}")
    assert [found["body"] for found in github.client().list_items(COMMENTS)] == [f"comment {n}" for n in range(5)]


def test_next_page_at_another_host_is_refused(github: FakeGitHub) -> None:
    """The token would go there, too."""
    link = {"Link": '<https://evil.example/page>; rel="next"'}
    github.script.append(Scripted("GET", "comments", 200, [], link))
    with pytest.raises(GitHubError, match=r"another host: https://evil\.example"):
        list(github.client().list_items(COMMENTS))


def test_token_is_in_the_header_of_every_request(github: FakeGitHub) -> None:
    """GitHub knows who asks."""
    github.user = "me"
    assert github.client().get("user") == {"login": "me"}
    assert github.seen[0].headers["Authorization"] == f"Bearer {TOKEN}"


@pytest.mark.parametrize("status", [500, 502, 503, 504])
def test_passing_failure_is_tried_again(github: FakeGitHub, status: int) -> None:
    """Two failures of the server's own are waited out, longer each time."""
    github.script.append(Scripted("GET", "comments", status, times=2))
    assert list(github.client().list_items(COMMENTS)) == []
    assert github.slept == [2.0, 4.0]


def test_lasting_failure_is_given_up(github: FakeGitHub) -> None:
    """After four attempts, with the status and the request."""
    github.script.append(Scripted("GET", "comments", 503, {"message": "no server"}, times=9))
    with pytest.raises(GitHubError, match=f"answered 503 to GET .*{REPO}/issues/7/comments: no server"):
        list(github.client().list_items(COMMENTS))
    assert len(github.seen) == 4


@pytest.mark.parametrize(
    ("status", "headers", "body", "waited"),
    [
        (403, {"Retry-After": "7"}, {"message": "You have exceeded a secondary rate limit"}, 7.0),
        (429, {"Retry-After": "3"}, None, 3.0),
        (403, {}, {"message": "You have exceeded a secondary rate limit"}, 60.0),
    ],
)
def test_rate_limit_is_waited_for(
    github: FakeGitHub, status: int, headers: dict[str, str], body: object, waited: float
) -> None:
    """As long as GitHub asks for, and a minute where it names no time; also for what must not be done twice."""
    github.script.append(Scripted("POST", "comments", status, body, headers))
    github.client().send("POST", COMMENTS, {"body": "x"}, again=False)
    assert github.slept == [waited]
    assert len(github.comments[7]) == 1


def test_primary_limit_is_waited_for_until_its_reset(github: FakeGitHub) -> None:
    """The reset is a time of day, in seconds."""
    headers = {"X-RateLimit-Remaining": "0", "X-RateLimit-Reset": str(int(time.time()) + 30)}
    github.script.append(Scripted("GET", "comments", 403, {"message": "API rate limit exceeded"}, headers))
    list(github.client().list_items(COMMENTS))
    assert 25 < github.slept[0] <= 31


def test_long_limit_is_an_error_that_says_so(github: FakeGitHub) -> None:
    """A job does not sleep for an hour."""
    github.script.append(Scripted("GET", "comments", 403, {"message": "limit"}, {"Retry-After": "3600"}))
    with pytest.raises(GitHubError, match=r"403 .*limit; a rate limit was reached: run this again later"):
        list(github.client().list_items(COMMENTS))
    assert github.slept == []


@pytest.mark.parametrize(
    ("status", "body", "expected"),
    [
        (401, {"message": "Bad credentials"}, "Bad credentials; the token is wrong or has expired"),
        (403, {"message": "Resource not accessible"}, "the job needs `permissions:` of pull-requests: write"),
        (404, {"message": "Not Found"}, "Not Found; it does not exist, or this token may not see it"),
        (
            422,
            {"message": "Validation Failed", "errors": [{"field": "body", "code": "too_long"}, "odd"]},
            "422 .*: Validation Failed; body too_long$",
        ),
        (400, b"\x1b[31mnot json\n", r"400 .*:  \[31mnot json"),
        (400, ["no object"], "400 .*without a message"),
    ],
)
def test_refusal_is_named_and_not_repeated(github: FakeGitHub, status: int, body: object, expected: str) -> None:
    """GitHub's words and what to do about them, on one line without escapes."""
    github.script.append(Scripted("POST", "comments", status, body, times=9))
    with pytest.raises(GitHubError, match=expected) as caught:
        github.client().send("POST", COMMENTS, {"body": "x"})
    assert (caught.value.status, len(github.seen)) == (status, 1)


def test_post_is_not_repeated_when_it_may_have_been_done(github: FakeGitHub) -> None:
    """A comment whose answer got lost would be there twice."""
    github.script.append(Scripted("POST", "comments", 502, done_anyway=True))
    with pytest.raises(GitHubError, match="502") as caught:
        github.client().send("POST", COMMENTS, {"body": "x"}, again=False)
    assert caught.value.is_uncertain
    assert len(github.comments[7]) == 1


def test_download_follows_without_the_token(github: FakeGitHub) -> None:
    """The storage behind a redirect gets the address, and no token."""
    github.archives[5] = b"bytes"
    assert github.client().download(f"repos/{REPO}/actions/artifacts/5/zip", 100) == b"bytes"
    first, second = github.seen
    assert "Authorization" in first.headers
    assert second.path == "/blob/5"
    assert "Authorization" not in second.headers


def test_download_to_plain_http_elsewhere_is_refused(github: FakeGitHub) -> None:
    """A result that anybody on the way may change is worth nothing."""
    github.script.append(Scripted("GET", "zip", 302, None, {"Location": "http://storage.example/x?sig=secret"}))
    with pytest.raises(UsageError, match=r"'http://storage\.example/x'; give an https address"):
        github.client().download(f"repos/{REPO}/actions/artifacts/5/zip", 100)


def test_download_beyond_its_limit_is_refused(github: FakeGitHub) -> None:
    """No more than the limit is ever read."""
    github.archives[5] = b"x" * 101
    with pytest.raises(GitHubError, match="longer than 100 bytes"):
        github.client().download(f"repos/{REPO}/actions/artifacts/5/zip", 100)


def test_download_that_leads_in_circles_ends(github: FakeGitHub) -> None:
    """The third redirect is refused."""
    github.script.append(Scripted("GET", "zip|blob", 302, None, {"Location": f"{github.url}/blob/5"}, times=99))
    with pytest.raises(GitHubError, match="redirects more than 2 times; check GITHUB_API_URL"):
        github.client().download(f"repos/{REPO}/actions/artifacts/5/zip", 100)


def test_no_answer_is_an_error_without_a_traceback_of_the_request() -> None:
    """The host and the reason are named, after all attempts."""
    slept: list[float] = []
    client = GitHub(TOKEN, "http://127.0.0.1:9", sleep=slept.append, timeout_s=5)
    with pytest.raises(GitHubError, match=r"no answer to GET http://127\.0\.0\.1:9/user: ") as caught:
        client.get("user")
    assert len(slept) == 3
    assert TOKEN not in "".join(traceback.format_exception(caught.value))


def test_token_is_never_in_an_error_nor_in_the_client_s_text(github: FakeGitHub) -> None:
    """Not even where GitHub's own answer holds it."""
    github.script.append(Scripted("GET", "user", 400, {"message": f"you sent {TOKEN}"}))
    client = github.client()
    with pytest.raises(GitHubError, match=r"you sent \*\*\*") as caught:
        client.get("user")
    assert TOKEN not in "".join(traceback.format_exception(caught.value))
    assert TOKEN not in repr(client)


@pytest.mark.parametrize("body", [b"<html>", b"[" * 100_000])
def test_answer_that_is_no_json_is_an_error(github: FakeGitHub, body: bytes) -> None:
    """A proxy's page is not taken for an empty listing."""
    github.script.append(Scripted("GET", "user", 200, body))
    with pytest.raises(GitHubError, match="text that is no JSON"):
        github.client().get("user")


@pytest.mark.parametrize(
    "url", ["http://api.github.com", "file:///etc/passwd", "https://user@host/api", "http://127.0.0.1.evil.example", ""]
)
def test_unsafe_address_is_refused(url: str) -> None:
    """A token goes over https, or to this machine."""
    with pytest.raises(UsageError, match="GITHUB_API_URL is"):
        GitHub(TOKEN, url)


@pytest.mark.parametrize("token", ["", "two words", "line\nbreak", "ümlaut"])
def test_unusable_token_is_refused_without_being_shown(token: str) -> None:
    """A header must hold it; the message must not."""
    with pytest.raises(UsageError, match="the token is empty or holds") as caught:
        GitHub(token)
    assert not token or token not in str(caught.value)


def test_environment_gives_token_and_address() -> None:
    """GITHUB_TOKEN before GH_TOKEN; the public API without an address; never without a token."""
    client = make_client({"GITHUB_TOKEN": "first", "GH_TOKEN": "second"})
    assert (client.token, client.api_url) == ("first", "https://api.github.com")
    client = make_client({"GH_TOKEN": "second", "GITHUB_API_URL": "https://ghe.example/api/v3"})
    assert (client.token, client.api_url) == ("second", "https://ghe.example/api/v3")
    with pytest.raises(UsageError, match="no token: set GITHUB_TOKEN"):
        make_client({})


@pytest.mark.parametrize("text", ["", "kernels", "a/b/c", "../x", "a/..", "a b/c", "a/b?x=1", "a/b#", "-a/b"])
def test_what_is_no_repository_never_reaches_a_path(text: str) -> None:
    """Only OWNER/NAME does."""
    with pytest.raises(UsageError, match="is no repository; expected OWNER/NAME"):
        parse_repository(text)


@pytest.mark.parametrize("text", ["", "main", "abc123", "A" * 40, "a" * 41, "a" * 40 + "\n"])
def test_what_is_no_full_commit_id_is_refused(text: str) -> None:
    """A name or a short id may be another commit later."""
    with pytest.raises(UsageError, match=r"--head-sha .* is no full commit id"):
        parse_full_sha(text, "--head-sha")
    assert parse_full_sha("a" * 40, "--head-sha") == "a" * 40
