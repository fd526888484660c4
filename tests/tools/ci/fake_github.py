"""A GitHub that answers from a thread of this process, keeps what is written to it, and can be told to misbehave."""

from __future__ import annotations

import contextlib
import json
import re
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

from pytest_attnperf.tools.ci.github import GitHub

TOKEN = "ghs_" + "secretOfThisTest0123456789"
REPO = "octo/kernels"
HEAD = "a" * 40
NEWER = "b" * 40
BASE = "c" * 40
BOT = "github-actions[bot]"
PAGE = 2
"""Items of a page, so that few items need several."""


@dataclass(frozen=True)
class Seen:
    """A request."""

    method: str
    path: str
    query: dict[str, list[str]]
    headers: dict[str, str]
    body: Any

    @property
    def call(self) -> str:
        """Method and path."""
        return f"{self.method} {self.path}"


@dataclass
class Scripted:
    """Given in place of the real answer to the next request of this method whose path matches."""

    method: str
    path: str
    status: int
    body: Any = None
    headers: dict[str, str] = field(default_factory=dict)
    times: int = 1
    done_anyway: bool = False


@dataclass
class FakeGitHub:
    """State and address. `user` is whose token it is; '' where it may not ask. `commits` names each one's parents."""

    url: str = ""
    user: str = ""
    author: str = BOT
    pulls: list[dict[str, Any]] = field(default_factory=list)
    comments: dict[int, list[dict[str, Any]]] = field(default_factory=dict)
    statuses: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    artifacts: dict[int, list[dict[str, Any]]] = field(default_factory=dict)
    archives: dict[int, bytes] = field(default_factory=dict)
    tips: dict[str, str] = field(default_factory=dict)
    commits: dict[str, list[str]] = field(default_factory=dict)
    seen: list[Seen] = field(default_factory=list)
    script: list[Scripted] = field(default_factory=list)
    slept: list[float] = field(default_factory=list)

    def client(self, **changes: Any) -> GitHub:
        """One that keeps what it would have slept."""
        return GitHub(TOKEN, self.url, sleep=self.slept.append, **changes)

    def pull(
        self, number: int = 7, *, sha: str = HEAD, state: str = "open", repo: str = REPO, base: str = "main"
    ) -> None:
        """Add a pull request."""
        head = {"sha": sha, "repo": {"full_name": repo}}
        into = {"ref": base, "repo": {"default_branch": "main"}}
        self.pulls.append({"number": number, "state": state, "head": head, "base": into})

    def comment(self, body: str, *, login: str = BOT, pull: int = 7) -> dict[str, Any]:
        """Add a comment."""
        made = {"id": 100 + sum(map(len, self.comments.values())), "body": body, "user": {"login": login}}
        self.comments.setdefault(pull, []).append(made)
        return made

    @property
    def written(self) -> list[Seen]:
        """Requests that change something."""
        return [seen for seen in self.seen if seen.method != "GET"]

    def answer(self, seen: Seen) -> tuple[int, Any, dict[str, str]]:
        """Status, body and headers."""
        self.seen.append(seen)
        for scripted in self.script:
            if scripted.method == seen.method and re.search(scripted.path, seen.path) and scripted.times > 0:
                scripted.times -= 1
                if scripted.done_anyway:
                    self._real(seen)
                return scripted.status, scripted.body, scripted.headers
        return self._real(seen)

    def _real(self, seen: Seen) -> tuple[int, Any, dict[str, str]]:
        for pattern, handle in self._routes():
            found = re.fullmatch(pattern, seen.call)
            if found:
                return handle(seen, *found.groups())
        return 404, {"message": "Not Found"}, {}

    def _routes(self) -> list[tuple[str, Callable[..., tuple[int, Any, dict[str, str]]]]]:
        repo = f"/repos/{re.escape(REPO)}"
        return [
            ("GET /user", self._user),
            (f"GET {repo}/pulls", lambda seen: self._page(seen, [p for p in self.pulls if p["state"] == "open"])),
            (f"GET {repo}/pulls/(\\d+)", self._pull),
            (f"GET {repo}/issues/(\\d+)/comments", lambda seen, n: self._page(seen, self.comments.get(int(n), []))),
            (f"POST {repo}/issues/(\\d+)/comments", self._post),
            (f"PATCH {repo}/issues/comments/(\\d+)", self._patch),
            (f"GET {repo}/commits/(\\w+)/statuses", lambda seen, sha: self._page(seen, self.statuses.get(sha, []))),
            (f"POST {repo}/statuses/(\\w+)", self._status),
            (f"GET {repo}/commits/(\\w+)", self._commit),
            (f"GET {repo}/git/ref/heads/(.+)", lambda seen, ref: (200, {"object": {"sha": self.tips[ref]}}, {})),
            (f"GET {repo}/actions/runs/(\\d+)/artifacts", self._artifacts),
            (f"GET {repo}/actions/artifacts/(\\d+)/zip", self._zip),
            ("GET /blob/(\\d+)", lambda seen, n: (200, self.archives[int(n)], {})),
        ]

    def _user(self, seen: Seen) -> tuple[int, Any, dict[str, str]]:
        if self.user:
            return 200, {"login": self.user}, {}
        return 403, {"message": "Resource not accessible by integration"}, {}

    def _pull(self, seen: Seen, number: str) -> tuple[int, Any, dict[str, str]]:
        found = [pull for pull in self.pulls if pull["number"] == int(number)]
        return (200, found[0], {}) if found else (404, {"message": "Not Found"}, {})

    def _post(self, seen: Seen, number: str) -> tuple[int, Any, dict[str, str]]:
        return 201, self.comment(seen.body["body"], login=self.author, pull=int(number)), {}

    def _patch(self, seen: Seen, comment: str) -> tuple[int, Any, dict[str, str]]:
        for found in (each for listed in self.comments.values() for each in listed):
            if found["id"] == int(comment):
                found["body"] = seen.body["body"]
                return 200, found, {}
        return 404, {"message": "Not Found"}, {}

    def _status(self, seen: Seen, sha: str) -> tuple[int, Any, dict[str, str]]:
        self.statuses.setdefault(sha, []).insert(0, seen.body)
        return 201, seen.body, {}

    def _commit(self, seen: Seen, text: str) -> tuple[int, Any, dict[str, str]]:
        for sha, parents in self.commits.items():
            if sha.startswith(text):
                return 200, {"sha": sha, "parents": [{"sha": parent} for parent in parents]}, {}
        return 422, {"message": f"No commit found for SHA: {text}"}, {}

    def _artifacts(self, seen: Seen, run: str) -> tuple[int, Any, dict[str, str]]:
        status, listed, headers = self._page(seen, self.artifacts.get(int(run), []))
        return status, {"total_count": 9, "artifacts": listed}, headers

    def _zip(self, seen: Seen, artifact: str) -> tuple[int, Any, dict[str, str]]:
        # Another host name of this machine, as the real one leads to another host's storage.
        elsewhere = self.url.replace("127.0.0.1", "localhost")
        return 302, None, {"Location": f"{elsewhere}/blob/{artifact}?sig=signature"}

    def _page(self, seen: Seen, items: list[dict[str, Any]]) -> tuple[int, Any, dict[str, str]]:
        page = int(seen.query.get("page", ["1"])[0])
        first = (page - 1) * PAGE
        headers = {}
        if first + PAGE < len(items):
            headers["Link"] = f'<{self.url}{seen.path}?page={page + 1}>; rel="next", <{self.url}/x>; rel="last"'
        return 200, items[first : first + PAGE], headers


@contextlib.contextmanager
def serving() -> Iterator[FakeGitHub]:
    """A fake GitHub on a free port of this machine."""
    fake = FakeGitHub()

    class Handler(BaseHTTPRequestHandler):
        def _serve(self) -> None:
            parts = urlsplit(self.path)
            sent = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            body = json.loads(sent) if sent else None
            seen = Seen(self.command, parts.path, parse_qs(parts.query), dict(self.headers.items()), body)
            status, given, headers = fake.answer(seen)
            data = given if isinstance(given, bytes) else json.dumps(given).encode()
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        do_GET = do_POST = do_PATCH = do_DELETE = _serve

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    fake.url = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    try:
        yield fake
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
