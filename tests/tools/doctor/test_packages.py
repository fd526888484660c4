from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from pytest_attnperf.tools.doctor import packages
from pytest_attnperf.tools.doctor.probes import DoctorFinding, Status

GOOD = {"pytest": "9.2.0", "msgspec": "0.20", "filelock": "3.1", "pytest-attnperf": "0.1.0"}


@pytest.fixture
def installed(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Say which distributions are installed; the plugin's entry point is as here."""

    def install(versions: dict[str, str]) -> None:
        monkeypatch.setattr(packages, "version_of", lambda name: versions.get(name, ""))
        monkeypatch.setattr(packages, "__version__", "0.1.0")

    install(GOOD)
    return install


def found(make_here: Any, **environ: str) -> dict[str, DoctorFinding]:
    """Findings by name."""
    return {finding.name: finding for finding in packages.probe(make_here(environ=environ))}


def test_what_is_installed_is_named(installed: Any, make_here: Any) -> None:
    """Python, this plugin and what it needs are lines with versions, and OK."""
    lines = found(make_here)
    assert {finding.status for finding in lines.values()} == {Status.OK}
    assert lines["pytest-attnperf"].value == "0.1.0, known to pytest"
    assert lines["dependencies"].value == "pytest 9.2.0, msgspec 0.20, filelock 3.1"
    assert lines["pytest plugins"].value == "none that disturbs"


@pytest.mark.parametrize(
    ("versions", "said", "fix"),
    [
        ({**GOOD, "msgspec": ""}, "missing: msgspec", "-m pip install msgspec"),
        ({**GOOD, "pytest": "7.4.4"}, "pytest 7.4.4", "-m pip install 'pytest>=8'"),
    ],
)
def test_missing_and_old_dependencies_are_problems(
    installed: Any, make_here: Any, versions: dict[str, str], said: str, fix: str
) -> None:
    """A dependency that is missing or too old is a problem, with the command for this very interpreter."""
    installed(versions)
    line = found(make_here)["dependencies"]
    assert line.status is Status.PROBLEM
    assert said in line.value
    assert line.fix.endswith(fix)


def test_plugin_that_pytest_does_not_know_is_a_problem(
    installed: Any, make_here: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A package that can be imported, but has no entry point here, is a problem; two copies are a warning."""
    installed({**GOOD, "pytest-attnperf": "0.0.9"})
    line = found(make_here)["pytest-attnperf"]
    assert (line.status, line.value) == (Status.WARNING, "0.1.0 is imported, 0.0.9 is installed")
    assert "pip install --no-deps -e ." in line.fix
    monkeypatch.setattr(packages.importlib.metadata, "entry_points", lambda group: ())
    line = found(make_here)["pytest-attnperf"]
    assert line.status is Status.PROBLEM
    assert "pip install" in line.fix


def test_reruns_are_found_where_they_are_asked_for(installed: Any, make_here: Any) -> None:
    """--reruns in a file or a variable is a warning where its plugin is installed; in a comment it is none."""
    installed({**GOOD, "pytest-rerunfailures": "16.7"})
    here = make_here()
    (here.root / "pytest.ini").write_text("[pytest]\n# --reruns 2 was here\n")
    line = found(make_here)["pytest plugins"]
    assert (line.status, len(line.details)) == (Status.OK, 1)
    (here.root / "pytest.ini").write_text("[pytest]\naddopts = --reruns 2\n")
    line = found(make_here, PYTEST_ADDOPTS="--reruns=1")["pytest plugins"]
    assert (line.status, line.value) == (Status.WARNING, "--reruns is set in pytest.ini, PYTEST_ADDOPTS")


def test_cases_and_backends_of_the_project_are_found(make_here: Any) -> None:
    """Test files with cases are counted by folder, environments are not searched; conftest.py may register backends."""
    here = make_here()
    lines = {finding.name: finding for finding in packages.project_probe(here)}
    assert {name: finding.status for name, finding in lines.items()} == {"suites": Status.NOTE, "backends": Status.NOTE}
    for name in (
        "suites/test_a.py",
        "suites/sub/test_b.py",
        "perf/test_c.py",
        ".venv/lib/test_d.py",
        "suites/other.py",
    ):
        (here.root / name).parent.mkdir(parents=True, exist_ok=True)
        (here.root / name).write_text("@pytest.mark.attnperf(family='gemm')")
    (here.root / "perf/test_none.py").write_text("def test_plain(): pass")
    (here.root / "conftest.py").write_text("def pytest_attnperf_register_backends(registry): ...")
    suites, backends = packages.project_probe(here)
    assert (suites.status, suites.value) == (Status.OK, "3 files with cases: perf, suites")
    assert backends.status is Status.OK


def test_search_for_cases_ends_in_time(make_here: Any) -> None:
    """In a folder that takes long to search, the search ends, and the line says so."""
    here = make_here(clock_s=1.0)
    for name in ("test_a.py", "test_b.py"):
        (here.root / name).write_text("pass")
    suites, _ = packages.project_probe(here)
    assert "the search ended there" in suites.value
