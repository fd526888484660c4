"""No drawer files, no traces of one machine, no unfinished marks, and every test says what it proves."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FOLDERS = ("pytest_attnperf", "kernels", "suites", "baselines", "tests", "benchmarks", "docs", "examples", ".ci")
TEXT_SUFFIXES = {
    "",
    ".py",
    ".md",
    ".toml",
    ".json",
    ".csv",
    ".txt",
    ".cfg",
    ".ini",
    ".sh",
    ".hip",
    ".h",
    ".cu",
    ".html",
}

DRAWERS = {"utils.py", "common.py", "helpers.py", "misc.py"}
"""A file named so has no single purpose."""

HOME_PATH = re.compile(r"(?<![\w.\-/}])/(?:work|root|home)/\w")
MARKS = re.compile(r"\b(?:" + "|".join(["TO" + "DO", "FIX" + "ME", "X" * 3]) + r")\b")


def text_files(root: Path) -> Iterator[Path]:
    """Files of ours that hold text: those directly under the root, and those in our folders."""
    candidates = [path for path in root.iterdir() if path.is_file() and path.name != ".git"]
    for folder in FOLDERS:
        candidates += (root / folder).rglob("*")
    for path in sorted(candidates):
        if path.is_file() and path.suffix in TEXT_SUFFIXES and "__pycache__" not in path.parts:
            yield path


def forbidden_text(root: Path) -> list[str]:
    """Drawer files, absolute paths of one machine and unfinished marks, with file and line."""
    found = []
    for path in text_files(root):
        where = path.relative_to(root).as_posix()
        if path.name in DRAWERS:
            found.append(f"{where}: name it after what it does")
        for number, line in enumerate(path.read_text(errors="replace").splitlines(), start=1):
            if HOME_PATH.search(line):
                found.append(f"{where}:{number}: names a path of one machine")
            if MARKS.search(line):
                found.append(f"{where}:{number}: is marked as unfinished")
    return found


def undocumented_tests(root: Path) -> list[str]:
    """Test functions that do not say in one sentence what they prove."""
    found = []
    for path in sorted((root / "tests").rglob("test_*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) or not node.name.startswith("test"):
                continue
            if not ast.get_docstring(node):
                found.append(f"{path.relative_to(root).as_posix()}:{node.lineno}: {node.name} has no docstring")
    return found


def packages_in_tests(root: Path) -> list[str]:
    """`__init__.py` files under tests/: with them, tests/stats would shadow other packages of that name."""
    return [path.relative_to(root).as_posix() for path in sorted((root / "tests").rglob("__init__.py"))]


def _write(root: Path, path: str, text: str) -> Path:
    file = root / path
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)
    return root


def test_nothing_private_or_unfinished() -> None:
    """No file of this repository is a drawer, names a path of one machine, or is marked as unfinished."""
    assert forbidden_text(ROOT) == []


def test_every_test_says_what_it_proves() -> None:
    """Every test function of this repository has a docstring."""
    assert undocumented_tests(ROOT) == []


def test_tests_are_no_packages() -> None:
    """No folder of tests is a package."""
    assert packages_in_tests(ROOT) == []


@pytest.mark.parametrize(
    ("path", "text", "expected"),
    [
        ("kernels/utils.py", "", "kernels/utils.py: name it after what it does"),
        ("tests/gate/helpers.py", "", "tests/gate/helpers.py: name it after what it does"),
        ("docs/a.md", "fine\nsee /wo" + "rk/a", "docs/a.md:2: names a path of one machine"),
        ("baselines/a.json", '{"python": "/ro' + 'ot/venv"}', "baselines/a.json:1: names a path of one machine"),
        ("Makefile", "cd /ho" + "me/me", "Makefile:1: names a path of one machine"),
        ("suites/a.py", "# TO" + "DO later", "suites/a.py:1: is marked as unfinished"),
        (".ci/run", "# FIX" + "ME", ".ci/run:1: is marked as unfinished"),
    ],
)
def test_forbidden_text_is_found(tmp_path: Path, path: str, text: str, expected: str) -> None:
    """Each kind of forbidden text is named with its file and line."""
    assert forbidden_text(_write(tmp_path, path, text)) == [expected]


@pytest.mark.parametrize("before", ["https://example.org", "pytest_attnperf", "..", "auto"])
@pytest.mark.parametrize("folder", ["work", "root", "home"])
def test_similar_text_is_allowed(tmp_path: Path, before: str, folder: str) -> None:
    """Addresses, relative paths and longer words are no finding."""
    text = f"{before}/{folder}/a autodoc"
    assert forbidden_text(_write(tmp_path, "docs/a.md", text)) == []


def test_missing_docstring_and_package_are_found(tmp_path: Path) -> None:
    """A test without a docstring, in a class or not, and a package under tests/ are named."""
    _write(tmp_path, "tests/stats/test_a.py", "class TestA:\n    def test_b(self):\n        pass\n")
    _write(tmp_path, "tests/stats/__init__.py", "")
    assert undocumented_tests(tmp_path) == ["tests/stats/test_a.py:2: test_b has no docstring"]
    assert packages_in_tests(tmp_path) == ["tests/stats/__init__.py"]
