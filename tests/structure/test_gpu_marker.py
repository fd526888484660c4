"""What tests/conftest.py does with tests that need a GPU."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
CONFTEST = ROOT / "tests" / "conftest.py"
TESTS = """
import sys
import pytest

def test_torch_is_not_needed():
    assert "torch" not in sys.modules

@pytest.mark.gpu
def test_on_gpu():
    pass
"""
TORCH = "__version__ = '2.0'\nclass cuda:\n    is_available = staticmethod(lambda: {available})\n"
NO_TORCH = 'raise ModuleNotFoundError("No module named torch", name="torch")\n'


@pytest.fixture
def project(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> pytest.Pytester:
    """A project with this repository's tests/conftest.py, one ordinary test and one that needs a GPU."""
    pytester.makeconftest(CONFTEST.read_text())
    pytester.makepyfile(TESTS)
    pytester.makeini("[pytest]\nmarkers = gpu: needs a GPU\naddopts = -p no:randomly\n")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(pytester.path), str(ROOT)]))
    monkeypatch.delenv("PYTEST_ADDOPTS", raising=False)
    return pytester


@pytest.mark.parametrize(
    ("torch", "reason"),
    [
        (TORCH.format(available=False), "needs a GPU that torch 2.0 can use"),
        (NO_TORCH, "needs a GPU, and torch is not installed"),
    ],
)
def test_gpu_test_is_skipped_with_a_reason(project: pytest.Pytester, torch: str, reason: str) -> None:
    """Without torch, and without a GPU that torch can use, a gpu test is skipped and says why; others run."""
    (project.path / "torch.py").write_text(torch)
    result = project.runpytest_subprocess("-rs")
    result.assert_outcomes(passed=1, skipped=1)
    result.stdout.fnmatch_lines([f"SKIPPED*{reason}*"])


def test_gpu_test_runs_on_a_gpu(project: pytest.Pytester) -> None:
    """With a GPU that torch can use, a gpu test runs."""
    (project.path / "torch.py").write_text(TORCH.format(available=True))
    project.runpytest_subprocess().assert_outcomes(passed=2)


def test_collecting_never_imports_torch(project: pytest.Pytester) -> None:
    """Collecting gpu tests, and running others only, works with a torch that would fail the run."""
    (project.path / "torch.py").write_text("raise SystemExit('torch was imported')\n")
    assert project.runpytest_subprocess("--collect-only").ret == 0
    project.runpytest_subprocess("-m", "not gpu").assert_outcomes(passed=1, deselected=1)
