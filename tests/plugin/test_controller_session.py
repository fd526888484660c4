"""A GPU that an import initialises in pytest's own process."""

from __future__ import annotations

import sys
from types import ModuleType

import pytest

from pytest_attnperf.plugin.controller_session import is_initialised
from pytest_attnperf.testing.project import FakeProject

STAND_IN = """
import sys, types
torch = types.ModuleType("torch")
torch.cuda = types.SimpleNamespace(is_initialized=lambda: {now})
sys.modules["torch"] = torch
"""
IMPORTS = "import sys, types\nsys.modules['torch'].cuda = types.SimpleNamespace(is_initialized=lambda: True)\n"


@pytest.fixture
def project(attnperf_project: FakeProject) -> FakeProject:
    """One right backend, and a test module whose import initialises the GPU in pytest's own process."""
    attnperf_project.backend("fake.a", time_us=100)
    attnperf_project.conftest(STAND_IN.format(now=False))
    (attnperf_project.path / "suites/test_a_library.py").write_text(f"{IMPORTS}def test_it(): pass\n")
    return attnperf_project


def test_the_import_is_named_and_the_run_goes_on(project: FakeProject) -> None:
    """One line of the collection and a note of the results name the file; the cases are measured as ever."""
    result = project.run("--attnperf")
    assert result.ret == 0, result.stdout.str()
    result.assert_outcomes(passed=1)
    said = "suites/test_a_library.py initialised the GPU while tests were collected: pytest's own process, *"
    result.stdout.fnmatch_lines([f"attnperf: warning: {said}"])
    (note,) = [note for note in project.results()["notes"] if "initialised the GPU" in note]
    assert note.startswith("suites/test_a_library.py ")
    assert project.results()["cases"][0]["median_us"] == pytest.approx(100, rel=0.05)


def test_a_conftest_is_named_too(project: FakeProject) -> None:
    """What is initialised before the first file is a conftest's or a plugin's."""
    project.conftest(STAND_IN.format(now=True))
    project.run().stdout.fnmatch_lines(["attnperf: warning: a conftest.py or a plugin initialised the GPU *"])


def test_where_nothing_is_initialised_nothing_is_said(project: FakeProject) -> None:
    """Without a GPU in use, in a run without cases, and where cases run in this very process."""
    result = project.run("--attnperf-isolate=none")
    assert "initialised the GPU" not in result.stdout.str()
    (project.path / "suites/test_prefill.py").unlink()
    assert "initialised the GPU" not in project.run().stdout.str()


@pytest.mark.parametrize("has", [{}, {"cuda": None}, {"cuda": ModuleType("cuda")}])
def test_a_torch_without_cuda_is_not_asked(has: dict[str, object], monkeypatch: pytest.MonkeyPatch) -> None:
    """A half imported torch, or a stand-in for one, holds no GPU."""
    torch = ModuleType("torch")
    vars(torch).update(has)
    monkeypatch.setitem(sys.modules, "torch", torch)
    assert not is_initialised()
