"""Posts one comment on a pull request and updates it afterwards."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from pytest_attnperf.tools.ci.github import GitHub, GitHubError, expect_documented_form

BODY_LIMIT = 65_536
"""Most characters that GitHub accepts in a comment."""
ACTIONS_BOT = "github-actions[bot]"
"""Author of comments written with a workflow's token. A person's login cannot hold brackets."""
POSTS = 3
_STAMP = re.compile(r"<!-- attnperf-run: (\{[^\n<>]*\}) -->")


@dataclass(frozen=True)
class Stamp:
    """The run that a comment belongs to. `measured` says whether the run had results."""

    sha: str
    run: int = 0
    attempt: int = 1
    measured: bool = True

    def format_line(self) -> str:
        """Returns the stamp as one line, an HTML comment that GitHub does not show; `parse_stamp` reads it."""
        fields = {"sha": self.sha, "run": self.run, "attempt": self.attempt, "measured": self.measured}
        return f"<!-- attnperf-run: {json.dumps(fields)} -->"

    def reason_superseded(self, shown: Stamp) -> str:
        """Returns why a comment of this run must not replace the one with the stamp `shown`; '' if it may. It must not
        if `shown` is of a newer run, or has results of the same commit while this run has none.

        Runs are numbered by their begin, so a slow run of an older commit does not replace a newer one."""
        if (shown.run, shown.attempt) > (self.run, self.attempt):
            return f"the comment is of run {shown.run}.{shown.attempt}, which is newer than {self.run}.{self.attempt}"
        if shown.sha == self.sha and shown.measured and not self.measured:
            return (
                f"the comment has this commit's results, of run {shown.run}.{shown.attempt}; this run measured nothing"
            )
        return ""


@dataclass(frozen=True)
class Comment:
    """One comment that this tool posted. `stamp` is None if its stamp line cannot be read."""

    id: int
    body: str
    stamp: Stamp | None


@expect_documented_form()
def fetch_login(github: GitHub) -> str:
    """Returns the login of the token's owner; that of the Actions bot if GitHub answers 403, as to a workflow's
    token. Raises GitHubError for any other refusal."""
    try:
        return str(github.get("user")["login"])
    except GitHubError as error:
        if error.status == 403:
            return ACTIONS_BOT
        raise


def list_own_comments(github: GitHub, repo: str, pull: int, marker: str, author: str) -> Iterator[Comment]:
    """Yields the comments of pull request `pull` by `author` whose first line is `marker`, oldest first.

    The author is checked because anybody can write the marker into a comment of their own."""
    for found in github.list_items(f"repos/{repo}/issues/{pull}/comments"):
        body = str(found.get("body") or "")
        first, _, rest = body.lstrip("\ufeff").replace("\r\n", "\n").partition("\n")
        if first.strip() == marker and str((found.get("user") or {}).get("login", "")).lower() == author.lower():
            yield Comment(int(found["id"]), body, parse_stamp(rest.partition("\n")[0]))


def parse_stamp(line: str) -> Stamp | None:
    """Returns the Stamp that `Stamp.format_line` wrote as this line; None for any other line."""
    found = _STAMP.fullmatch(line.strip())
    if found is None:
        return None
    try:
        fields: Any = json.loads(found.group(1))
        return Stamp(str(fields["sha"]), int(fields["run"]), int(fields["attempt"]), bool(fields["measured"]))
    except (ValueError, KeyError, TypeError, OverflowError, RecursionError):
        return None


@expect_documented_form()
def put_comment(
    github: GitHub, repo: str, pull: int, body: str, *, marker: str, author: str, stamp: Stamp, dry_run: bool = False
) -> str:
    """Posts `body` on pull request `pull`, or updates the comment of `author` that begins with `marker`; returns a
    sentence that says what was done. Leaves a comment of a newer run; `dry_run` changes nothing.

    If a post fails but GitHub may have made it, looks for the comment before posting again. Raises GitHubError if
    GitHub refuses or does not answer."""
    for attempt in range(1, POSTS + 1):
        ours = next(list_own_comments(github, repo, pull, marker, author), None)
        why = stamp.reason_superseded(ours.stamp) if ours is not None and ours.stamp is not None else ""
        if why:
            return f"left #{pull} as it is: {why}"
        if dry_run:
            return f"would {'post a comment' if ours is None else f'update comment {ours.id}'} on #{pull}"
        try:
            if ours is None:
                made = github.send("POST", f"repos/{repo}/issues/{pull}/comments", {"body": body}, again=False)
                return f"posted comment {made['id']} on #{pull}"
            github.send("PATCH", f"repos/{repo}/issues/comments/{ours.id}", {"body": body})
            return f"updated comment {ours.id} on #{pull}"
        except GitHubError as error:
            gone = ours is not None and error.status == 404  # deleted between listing and updating
            if attempt == POSTS or not (error.is_uncertain or gone):
                raise
            github.sleep(2.0**attempt)
    raise AssertionError("unreachable: the last attempt returns or raises")


def cut_body(body: str, limit: int = BODY_LIMIT) -> str:
    """Returns a comment's Markdown text with at most `limit` characters. Cuts a longer one at the end of a line, closes
    open code fences and <details>, and adds that it was cut."""
    if len(body) <= limit:
        return body
    said = "\n\n*Cut here: the rest is in the report of the run.*\n"
    kept = body[: limit - len(said) - 200]
    kept = kept[: kept.rfind("\n") + 1] or kept
    fences = len(re.findall(r"^(?:```|~~~)", kept, re.MULTILINE))
    closing = "```\n" * (fences % 2)
    closing += "\n</details>" * min(10, max(0, kept.count("<details") - kept.count("</details>")))
    return f"{kept}{closing}{said}"
