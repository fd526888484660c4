""".ci/matrix.py: cells, pins and the table; it is run whole by hand."""

from __future__ import annotations

import importlib.util
import re
import sys
import time
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[2]

METADATA = """Name: pytest-attnperf
Requires-Dist: filelock>=3.12
Requires-Dist: pytest (>=8)
Requires-Dist: jinja2>=3; extra == 'html'
"""


@pytest.fixture(scope="module")
def matrix() -> ModuleType:
    """The program, loaded."""
    spec = importlib.util.spec_from_file_location("matrix", ROOT / ".ci" / "matrix.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["matrix"] = module
    spec.loader.exec_module(module)
    return module


def test_cells_cover_what_is_promised(matrix: ModuleType) -> None:
    """Every Python of the classifiers has a cell; torch and Triton, too."""
    promised = set(re.findall(r"Python :: (3\.\d+)", (ROOT / "pyproject.toml").read_text()))
    assert {cell.python for cell in matrix.CELLS} == promised
    assert {"2.6.0", "newest"} <= {cell.torch for cell in matrix.CELLS}
    assert {"3.3.0", "newest"} <= {cell.triton for cell in matrix.CELLS}
    assert {"<9", "newest"} <= {cell.pytest for cell in matrix.CELLS}
    named = [*matrix.LEFT_OUT, *(name for cell in matrix.CELLS for name in cell.tests)]
    assert [name for name in named if not (ROOT / "tests" / name).exists()] == []


def test_the_oldest_are_the_lower_bounds_of_the_wheel(matrix: ModuleType) -> None:
    """Pinned to the bound in either spelling, extras left out; every core dependency of ours has one."""
    assert matrix.lower_bounds(METADATA) == ["filelock==3.12", "pytest==8"]
    assert matrix.requirements(matrix.CELLS[0], METADATA, tools=()) == ["filelock==3.12", "pytest==8"]
    (core,) = re.findall(r"^dependencies = \[(.*)\]", (ROOT / "pyproject.toml").read_text(), re.MULTILINE)
    assert all(">=" in one for one in core.split(","))
    assert "<" not in core


@pytest.mark.parametrize(
    ("version", "expected"), [("newest", "torch"), ("2.6.0", "torch==2.6.0"), ("<9", "torch<9"), (">=2", "torch>=2")]
)
def test_versions_are_pinned(matrix: ModuleType, version: str, expected: str) -> None:
    """A version is exact, a comparison stays one, and the newest is left to the index."""
    assert matrix.pinned("torch", version) == expected


def test_the_count_of_pytest_is_read(matrix: ModuleType) -> None:
    """With and without the line of equal signs; something else is quoted as no result."""
    assert matrix.last_line("...\n= 1 failed, 12 passed, 3 skipped in 1.20s =\n") == "1 failed, 12 passed, 3 skipped"
    assert matrix.last_line("12 passed in 61.20s (0:01:01)\n") == "12 passed"
    assert matrix.last_line("ERROR: no such file\n") == "no result: ERROR: no such file"


def test_the_table_names_what_did_not_run(matrix: ModuleType) -> None:
    """A row per cell that ran, with its versions, and a line per cell that could not; a failure fails."""
    cell = matrix.CELLS[0]
    ran = matrix.Outcome(cell, {"python": "3.10.13", "pytest": "8.0.0"}, "passed", "12 passed")
    absent = matrix.Outcome(matrix.CELLS[1], absent="no Python 3.10 here")
    shown = matrix.table([ran, absent], "2026-01-02")
    assert f"| {cell.name} | 3.10.13 | 8.0.0 | - | - | - | - | passed | 12 passed |" in shown
    assert f"- {matrix.CELLS[1].name}: no Python 3.10 here" in shown
    assert f"Without torch: {cell.name}." in shown
    assert (ran.failed, absent.failed) == (False, False)
    alone = matrix.Outcome(cell, {}, "passed", matrix.NO_TESTS, seconds=61.4)
    assert not alone.failed
    assert "--smoke --write`:" in matrix.table([alone], "2026-01-02")
    assert "| passed | left out | 61 |" in matrix.table([alone], "2026-01-02")
    assert matrix.Outcome(cell, {}, "passed", "1 failed, 12 passed").failed
    assert matrix.Outcome(cell, {}, "FAILED  pytest suites", "12 passed").failed


def test_the_page_keeps_all_but_its_table(matrix: ModuleType) -> None:
    """The section between the marks of docs/doctor.md is exchanged; a page without them is refused."""
    page = matrix.PAGE.read_text()
    once = matrix.written(page, "a table")
    assert matrix.written(once, "a table") == once
    assert once.partition(matrix.BEGIN)[0] == page.partition(matrix.BEGIN)[0]
    assert once.endswith(page.partition(matrix.END)[2])
    with pytest.raises(ValueError, match="needs a line"):
        matrix.written("no marks", "a table")


def test_unknown_cells_are_refused(matrix: ModuleType) -> None:
    """With the names that there are."""
    with pytest.raises(SystemExit, match=r"no cell py2; there are py3\.10-oldest"):
        matrix.chosen(["py2"])


def test_smoke_takes_every_python_and_no_large_download(matrix: ModuleType) -> None:
    """A cell with torch or Triton is tried if it is named; without --smoke every cell is."""
    cells = matrix.chosen([], smoke=True)
    assert {cell.python for cell in cells} == {cell.python for cell in matrix.CELLS}
    assert not any(cell.torch or cell.triton for cell in cells)
    assert [cell.name for cell in matrix.chosen(["py3.13-torch"], smoke=True)] == ["py3.13-torch"]
    assert matrix.chosen([]) == list(matrix.CELLS)


def test_no_command_keeps_a_cell(matrix: ModuleType) -> None:
    """One that does not end is ended, with a grandchild that holds its output open, and what it said is kept; one that
    cannot be started is named."""
    typed = ["sh", "-c", "echo started; sleep 30 & sleep 30"]
    began = time.monotonic()
    assert matrix.said(typed, 0.5) == (124, "started\n\nnot done after 0.5 s")
    assert time.monotonic() - began < 20
    assert matrix.said(["sh", "-c", "echo ended; sleep 30 & exit 3"]) == (3, "ended\n")
    assert matrix.said(["no-such-program"])[0] == 127
