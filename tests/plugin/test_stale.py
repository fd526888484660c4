"""STALE, typed as a user types it: an entry recorded before the base revision's kernel, and who hides behind it."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from pytest_attnperf.baselines.store import BaselineStore
from pytest_attnperf.cli.commands.gate import read_results
from pytest_attnperf.session.rejudge.timed_cases import RejudgeSettings, rejudge_run
from pytest_attnperf.testing.project import FakeProject
from pytest_attnperf.workers.revisions import Repository
from pytest_attnperf.workers.source_tree import Revisions

BASE_REF = "GITHUB_BASE_REF"


def git(folder: Path, *words: str) -> str:
    """Run git as nobody in particular."""
    who = ["-c", "user.name=a", "-c", "user.email=a@b", "-c", "commit.gpgsign=false"]
    environment = {**os.environ, "GIT_CONFIG_GLOBAL": os.devnull}
    command = ["git", *who, *words]
    return subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, check=True, text=True
    ).stdout.strip()


def committed(project: FakeProject, name: str, text: str) -> str:
    """Commit everything, with this file; the commit."""
    (project.path / name).write_text(text)
    git(project.path, "add", "-A")
    git(project.path, "commit", "-qm", name)
    return git(project.path, "rev-parse", "HEAD")


def kernel_changes(project: FakeProject) -> None:
    """The base branch gets another kernel, which takes 119 us."""
    committed(project, "suites/kernel.json", '{"loops": 2}')
    git(project.path, "update-ref", "refs/remotes/origin/main", "HEAD")


@pytest.fixture
def project(attnperf_project: FakeProject, monkeypatch: pytest.MonkeyPatch) -> FakeProject:
    """Two cases recorded from the first commit; the base branch has another kernel since then, and a change to it is
    looked at by a CI system that names its base."""
    for name in ("fake.a", "fake.b"):
        attnperf_project.backend(name, time_us=100.0)
    git(attnperf_project.path, "init", "-q", "-b", "main")
    (attnperf_project.path / ".gitignore").write_text(".attnperf/\n__pycache__/\nfake_device.json\n")
    committed(attnperf_project, "suites/kernel.json", '{"loops": 1}')
    assert attnperf_project.run("--update-baselines").ret == 0
    kernel_changes(attnperf_project)
    monkeypatch.setenv(BASE_REF, "main")
    attnperf_project.backend("fake.a", time_us=119.0)
    return attnperf_project


def test_a_slowdown_of_the_base_revision_is_stale(project: FakeProject) -> None:
    """A change that touches no source is not blamed for what its base did: the case is compared with nothing, says how
    to record again, and fails nothing, also where strict; the other case is gated."""
    committed(project, "README.md", "words\n")
    result = project.run("--attnperf", "--attnperf-strict")
    assert result.ret == 0, result.stdout.str()
    assert project.verdicts() == {"fake.a": "STALE", "fake.b": "SAME"}
    (case,) = [case for case in project.results()["cases"] if case["verdict"] == "STALE"]
    assert (case["ratio"], case["threshold"], case["fails"]) == (None, None, False)
    assert "was recorded with other sources than" in case["summary"]
    assert "pytest --update-baselines" in case["summary"]
    assert any("its looks measured +19" in why or "its looks measured +18" in why for why in case["reasons"])
    assert "1 stale" in result.stdout.str()
    assert project.results()["gated"] == 1
    project.run("--attnperf", "--attnperf-fail-on=slower,stale").assert_outcomes(failed=1, passed=1)


def nothing(project: FakeProject) -> None:
    """The change is what the base is."""


LIARS: dict[str, Callable[[FakeProject], object]] = {
    "its own slow kernel": lambda project: (project.path / "suites/kernel.json").write_text('{"loops": 9}'),
    "a committed slow kernel": lambda project: committed(project, "suites/kernel.json", '{"loops": 9}'),
    "a new source": lambda project: committed(project, "suites/override.py", "LOOPS = 9\n"),
    "a kernel that was taken back": lambda project: committed(project, "suites/kernel.json", '{"loops": 1}'),
}


@pytest.mark.parametrize("change", LIARS.values(), ids=LIARS)
def test_a_slowdown_that_poses_as_the_bases_is_slower(
    project: FakeProject, change: Callable[[FakeProject], object]
) -> None:
    """Whoever touches a source answers for the time, committed or not, whatever the base did before."""
    change(project)
    assert project.run("--attnperf").ret == 1
    assert project.verdicts()["fake.a"] == "SLOWER"


def test_without_a_base_revision_nothing_is_stale(project: FakeProject, monkeypatch: pytest.MonkeyPatch) -> None:
    """HEAD is none: who commits a slowdown would be excused by it. Neither is one that was not fetched."""
    monkeypatch.setenv(BASE_REF, "not-fetched")
    project.run("--attnperf")
    assert project.verdicts()["fake.a"] == "SLOWER"
    monkeypatch.delenv(BASE_REF)
    project.run("--attnperf")
    assert project.verdicts()["fake.a"] == "SLOWER"


def test_an_entry_of_the_bases_own_sources_is_not_stale(project: FakeProject) -> None:
    """A slowdown against it is the machine's or an unknown cause's, and fails as ever."""
    project.backend("fake.a", time_us=100.0)
    assert project.run("--update-baselines").ret == 0
    project.backend("fake.a", time_us=119.0)
    project.run("--attnperf")
    assert project.verdicts()["fake.a"] == "SLOWER"


@pytest.mark.parametrize(("dirt", "verdict"), [("", "STALE"), ("+dirty", "SLOWER")])
def test_an_old_entry_is_known_by_its_commit(project: FakeProject, dirt: str, verdict: str) -> None:
    """Without a hash of its sources git says what they were, unless the tree had changes."""
    content = json.loads(project.baseline().read_text())
    for entry in content["entries"].values():
        assert entry.pop("source_id")
        entry["commit"] += dirt
        entry.pop("summary")
    project.baseline().write_text(json.dumps(content))
    project.run("--attnperf")
    assert project.verdicts()["fake.a"] == verdict


def test_stale_is_judged_anew(project: FakeProject) -> None:
    """`attnperf gate` finds it by its own base revision, and without one the case is SLOWER."""
    project.run("--attnperf")
    ((_, run),) = read_results([project.path / ".attnperf" / "results.json"], 10**7)
    repository = Repository.find_around(project.path)
    assert repository is not None
    revisions = Revisions(repository, project.path, repository.commit_of("origin/main"))
    store = BaselineStore(project.path / "baselines")
    said = {
        known is not None: [
            case.verdict.value for case in rejudge_run(run, store, RejudgeSettings(revisions=known)).cases
        ]
        for known in (revisions, None)
    }
    assert said == {True: ["STALE", "SAME"], False: ["SLOWER", "SAME"]}
