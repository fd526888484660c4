"""Finds a run's branch, CI system and pull request, only from the environment and git; no user, host or path."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Mapping
from pathlib import Path

TEXT_LIMIT = 300
_SECRET = re.compile(r"//[^/\s'\"]*@")
"""User and password in an address; a password may contain '@'."""

_SECRET_FIELD = re.compile(r"([?&](?:ssl)?password=)[^&\s'\"]*", re.IGNORECASE)
"""A password in an address's query part, as PostgreSQL addresses may hold it."""

_SYSTEMS: tuple[tuple[str, str, Mapping[str, tuple[str, ...]]], ...] = (
    (
        "github",
        "GITHUB_ACTIONS",
        {"branch": ("GITHUB_HEAD_REF", "GITHUB_REF_NAME"), "pull_request": (), "ci_url": ()},
    ),
    (
        "gitlab",
        "GITLAB_CI",
        {
            "branch": ("CI_MERGE_REQUEST_SOURCE_BRANCH_NAME", "CI_COMMIT_REF_NAME"),
            "pull_request": ("CI_MERGE_REQUEST_IID",),
            "ci_url": ("CI_JOB_URL",),
        },
    ),
    (
        "jenkins",
        "JENKINS_URL",
        {
            "branch": ("CHANGE_BRANCH", "BRANCH_NAME", "GIT_BRANCH"),
            "pull_request": ("CHANGE_ID",),
            "ci_url": ("BUILD_URL",),
        },
    ),
    (
        "buildkite",
        "BUILDKITE",
        {
            "branch": ("BUILDKITE_BRANCH",),
            "pull_request": ("BUILDKITE_PULL_REQUEST",),
            "ci_url": ("BUILDKITE_BUILD_URL",),
        },
    ),
    ("slurm", "SLURM_JOB_ID", {"branch": (), "pull_request": (), "ci_url": ()}),
)
"""Name, the variable that identifies it, and for each fact the variables that may hold it, best first."""


def read_provenance(root: Path, environ: Mapping[str, str]) -> dict[str, str]:
    """Returns 'branch', 'ci', 'ci_url' and 'pull_request', as far as they are known.

    The branch comes from git only if no CI system names it: CI systems check out a commit without a branch.
    """
    found = _from_ci(environ)
    if "branch" not in found:
        branch = _read_branch(root)
        found |= {"branch": branch} if branch else {}
    return {name: without_credentials(value)[:TEXT_LIMIT] for name, value in sorted(found.items())}


_BASES = (
    ("CI_MERGE_REQUEST_DIFF_BASE_SHA", "{}"),
    ("GITHUB_BASE_REF", "origin/{}..."),
    ("CHANGE_TARGET", "origin/{}..."),
    ("BUILDKITE_PULL_REQUEST_BASE_BRANCH", "origin/{}..."),
)
"""Variables that name the target of a change, and the form of the revision that the change was made from."""


def base_revision(environ: Mapping[str, str]) -> str:
    """Returns the revision that the CI system says a change was made from, e.g. 'origin/main...'; '' if unknown."""
    found = (form.format(environ[name]) for name, form in _BASES if environ.get(name))
    return next(found, "")


def is_ci() -> bool:
    """Tells whether the variable CI says that a CI system runs this process; --attnperf-strict is then the default."""
    return os.environ.get("CI", "").lower() not in ("", "0", "false")


def without_credentials(text: str) -> str:
    """Removes 'user:password@' from addresses in a text such as a command line, and replaces password=... by ***."""
    return _SECRET_FIELD.sub(r"\1***", _SECRET.sub("//", text))


def _from_ci(environ: Mapping[str, str]) -> dict[str, str]:
    for name, shows, facts in _SYSTEMS:
        if not environ.get(shows):
            continue
        found = {"ci": name}
        for fact, variables in facts.items():
            value = next((environ[variable] for variable in variables if environ.get(variable)), "")
            if value and value != "false":  # Buildkite's word for no pull request
                found[fact] = value
        return found | (_of_github(environ) if name == "github" else {})
    return {}


def _of_github(environ: Mapping[str, str]) -> dict[str, str]:
    """Returns 'pull_request' and 'ci_url' of a run on GitHub, as far as known, from its ref and its variables."""
    found = {}
    pull = re.fullmatch(r"refs/pull/(\d+)/\w+", environ.get("GITHUB_REF", ""))
    if pull:
        found["pull_request"] = pull.group(1)
    parts = [environ.get(name, "") for name in ("GITHUB_SERVER_URL", "GITHUB_REPOSITORY", "GITHUB_RUN_ID")]
    if all(parts):
        found["ci_url"] = f"{parts[0]}/{parts[1]}/actions/runs/{parts[2]}"
    return found


def _read_branch(root: Path) -> str:
    command = ["git", "-C", str(root), "symbolic-ref", "--quiet", "--short", "HEAD"]
    try:
        answer = subprocess.run(command, capture_output=True, timeout=10, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    # A branch may have a name of any bytes.
    return os.fsdecode(answer.stdout).strip() if answer.returncode == 0 else ""
