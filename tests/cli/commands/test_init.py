"""`attnperf init`, typed in an empty repository, and the commands that it prints."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from pytest_attnperf.cli.commands.init import CPU_OPTIONS, NEXT
from pytest_attnperf.cli.program import main
from pytest_attnperf.testing.project import full_results
from tests.elsewhere import FOREIGN, NO_GPU

WRITTEN = ["perf/test_softmax.py", ".gitattributes", ".gitignore", ".gitignore", ".github/workflows/perf.yml"]


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty repository, which is the current folder."""
    subprocess.run(["git", "init", "-q", str(tmp_path)], check=True)
    monkeypatch.chdir(tmp_path)
    for name, value in NO_GPU.items():
        monkeypatch.setenv(name, value)
    return tmp_path


def contents(folder: Path) -> dict[str, tuple[bytes, int]]:
    """Content and time of change of each file outside .git."""
    files = (path for path in folder.rglob("*") if path.is_file() and ".git" not in path.parts)
    return {str(path.relative_to(folder)): (path.read_bytes(), path.stat().st_mtime_ns) for path in files}


def told(out: str, word: str) -> list[str]:
    """Files that were written, or left."""
    return [line.split()[1].rstrip(":") for line in out.splitlines() if line.startswith(f"{word} ")]


def test_a_second_init_writes_nothing(repository: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The first one names what it wrote and three commands, in 80 columns; the second leaves every file."""
    assert main(["init", "--ci", "github"]) == 0
    out = capsys.readouterr().out
    assert told(out, "written") == WRITTEN
    assert max(map(len, out.splitlines())) <= 80
    commands = [line.strip().split("  ")[0] for line in out.splitlines() if line.startswith("  ")]
    assert commands[:3] == [command for command, _ in NEXT]
    before = contents(repository)
    assert main(["init", "--ci", "github"]) == 0
    assert told(capsys.readouterr().out, "left") == WRITTEN
    assert contents(repository) == before


def test_a_missing_torch_is_said(
    repository: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The test imports torch, which no install of this package brings."""
    assert main(["init"]) == 0
    assert "torch is not installed" not in capsys.readouterr().out
    monkeypatch.setitem(sys.modules, "torch", None)
    assert main(["init"]) == 0
    said = "torch is not installed, and the test imports it; this names the build:\n  attnperf doctor --quick\n"
    assert said in capsys.readouterr().out


def test_existing_files_are_left_unless_forced(repository: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Other files are named; the lines for git are added below those that are there."""
    (repository / "perf").mkdir()
    (repository / "perf" / "test_softmax.py").write_text("mine = 1\n")
    (repository / ".gitignore").write_bytes(b"build/")
    assert main(["init"]) == 0
    assert "left      perf/test_softmax.py: exists; --force writes it anew" in capsys.readouterr().out
    assert (repository / "perf" / "test_softmax.py").read_text() == "mine = 1\n"
    assert (repository / ".gitignore").read_text() == "build/\n.attnperf/\n.*.lock\n"
    assert main(["init", "--force"]) == 0
    assert "written   perf/test_softmax.py" in capsys.readouterr().out
    assert "attnperf.gate(" in (repository / "perf" / "test_softmax.py").read_text()


def test_a_kernel_of_the_repository(repository: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Its test imports it by a conftest, and the output says what is left to write."""
    (repository / "src").mkdir()
    (repository / "src" / "starter_own.py").write_text("def scale(x, factor):\n    return x * factor\n")
    assert main(["init", "--kernel", "starter_own:scale"]) == 0
    out = capsys.readouterr().out
    assert told(out, "written")[:2] == ["perf/test_scale.py", "perf/conftest.py"]
    assert "write plain_scale and make_inputs in perf/test_scale.py, then type:" in out
    command = [sys.executable, "-m", "pytest", "-q", "--co", "-p", "no:randomly", "perf/"]
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (ran.returncode, "perf/test_scale.py::test_scale" in ran.stdout) == (0, True), ran.stdout


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("absent",), "absent is not a folder; make it with git init absent, or name another"),
        (("below", "--ci=gitlab"), "below lies in the repository "),
        (("--kernel=starter_absent:f",), "--kernel starter_absent:f: starter_absent is not installed for "),
    ],
)
def test_nothing_is_written_where_the_command_is_invalid(
    repository: Path, words: tuple[str, ...], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """One sentence, and status 2."""
    (repository / "below").mkdir()
    assert main(["init", *words]) == 2
    assert capsys.readouterr().err.startswith(f"attnperf: {message}")
    assert contents(repository) == {}


@pytest.mark.soak
def test_the_printed_commands_work(repository: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Typed as they are on a CPU: right, recorded, and compared; git ignores all but what is to be committed."""
    assert main(["init"]) == 0
    out = capsys.readouterr().out
    typed = re.findall(r"^  ((?:pytest|export) .*?)(?:  .*)?$", out, re.MULTILINE)
    assert typed == [*(command for command, _ in NEXT), f'export PYTEST_ADDOPTS="{CPU_OPTIONS}"']
    kept = {key: value for key, value in os.environ.items() if key != "CI" and not key.startswith(FOREIGN)}
    path = f"{Path(sys.executable).parent}{os.pathsep}{kept['PATH']}"
    script = "\n".join(["set -e", typed[-1], *typed[:3]])
    ran = subprocess.run(
        ["bash", "-c", script],
        env={**kept, **NO_GPU, "PATH": path, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "1 passed" in ran.stdout
    assert "1 recorded" in ran.stdout
    (case,) = full_results(repository / ".attnperf" / "results.json")["cases"]
    assert (case["key"]["workload"], case["baseline_us"] is None) == ("test_softmax", False)
    status = subprocess.run(["git", "status", "--short", "-uall"], capture_output=True, text=True, check=True).stdout
    assert {line.split()[1].split("/")[0] for line in status.splitlines()} == {
        *("perf", "baselines", ".gitattributes", ".gitignore")
    }
    assert ".lock" not in status
