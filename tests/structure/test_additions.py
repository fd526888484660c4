"""What an op family or a suite of this repository lacks, by file and line: what CONTRIBUTING.md's recipes ask for."""

from __future__ import annotations

import ast
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import TypeVar

import pytest

ROOT = Path(__file__).parents[2]
FAMILIES = "pytest_attnperf/workloads/families.py"
MARKER = "pytest.mark.attnperf"
TAKEN = ("attnperf", "backend", "workload")
"""Fixtures that a case takes."""

Node = TypeVar("Node", bound=ast.AST)


def family_problems(root: Path) -> list[str]:
    """'file:line: what is missing' for each class with a grammar that no list, test or suite names."""
    tests, suites = ([*map(_parse, sorted((root / name).glob("*.py")))] for name in ("tests/workloads", "suites"))
    listed = {_unparse(call.args[0]) for call in _find_calls(_parse(root / FAMILIES), "Family.of")}
    imported = {alias.name for tree in tests for alias in _find(tree, ast.alias)}
    measured = {_text(one.value) for tree in suites for one in _find(tree, ast.keyword) if one.arg == "family"}
    problems = []
    for path, node, family in _find_families(root):
        where = f"{path.relative_to(root).as_posix()}:{node.lineno}"
        if node.name not in listed:
            problems.append(f"{where}: BUILT_IN of {FAMILIES} has no line Family.of({node.name}, 'what it is')")
        if node.name not in imported:
            problems.append(f"{where}: no test imports {node.name}; add tests/workloads/test_{path.name}")
        if family not in measured:
            problems.append(f"{where}: no suite has family={family!r}; add suites/test_{path.name}")
    return problems


def _find_families(root: Path) -> Iterator[tuple[Path, ast.ClassDef, str]]:
    """(file, class, name of the family) of each class that has a grammar of its own."""
    for path in sorted((root / FAMILIES).parent.glob("*.py")):
        for node in _find(_parse(path), ast.ClassDef):
            grammars = (one.value for one in node.body if isinstance(one, ast.Assign) and _names(one) == ["grammar"])
            for made in grammars:
                assert isinstance(made, ast.Call)
                named = [keyword.value for keyword in made.keywords if keyword.arg == "family"]
                yield path, node, _text([*named, *made.args][0])


def suite_problems(root: Path) -> list[str]:
    """'file:line: what is missing' for each test in suites/ that is no case, and each list of workloads whose origin
    nobody says."""
    problems = []
    for path in sorted((root / "suites").glob("*.py")):
        tree = _parse(path)
        found = [*_find_unsaid(tree), *_find_no_cases(tree)]
        problems += [f"{path.relative_to(root).as_posix()}:{line}: {problem}" for line, problem in found]
    return problems


def _find_unsaid(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Lists of workloads without a text below them."""
    for one, below in zip(tree.body, [*tree.body[1:], None], strict=True):
        read = {node.attr for node in _find(one, ast.Attribute)} & {"parse", "parse_line"}
        if isinstance(one, ast.Assign) and read and not (isinstance(below, ast.Expr) and _text(below.value)):
            yield one.lineno, f"no text below {_names(one)[0]} says where its workloads come from"


def _find_no_cases(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Tests of backends and workloads without a whole marker, its fixtures or the one call."""
    functions = [node for node in _find(tree, ast.FunctionDef) if "code_object" not in _arguments(node)]
    makers = {node.name for node in functions if any(_find_calls(node, MARKER))}
    for node in (one for one in functions if one.name.startswith("test_")):
        given = {word.arg for call in _find_calls(node, MARKER) for word in call.keywords}
        by_maker = any(_unparse(call.func) in makers for one in node.decorator_list for call in _find(one, ast.Call))
        if not by_maker and (missing := [name for name in ("family", "workloads") if name not in given]):
            yield node.lineno, f"{node.name} has no @{MARKER} with {' and '.join(missing)}"
        if missing := [name for name in TAKEN if name not in _arguments(node)]:
            yield node.lineno, f"{node.name} does not take {', '.join(missing)}"
        if not any(_find_calls(node, "attnperf.run")):
            yield node.lineno, f"{node.name} does not call attnperf.run(backend, workload)"


def _parse(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def _find(tree: ast.AST, kind: type[Node]) -> Iterator[Node]:
    return (node for node in ast.walk(tree) if isinstance(node, kind))


def _find_calls(tree: ast.AST, name: str) -> Iterator[ast.Call]:
    return (call for call in _find(tree, ast.Call) if _unparse(call.func) == name)


def _unparse(node: ast.AST) -> str:
    return ast.unparse(node)


def _names(one: ast.Assign) -> list[str]:
    return [_unparse(target) for target in one.targets]


def _arguments(node: ast.FunctionDef) -> list[str]:
    return [argument.arg for argument in node.args.args]


def _text(node: ast.expr) -> str:
    """A string that stands there; '' where anything else does."""
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else ""


def test_every_family_is_listed_tested_and_measured() -> None:
    """Each class with a grammar is in BUILT_IN, in a test and in a suite."""
    assert family_problems(ROOT) == []
    assert len(list(_find_families(ROOT))) == len(list(_find_calls(_parse(ROOT / FAMILIES), "Family.of")))


def test_every_test_of_a_suite_is_a_case() -> None:
    """Its marker, its fixtures and its call are there, and workloads come from somewhere."""
    assert suite_problems(ROOT) == []


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A family, its test and its suite, as they are here."""
    for path in (FAMILIES, "pytest_attnperf/workloads/rope.py", "tests/workloads/test_rope.py", "suites/test_rope.py"):
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / path, tmp_path / path)
    assert family_problems(tmp_path) == suite_problems(tmp_path) == []
    return tmp_path


def _line(path: Path, text: str) -> int:
    return path.read_text().partition(text)[0].count("\n") + 1


@pytest.mark.parametrize(
    ("path", "text", "problem"),
    [
        (FAMILIES, "Family.of(Rope,", f"BUILT_IN of {FAMILIES} has no line Family.of(Rope, 'what it is')"),
        (
            "tests/workloads/test_rope.py",
            "import DTYPES, Rope",
            "no test imports Rope; add tests/workloads/test_rope.py",
        ),
        ("suites/test_rope.py", 'family="rope"', "no suite has family='rope'; add suites/test_rope.py"),
    ],
)
def test_what_a_family_lacks_is_named(tree: Path, path: str, text: str, problem: str) -> None:
    """With the file and line of its class."""
    file = tree / path
    assert text in file.read_text()
    file.write_text(file.read_text().replace(text, text.replace("Rope", "Other").replace("rope", "other")))
    line = _line(ROOT / "pytest_attnperf/workloads/rope.py", "class Rope")
    assert family_problems(tree) == [f"pytest_attnperf/workloads/rope.py:{line}: {problem}"]


@pytest.mark.parametrize(
    ("text", "other", "at", "problem"),
    [
        ('family="rope", ', "", "def test_rope", f"test_rope has no @{MARKER} with family"),
        ("@pytest.mark.attnperf(", "@mark(", "def test_rope", f"test_rope has no @{MARKER} with family and workloads"),
        ("attnperf, backend,", "attnperf,", "def test_rope", "test_rope does not take backend"),
        ("    attnperf.run(", "    print(", "def test_rope", "test_rope does not call attnperf.run(backend, workload)"),
        ('"""Small; ', 'x = """', "ROPE = [", "no text below ROPE says where its workloads come from"),
    ],
)
def test_what_a_suite_lacks_is_named(tree: Path, text: str, other: str, at: str, problem: str) -> None:
    """With the file and line of the test, or of the list."""
    file = tree / "suites/test_rope.py"
    assert text in file.read_text()
    line = _line(file, at)
    file.write_text(file.read_text().replace(text, other))
    assert suite_problems(tree) == [f"suites/test_rope.py:{line}: {problem}"]
