"""Which pull request a measured commit belongs to, by what GitHub says and never by what the results say; and the
status of the commit, which a required check looks at.
"""

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
"""Characters that GitHub takes."""
_RUN = re.compile(r"\[run (\d+)\.(\d+)(, not measured)?\]$")


@dataclass(frozen=True)
class Pull:
    """A pull request. head_repo: 'OWNER/NAME', '' where that repository is gone; default_ref: the default branch of the
    repository that it goes into, '' where GitHub does not say."""

    number: int
    open: bool
    head_sha: str
    head_repo: str
    base_ref: str
    default_ref: str = ""


@expect_documented_form()
def parse_pull(found: dict[str, Any]) -> Pull:
    """From GitHub's JSON."""
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
    """Raises GitHubError where there is none."""
    return parse_pull(github.get(f"repos/{repo}/pulls/{number}"))


def find_open_pull(github: GitHub, repo: str, head_sha: str, head_repo: str = "") -> Pull | None:
    """The open pull request whose newest commit this is; None where there is none.

    head_repo: the repository that the commit was pushed to. Without it, anybody who pushes the same commit to a fork
    and opens a pull request of it makes the answer ambiguous. Raises UsageError where several are left.
    """
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
    """The newest commit of a branch of `repo`."""
    found = github.get(f"repos/{repo}/git/ref/heads/{quote(ref)}")
    return parse_full_sha(str((found.get("object") or {}).get("sha", "")), f"the tip of {ref}")


@expect_documented_form()
def find_merge(github: GitHub, repo: str, claimed: str, head_sha: str) -> str:
    """The full id of the merge of `head_sha` into something that `claimed` names, by GitHub's word; '' for none.

    A pull request is measured as it would be after merging. That commit is made anew whenever its base branch moves, so
    that by the time of judging GitHub does not name it with the pull request any more.
    """
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
    """Set the status of the stamp's commit, unless a newer run has set it; gives what was done in words.

    counted: the cases in words, foreign text. Raises GitHubError.
    """
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
    """What stands beside the check; its end says which run it is of."""
    tail = f" [run {stamp.run}.{stamp.attempt}{'' if stamp.measured else ', not measured'}]"
    said = f"{conclusion.sentence}: {counted}" if counted else conclusion.sentence
    return one_line(said, DESCRIPTION_LIMIT - len(tail)) + tail


@expect_documented_form()
def _find_shown_stamp(github: GitHub, repo: str, sha: str, context: str) -> Stamp | None:
    """The run that the newest status of this context is of; None where there is none."""
    for found in github.list_items(f"repos/{repo}/commits/{sha}/statuses"):
        if found.get("context") == context:
            run = _RUN.search(str(found.get("description") or ""))
            return Stamp(sha, int(run.group(1)), int(run.group(2)), run.group(3) is None) if run else None
    return None
