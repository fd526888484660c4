"""Which commit the entries of a recording run name."""

from __future__ import annotations

import json

import pytest

from pytest_attnperf.testing.project import FakeProject
from tests.plugin.printed.arranging import commit_all, git


@pytest.fixture
def committed(attnperf_project: FakeProject) -> FakeProject:
    """A project whose every file is committed."""
    attnperf_project.backend("fake.a", time_us=100)
    commit_all(attnperf_project, "all")
    return attnperf_project


def stored_commits(project: FakeProject) -> set[str]:
    """The commits that the stored entries name."""
    return {entry["commit"] for entry in json.loads(project.baseline().read_text())["entries"].values()}


def test_entries_of_a_clean_tree_name_its_commit(committed: FakeProject, monkeypatch: pytest.MonkeyPatch) -> None:
    """Under CI, too, and when other baselines were changed before."""
    committed.store_baselines()
    commit_all(committed, "stored")
    committed.baseline().write_text(committed.baseline().read_text() + "\n")
    monkeypatch.setenv("CI", "true")
    result = committed.run("--update-baselines")
    assert result.ret == 0, result.stdout.str()
    result.stdout.no_fnmatch_line("*+dirty*")
    assert stored_commits(committed) == {git(committed, "rev-parse", "HEAD")[:12]}


def test_changed_files_are_said_and_refused_under_ci(committed: FakeProject, monkeypatch: pytest.MonkeyPatch) -> None:
    """The entries name no commit as theirs, and the run says which files differ; under CI nothing is measured."""
    committed.suite(["prefill-b1-s32-h1-d16-f16"])
    result = committed.run("--update-baselines")
    assert result.ret == 0
    commit = git(committed, "rev-parse", "HEAD")[:12]
    result.stdout.fnmatch_lines(
        [f"the entries name {commit}+dirty: no commit has the code that ran, in 1 file (suites/test_prefill.py); *"]
    )
    assert stored_commits(committed) == {f"{commit}+dirty"}
    monkeypatch.setenv("CI", "true")
    result = committed.run("--update-baselines")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    said = f"commit {commit} has other content of 1 file (suites/test_prefill.py), so that *"
    result.stderr.fnmatch_lines([f"ERROR: --update-baselines under CI: {said}"])


def test_files_that_were_never_added_count(committed: FakeProject, monkeypatch: pytest.MonkeyPatch) -> None:
    """A suite that git does not have makes the tree dirty; under CI its entries are not stored, and the run fails."""
    committed.suite(["prefill-b1-s32-h1-d16-f16"], name="test_new.py")
    commit = git(committed, "rev-parse", "HEAD")[:12]
    monkeypatch.setenv("CI", "true")
    result = committed.run("--update-baselines")
    assert result.ret == 1
    result.stdout.fnmatch_lines(
        [f"*no baseline was written: commit {commit} does not have 1 file (suites/test_new.py)*"]
    )
    assert not list((committed.path / "baselines").rglob("*.json"))
    monkeypatch.delenv("CI")
    assert committed.run("--update-baselines").ret == 0
    assert stored_commits(committed) == {f"{commit}+dirty"}


def test_a_calibration_names_no_commit_that_lacks_a_file(committed: FakeProject) -> None:
    """What is stored from its results later would otherwise name a commit without the suite that ran."""
    commit = git(committed, "rev-parse", "HEAD")[:12]
    assert committed.run("--attnperf-calibrate=2").ret == 0
    assert committed.results()["commit"] == commit
    committed.suite(["prefill-b1-s32-h1-d16-f16"], name="test_new.py")
    assert committed.run("--attnperf-calibrate=2").ret == 0
    assert committed.results()["commit"] == f"{commit}+dirty"
