from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.tools.ci.ci_commands import EXAMPLES, ROOT, commands, parsed

MEASURE = "gitlab-ci.yml"
JUDGE = "gitlab-judge.yml"
ARRAY = "slurm-array.sh"
KUBERNETES = "kubernetes-job.yaml"
SHARDS = "github-shards.yml"
IN_PARTS = (ARRAY, KUBERNETES, SHARDS)
FAKE_SBATCH = """#!/usr/bin/env bash
printf '%s\\n' "$@" >sbatch-arguments
[ "${FAKE_JOB:-runs}" = runs ] || exit 9
while [[ $1 == --* ]]; do shift; done
ATTNPERF_ON_NODE=1 bash "$@"
"""
FAKE_PYTHON = """#!/usr/bin/env bash
printf '%s\\n' "$@" >pytest-arguments
for argument; do case $argument in --attnperf-results=*) echo '{}' >"${argument#*=}" ;; esac; done
exit "${FAKE_PYTEST:-0}"
"""
FAKE_ATTNPERF = """#!/usr/bin/env bash
printf '%s\\n' "$@" >gate-arguments
exit "${FAKE_GATE:-0}"
"""


def gitlab(name: str) -> dict[str, Any]:
    """A parsed file."""
    loaded: dict[str, Any] = yaml.safe_load((EXAMPLES / name).read_text())
    return loaded


@pytest.mark.parametrize("name", [path.name for path in sorted(EXAMPLES.iterdir())])
def test_every_command_in_the_examples_parses(name: str) -> None:
    """Each file measures or judges by options that exist."""
    found = [(command, parsed(command, arguments)) for command, arguments in commands((EXAMPLES / name).read_text())]
    joined = {"pytest", "report", "gate"}
    expected = {MEASURE: {"pytest"}, JUDGE: {"gate"}, **dict.fromkeys(IN_PARTS, joined)}.get(name, {"pytest", "gate"})
    assert {command for command, _ in found} == expected


@pytest.mark.parametrize("name", [path.name for path in sorted(EXAMPLES.iterdir())])
def test_page_names_every_example(name: str) -> None:
    """With a link."""
    assert f"(../examples/ci/{name})" in (ROOT / "docs/ci.md").read_text()


def test_every_command_on_the_page_parses() -> None:
    """In its blocks and in its sentences."""
    text = (ROOT / "docs/ci.md").read_text()
    blocks = "\n".join(re.findall(r"```\n(.*?)```", text, re.DOTALL))
    spans = re.findall(r"`((?:attnperf|pytest|python) [^`]*)`", re.sub(r"```.*?```", "", text, flags=re.DOTALL))
    lines = [re.sub(r"\s+", " ", re.sub(r"^pytest ", "python -m pytest ", span)) for span in spans]
    found = [(command, parsed(command, arguments)) for command, arguments in commands("\n".join([blocks, *lines]))]
    named = [command for command, _ in found]
    assert [named.count(command) for command in ("gate", "report", "fetch_results")] == [3, 3, 1]
    assert named.count("pytest") >= 4


def test_links_of_the_page_lead_somewhere() -> None:
    """Every file that it links is there."""
    linked = re.findall(r"\]\(([^)#:]+)\)", (ROOT / "docs/ci.md").read_text())
    assert len(linked) >= 6
    assert [link for link in linked if not (ROOT / "docs" / link).exists()] == []


@pytest.mark.parametrize("name", [MEASURE, JUDGE])
def test_scripts_of_gitlab_are_bash(name: str) -> None:
    """Every line and block of every job is read by bash without a complaint."""
    scripts = [line for job in gitlab(name).values() if isinstance(job, dict) for line in job.get("script", [])]
    assert len(scripts) >= 3
    for script in scripts:
        checked = subprocess.run(["bash", "-n"], input=script, capture_output=True, text=True, check=False)
        assert (checked.returncode, checked.stderr) == (0, ""), script


def test_measuring_half_of_gitlab_holds_no_token() -> None:
    """And does not start the judge: a webhook does."""
    text = (EXAMPLES / MEASURE).read_text()
    assert not re.search(r"PRIVATE-TOKEN|_TOKEN|trigger:", text)


def test_judging_half_of_gitlab_runs_on_a_protected_branch_and_runs_nothing_of_the_clone() -> None:
    """The measured project is fixed, its clone has no work tree, and one file of an archive is read."""
    job = gitlab(JUDGE)["judge"]
    assert job["rules"] == [{"if": '$CI_PIPELINE_SOURCE == "trigger" && $CI_COMMIT_REF_PROTECTED == "true"'}]
    assert job["variables"]["API"] == "$CI_API_V4_URL/projects/$MEASURED_PROJECT"
    script = "\n".join(job["script"])
    assert "git clone --quiet --no-checkout" in script
    assert '--against "refs/remotes/origin/$target"' in script  # a tag may be called origin/main
    assert '--commit "$head" "$sha"' in script
    assert "PRIVATE-TOKEN" not in script  # curl would send it on to where an artifact is stored
    assert "unzip -p archive.zip measured/results.json | head -c" in script


def test_jenkinsfile_is_balanced_and_judges_elsewhere() -> None:
    """Two agents; the one that measures does not judge."""
    text = re.sub(r"(?m)^\s*//.*$", "", (EXAMPLES / "Jenkinsfile").read_text())
    for opening, closing in ("{}", "()", "[]"):
        assert text.count(opening) == text.count(closing)
    measure, judge = text.split("stage('Judge')")
    assert "label 'amd-gpu'" in measure
    assert "attnperf gate" not in measure
    assert "label 'attnperf-judge'" in judge
    assert not re.search(r"pytest|make setup", judge)


def test_note_of_gitlab_gives_no_orders() -> None:
    """A line that begins with a slash would be one, given by the judge's token."""
    script = "\n".join(gitlab(JUDGE)["judge"]["script"])
    (command,) = re.findall(r"sed '[^']+'(?= >note\.md)", script)
    ran = subprocess.run(
        ["bash", "-c", command], input="a /merge\n/merge\n  /approve\n", capture_output=True, text=True, check=True
    )
    assert ran.stdout == "a /merge\n\\/merge\n\\  /approve\n"


@pytest.mark.parametrize(("mode", "status"), [("block", 1), ("shadow", 1), ("Block", 2), ("of", 2)])
def test_judging_half_of_gitlab_refuses_an_unknown_mode(tmp_path: Path, mode: str, status: int) -> None:
    """A typing error is no gate that is off; a known mode goes on, to a webhook that is not there."""
    script = gitlab(JUDGE)["judge"]["script"][-1]
    environ = {"PATH": "/usr/bin:/bin", "ATTNPERF_GATE": mode, "TRIGGER_PAYLOAD": "absent"}
    command = ["bash", "-eo", "pipefail", "-c", f"jq() {{ return 1; }}\n{script}"]
    ran = subprocess.run(command, cwd=tmp_path, env=environ, capture_output=True, text=True, check=False)
    assert ran.returncode == status
    assert ("known: shadow, warn, block" in ran.stdout) == (status == 2)


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A checkout whose Slurm, python and attnperf are scripts that keep what they were given."""
    for path, text in (
        (tmp_path / "bin/sbatch", FAKE_SBATCH),
        (tmp_path / ".venv/bin/python", FAKE_PYTHON),
        (tmp_path / ".venv/bin/attnperf", FAKE_ATTNPERF),
    ):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        path.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:/usr/bin:/bin")
    for name in ("ATTNPERF_ON_NODE", "ATTNPERF_GATE", "SLURM_ARGS"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path


def slurm(checkout: Path, *arguments: str) -> tuple[int, str]:
    """Exit status, and what it said on stderr."""
    command = ["bash", str(EXAMPLES / "slurm.sh"), *arguments]
    ran = subprocess.run(command, cwd=checkout, capture_output=True, text=True, check=False)
    return ran.returncode, ran.stderr


def given(checkout: Path, name: str) -> list[str]:
    """What a stand-in was called with."""
    return (checkout / f"{name}-arguments").read_text().splitlines()


def test_slurm_measures_on_a_node_and_judges_here(cluster: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Against the same base; a failed test on the node is for the gate to judge."""
    monkeypatch.setenv("FAKE_PYTEST", "1")
    monkeypatch.setenv("SLURM_ARGS", "--partition=mi300 --account=k")
    assert slurm(cluster, "v1.0") == (0, "")
    assert {"--gpus-per-node=1", "--wait", "--partition=mi300", "--account=k"} <= set(given(cluster, "sbatch"))
    assert "--attnperf-against=v1.0" in given(cluster, "pytest")
    gate = given(cluster, "gate")
    assert gate[gate.index("--against") + 1] == "v1.0"
    assert gate[gate.index("--mode") + 1] == "block"


def test_slurm_gives_the_gate_s_exit_status(cluster: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """1 fails whatever called it."""
    monkeypatch.setenv("FAKE_GATE", "1")
    assert slurm(cluster)[0] == 1


def test_slurm_job_without_results_is_no_pass(cluster: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not even where an earlier run left some."""
    assert slurm(cluster)[0] == 0
    monkeypatch.setenv("FAKE_JOB", "cancelled")
    status, said = slurm(cluster)
    assert status == 2
    assert "the job ended with status 9 and left no results" in said


def test_slurm_without_an_environment_says_what_to_do(cluster: Path) -> None:
    """Before a job is queued."""
    (cluster / ".venv/bin/python").unlink()
    status, said = slurm(cluster)
    assert status == 2
    assert "run make setup" in said
    assert not (cluster / "sbatch-arguments").exists()
