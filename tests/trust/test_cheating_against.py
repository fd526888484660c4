"""What a pull request may do to pass, judged by `pytest --attnperf-against=BASE --attnperf-strict` in its checkout."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from pytest_attnperf.testing.fake.device import SCRIPT
from pytest_attnperf.testing.project import CONFTEST, SUITE, WORKLOAD

pytestmark = pytest.mark.skipif(shutil.which("git") is None, reason="needs git")


def _typed(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    kept = {name: value for name, value in os.environ.items() if name not in ("CI", "PYTEST_ADDOPTS")}
    more = {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "GIT_CONFIG_GLOBAL": os.devnull, "COLUMNS": "200",
            "XDG_CACHE_HOME": str(folder.parent / "cache")}  # fmt: skip
    return subprocess.run(words, cwd=folder, env={**kept, **more}, capture_output=True, text=True, check=False)


def _pytest(folder: Path, *words: str) -> tuple[int, str]:
    done = _typed(folder, sys.executable, "-m", "pytest", "-p", "pytest_attnperf.plugin.main", *words, "suites/")
    return done.returncode, done.stdout


def _write(folder: Path, backends: dict[str, object], settings: str = "") -> None:
    (folder / SCRIPT).write_text(json.dumps({"backends": backends, "process_sd": 0.002}))
    (folder / "suites" / "test_prefill.py").write_text(SUITE.format(workloads=[WORKLOAD], settings=settings))


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One whose `main` stores 100 us for three cases."""
    folder = tmp_path_factory.mktemp("against") / "repository"
    (folder / "suites").mkdir(parents=True)
    (folder / "conftest.py").write_text(CONFTEST)
    (folder / "pytest.ini").write_text("[pytest]\n")
    _write(folder, {f"fake.{name}": {"time_us": 100} for name in "abc"})
    assert _pytest(folder, "--update-baselines")[0] == 0
    identity = ("-c", "user.name=n", "-c", "user.email=e@x")
    for words in (("init", "-q", "-b", "main"), ("add", "-A"), ("commit", "-q", "-m", "base")):
        assert _typed(folder, "git", *identity, *words).returncode == 0
    return folder


def test_deleted_entries_loosened_settings_and_cases_that_vanish_are_found(repository: Path) -> None:
    """No baselines, a marker and an ini that let more through, a renamed case, one called unsupported: each is a
    finding or a failure, and the run fails."""
    shutil.rmtree(repository / "baselines")
    slow = {"time_us": 110}
    (repository / "pytest.ini").write_text("[pytest]\nattnperf_fail_on = ERROR\n")
    unsupported = {"time_us": 100, "supported": ["no such dtype"]}
    _write(repository, {"fake.a": slow, "fake.renamed": slow, "fake.c": unsupported}, ", threshold=50")
    status, text = _pytest(repository, "--attnperf", "--attnperf-against=main", "--attnperf-pairs=2",
                           "--attnperf-strict")  # fmt: skip
    assert status == 1
    loosened = f"finding: prefill/fake.a/{WORKLOAD}: policy loosened since the baseline:"
    assert f"{loosened} threshold_percent 2 -> 50" in text
    assert f"{loosened} fail_on no longer has INCORRECT, SLOWER, SUSPICIOUS" in text
    assert f"finding: prefill/fake.b/{WORKLOAD} has a baseline but no case" in text
    assert f"UNSUPPORTED: prefill/fake.c/{WORKLOAD}" in text
    assert "1 new in this revision: not in main (" in text
    assert f"finding: prefill/fake.b/{WORKLOAD} exists on base side main (" in text
    assert "exit status 1: strict: " in text
