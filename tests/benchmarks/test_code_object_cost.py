"""benchmarks/code_object_cost.py: what the code-object suite costs, and whether hashes hold from folder to folder."""

from __future__ import annotations

import importlib.util
import shutil
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[2]
OBJECTS = ROOT / "tests" / "data" / "code_objects"

CONFTEST = """
from pathlib import Path
from pytest_attnperf.kernel_builds import Kernel, KernelBuild, ObjectFile

class Prebuilt(Kernel):
    def builds(self, arch):
        file = Path(__file__).parent / f"{(Path(__file__).parent / 'which').read_text()}.{arch}.co"
        return [KernelBuild(self.name, "plain", arch, ObjectFile(file))]

def pytest_attnperf_register_kernels(kernels): kernels.add(Prebuilt("hip.saxpy", ()))
"""


@pytest.fixture
def program() -> ModuleType:
    """The program as a module."""
    spec = importlib.util.spec_from_file_location("code_object_cost", ROOT / "benchmarks" / "code_object_cost.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def tree(program: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A small tree that stands for this repository: one prebuilt kernel, named by the file 'which'."""
    tree = tmp_path / "tree"
    (tree / "suites").mkdir(parents=True)
    shutil.copy(ROOT / "suites" / "test_code_objects.py", tree / "suites")
    for file in OBJECTS.glob("*.gfx942.co"):
        shutil.copy(file, tree)
    (tree / "which").write_text("saxpy")
    (tree / "conftest.py").write_text(CONFTEST)
    (tree / "pyproject.toml").write_text("[tool.pytest.ini_options]\n")
    (tree / ".attnperf").mkdir()
    monkeypatch.setattr(program, "ROOT", tree)
    monkeypatch.setattr(program, "COPIED", [path.name for path in tree.iterdir() if path.name != ".attnperf"])
    monkeypatch.delenv("PYTEST_ADDOPTS", raising=False)
    return tree


def test_equal_code_in_two_folders(
    program: ModuleType, tree: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The three runs are printed with their limits, and no hash differs: exit status 0."""
    monkeypatch.setattr("sys.argv", ["code_object_cost.py"])
    monkeypatch.setattr(program, "COLD_LIMIT_S", 500.0)  # this machine may be busy
    monkeypatch.setattr(program, "WARM_LIMIT_S", 400.0)
    assert program.main() == 0
    out = capsys.readouterr().out
    assert out.startswith("1 code objects, ")
    assert "limit 400 s: ok" in out
    assert "hashes that differ between two folders, or with full caches: 0 of 1" in out
    assert [path.name for path in (tree / ".attnperf").iterdir()] == []


def test_another_code_in_the_second_folder_is_named(
    program: ModuleType, tree: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A hash that differs is printed with all three values, and the exit status is 1."""
    copy_of = program.copy_of

    def altered(folder: Path) -> Path:
        copied: Path = copy_of(folder)
        if folder.name == "checkout":
            (copied / "which").write_text("mfma")
        return copied

    monkeypatch.setattr(program, "copy_of", altered)
    monkeypatch.setattr("sys.argv", ["code_object_cost.py"])
    assert program.main() == 1
    assert "  hip.saxpy/plain/gfx942: " in capsys.readouterr().out
