"""A temporary project on the fake device, for tests that run the commands of a user.

pytest_plugins = ["pytester", "pytest_attnperf.testing.project"]

def test_slower_fails(attnperf_project):
    attnperf_project.backend("fake.a", time_us=100)
    attnperf_project.run("--update-baselines")
    attnperf_project.backend("fake.a", time_us=110)
    attnperf_project.run("--attnperf").assert_outcomes(failed=1)
"""

from __future__ import annotations

import dataclasses
import json
import tempfile
from pathlib import Path
from typing import Any

import pytest

from pytest_attnperf.reports.files import json_results
from pytest_attnperf.testing.fake.device import SCRIPT

SUITE = """
import pytest

@pytest.mark.attnperf(family="prefill", workloads={workloads!r}{settings})
def test_prefill(attnperf, backend, workload):
    attnperf.run(backend, workload)
"""
WORKLOAD = "prefill-b1-s64-h1-d16-f16"
CONFTEST = 'pytest_plugins = ["pytest_attnperf.testing.fake.device"]\n'

_STORED: dict[str, dict[str, bytes]] = {}
"""Baselines by script and suites: measuring in seven fresh processes takes seconds, and gives the same result again."""


def full_results(path: Path) -> dict[str, Any]:
    """Returns the results file at `path` as JSON objects, with every field: nothing shared, no default left out."""
    loaded: dict[str, Any] = json.loads(json.dumps(dataclasses.asdict(json_results.read(path))))
    return loaded


class FakeProject:
    """A folder with a suite, a fake device, and pytest to run in it."""

    def __init__(self, pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
        self.pytester = pytester
        self.path: Path = pytester.path
        self._monkeypatch = monkeypatch
        self.script: dict[str, Any] = {"backends": {}, "process_sd": 0.003}
        monkeypatch.delenv("CI", raising=False)
        monkeypatch.delenv("PYTEST_ADDOPTS", raising=False)
        pytester.makeini("[pytest]\n")
        self.conftest()
        self.suite([WORKLOAD])

    def suite(self, workloads: list[str], settings: str = "", name: str = "test_prefill.py") -> None:
        """Writes suites/<name> with one test of family prefill over `workloads`; `settings` follows them in the marker
        and must begin with a comma."""
        folder = self.path / "suites"
        folder.mkdir(exist_ok=True)
        (folder / name).write_text(SUITE.format(workloads=workloads, settings=settings))

    def conftest(self, extra: str = "") -> None:
        """Writes conftest.py: it loads the fake device; `extra` is appended."""
        (self.path / "conftest.py").write_text(CONFTEST + extra)

    def backend(self, name: str, **script: Any) -> None:
        """Sets the script of one backend (keys: `testing.fake.device`) and writes the file; a second call replaces the
        first."""
        self.script["backends"][name] = script
        self.write()

    def device(self, **values: Any) -> None:
        """Scripts the device's identity, fingerprint and number of cards ('gpus'), and writes the script. With 'gpus'
        the files by which processes reserve cards lie in this project's own folder, so that projects running at the
        same time may all have a card '0'."""
        if "gpus" in values:
            (self.path / "tmp").mkdir(exist_ok=True)
            self._monkeypatch.setenv("TMPDIR", str(self.path / "tmp"))
            self._monkeypatch.setattr(tempfile, "tempdir", None)
        self.script["device"] = values
        self.write()

    def write(self) -> None:
        """Writes fake_device.json, the script of device and backends; workers read it again for every case."""
        (self.path / SCRIPT).write_text(json.dumps(self.script, indent=1))

    def run(self, *args: str, timeout: float = 120) -> pytest.RunResult:
        """Runs `pytest ARGS suites/` in a subprocess, at most `timeout` seconds, and returns its result."""
        return self.pytester.runpytest_subprocess("-p", "no:randomly", *args, "suites/", timeout=timeout)

    def store_baselines(self, *args: str) -> None:
        """Stores baselines as `--update-baselines ARGS` does; for an equal script and suites they are measured once per
        session, then copied."""
        suites = {path.name: path.read_text() for path in (self.path / "suites").glob("*.py")}
        key = json.dumps([self.script, suites, args], sort_keys=True)
        if key not in _STORED:
            result = self.run("--update-baselines", "--attnperf-tier=nightly", *args)
            assert result.ret == 0, result.stdout.str()
            folder = self.path / "baselines"
            _STORED[key] = {str(p.relative_to(folder)): p.read_bytes() for p in folder.glob("*/*/*.json")}
        for name, content in _STORED[key].items():
            path = self.path / "baselines" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)

    def results(self) -> dict[str, Any]:
        """Returns .attnperf/results.json of the last timed run as JSON objects, with every field."""
        return full_results(self.path / ".attnperf" / "results.json")

    def verdicts(self) -> dict[str, str]:
        """Returns {backend: verdict} of the last timed run; of several cases of one backend, the last one's."""
        return {case["key"]["backend"]: case["verdict"] for case in self.results()["cases"]}

    def baseline(self, arch: str = "fake", product: str = "fake1", suite: str = "prefill") -> Path:
        """Returns the path baselines/<arch>/<product>/<suite>.json in the project, whether it exists or not."""
        return self.path / "baselines" / arch / product / f"{suite}.json"


@pytest.fixture
def attnperf_project(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> FakeProject:
    """Returns a temporary project with the fake device, one suite, and no scripted backend."""
    return FakeProject(pytester, monkeypatch)
