from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from pytest_attnperf.environment.provenance import base_revision, read_provenance, without_credentials

GITHUB = {
    "GITHUB_ACTIONS": "true",
    "GITHUB_REF": "refs/pull/17/merge",
    "GITHUB_HEAD_REF": "faster",
    "GITHUB_REF_NAME": "17/merge",
    "GITHUB_SERVER_URL": "https://github.com",
    "GITHUB_REPOSITORY": "a/b",
    "GITHUB_RUN_ID": "42",
}


def test_a_pull_request_on_github(tmp_path: Path) -> None:
    """Its number is in the ref, its branch is the head's and not the merge's, and the run has an address."""
    assert read_provenance(tmp_path, GITHUB) == {
        "branch": "faster",
        "ci": "github",
        "ci_url": "https://github.com/a/b/actions/runs/42",
        "pull_request": "17",
    }


@pytest.mark.parametrize(
    ("environ", "wanted"),
    [
        (
            {
                "GITLAB_CI": "true",
                "CI_COMMIT_REF_NAME": "main",
                "CI_JOB_URL": "https://g/1",
                "CI_MERGE_REQUEST_IID": "3",
            },
            {"branch": "main", "ci": "gitlab", "ci_url": "https://g/1", "pull_request": "3"},
        ),
        (
            {"JENKINS_URL": "https://j/", "BRANCH_NAME": "x", "BUILD_URL": "https://j/9"},
            {"branch": "x", "ci": "jenkins", "ci_url": "https://j/9"},
        ),
        (
            {"BUILDKITE": "true", "BUILDKITE_BRANCH": "x", "BUILDKITE_PULL_REQUEST": "false"},
            {"branch": "x", "ci": "buildkite"},
        ),
        ({"SLURM_JOB_ID": "7"}, {"ci": "slurm"}),
        ({}, {}),
    ],
)
def test_other_systems(tmp_path: Path, environ: dict[str, str], wanted: dict[str, str]) -> None:
    """Each is known by its own variable, and only what it says is recorded."""
    assert read_provenance(tmp_path, environ) == wanted


def test_secrets_are_left_out(tmp_path: Path) -> None:
    """User and password of an address do not get into a results file."""
    told = read_provenance(tmp_path, {"GITLAB_CI": "1", "CI_JOB_URL": "https://me:secret@host/1"})
    assert told["ci_url"] == "https://host/1"
    typed = "pytest --attnperf-history=postgresql://me:s@cret@host/db 'https://a:b@c/d@e'"
    assert without_credentials(typed) == "pytest --attnperf-history=postgresql://host/db 'https://c/d@e'"
    assert without_credentials("a //b @c") == "a //b @c"
    assert without_credentials("x://h/d?a=1&password=secret&b=2") == "x://h/d?a=1&password=***&b=2"


def test_the_branch_of_a_checkout(tmp_path: Path) -> None:
    """Without a CI system git is asked."""
    subprocess.run(["git", "init", "-q", "-b", "topic", str(tmp_path)], check=True)
    assert read_provenance(tmp_path, {}) == {"branch": "topic"}


def test_a_branch_whose_name_is_no_utf8(tmp_path: Path) -> None:
    """It costs no run."""
    subprocess.run(["git", "init", "-q", str(tmp_path)], check=True)
    (tmp_path / ".git" / "HEAD").write_bytes(b"ref: refs/heads/caf\xe9\n")
    assert read_provenance(tmp_path, {}) == {"branch": "caf\udce9"}


@pytest.mark.parametrize(
    ("environ", "wanted"),
    [
        ({"GITHUB_BASE_REF": "main"}, "origin/main..."),
        ({"GITHUB_BASE_REF": ""}, ""),
        ({"CI_MERGE_REQUEST_DIFF_BASE_SHA": "4f2c1ab"}, "4f2c1ab"),
        ({"CHANGE_TARGET": "release/2"}, "origin/release/2..."),
        ({"BUILDKITE_PULL_REQUEST_BASE_BRANCH": "main"}, "origin/main..."),
        ({"CI": "true"}, ""),
    ],
)
def test_the_revision_that_a_change_was_made_from(environ: dict[str, str], wanted: str) -> None:
    """As the system names it: a commit, or the merge base with the branch that the change is to go into."""
    assert base_revision(environ) == wanted
