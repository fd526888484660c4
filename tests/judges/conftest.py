"""A project that registers the liars and their twins, and what pytest says of each when it is run there."""

from __future__ import annotations

import os
import subprocess
import sys
import xml.etree.ElementTree as ET
from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

import pytest

from pytest_attnperf.testing.liars import LIARS, Liar

HONEST = "LIARS_ARE_HONEST"
CONFTEST = f"""
import os
import pytest
from pytest_attnperf.testing.liars import LIARS

pytest_plugins = ["pytest_attnperf.testing.liars"]

@pytest.hookimpl(trylast=True)
def pytest_attnperf_register_backends(registry):
    if os.environ.get({HONEST!r}):
        for liar in LIARS:
            registry.replace(liar.as_honest)
"""
CASE = """
@pytest.mark.attnperf(family="prefill", workloads=[{workload!r}], backends={backends!r})
def test_{number}(attnperf, backend, workload):
    attnperf.run(backend, workload)
"""
LIMIT_SECONDS = 540


@dataclass(frozen=True)
class Said:
    """What one run said of one backend: its verdict, whether its test failed, and the failure's text."""

    verdict: str
    failed: bool
    text: str


class Project:
    """A folder with the liars' plugin, and a suite of the given liars, their twins and their workloads."""

    def __init__(self, path: Path, liars: Iterable[Liar]) -> None:
        self._path = path
        (path / "pytest.ini").write_text("[pytest]\n")
        (path / "conftest.py").write_text(CONFTEST)
        (path / "suites").mkdir()
        backends = defaultdict(list)
        for liar in liars:
            backends[liar.workload.id] += [liar.lying.name, liar.honest.name]
        cases = (CASE.format(workload=w, backends=names, number=n) for n, (w, names) in enumerate(backends.items()))
        (path / "suites" / "test_liars.py").write_text("import pytest\n" + "".join(cases))

    def run(self, *args: str, honest: bool = False) -> dict[str, Said]:
        """Type `pytest ARGS suites/`; what was said of each backend. `honest`: the twins run under the liars' names."""
        environment = {name: value for name, value in os.environ.items() if name not in ("CI", "PYTEST_ADDOPTS")}
        if honest:
            environment[HONEST] = "1"
        report = self._path / "report.xml"
        command = [sys.executable, "-m", "pytest", "-p", "no:randomly", f"--junitxml={report}", *args, "suites/"]
        result = subprocess.run(
            command, cwd=self._path, env=environment, capture_output=True, text=True, check=False, timeout=LIMIT_SECONDS
        )
        said = result.stdout[-4000:] + result.stderr[-4000:]
        assert result.returncode in (0, 1), said
        assert report.exists(), said
        return dict(map(_said, ET.parse(report).iter("testcase")))


def _said(case: ET.Element) -> tuple[str, Said]:
    """(backend, what was said) of one JUnit case."""
    properties = {item.get("name"): item.get("value", "") for item in case.iter("property")}
    failure = case.find("failure")
    text = "" if failure is None else failure.get("message", "") + "\n" + (failure.text or "")
    said = Said(properties.get("attnperf.verdict", ""), failure is not None, text)
    return properties.get("attnperf.backend", case.get("name", "")), said


@pytest.fixture(scope="module", autouse=True)
def only_our_plugin(lean_processes: None) -> None:
    """Each run here starts a dozen workers."""


@pytest.fixture(scope="session")
def make_project(tmp_path_factory: pytest.TempPathFactory) -> Callable[[Iterable[Liar]], Project]:
    """`make_project(liars)`: an empty folder made into a project of these liars."""
    return lambda liars: Project(tmp_path_factory.mktemp("liars"), liars)


@pytest.fixture(scope="session")
def by_trick() -> dict[str, Liar]:
    """Every liar by its trick."""
    return {liar.trick: liar for liar in LIARS}
