"""A disk that is full, or may not be written to: one message, and nothing half written."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from pytest_attnperf.testing.project import FakeProject


def fill_disk(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """Let no file whose name holds `name` reach the disk, as one that is full at the end of a run."""
    real = os.fsync

    def full(descriptor: int) -> None:
        if name in os.readlink(f"/proc/self/fd/{descriptor}"):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        real(descriptor)

    monkeypatch.setattr(os, "fsync", full)


@pytest.fixture
def project(attnperf_project: FakeProject) -> FakeProject:
    """One backend."""
    attnperf_project.backend("fake.a", time_us=100.0)
    return attnperf_project


def _left(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.rglob("*") if path.is_file() and not path.name.endswith(".lock"))


@pytest.mark.parametrize("kind", [errno.ENOSPC, errno.EROFS, errno.EACCES])
def test_logs_that_cannot_be_written_end_a_run_before_it_begins(
    project: FakeProject, monkeypatch: pytest.MonkeyPatch, kind: int
) -> None:
    """Exit status 4 and one line: a worker that cannot write its log would die in every case."""
    real = Path.write_bytes

    def refuse(path: Path, data: bytes) -> int:
        if path.name == "trial":
            raise OSError(kind, os.strerror(kind), str(path))
        return real(path, data)

    monkeypatch.setattr(Path, "write_bytes", refuse)
    result = project.run("--attnperf")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(
        [f"ERROR: *.attnperf/logs/* cannot be written to ({os.strerror(kind)}): *Nothing was run;*"]
    )
    assert "Traceback" not in result.stdout.str() + result.stderr.str()
    assert _left(project.path / ".attnperf") == []


def test_results_that_cannot_be_written_cost_nothing_that_is_printed(
    project: FakeProject, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The run fails, says so in one line, and the results of the run before stay whole."""
    project.run("--attnperf")
    path = project.path / ".attnperf" / "results.json"
    before = path.read_bytes()
    fill_disk(monkeypatch, "results.json")
    result = project.run("--attnperf", "--no-attnperf-strict")
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    said = "exit status 1: .attnperf/results.json was not written (No space left on device) and is unchanged: *"
    result.stdout.fnmatch_lines(["*1 without baseline*", said])
    assert "Traceback" not in result.stdout.str() + result.stderr.str()
    assert "results: " not in result.stdout.str()
    assert path.read_bytes() == before
    assert [name for name in os.listdir(path.parent) if name.startswith(".results")] == []


@pytest.mark.parametrize(
    ("typed", "folder", "said"),
    [
        (
            "--update-baselines",
            "baselines",
            "exit status 1: *No space left on device: '*baselines/fake/fake1/prefill.json'",
        ),
        (
            "--attnperf-record-local",
            ".attnperf/local",
            "nothing was recorded: *No space left on device: '*.attnperf/local/fake/fake1/prefill.json'; make room, *",
        ),
    ],
)
def test_baselines_that_cannot_be_written_are_named(
    project: FakeProject, monkeypatch: pytest.MonkeyPatch, typed: str, folder: str, said: str
) -> None:
    """No part of a file is left."""
    fill_disk(monkeypatch, "prefill.json")
    result = project.run("--attnperf", typed)
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result.stdout.fnmatch_lines([said])
    assert "Traceback" not in result.stdout.str() + result.stderr.str()
    assert _left(project.path / folder) == []


def test_a_home_that_cannot_be_written_to_and_one_core(project: FakeProject, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither keeps a run from judging: nothing of ours lies at home, and a process is enough."""
    monkeypatch.setenv("HOME", "/proc/1/nothing")
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setattr(os, "cpu_count", lambda: 1)
    cores = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(cores)})
    try:
        result = project.run("--attnperf", "--no-attnperf-strict")
    finally:
        os.sched_setaffinity(0, cores)
    assert result.ret == 0
    assert project.verdicts() == {"fake.a": "NO_BASELINE"}
