"""docs/walkthrough.md, typed as it stands in a copy of this repository that has no baseline of this device."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "walkthrough.md"
LEFT_OUT = shutil.ignore_patterns(
    ".git", ".venv*", ".attnperf", ".whl", ".*_cache", "__pycache__", "build", "tests", "sm_*", "gfx*", "cpu-*"
)
"""What a fresh clone does not have, what nobody needs here, and every stored baseline."""
MARK = "=== typed:"


@dataclass(frozen=True)
class Typed:
    """One line of the page as it went."""

    command: str
    status: int
    output: str


def commands() -> list[str]:
    """Every line of the page that begins with `$`."""
    blocks = re.findall(r"^```console\n(.*?)^```", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    return [line.removeprefix("$ ") for block in blocks for line in block.splitlines() if line.startswith("$ ")]


def copy_of_this_repository(folder: Path) -> Path:
    """As one has it after cloning, on branch main."""
    shutil.copytree(ROOT, folder, ignore=LEFT_OUT, symlinks=True)
    identity = ["-c", "user.name=A Stranger", "-c", "user.email=stranger@example.com"]
    for command in (["init", "-qb", "main"], ["add", "-A"], [*identity, "commit", "-qm", "As cloned"]):
        subprocess.run(["git", "-C", str(folder), *command], check=True, capture_output=True)
    return folder


def typed(folder: Path) -> list[Typed]:
    """Every command in one shell, one after the other, whatever the one before it came to."""
    script = "".join(f"{command}\nstatus=$?; echo; echo '{MARK}' $status\n" for command in commands())
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("CI", "PYTEST_", "GIT_"))}
    environment |= {
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{environment['PATH']}",
        "COLUMNS": "100",
        **dict.fromkeys(("GIT_AUTHOR_NAME", "GIT_COMMITTER_NAME"), "A Stranger"),
        **dict.fromkeys(("GIT_AUTHOR_EMAIL", "GIT_COMMITTER_EMAIL"), "stranger@example.com"),
    }
    done = subprocess.run(
        ["bash"], input=script, cwd=folder, env=environment, text=True, check=False,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )  # fmt: skip
    parts = re.split(rf"^{MARK} (\d+)\n", done.stdout, flags=re.MULTILINE)
    outputs, statuses = parts[:-1:2], parts[1::2]
    return [
        Typed(command, int(status), output)
        for command, status, output in zip(commands(), statuses, outputs, strict=True)
    ]


@pytest.mark.soak
def test_the_first_hour_ends_as_the_page_says(tmp_path: Path) -> None:
    """On this machine, with a GPU or without: a baseline is recorded, the same code is SAME, a slower one is found."""
    if shutil.which("git") is None:
        pytest.skip("the page's commands need git")
    lines = typed(copy_of_this_repository(tmp_path / "clone"))
    print("\n".join(f"$ {line.command}\n{line.output}[{line.status}]" for line in lines))
    (slower,) = [line for line in lines if "--attnperf-against=main" in line.command]
    assert slower.status == 1
    assert "SLOWER" in slower.output
    gated = [line for line in lines if "pytest --attnperf " in line.command]
    (explained,) = [line for line in lines if line.command.startswith("attnperf explain")]
    assert explained.status == 1
    assert "slower" in explained.output.lower()
    assert [line.command for line in lines if line.status and line not in (*gated, explained)] == []
    recorded = next(line for line in lines if "--update-baselines" in line.command)
    assert "recorded" in recorded.output
    assert "no baseline" in gated[0].output
    assert re.search(r"\b[1-9]\d* same\b", gated[1].output)


def test_every_step_is_there() -> None:
    """The page holds a command of each step, in order: doctor, warm, check, measure, record, gate, slower, explain."""
    text = "\n".join(commands())
    steps = (
        "attnperf doctor",
        "pytest --attnperf-warm",
        "pytest -q",
        "--update-baselines",
        "--attnperf-against",
        "explain",
    )
    places = [text.index(step) for step in steps]
    assert places == sorted(places)
