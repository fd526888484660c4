"""One comment on a pull request, posted once and updated afterwards."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from pytest_attnperf.tools.ci.github import GitHub, GitHubError, expect_documented_form

BODY_LIMIT = 65_536
"""Characters that GitHub takes."""
ACTIONS_BOT = "github-actions[bot]"
"""Whose comments the token of a workflow writes. People's logins hold no brackets."""
POSTS = 3
_STAMP = re.compile(r"<!-- attnperf-run: (\{[^\n<>]*\}) -->")


@dataclass(frozen=True)
class Stamp:
    """Which run a comment is of. measured: whether there were results."""

    sha: str
    run: int = 0
    attempt: int = 1
    measured: bool = True

    def format_line(self) -> str:
        """As it stands in the comment, unseen."""
        fields = {"sha": self.sha, "run": self.run, "attempt": self.attempt, "measured": self.measured}
        return f"<!-- attnperf-run: {json.dumps(fields)} -->"

    def reason_superseded(self, shown: Stamp) -> str:
        """Why this run must not replace the one that is shown; '' where it may.

        Runs are numbered in the order they began, so that a slow run of an older commit is told from a new one.
        """
        if (shown.run, shown.attempt) > (self.run, self.attempt):
            return f"the comment is of run {shown.run}.{shown.attempt}, which is newer than {self.run}.{self.attempt}"
        if shown.sha == self.sha and shown.measured and not self.measured:
            return (
                f"the comment has this commit's results, of run {shown.run}.{shown.attempt}; this run measured nothing"
            )
        return ""


@dataclass(frozen=True)
class Comment:
    """One of ours. stamp: None where its line is not readable."""

    id: int
    body: str
    stamp: Stamp | None


@expect_documented_form()
def fetch_login(github: GitHub) -> str:
    """Whom the token writes as. A workflow's token may not ask and is that of the Actions bot."""
    try:
        return str(github.get("user")["login"])
    except GitHubError as error:
        if error.status == 403:
            return ACTIONS_BOT
        raise


def list_own_comments(github: GitHub, repo: str, pull: int, marker: str, author: str) -> Iterator[Comment]:
    """Comments that `author` wrote and that begin with the marker, oldest first.

    Anybody can write the marker into a comment of their own; nobody can write a comment as somebody else.
    """
    for found in github.list_items(f"repos/{repo}/issues/{pull}/comments"):
        body = str(found.get("body") or "")
        first, _, rest = body.lstrip("\ufeff").replace("\r\n", "\n").partition("\n")
        if first.strip() == marker and str((found.get("user") or {}).get("login", "")).lower() == author.lower():
            yield Comment(int(found["id"]), body, parse_stamp(rest.partition("\n")[0]))


def parse_stamp(line: str) -> Stamp | None:
    """Read what `Stamp.format_line` wrote; None for anything else."""
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
    """Post the comment, or update ours; gives what was done in words.

    Posting is not repeated blindly after a failure that leaves open whether it was done: it is looked for first.
    Raises GitHubError.
    """
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
    """A body that GitHub takes: cut at a line where it is too long, with what was open closed, and the cut said."""
    if len(body) <= limit:
        return body
    said = "\n\n*Cut here: the rest is in the report of the run.*\n"
    kept = body[: limit - len(said) - 200]
    kept = kept[: kept.rfind("\n") + 1] or kept
    fences = len(re.findall(r"^(?:```|~~~)", kept, re.MULTILINE))
    closing = "```\n" * (fences % 2)
    closing += "\n</details>" * min(10, max(0, kept.count("<details") - kept.count("</details>")))
    return f"{kept}{closing}{said}"
