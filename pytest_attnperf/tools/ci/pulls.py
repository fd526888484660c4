"""Finds the pull request of a measured commit, from GitHub's answers and never from the results. Sets the commit status
that a required check reads."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from pytest_attnperf.errors import UsageError
from pytest_attnperf.reports.text.figures import one_line
from pytest_attnperf.tools.ci.comments import Stamp
from pytest_attnperf.tools.ci.github import GitHub, GitHubError, expect_documented_form, parse_full_sha
from pytest_attnperf.tools.ci.outcome import Conclusion

DESCRIPTION_LIMIT = 140
"""Most characters that GitHub accepts in a status."""
_RUN = re.compile(r"\[run (\d+)\.(\d+)(, not measured)?\]$")


@dataclass(frozen=True)
class Pull:
    """A pull request. `head_repo` is 'OWNER/NAME', '' if that repository is gone, `default_ref` the default branch of
    the target repository, '' if GitHub does not say."""

    number: int
    open: bool
    head_sha: str
    head_repo: str
    base_ref: str
    default_ref: str = ""


@expect_documented_form()
def parse_pull(found: dict[str, Any]) -> Pull:
    """Makes a Pull of the JSON object that GitHub sends for a pull request; absent texts become ''."""
    head, base = found.get("head") or {}, found.get("base") or {}
    return Pull(
        number=int(found["number"]),
        open=found.get("state") == "open",
        head_sha=str(head.get("sha", "")),
        head_repo=str((head.get("repo") or {}).get("full_name", "")),
        base_ref=str(base.get("ref", "")),
        default_ref=str((base.get("repo") or {}).get("default_branch", "")),
    )


def fetch_pull(github: GitHub, repo: str, number: int) -> Pull:
    """Returns the pull request `number` of `repo` ('OWNER/NAME'). Raises GitHubError if GitHub does not show it."""
    return parse_pull(github.get(f"repos/{repo}/pulls/{number}"))


def find_open_pull(github: GitHub, repo: str, head_sha: str, head_repo: str = "") -> Pull | None:
    """Returns the open pull request whose newest commit is `head_sha`; None if there is none.

    `head_repo` is the repository that the commit was pushed to. Without it, a fork with the same commit and a pull
    request of its own makes the answer ambiguous. Raises UsageError if several open pull requests fit."""
    query = {"state": "open", "sort": "updated", "direction": "desc"}
    candidates = [parse_pull(found) for found in github.list_items(f"repos/{repo}/pulls", query)]
    fitting = [
        pull for pull in candidates if pull.head_sha == head_sha and head_repo.lower() in ("", pull.head_repo.lower())
    ]
    if len(fitting) > 1:
        named = ", ".join(f"#{pull.number} into {pull.base_ref}" for pull in fitting)
        raise UsageError(f"several open pull requests have the head {head_sha[:12]}: {named}; name one by --pull N")
    return fitting[0] if fitting else None


@expect_documented_form()
def fetch_branch_tip(github: GitHub, repo: str, ref: str) -> str:
    """Returns the full id of the newest commit of branch `ref` of `repo`. Raises GitHubError if GitHub shows none."""
    found = github.get(f"repos/{repo}/git/ref/heads/{quote(ref)}")
    return parse_full_sha(str((found.get("object") or {}).get("sha", "")), f"the tip of {ref}")


@expect_documented_form()
def find_merge(github: GitHub, repo: str, claimed: str, head_sha: str) -> str:
    """Returns the full id of commit `claimed` if GitHub says that it merges `head_sha` into a base; '' otherwise, also
    if `claimed` is not 12 to 64 hexadecimal digits or GitHub does not know it.

    A pull request is measured as it would be after merging. GitHub makes that merge commit again whenever the base
    branch moves, so at the time of judging the pull request may name another one."""
    if not re.fullmatch(r"[0-9a-f]{12,64}", claimed):
        return ""
    try:
        found = github.get(f"repos/{repo}/commits/{claimed}")
    except GitHubError as error:
        if error.status in (404, 422):
            return ""
        raise
    sha = str(found.get("sha", ""))
    parents = [str(parent.get("sha", "")) for parent in found.get("parents") or ()]
    return parse_full_sha(sha, "a commit") if sha.startswith(claimed) and parents[1:] == [head_sha] else ""


def put_status(
    github: GitHub,
    repo: str,
    stamp: Stamp,
    conclusion: Conclusion,
    counted: str,
    *,
    context: str,
    url: str = "",
    dry_run: bool = False,
) -> str:
    """Sets the commit status `context` of the run's commit, `stamp.sha`; returns a sentence that says what was done.

    Leaves a status that a newer run set. With `dry_run`, sets nothing and says what it would set. `counted` is the
    number of cases in words, from the untrusted run. Raises GitHubError if GitHub refuses or does not answer."""
    shown = _find_shown_stamp(github, repo, stamp.sha, context)
    why = stamp.reason_superseded(shown) if shown is not None else ""
    if why:
        return f"left the status {context} as it is: {why.replace('the comment', 'it')}"
    said = f"{context} = {conclusion.state} on {stamp.sha[:12]}"
    if dry_run:
        return f"would set the status {said}"
    body = {
        "state": conclusion.state,
        "context": context,
        "description": format_description(conclusion, counted, stamp),
    }
    github.send("POST", f"repos/{repo}/statuses/{stamp.sha}", {**body, "target_url": url} if url else body)
    return f"set the status {said}"


def format_description(conclusion: Conclusion, counted: str, stamp: Stamp) -> str:
    """Returns the text that GitHub shows next to a commit status, at most 140 characters: outcome, number of cases in
    words if any, and at the end the run, such as 'failed: 3 cases [run 12.1]'."""
    tail = f" [run {stamp.run}.{stamp.attempt}{'' if stamp.measured else ', not measured'}]"
    said = f"{conclusion.sentence}: {counted}" if counted else conclusion.sentence
    return one_line(said, DESCRIPTION_LIMIT - len(tail)) + tail


@expect_documented_form()
def _find_shown_stamp(github: GitHub, repo: str, sha: str, context: str) -> Stamp | None:
    """Returns a Stamp of the run that is named in the description of the newest status `context` of commit `sha`; None
    without such a status, or if it names no run."""
    for found in github.list_items(f"repos/{repo}/commits/{sha}/statuses"):
        if found.get("context") == context:
            run = _RUN.search(str(found.get("description") or ""))
            return Stamp(sha, int(run.group(1)), int(run.group(2)), run.group(3) is None) if run else None
    return None
