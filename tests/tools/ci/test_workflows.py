from __future__ import annotations

import re
from typing import Any

import pytest

from tests.tools.ci.ci_commands import WORKFLOWS, commands, parsed, steps, workflow

MEASURE = "attnperf.yml"
COMMENT = "attnperf-comment.yml"
BOTH = (MEASURE, COMMENT)
OURS = re.compile(
    r"github\.(?:token|sha|repository|base_ref|workflow)|runner\.temp|vars\.\w+|steps\.\w+\.outputs\.[\w-]+"
)
"""Expressions that no outsider has a say in."""


def text(name: str) -> str:
    """A workflow as it stands in its file, without comments."""
    return re.sub(r"(?m)(?:^|\s)#.*$", "", (WORKFLOWS / name).read_text())


def test_measuring_has_no_permission_to_write() -> None:
    """It runs a pull request's code: it may read this repository, in every job."""
    loaded = workflow(MEASURE)
    assert loaded["permissions"] == {"contents": "read"}
    assert not [name for name, job in loaded["jobs"].items() if "permissions" in job]


@pytest.mark.parametrize("word", ["secrets", "pull_request_target", "github.token", "GITHUB_TOKEN", "id-token"])
def test_measuring_has_nothing_worth_stealing(word: str) -> None:
    """No secret, no token, and no event that would bring them."""
    assert word not in text(MEASURE)


def test_measuring_starts_on_what_it_should() -> None:
    """Pull requests, main, and by hand."""
    assert set(workflow(MEASURE)["on"]) == {"pull_request", "push", "workflow_dispatch"}


def test_forks_reach_the_runner_only_by_a_label() -> None:
    """A new commit of a labelled pull request is not measured before the label is set anew."""
    job = workflow(MEASURE)["jobs"]["measure"]
    assert "github.event.action == 'labeled' && github.event.label.name == 'attnperf'" in job["if"]
    assert "github.event.pull_request.head.repo.full_name == github.repository" in job["if"]
    assert "labels" not in job["if"].replace("labeled", "")
    assert '["self-hosted", "linux", "amd-gpu"]' in job["runs-on"]


@pytest.mark.parametrize("name", BOTH)
def test_no_job_keeps_the_token_in_its_checkout(name: str) -> None:
    """A later step's code could read it there."""
    checkouts = [step for step in steps(workflow(name)) if step.get("uses", "").startswith("actions/checkout@")]
    assert checkouts
    assert all(step["with"]["persist-credentials"] is False for step in checkouts)


@pytest.mark.parametrize("name", BOTH)
def test_every_action_is_pinned_to_a_commit(name: str) -> None:
    """Its version beside it, for whoever updates it; one version of each action."""
    used = re.findall(r"- uses: *(\S+)(.*)", (WORKFLOWS / name).read_text())
    assert used
    assert [one for one in used if not re.fullmatch(r"actions/[\w-]+@[0-9a-f]{40}", one[0])] == []
    assert [one for one in used if not re.fullmatch(r" # v\d+\.\d+\.\d+", one[1])] == []


def test_both_workflows_use_the_same_commits() -> None:
    """An action has one version in this repository."""
    used = {use for name in BOTH for use in re.findall(r"- uses: *(\S+)", text(name))}
    assert len({use.partition("@")[0] for use in used}) == len(used)


@pytest.mark.parametrize("name", BOTH)
def test_no_expression_stands_in_a_script(name: str) -> None:
    """A branch may be called `$(curl evil)`: what comes from outside reaches a script as a variable."""
    scripts = [step["run"] for step in steps(workflow(name)) if "run" in step]
    assert scripts
    assert [script for script in scripts if "${{" in script] == []


@pytest.mark.parametrize("name", BOTH)
def test_every_job_ends_in_time(name: str) -> None:
    """GitHub's own limit is six hours, and five days on one's own runner."""
    assert all(job["timeout-minutes"] <= 180 for job in workflow(name)["jobs"].values())


def test_commenting_is_started_by_the_measuring_workflow_alone() -> None:
    """Then it runs as it stands on the default branch."""
    loaded = workflow(COMMENT)
    assert loaded["on"] == {"workflow_run": {"workflows": [workflow(MEASURE)["name"]], "types": ["completed"]}}
    assert ".github/workflows/attnperf.yml" in loaded["jobs"]["judge"]["if"]


def test_commenting_may_write_comments_and_statuses_only() -> None:
    """In the one job that needs it."""
    loaded = workflow(COMMENT)
    assert loaded["permissions"] == {}
    (job,) = loaded["jobs"].values()
    assert job["permissions"] == {
        "contents": "read",
        "actions": "read",
        "pull-requests": "write",
        "statuses": "write",
    }


def test_commenting_never_checks_out_a_pull_request() -> None:
    """The only checkout is the default branch; nothing else fetches code."""
    (checkout,) = [step for step in steps(workflow(COMMENT)) if step.get("uses", "").startswith("actions/checkout@")]
    assert checkout["with"]["ref"] == "${{ github.event.repository.default_branch }}"
    assert "repository" not in checkout["with"]
    scripts = "\n".join(step.get("run", "") for step in steps(workflow(COMMENT)))
    assert not re.search(r"\bgit\b|\bgh\b|curl|wget|pull/", scripts)


def test_commenting_runs_nothing_of_the_artifact() -> None:
    """What was fetched is read by the gate, as a file of results, and by nothing else."""
    scripts = "\n".join(step.get("run", "") for step in steps(workflow(COMMENT)))
    lines = [line.strip() for line in scripts.splitlines() if "fetched" in line]
    assert [re.sub(r"\s.*fetched", " fetched", line) for line in lines] == [
        "--head-sha fetched",
        'if fetched/$name/results.json" ]; then continue; fi',
        'attnperf fetched/$name/results.json" --against "$BASE_SHA" --mode block --strict \\',
    ]
    installs = [line.strip() for line in scripts.splitlines() if "install" in line]
    assert installs == ["python -m pip install ."]


def test_token_is_given_only_to_the_steps_that_talk_to_github() -> None:
    """The gate, which reads untrusted files, has none."""
    loaded = workflow(COMMENT)
    holding = [step["name"] for step in steps(loaded) if "github.token" in str(step.get("env", {}))]
    assert holding == ["Fetch results as data", "Comment and set the status"]
    assert "github.token" not in str(loaded["jobs"]["judge"]["env"])


def test_pull_request_and_commit_come_from_the_event() -> None:
    """Never from a file that the measuring run wrote."""
    loaded = workflow(COMMENT)
    variables: dict[str, Any] = loaded["jobs"]["judge"]["env"]
    assert variables["HEAD_SHA"] == "${{ github.event.workflow_run.head_sha }}"
    assert variables["HEAD_REPO"] == "${{ github.event.workflow_run.head_repository.full_name }}"
    later = [str(value) for step in steps(loaded) for value in step.get("env", {}).values()]
    used = [one for value in later for one in re.findall(r"\$\{\{ *(.*?) *\}\}", value)]
    assert used
    assert [one for one in used if not all(OURS.fullmatch(part) for part in one.split(" || "))] == []


def test_foreign_text_in_a_log_is_no_command() -> None:
    """GitHub reads '::set-output name=x::y' and '##[add-mask]FAILED' in what a step prints; a random word stops it."""
    scripts = [step["run"] for step in steps(workflow(COMMENT)) if "run" in step and "pip install" not in step["run"]]
    assert len(scripts) == 3
    for script in scripts:
        first, second = script.splitlines()[:2]
        assert "/dev/urandom" in first
        assert second == """echo "::stop-commands::$stop" && trap 'echo "::$stop::"' EXIT"""


def test_mode_is_one_variable() -> None:
    """Of the repository; 'warn' where nobody set it."""
    assert workflow(COMMENT)["jobs"]["judge"]["env"]["ATTNPERF_GATE"] == "${{ vars.ATTNPERF_GATE || 'warn' }}"


def test_artifacts_are_fetched_under_the_names_they_are_uploaded_by() -> None:
    """All of them, or without a GPU runner the compiled kernels alone."""
    uploads = [step["with"] for step in steps(workflow(MEASURE)) if "upload-artifact" in step.get("uses", "")]
    assert {with_["if-no-files-found"] for with_ in uploads} == {"error"}
    fetched = workflow(COMMENT)["jobs"]["judge"]["env"]["ARTIFACTS"]
    names = sorted(with_["name"] for with_ in uploads)
    assert names == ["attnperf-code-objects", "attnperf-results"]
    assert fetched == (
        "${{ vars.ATTNPERF_RUNNER == '[]' && 'attnperf-code-objects' || 'attnperf-results attnperf-code-objects' }}"
    )


def test_every_command_in_the_workflows_parses() -> None:
    """Options that are renamed are renamed there, too."""
    found = [
        (name, command, parsed(command, arguments)) for name in BOTH for command, arguments in commands(text(name))
    ]
    assert [(name, command) for name, command, _ in found] == [
        (MEASURE, "pytest"),
        (MEASURE, "pytest"),
        (COMMENT, "fetch_results"),
        (COMMENT, "gate"),
        (COMMENT, "report"),
    ]
    options = found[-1][2]
    assert (options.status, options.pull, options.run_number, options.verdict) == (True, 7, 12, "failed")


def test_option_that_does_not_exist_is_noticed() -> None:
    """The test above can fail."""
    for line in ("attnperf gate --results x --no-such", "python -m pytest --attnperf-nothing=1 suites/"):
        ((command, arguments),) = commands(line)
        with pytest.raises(ValueError, match="does not take"):
            parsed(command, arguments)
