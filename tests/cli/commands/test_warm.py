"""`attnperf warm`: what it gives to pytest, its exit status, and one run as it is typed."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from pytest_attnperf.cli.program import main
from pytest_attnperf.plugin.own_pytest import IMPORTED
from pytest_attnperf.testing.project import FakeProject


@pytest.fixture
def given(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[list[str]]:
    """What pytest was called with, in a folder that has suites."""
    calls: list[list[str]] = []

    def called(args: list[str], plugins: object) -> int:
        calls.append([arg for arg in args if arg not in ("-n0", *IMPORTED)])
        return 0

    (tmp_path / "suites").mkdir()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(pytest, "main", called)
    return calls


def test_everything_behind_it_is_for_pytest(given: list[list[str]], tmp_path: Path) -> None:
    """Options come first or last; the suites are meant where no path is named, which the value of an option is not,
    and the current folder without any."""
    (tmp_path / "test_x.py").touch()
    (tmp_path / "triton").mkdir()
    assert main(["warm", "-k", "triton", "--attnperf-backend=triton"]) == 0
    assert main(["warm", "test_x.py::test_y", "-q"]) == 0
    (tmp_path / "suites").rmdir()
    assert main(["warm"]) == 0
    assert given == [
        ["--attnperf-warm", "-k", "triton", "--attnperf-backend=triton", "suites"],
        ["--attnperf-warm", "test_x.py::test_y", "-q"],
        ["--attnperf-warm", "."],
    ]


@pytest.mark.parametrize(("ended", "status"), [(0, 0), (1, 1), (2, 130), (3, 2), (4, 2), (5, 2)])
def test_exit_status(monkeypatch: pytest.MonkeyPatch, ended: int, status: int) -> None:
    """0 all ready, 1 not all, 130 interrupted, and 2 for a command that is off or has no case."""
    monkeypatch.setattr(pytest, "main", lambda args, plugins: ended)
    assert main(["warm"]) == status


def test_help(capsys: pytest.CaptureFixture[str]) -> None:
    """Help is the command's own, with examples and exit status."""
    with pytest.raises(SystemExit) as ended:
        main(["warm", "--help"])
    assert ended.value.code == 0
    said = capsys.readouterr().out
    assert "examples:" in said
    assert "exit status:" in said


def test_as_typed(attnperf_project: FakeProject) -> None:
    """In a project's folder it warms the suites, whatever PYTEST_ADDOPTS asks of other runs: every case is opened and
    proven once, nothing is timed or written, the end says what is ready and what a fresh process pays, and the command
    fails by what could not be built alone."""
    for name, script in (("fake.a", {}), ("fake.b", {"fault": "prepare"}), ("fake.c", {"supported": ["not here"]})):
        attnperf_project.backend(name, **script)
    environment = {**os.environ, "PYTEST_ADDOPTS": "--attnperf", "COLUMNS": "80", "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "pytest_attnperf.cli", "warm", "-p", "no:randomly"]
    ran = subprocess.run(
        command, cwd=attnperf_project.path, env=environment, capture_output=True, text=True, check=False, timeout=120
    )
    assert ran.returncode == 1, ran.stdout + ran.stderr
    pytest.LineMatcher(ran.stdout.splitlines()).fnmatch_lines(
        [
            "RuntimeError: scripted compile error*",
            "*= attnperf: warm =*",
            "slowest first calls*first call*fresh process*proof alone*",
            "warm: 1 of 3 cases are ready, in *, 1 unsupported here, 1 could not be made ready",
            "first calls: *fake.a 0 s*",
            "*= 1 failed, 1 passed, 1 skipped in *",
        ]
    )
    assert "warning" not in ran.stdout
    left = attnperf_project.path / ".attnperf"
    assert not (left / "results.json").exists()
    assert len(list((left / "logs").glob("*/worker1-*.log"))) == 1
