"""The examples that measure in parts: structure, shell and, for Slurm, a run on the fake device from queue to gate."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from pytest_attnperf.environment.shard_variables import COUNT, INDEX, RUN
from pytest_attnperf.reports.files import json_results
from pytest_attnperf.testing.project import FakeProject
from tests.tools.ci.ci_commands import EXAMPLES, ROOT

pytest_plugins = ["pytester", "pytest_attnperf.testing.project"]

QUEUE = """#!/usr/bin/env bash
# An array of Slurm, one task after the other; FAKE_LOST never starts.
set -u
status=0
for word; do case $word in
    --array=*) last=${word#--array=0-}; last=${last%%%*} ;;
    --*) ;;
    *) break ;;
esac; done
while [[ $1 == --* ]]; do shift; done
for task in $(seq 0 "$last"); do
    [ "$task" = "${FAKE_LOST:-}" ] && continue
    SLURM_ARRAY_JOB_ID=77 SLURM_ARRAY_TASK_ID=$task SLURM_ARRAY_TASK_MIN=0 SLURM_ARRAY_TASK_COUNT=$((last + 1)) \\
        ATTNPERF_ON_NODE=1 bash "$@" || status=$?
done
exit $status
"""


KEEPS = """#!/usr/bin/env bash
echo "$*" >>given
for argument; do case $argument in --attnperf-results=*) echo '{}' >"${argument#*=}" ;; esac; done
exit "${FAKE_STATUS:-0}"
"""


def load(name: str) -> list[dict[str, Any]]:
    """The documents of a YAML file."""
    return list(yaml.safe_load_all((EXAMPLES / name).read_text()))


def check_bash(script: str) -> None:
    """Fails if bash does not read the script."""
    checked = subprocess.run(["bash", "-n"], input=script, capture_output=True, text=True, check=False)
    assert (checked.returncode, checked.stderr) == (0, ""), script


def test_kubernetes_job_passes_count_and_run() -> None:
    """Its index comes from the system; the count is that of the Job, and the id that of its controller."""
    measure, gate = load("kubernetes-job.yaml")
    assert (measure["spec"]["completionMode"], measure["kind"], gate["kind"]) == ("Indexed", "Job", "Job")
    (container,) = measure["spec"]["template"]["spec"]["containers"]
    environ = {one["name"]: one for one in container["env"]}
    assert environ[COUNT]["value"] == str(measure["spec"]["completions"])
    assert "controller-uid" in environ[RUN]["valueFrom"]["fieldRef"]["fieldPath"]
    (judge,) = gate["spec"]["template"]["spec"]["containers"]
    for one in (container, judge):
        check_bash(one["args"][0])
    assert "resources" not in judge  # it needs no GPU


def test_github_matrix_passes_index_and_total() -> None:
    """Because GitHub has no variables for them; the gate runs although a part failed, and writes nothing."""
    (workflow,) = load("github-shards.yml")
    measure, gate = workflow["jobs"]["measure"], workflow["jobs"]["gate"]
    assert measure["env"] == {INDEX: "${{ strategy.job-index }}", COUNT: "${{ strategy.job-total }}"}
    assert (gate["needs"], gate["if"], workflow["permissions"]) == (
        "measure",
        "${{ !cancelled() }}",
        {"contents": "read"},
    )
    for step in (*measure["steps"], *gate["steps"]):
        check_bash(re.sub(r"\$\{\{.*?\}\}", "x", step.get("run", "")))
        assert re.fullmatch(r"[\w/-]+@[0-9a-f]{40}|", step.get("uses", ""))


@pytest.fixture
def cluster(attnperf_project: FakeProject, monkeypatch: pytest.MonkeyPatch) -> FakeProject:
    """A repository with two stored cases, whose Slurm is a script, and whose python and attnperf are these."""
    attnperf_project.backend("fake.a", time_us=100)
    attnperf_project.backend("fake.b", time_us=100)
    attnperf_project.store_baselines()
    path = attnperf_project.path
    arguments = "-p no:randomly -p no:xdist" if "xdist" in sys.modules else "-p no:randomly"
    for name, text in (
        ("bin/sbatch", QUEUE),
        (".venv/bin/python", f'#!/bin/sh\nexec {sys.executable} "$@" {arguments}\n'),
        (".venv/bin/attnperf", f'#!/bin/sh\nexec {sys.executable} -m pytest_attnperf.cli "$@"\n'),
    ):
        (path / name).parent.mkdir(parents=True, exist_ok=True)
        (path / name).write_text(text)
        (path / name).chmod(0o755)
    (path / ".gitignore").write_text(".venv\n.attnperf\nbin\n.pytest_cache\n__pycache__\n")
    identity = ("-c", "user.name=a", "-c", "user.email=a@b")
    for words in (["init", "-q"], ["add", "."], [*identity, "commit", "-qm", "all"]):
        subprocess.run(["git", *words], cwd=path, check=True)
    monkeypatch.setenv("PATH", f"{path / 'bin'}:/usr/bin:/bin")
    monkeypatch.setenv("XDG_CACHE_HOME", f"{path}-cache")
    monkeypatch.setenv("PYTHONPATH", f"{ROOT}:{os.environ.get('PYTHONPATH', '')}")
    return attnperf_project


def run_array(folder: Path, *words: str) -> tuple[int, str]:
    """Exit status of the example, and all that it said, in one line."""
    command = ["bash", str(EXAMPLES / "slurm-array.sh"), *words]
    ran = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    return ran.returncode, " ".join((ran.stdout + ran.stderr).split())


def test_slurm_array_measures_joins_and_judges(cluster: FakeProject, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two tasks have a case each, and pass together; without one of them the gate names the case that nobody ran."""
    status, said = run_array(cluster.path, "HEAD", "2")
    assert status == 0, said
    run = json_results.read(cluster.path / ".attnperf/slurm-array/joined.json")
    assert run.shard_manifest is not None
    assert (run.shard_manifest.run, [len(part) for part in run.shard_manifest.parts]) == ("slurm 77", [1, 1])
    assert [record.index for record in run.shards] == [1, 2]
    assert all(record.node and record.gpus for record in run.shards)
    monkeypatch.setenv("FAKE_LOST", "0")
    status, said = run_array(cluster.path, "HEAD", "2")
    assert status == 1
    assert "shards missing: 1 of 2; nobody ran 1 case: prefill/fake.a/" in said


@pytest.fixture
def stand_ins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A checkout whose Slurm, python and attnperf are scripts; the last two keep what they were given."""
    for name, text in (("bin/sbatch", QUEUE), (".venv/bin/python", KEEPS), (".venv/bin/attnperf", KEEPS)):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:/usr/bin:/bin")
    for name in ("ATTNPERF_ON_NODE", "ATTNPERF_GATE", "ATTNPERF_NODES", "SLURM_ARGS"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path


def test_slurm_array_gives_each_task_a_file(stand_ins: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And all files that there are to the join; failed tests are for the gate, files of an earlier array are gone."""
    folder = stand_ins / ".attnperf/slurm-array"
    folder.mkdir(parents=True)
    (folder / "9.json").write_text("{}")
    monkeypatch.setenv("FAKE_STATUS", "1")
    assert run_array(stand_ins, "v1", "3")[0] == 1  # that of the gate
    measured = [line for line in (stand_ins / "given").read_text().splitlines() if line.startswith("-m pytest")]
    assert [re.findall(r"slurm-array/(\w+)\.json", line) for line in measured] == [["0"], ["1"], ["2"]]
    assert all("--attnperf-shard=auto --attnperf-against=v1 " in line for line in measured)
    *_, joined, gated = (stand_ins / "given").read_text().splitlines()
    assert re.findall(r"(\w+)\.json", joined) == ["0", "1", "2", "joined"]
    assert "--against v1 --mode block --strict" in gated


def test_slurm_array_without_results_is_no_pass(stand_ins: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It says where to look; and without an environment what to do, before a job is queued."""
    monkeypatch.setenv("FAKE_LOST", "0")
    status, said = run_array(stand_ins, "v1", "1")
    assert (status, "left no results; see" in said) == (2, True)
    (stand_ins / ".venv/bin/python").unlink()
    status, said = run_array(stand_ins)
    assert (status, "run make setup" in said) == (2, True)
