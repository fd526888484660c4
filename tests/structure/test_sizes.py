"""Files and functions stay small enough to be read in one go."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FOLDERS = ("pytest_attnperf", "kernels", "suites", "tests", "benchmarks", "examples")

FILE_LINES = 400
FUNCTION_LINES = 60
KERNEL_LINES = 130
"""A Triton kernel is one function of the device, and cannot be split where a wrapper can."""
TEST_LINES = 40

HIP_LINES = 310
"""A step of the HIP ladder, and a header that it includes, is read beside the step before."""
HIP_COLUMNS = 120


def python_files(root: Path) -> Iterator[Path]:
    """Python files of the folders that hold our code, and those directly under the root."""
    yield from sorted(root.glob("*.py"))
    for folder in FOLDERS:
        yield from sorted((root / folder).rglob("*.py"))


def function_limit(node: ast.FunctionDef | ast.AsyncFunctionDef, *, in_tests: bool) -> int:
    """The most lines a function may have, decorators not counted."""
    decorators = [ast.unparse(decorator) for decorator in node.decorator_list]
    if any("jit" in one and ("triton" in one or "gluon" in one) for one in decorators):
        return KERNEL_LINES
    return TEST_LINES if in_tests and node.name.startswith("test") else FUNCTION_LINES


def too_large(root: Path) -> list[str]:
    """Files and functions beyond their limit, with the size seen and the size allowed."""
    found = []
    for path in python_files(root):
        where = path.relative_to(root).as_posix()
        source = path.read_text()
        count = len(source.splitlines())
        if count > FILE_LINES:
            found.append(f"{where}: {count} lines, at most {FILE_LINES}")
        for node in ast.walk(ast.parse(source)):
            if not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
                continue
            lines = (node.end_lineno or node.lineno) - node.lineno + 1
            limit = function_limit(node, in_tests=where.startswith("tests/"))
            if lines > limit:
                found.append(f"{where}:{node.lineno}: {node.name} has {lines} lines, at most {limit}")
    return found


def too_large_hip(folder: Path) -> list[str]:
    """HIP sources beyond their limits, headers included; what the emulator alone includes is as long as other files."""
    found = []
    for path in sorted(each for each in folder.rglob("*") if each.suffix in (".hip", ".h", ".cpp")):
        lines = path.read_text().splitlines()
        most = HIP_LINES if path.parent == folder else FILE_LINES
        if len(lines) > most:
            found.append(f"{path.name}: {len(lines)} lines, at most {most}")
        found += [
            f"{path.name}:{number}: {len(line)} columns, at most {HIP_COLUMNS}"
            for number, line in enumerate(lines, 1)
            if len(line) > HIP_COLUMNS
        ]
    return found


def _function(lines: int, head: str = "def f():") -> str:
    return "\n".join([head, *["    pass"] * (lines - 1)]) + "\n"


def test_files_and_functions_are_small() -> None:
    """No file or function of this repository is beyond its limit."""
    assert too_large(ROOT) == []


@pytest.mark.parametrize(
    ("path", "source", "expected"),
    [
        ("pytest_attnperf/a.py", "x = 1\n" * 401, "401 lines, at most 400"),
        ("tests/gate/test_a.py", "x = 1\n" * 401, "401 lines, at most 400"),
        ("conftest.py", _function(61), "f has 61 lines, at most 60"),
        ("kernels/triton/a.py", _function(131, "@triton.jit\ndef f():"), "f has 131 lines, at most 130"),
        ("kernels/gluon/a.py", _function(131, "@gluon.jit\ndef f():"), "f has 131 lines, at most 130"),
        ("tests/test_a.py", _function(41, "def test_f():"), "test_f has 41 lines, at most 40"),
        ("suites/test_a.py", _function(61, "async def f():"), "f has 61 lines, at most 60"),
    ],
)
def test_one_line_too_many_is_found(tmp_path: Path, path: str, source: str, expected: str) -> None:
    """The first size beyond a limit is a finding."""
    file = tmp_path / path
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(source)
    (finding,) = too_large(tmp_path)
    assert expected in finding


def test_sizes_at_the_limit_pass(tmp_path: Path) -> None:
    """The limits themselves are allowed, a kernel's for kernels and a function's for functions."""
    (tmp_path / "kernels").mkdir()
    (tmp_path / "kernels/a.py").write_text(_function(130, "@triton.jit\ndef f():") + _function(60) + "x = 1\n" * 209)
    assert len((tmp_path / "kernels/a.py").read_text().splitlines()) == 400
    assert too_large(tmp_path) == []


def test_hip_sources_are_small() -> None:
    """No kernel and no header of the HIP ladder is beyond its limit, and there are some."""
    assert len(list((ROOT / "kernels/hip").glob("*.hip"))) >= 7
    assert too_large_hip(ROOT / "kernels/hip") == []


def test_one_hip_line_or_column_too_many_is_found(tmp_path: Path) -> None:
    """Of kernels, headers and what the emulator is made of; the limits themselves are allowed."""
    (tmp_path / "emulated").mkdir()
    (tmp_path / "1.hip").write_text("x\n" * 311)
    (tmp_path / "2.h").write_text("x" * 121 + "\n" + "x" * 120)
    (tmp_path / "3.hip").write_text("x\n" * 310)
    (tmp_path / "emulated/4.cpp").write_text("x\n" * 401)
    (tmp_path / "emulated/5.h").write_text("x\n" * 400)
    assert too_large_hip(tmp_path) == [
        "1.hip: 311 lines, at most 310",
        "2.h:1: 121 columns, at most 120",
        "4.cpp: 401 lines, at most 400",
    ]
