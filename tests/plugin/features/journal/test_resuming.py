"""A run that was ended early goes on where it was, as its user types it."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from pytest_attnperf.reports.files.journal import read_journal
from pytest_attnperf.testing.project import FakeProject

RESUME = "--attnperf-resume"


def journals(project: FakeProject) -> list[Path]:
    """The journals in the project, the oldest first."""
    return sorted((project.path / ".attnperf" / "journal").glob("*"))


XDIST = ("-p", "xdist", "-n1")
"""Named, because `lean_processes` load nothing by themselves."""


def ended_early(project: FakeProject, number: signal.Signals, *args: str, judged: int) -> tuple[int, str]:
    """(exit status, output) of a pytest whose process group gets this signal once so many cases are in its journal."""
    command = [sys.executable, "-m", "pytest", "-p", "no:randomly", *args, "suites/"]
    environment = {**os.environ, "COLUMNS": "80"}
    process = subprocess.Popen(
        command, cwd=project.path, env=environment, stdout=subprocess.PIPE, text=True, start_new_session=True
    )
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline and process.poll() is None:
        if any(path.read_bytes().count(b"\n") > judged for path in journals(project)):
            break
        time.sleep(0.05)
    for _ in range(2):  # a CI system may well send it twice
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, number)
        time.sleep(0.01)
    output, _ = process.communicate(timeout=60)
    return process.returncode, output


def same_plugin(project: FakeProject, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let pytest in this process be of the plugin that wrote the journal, whoever edits its files meanwhile."""
    harness = json.loads(journals(project)[-1].read_bytes().split(b"\n")[0])["harness"]
    monkeypatch.setattr("pytest_attnperf.plugin.features.journal.journal_header.harness_digest", lambda: harness)


def test_a_terminated_run_goes_on_where_it_was(attnperf_project: FakeProject, monkeypatch: pytest.MonkeyPatch) -> None:
    """SIGTERM in the third case: exit status 2, two results on disk, and what to type. That takes the SAME over as it
    is, and the SLOWER as a failure, judges the rest and leaves no journal; under other settings it is refused."""
    project = attnperf_project
    for name in ("fake.a", "fake.b", "fake.c"):
        project.backend(name, time_us=100.0)
    project.store_baselines()
    project.backend("fake.b", time_us=130.0)
    project.backend("fake.c", fault="hang")
    status, output = ended_early(project, signal.SIGTERM, "--attnperf", judged=2)
    assert status == 2, output
    assert "terminated by SIGTERM" in output
    assert f"not finished; go on with: pytest -p no:randomly --attnperf suites/ {RESUME}" in output
    before = project.results()
    assert before["complete"] is False
    assert [case["verdict"] for case in before["cases"]] == ["SAME", "SLOWER"]

    same_plugin(project, monkeypatch)
    refused = project.run("--attnperf", "--attnperf-effort=low", RESUME)
    assert refused.ret == 4
    refused.stderr.fnmatch_lines(
        ["*--attnperf-effort was normal and is low; resume it by: pytest * --attnperf-resume;*"]
    )
    project.backend("fake.c", time_us=100.0)
    run = project.run("--attnperf", RESUME)
    run.assert_outcomes(passed=2, failed=1)
    run.stdout.fnmatch_lines(["resumed: 2 of 3 cases were judged by the run of * UTC, which was interrupted"])
    cases = project.results()["cases"]
    assert [case["resumed"] for case in cases] == [True, True, False]
    assert [case["first"] for case in cases[:2]] == [case["first"] for case in before["cases"]]
    assert journals(project) == []


def test_a_killed_recording_goes_on_under_xdist(
    attnperf_project: FakeProject, lean_processes: None, forked_workers: str
) -> None:
    """kill -9 of a run with -n1 --update-baselines: the resumed one measures only what is missing, and stores all."""
    project = attnperf_project
    project.conftest(forked_workers)
    project.backend("fake.a", time_us=100.0)
    project.backend("fake.b", fault="hang")
    ended_early(project, signal.SIGKILL, *XDIST, "--update-baselines", judged=1)
    (journal,) = journals(project)
    (first,) = read_journal(journal).cases
    project.backend("fake.b", time_us=50.0)
    command = [sys.executable, "-m", "pytest", "-p", "no:randomly", *XDIST, "--update-baselines", RESUME, "suites/"]
    run = subprocess.run(command, cwd=project.path, capture_output=True, text=True, check=False, timeout=60)
    assert run.returncode == 0, run.stdout + run.stderr
    assert "resumed: 1 of 2 cases were judged by the run of" in run.stdout
    entries = json.loads(project.baseline().read_bytes())["entries"]
    assert [name.split("/")[0] for name in entries] == ["fake.a", "fake.b"]
    assert project.results()["cases"][0]["median_us"] == first.median_us
    assert journals(project) == []
