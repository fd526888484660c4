"""Which pull request a measured commit belongs to, by what GitHub says and never by what the results say."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from pytest_attnperf.errors import UsageError
from pytest_attnperf.tools.ci.github import GitHub, GitHubError, full_sha, understood


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


@understood()
def pull_of(found: dict[str, Any]) -> Pull:
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


def by_number(github: GitHub, repo: str, number: int) -> Pull:
    """Raises GitHubError where there is none."""
    return pull_of(github.get(f"repos/{repo}/pulls/{number}"))


def by_head(github: GitHub, repo: str, head_sha: str, head_repo: str = "") -> Pull | None:
    """The open pull request whose newest commit this is; None where there is none.

    head_repo: the repository that the commit was pushed to. Without it, anybody who pushes the same commit to a fork
    and opens a pull request of it makes the answer ambiguous. Raises UsageError where several are left.
    """
    query = {"state": "open", "sort": "updated", "direction": "desc"}
    candidates = [pull_of(found) for found in github.pages(f"repos/{repo}/pulls", query)]
    fitting = [
        pull for pull in candidates if pull.head_sha == head_sha and head_repo.lower() in ("", pull.head_repo.lower())
    ]
    if len(fitting) > 1:
        named = ", ".join(f"#{pull.number} into {pull.base_ref}" for pull in fitting)
        raise UsageError(f"several open pull requests have the head {head_sha[:12]}: {named}; name one by --pull N")
    return fitting[0] if fitting else None


@understood()
def branch_tip(github: GitHub, repo: str, ref: str) -> str:
    """The newest commit of a branch of `repo`."""
    found = github.get(f"repos/{repo}/git/ref/heads/{quote(ref)}")
    return full_sha(str((found.get("object") or {}).get("sha", "")), f"the tip of {ref}")


@understood()
def merge_of(github: GitHub, repo: str, claimed: str, head_sha: str) -> str:
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
    return full_sha(sha, "a commit") if sha.startswith(claimed) and parents[1:] == [head_sha] else ""
