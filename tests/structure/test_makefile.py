"""The commands a user types first."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

pytestmark = pytest.mark.skipif(shutil.which("make") is None, reason="make is not installed")


def _make(*arguments: str) -> str:
    inherited = {"MAKEFLAGS", "MFLAGS", "ARGS", "PYTHON", "CPU_FLAGS", "TEST_FLAGS"}  # of the make that runs this test
    environment = {name: value for name, value in os.environ.items() if name not in inherited}
    command = ["make", "--no-print-directory", *arguments]
    return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=True).stdout


def test_help_lists_every_target() -> None:
    """`make` alone lists every target."""
    (phony,) = re.findall(r"^\.PHONY: (.*)$", (ROOT / "Makefile").read_text(), re.MULTILINE)
    listed = set(re.findall(r"^make (\w+) ", _make(), re.MULTILINE))
    assert listed == set(phony.split()) - {"help"}


def test_attnperf_gates_and_passes_arguments_on() -> None:
    """`make attnperf` gates the suites, or without a GPU the demonstration, records what is missing locally only, and
    passes ARGS to pytest; `make nightly` takes every case, and times none without a GPU."""
    planned = _make("--dry-run", "attnperf", "ARGS=-k d256")
    assert "-m pytest --attnperf --attnperf-record-local $what -k d256" in planned
    assert "what=suites/;" in planned
    assert "what='--attnperf-threshold=100 --no-attnperf-strict" in planned
    nightly = _make("--dry-run", "nightly")
    assert "-m pytest $how --attnperf-tier=nightly --attnperf-arch=all --attnperf-execute suites/" in nightly
    assert "update-baselines" not in planned + nightly


def test_every_run_sets_up_first() -> None:
    """Each target that runs something makes .venv first, from the files that define it."""
    for target in ("setup", "attnperf", "nightly", "test", "soak", "lint"):
        assert ".ci/setup" in _make("--dry-run", "--assume-new=pyproject.toml", target)


def test_test_and_soak_divide_the_tests() -> None:
    """`make test` runs what is not marked soak, `make soak` the rest."""
    assert 'pytest tests/ -m "not soak"' in _make("--dry-run", "test")
    assert "pytest tests/ -m soak" in _make("--dry-run", "soak")


def test_a_number_of_processes_replaces_the_shares() -> None:
    """With `-n` of the user's own every process would run all that it collects, if the shares were dealt out, too."""
    assert "TEST_SHARE=1/2" in _make("--dry-run", "test", "ARGS=-k nothing")
    for asked in ("-n 4", "-n4", "-x -n auto"):
        assert "TEST_SHARE" not in _make("--dry-run", "test", f"ARGS={asked}")


@pytest.mark.parametrize(
    ("types", "tests", "status"), [("true", "true", 0), ("false", "true", 2), ("true", "false", 2)]
)
def test_tests_beside_mypy_fail_where_either_fails(tmp_path: Path, types: str, tests: str, status: int) -> None:
    """`make test` runs mypy beside pytest, says what mypy said, and fails with either."""
    run = tmp_path / "python"
    run.write_text(f"#!/bin/sh\ncase $2 in mypy) echo checked; exec {types};; pytest) exec {tests};; esac\n")
    run.chmod(0o755)
    (tmp_path / ".setup-complete").touch()
    command = ["make", "--no-print-directory", "-f", ROOT / "Makefile", "test"]
    paths = [f"RUN={run} -m", f"STAMP={tmp_path}/.setup-complete", "--old-file", f"{tmp_path}/.setup-complete"]
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("MAKE", "MFLAGS"))}
    done = subprocess.run([*command, *paths], cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert (done.returncode, "mypy --strict:\nchecked" in done.stdout) == (status, True), done.stdout + done.stderr
