"""A small client of GitHub's REST API. Standard library only.

The token is sent in one header, to the API's own host only. It is not sent after a redirect, and it is kept out of
errors and logs.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import re
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from email.message import Message
from typing import Any

from pytest_attnperf.errors import AttnperfError, UsageError
from pytest_attnperf.reports.text.figures import one_line

PUBLIC_API = "https://api.github.com"
ANSWER_LIMIT = 20_000_000
MESSAGE_LIMIT = 300
PAGE = 100
MOST_PAGES = 50
REDIRECTS = frozenset({301, 302, 303, 307, 308})
PASSING = frozenset({500, 502, 503, 504})
"""HTTP statuses after which the same request may succeed later."""
LIMITED = frozenset({403, 429})
"""HTTP statuses that GitHub gives at a rate limit; 403 has other meanings, too."""
_LOOPBACK = frozenset({"127.0.0.1", "::1", "localhost"})
_REPOSITORY = re.compile(r"[A-Za-z0-9][A-Za-z0-9-]{0,38}/(?!\.{1,2}$)[A-Za-z0-9._-]{1,100}")
_NEXT = re.compile(r'<([^<>]+)>\s*;\s*rel="next"')

Json = Any


class GitHubError(AttnperfError):
    """GitHub refused, or did not answer. `status` is the HTTP status, 0 without an answer."""

    def __init__(self, message: str, status: int = 0) -> None:
        super().__init__(message)
        self.status = status

    @property
    def is_uncertain(self) -> bool:
        """Whether GitHub may have carried out the request although it failed: no answer came, or a 5xx of `PASSING`."""
        return self.status == 0 or self.status in PASSING


@contextlib.contextmanager
def expect_documented_form() -> Iterator[None]:
    """Turns errors of the code inside (KeyError, TypeError, ValueError, AttributeError, OverflowError) into
    GitHubError: they mean that an answer has a form that GitHub does not document, e.g. a proxy's page."""
    try:
        yield
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
        said = one_line(f"{type(error).__name__}: {error}", MESSAGE_LIMIT)
        raise GitHubError(f"GitHub's answer has not the documented form ({said}); did a proxy answer?") from error


@dataclass(frozen=True)
class _Answer:
    status: int
    headers: Message
    body: bytes

    def get_header(self, name: str) -> str:
        return str(self.headers.get(name, ""))


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """Stops urllib from following a redirect, because it would send every header, including the token."""

    def redirect_request(self, *_: object) -> None:
        return None


@dataclass(frozen=True)
class GitHub:
    """A client of the API at one address with one token.

    timeout_s    seconds that a single request may take
    attempts     most times that a request is sent
    patience_s   longest single wait in seconds that GitHub may ask for
    """

    token: str = field(repr=False)
    api_url: str = PUBLIC_API
    timeout_s: float = 30.0
    attempts: int = 4
    patience_s: float = 120.0
    sleep: Callable[[float], None] = field(default=time.sleep, repr=False)

    def __post_init__(self) -> None:
        if not re.fullmatch(r"[\x21-\x7e]+", self.token):
            raise UsageError("the token is empty or holds spaces or control characters; set GITHUB_TOKEN to a token")
        _check_address(self.api_url, "GITHUB_API_URL")

    def get(self, path: str) -> Json:
        """Sends a GET and returns the decoded JSON answer, None if it is empty. Raises GitHubError as `_send_request`
        does, and if the answer is no JSON."""
        return self._parse_json(self._send_request("GET", self._build_url(path), None, again=True))

    def list_items(self, path: str, query: Mapping[str, str | int] | None = None) -> Iterator[dict[str, Json]]:
        """Yields every JSON object that GitHub lists at `path`. Raises GitHubError, also for more than 50 pages."""
        url = self._build_url(path, {**(query or {}), "per_page": PAGE})
        for _ in range(MOST_PAGES):
            answer = self._send_request("GET", url, None, again=True)
            found = self._parse_json(answer)
            if isinstance(found, dict):  # artifacts come as an object with their count
                found = next((part for part in found.values() if isinstance(part, list)), [])
            yield from (item for item in (found if isinstance(found, list) else ()) if isinstance(item, dict))
            following = _NEXT.search(answer.get_header("Link"))
            if following is None:
                return
            url = following.group(1)
            if _parse_origin(url) != _parse_origin(self.api_url):
                raise GitHubError(f"GitHub's next page is at another host: {one_line(url)}; check GITHUB_API_URL")
        raise GitHubError(f"{path} has more than {MOST_PAGES} pages of {PAGE}")

    def send(self, method: str, path: str, body: Json, *, again: bool = True) -> Json:
        """Sends a request that changes something, with `body` as JSON; returns the decoded answer, None if it is empty.

        With `again`, also sends it again after a failure although GitHub may have carried it out. Raises GitHubError as
        `get` does.
        """
        return self._parse_json(
            self._send_request(method, self._build_url(path), json.dumps(body).encode(), again=again)
        )

    def download(self, path: str, limit: int) -> bytes:
        """Returns the bytes at `path`. Follows at most 2 redirects, without the token. Raises GitHubError, also for
        more than `limit` bytes, and UsageError for a redirect to an address that is not https."""
        answer = self._send_request("GET", self._build_url(path), None, again=True, limit=limit)
        for _ in range(3):
            if answer.status not in REDIRECTS:
                return answer.body
            url = urllib.parse.urljoin(self.api_url, answer.get_header("Location"))
            _check_address(url, "the address of a download")
            answer = self._send_request("GET", url, None, again=True, limit=limit, with_token=False)
        raise GitHubError(f"{path} redirects more than 2 times; check GITHUB_API_URL")

    def _build_url(self, path: str, query: Mapping[str, str | int] | None = None) -> str:
        tail = f"?{urllib.parse.urlencode(query)}" if query else ""
        return f"{self.api_url.rstrip('/')}/{path.lstrip('/')}{tail}"

    def _send_request(
        self,
        method: str,
        url: str,
        body: bytes | None,
        *,
        again: bool,
        limit: int = ANSWER_LIMIT,
        with_token: bool = True,
    ) -> _Answer:
        """Sends a request, up to `attempts` times while it fails in a way that may pass; returns the answer.

        `again` is as in `send`. Raises GitHubError for a refusal, no answer, or one of more than `limit` bytes."""
        request = urllib.request.Request(url, data=body, method=method)
        request.add_header("Accept", "application/vnd.github+json")
        request.add_header("User-Agent", "pytest-attnperf")
        request.add_header("X-GitHub-Api-Version", "2022-11-28")
        if body is not None:
            request.add_header("Content-Type", "application/json")
        if with_token:
            request.add_unredirected_header("Authorization", f"Bearer {self.token}")
        for attempt in range(1, self.attempts + 1):
            last = attempt == self.attempts
            try:
                answer = self._send_once(request, limit)
            except GitHubError as error:
                if last or not again or not error.is_uncertain:
                    raise
                self.sleep(2.0**attempt)
                continue
            wait = self._compute_wait(answer, attempt, again=again)
            if wait is None or last:
                return self._check_status(answer, method, url)
            self.sleep(wait)
        raise AssertionError("unreachable: the last attempt returns or raises")

    def _send_once(self, request: urllib.request.Request, limit: int) -> _Answer:
        """Sends a request once and returns the answer. Raises GitHubError if there is none or it exceeds `limit`."""
        where = self._describe_request(request.get_method(), request.full_url)
        handlers: list[urllib.request.BaseHandler] = [_NoRedirect()]
        if _is_loopback(request.full_url):
            handlers.append(urllib.request.ProxyHandler({}))
        opener = urllib.request.build_opener(*handlers)
        try:
            with opener.open(request, timeout=self.timeout_s) as found:
                answer = _Answer(found.status, found.headers, found.read(limit + 1))
        except urllib.error.HTTPError as error:
            with error:
                answer = _Answer(error.code, error.headers, error.read(limit + 1))
        except (OSError, http.client.HTTPException) as error:
            said = self._clean_text(str(getattr(error, "reason", "") or error) or type(error).__name__)
            raise GitHubError(f"no answer to {where}: {said}") from None
        if len(answer.body) > limit:
            raise GitHubError(f"the answer to {where} is longer than {limit:,} bytes", answer.status)
        return answer

    def _compute_wait(self, answer: _Answer, attempt: int, *, again: bool) -> float | None:
        """Returns the seconds to wait before the request is sent again; None if sending it again cannot help, is not
        allowed (`again`), or GitHub asks for a longer wait than `patience_s`."""
        if answer.status in PASSING:
            return 2.0**attempt if again else None
        if answer.status not in LIMITED:
            return None
        asked = answer.get_header("Retry-After")
        if asked.isdigit():
            return float(asked) if float(asked) <= self.patience_s else None
        if answer.get_header("X-RateLimit-Remaining") == "0" and answer.get_header("X-RateLimit-Reset").isdigit():
            wait = max(1.0, float(answer.get_header("X-RateLimit-Reset")) - time.time())
            return wait if wait <= self.patience_s else None
        # A secondary rate limit without a time: GitHub asks to wait a minute.
        return 60.0 if answer.status == 429 or b"secondary rate limit" in answer.body.lower() else None

    def _check_status(self, answer: _Answer, method: str, url: str) -> _Answer:
        """Returns the answer. Raises GitHubError if it is a refusal, with GitHub's message and what to do."""
        if answer.status < 400:
            return answer
        said = self._clean_text(_parse_message(answer.body)) or "without a message"
        where = self._describe_request(method, url)
        raise GitHubError(f"GitHub answered {answer.status} to {where}: {said}{_format_advice(answer)}", answer.status)

    def _parse_json(self, answer: _Answer) -> Json:
        try:
            return json.loads(answer.body) if answer.body else None
        except (ValueError, RecursionError):
            raise GitHubError(
                f"GitHub answered {answer.status} with text that is no JSON; check GITHUB_API_URL", answer.status
            ) from None

    def _describe_request(self, method: str, url: str) -> str:
        """Returns 'GET https://...' for an error, without the query, because a download's query holds a signature."""
        return self._clean_text(f"{method} {url.partition('?')[0]}")

    def _clean_text(self, text: str) -> str:
        """Returns a text for an error message: on one line, cut to 300 characters, the token replaced by '***'."""
        return one_line(text.replace(self.token, "***"), MESSAGE_LIMIT)


def make_client(environ: Mapping[str, str]) -> GitHub:
    """Returns a client that uses GITHUB_TOKEN (or GH_TOKEN) and GITHUB_API_URL. Raises UsageError without a token."""
    token = environ.get("GITHUB_TOKEN") or environ.get("GH_TOKEN") or ""
    if not token:
        raise UsageError("no token: set GITHUB_TOKEN in the environment; it is never taken from the command line")
    return GitHub(token.strip(), environ.get("GITHUB_API_URL") or PUBLIC_API)


def parse_repository(text: str) -> str:
    """Returns `text` if it is 'OWNER/NAME' and safe in a URL path. Raises UsageError otherwise."""
    if not _REPOSITORY.fullmatch(text):
        raise UsageError(f"{one_line(text)!r} is no repository; expected OWNER/NAME")
    return text


def parse_full_sha(text: str, what: str) -> str:
    """Returns `text` if it is a full commit id (40 or 64 hexadecimal digits). Raises UsageError otherwise, because a
    short id or a name could mean another commit later. `what` says what it is, for the error."""
    if not re.fullmatch(r"[0-9a-f]{40}(?:[0-9a-f]{24})?", text):
        raise UsageError(f"{what} {one_line(text)!r} is no full commit id; give its 40 hexadecimal digits")
    return text


def _parse_message(body: bytes) -> str:
    """Returns the message in the body of a refusal, then the fields that GitHub rejects, if it lists some;
    the beginning of a body that is no JSON, '' for JSON that is no object."""
    try:
        found = json.loads(body[:100_000])
    except (ValueError, RecursionError):
        return body[:MESSAGE_LIMIT].decode(errors="replace")
    if not isinstance(found, dict):
        return ""
    errors = found.get("errors")
    details = [
        str(each.get("message") or f"{each.get('field', '')} {each.get('code', '')}".strip())
        for each in (errors if isinstance(errors, list) else ())
        if isinstance(each, dict)
    ]
    return "; ".join([str(found.get("message", "")), *details])


def _format_advice(answer: _Answer) -> str:
    if answer.status == 401:
        return "; the token is wrong or has expired"
    if answer.status in LIMITED and (
        answer.get_header("Retry-After") or answer.get_header("X-RateLimit-Remaining") == "0"
    ):
        return "; a rate limit was reached: run this again later"
    if answer.status == 403:
        return "; the job needs `permissions:` of pull-requests: write, statuses: write and actions: read"
    if answer.status == 404:
        return "; it does not exist, or this token may not see it"
    return ""


def _parse_origin(url: str) -> tuple[str, str, int | None]:
    parts = urllib.parse.urlsplit(url)
    return parts.scheme, parts.hostname or "", parts.port


def _is_loopback(url: str) -> bool:
    return (urllib.parse.urlsplit(url).hostname or "") in _LOOPBACK


def _check_address(url: str, what: str) -> None:
    """Raises UsageError unless a URL is https without a user name, or http on this machine, because a token may be sent
    to it. `what` says what the URL is, for the error."""
    parts = urllib.parse.urlsplit(url)
    if parts.scheme == "https" and parts.hostname and not parts.username:
        return
    if parts.scheme == "http" and _is_loopback(url):
        return
    raise UsageError(f"{what} is {one_line(url.partition('?')[0])!r}; give an https address without a user name")
