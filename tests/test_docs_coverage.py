"""examples/COVERAGE.md: its tables are whole, and each of its commands does on a CPU what the row says."""

from __future__ import annotations

import argparse
import os
import re
import shlex
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest
from _pytest.mark.structures import ParameterSet

from kernels.hip.emulator import missing_emulator
from pytest_attnperf.cli.program import build_whole_parser
from tests.elsewhere import FOREIGN, NO_GPU, ROOT
from tests.test_docs_typed import selects

PAGE = (ROOT / "examples" / "COVERAGE.md").read_text(encoding="utf-8")
DOCUMENTS = 5
ON_A_GPU = "on a GPU: "
CELL = re.compile(rf"(?:{ON_A_GPU})?`[^`]+`(?:; (?:{ON_A_GPU})?`[^`]+`)*")
COMMAND = re.compile(rf"({ON_A_GPU})?`([^`]+)`")
STRAY = re.compile(r"`(?:\w+=\S+ )*((?:pytest|attnperf|python|make|examples/\S+) [^`]+)`")
PRINTED = re.compile(r"(?<!\*)\*([^*]+)\*(?!\*)")
STATUS = re.compile(r"exit status (\d+)")
LEFT_OUT = shutil.ignore_patterns(".git", ".venv*", ".attnperf", ".*_cache", "__pycache__", "build", "images")
LIGHT = (
    "attnperf profile",
    "attnperf dispatch",
    "attnperf report",
    "attnperf occupancy --",
    "attnperf doctor",
    "PRINT=",
)
"""Beginnings of commands that take about a second."""
NO_TEST = 5
"""pytest's exit status where every test is deselected, as sizes for a GPU are without one."""


@dataclass(frozen=True)
class Row:
    """A row of a table of the page, by its cells."""

    document: str
    sections: str
    serves: str
    typed: str


@dataclass(frozen=True)
class Shown:
    """A command of a row. `printed`: what its output contains; `status`: its exit status on a CPU."""

    line: str
    gpu: bool = False
    printed: tuple[str, ...] = ()
    status: int = 0


def read_rows(text: str) -> list[Row]:
    """Every row of the page's tables."""
    rows, document = [], ""
    for line in text.splitlines():
        document = line[3:] if line.startswith("## ") else document
        cells = [cell.strip() for cell in line.strip("|").split("|")] if line.startswith("|") else []
        if cells and cells[0] != "section" and set(line) != set("|-"):
            rows.append(Row(document, *(cells + [""] * 3)[:3]))
    return rows


def read_commands(rows: list[Row]) -> list[Shown]:
    """Every command, each with what its row says of it; what needs a GPU has nothing to print here."""
    found = []
    for row in rows:
        status = STATUS.search(row.serves)
        for mark, line in COMMAND.findall(row.typed):
            printed = () if mark else tuple(PRINTED.findall(row.serves))
            found.append(Shown(line, bool(mark), printed, int(status[1]) if status else 0))
    return found


def find_gaps(text: str) -> list[str]:
    """What is missing in the tables, named twice, or a command that `read_commands` does not find."""
    rows = read_rows(text)
    gaps = [f"empty cell: {row}" for row in rows if not (row.sections and row.serves and row.typed)]
    names = [(row.document, name) for row in rows for name in row.sections.split("; ")]
    gaps += [f"twice: {name}" for name in sorted({name for name in names if names.count(name) > 1})]
    gaps += [f"no command alone: {row.typed}" for row in rows if not CELL.fullmatch(row.typed)]
    outside = text
    for row in rows:
        outside = outside.replace(f"| {row.typed} |", "|")
    return gaps + [f"outside of a command's cell: {line}" for line in STRAY.findall(outside) if line != "make soak"]


def run_command(line: str, folder: Path) -> tuple[int, str]:
    """(exit status, all that is printed, its blanks made one) of a line typed in `folder`, on a CPU."""
    kept = {key: value for key, value in os.environ.items() if key != "CI" and not key.startswith(FOREIGN)}
    path = f"{Path(sys.executable).parent}{os.pathsep}{kept['PATH']}"
    more = {"PATH": path, "PYTHONPATH": str(folder), "COLUMNS": "100", "OMP_NUM_THREADS": "1"}
    command, environment = ["bash", "-c", line], kept | NO_GPU | more
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    return done.returncode, " ".join((done.stdout + done.stderr).split())


def find_faults(shown: Shown, folder: Path) -> list[str]:
    """What a command that a CPU can run does otherwise than its row says."""
    status, output = run_command(shown.line, folder)
    faults = [f"prints no '{text}'" for text in shown.printed if text not in output]
    if shown.line.startswith("pytest ") and not re.search(r"\b[1-9]\d* (passed|incomparable)", output):
        faults.append("proves nothing")
    if status != shown.status:
        faults.append(f"ends with {status}, not {shown.status}")
    return [f"{shown.line}: {fault}\n{output[-2000:]}" for fault in faults]


def find_refusals(shown: Shown, folder: Path, parser: argparse.ArgumentParser) -> list[str]:
    """Why a command for a GPU could not be typed: its arguments are refused, or it selects no test."""
    program, *words = shlex.split(shown.line)
    if program == "attnperf":
        try:
            parser.parse_args(words)
        except SystemExit:
            return [f"{shown.line}: refused"]
        return []
    status, output = run_command(f"{shown.line} --collect-only -q", folder)
    if status not in (0, NO_TEST):
        return [f"{shown.line}: ends with {status}\n{output[-2000:]}"]
    return [] if selects(tuple(words)) else [f"{shown.line}: selects nothing"]


COMMANDS = read_commands(read_rows(PAGE))


def mark_heavy(commands: list[Shown], light: tuple[str, ...]) -> list[ParameterSet]:
    """Parameters of a test; soak where the command does not begin with one of `light`."""
    marks = [() if shown.line.startswith(light) else pytest.mark.soak for shown in commands]
    return [pytest.param(shown, marks=mark, id=shown.line) for shown, mark in zip(commands, marks, strict=True)]


ON_CPU = mark_heavy([shown for shown in COMMANDS if not shown.gpu], LIGHT)
FOR_GPU = mark_heavy([shown for shown in COMMANDS if shown.gpu], ("attnperf ",))


@pytest.fixture(scope="module")
def copied(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of this repository, into which commands may write."""
    return Path(shutil.copytree(ROOT, tmp_path_factory.mktemp("coverage") / "copy", ignore=LEFT_OUT, symlinks=True))


@pytest.fixture(scope="module")
def parser() -> argparse.ArgumentParser:
    """Of all commands of attnperf."""
    return build_whole_parser()


def test_tables_are_whole() -> None:
    """Five documents; no section twice, no empty cell, and every command is one that these tests run."""
    assert find_gaps(PAGE) == []
    assert len({row.document for row in read_rows(PAGE)}) == DOCUMENTS


@pytest.mark.parametrize("shown", ON_CPU)
def test_a_command_shows_what_its_row_says(shown: Shown, copied: Path) -> None:
    """Typed as it stands it ends with its status, prints what is named, and where it is pytest proves something."""
    if re.search(r"hip\.|test_hip_ladder", shown.line) and (missing := missing_emulator()):
        pytest.skip("; ".join(missing))
    if not shown.line.startswith(LIGHT):
        pytest.importorskip("torch")
        pytest.importorskip("triton")
    assert find_faults(shown, copied) == []


@pytest.mark.parametrize("shown", FOR_GPU)
def test_a_command_for_a_gpu_is_taken(shown: Shown, copied: Path, parser: argparse.ArgumentParser) -> None:
    """Its options and arguments are those of today, and it selects tests."""
    assert find_refusals(shown, copied, parser) == []


def test_tables_with_gaps_are_found() -> None:
    """An empty cell, a section of two rows, a command without its mark, behind other words, or in a sentence."""
    row = "## Guide\n| A; B | it | `attnperf list timers` |\n"
    assert find_gaps(row) == []
    for rotten, gap in (
        (row + "| C | | `attnperf list` |\n", "empty cell: "),
        (row + "| B | it | `attnperf list` |\n", "twice: "),
        (row + "| C | it | attnperf list |\n", "no command alone: "),
        (row + "| C | it | with a GPU: `attnperf list` |\n", "no command alone: "),
        (row + "Type `attnperf list backends`.\n", "outside of a command's cell: attnperf list backends"),
        (row + "| C | by `pytest suites` | `attnperf list` |\n", "outside of a command's cell: pytest suites"),
    ):
        assert [found for found in find_gaps(rotten) if found.startswith(gap)], rotten


def test_commands_that_rot_are_found(
    copied: Path, parser: argparse.ArgumentParser, capsys: pytest.CaptureFixture[str]
) -> None:
    """An option that is gone, another output or status than the row says, and a GPU's command that is refused."""
    page = """## Guide
| A | *report_002*, *no such timer* | `attnperf list timers` |
| B | it | `attnperf profile --clams examples/claims/flash_attention_report.json` |
| C | exit status 1 | `attnperf list timers` |
| D | nothing | `pytest --collect-only tests/test_docs_index.py -k nobody` |
| E | it | on a GPU: `attnperf kernel run hip.flash --seq-length 512` |
| F | it | on a GPU: `pytest --attnperf --attnperf-treshold=2 suites/test_mla.py` |
"""
    *on_cpu, refused, misspelt = read_commands(read_rows(page))
    faults = [fault.partition("\n")[0].partition(": ")[2] for shown in on_cpu for fault in find_faults(shown, copied)]
    assert faults == [
        "prints no 'no such timer'",
        "ends with 2, not 0",
        "ends with 0, not 1",
        "proves nothing",
        "ends with 5, not 0",
    ]
    assert find_refusals(refused, copied, parser) == [f"{refused.line}: refused"]
    (ended,) = find_refusals(misspelt, copied, parser)
    assert "ends with 4" in ended
    capsys.readouterr()


@pytest.mark.soak
def test_a_command_for_a_gpu_that_selects_nothing_is_found(copied: Path, parser: argparse.ArgumentParser) -> None:
    """A test that was renamed: pytest alone ends as for a size that is too large for a CPU."""
    renamed = Shown("pytest --attnperf suites/test_mla.py -k renamed", gpu=True)
    assert find_refusals(renamed, copied, parser) == [f"{renamed.line}: selects nothing"]
