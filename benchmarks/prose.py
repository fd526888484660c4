"""Find places that tell a fact by the words of a sentence: by how a note begins, or what stands in an error's text.

python benchmarks/prose.py [--root DIR]
"""

from __future__ import annotations

import argparse
import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

PACKAGE = "pytest_attnperf"
ROOT = Path(__file__).parents[1]

PROSE = re.compile(r"(?:^|_)(?:notes?|summary|summaries|reasons?|findings?|messages?|problems?|failure)$")
"""Names of texts that people are told; a name in capitals is a constant, not such a text."""

RAISED = re.compile(r"(?:^|_)(?:error|exception|failure|caught|again|cause|orig)$")
"""Names of exceptions: `str()` of one is such a text."""

MATCHING = frozenset({"startswith", "endswith", "removeprefix", "removesuffix", "partition", "rpartition", "split"})
MATCHING_MORE = frozenset({"find", "rfind", "index", "rindex", "count"})
PATTERN = frozenset({"match", "fullmatch", "search", "findall", "finditer", "split"})
CHANGING = frozenset({"lower", "upper", "casefold", "strip", "lstrip", "rstrip", "splitlines"})
"""Methods of a text whose result is as much prose as the text."""

LINES = frozenset({"\n", "chr(10)"})
"""Cutting a text into its lines tells nothing by its words."""


@dataclass(frozen=True)
class Place:
    """One such place; `function` is the innermost one around it, '' outside of all."""

    path: str
    line: int
    function: str
    code: str


def places_of_package(root: Path) -> list[Place]:
    """Every place in the package under a checkout."""
    top = root / PACKAGE
    files = sorted(top.rglob("*.py"))
    return [place for path in files for place in places_in(path.read_text(), str(path.relative_to(top)))]


def places_in(source: str, path: str) -> list[Place]:
    """The places of one file."""
    finder = _Finder(path)
    finder.visit(ast.parse(source))
    return finder.places


class _Finder(ast.NodeVisitor):
    """Visits a file. A name is prose by itself, or by what it was bound to in its function."""

    def __init__(self, path: str) -> None:
        self.places: list[Place] = []
        self._path = path
        self._functions = [""]
        self._bound: list[set[str]] = [set()]

    def visit_FunctionDef(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        """Bind names anew: those of the function around it still count."""
        self._functions.append(node.name)
        self._bound.append(set(self._bound[-1]))
        for inner in ast.walk(node):
            for target, value in _bindings(inner):
                if isinstance(target, ast.Name) and self._is_prose(value):
                    self._bound[-1].add(target.id)
        self.generic_visit(node)
        self._functions.pop()
        self._bound.pop()

    visit_AsyncFunctionDef = visit_FunctionDef

    def visit_Call(self, node: ast.Call) -> None:
        """A method of a text, or a pattern that is held against one."""
        called = node.func
        if isinstance(called, ast.Attribute):
            method, texts = called.attr, [argument for argument in node.args if self._is_prose(argument)]
            cut = method in MATCHING and not (node.args and _is_line_break(node.args[0]))
            more = method in MATCHING_MORE and bool(node.args) and _is_text(node.args[0])
            if ((cut or more) and self._is_prose(called.value)) or (method in PATTERN and texts):
                self._found(node)
        self.generic_visit(node)

    def visit_Compare(self, node: ast.Compare) -> None:
        """`x in text`; one note among notes is no match of words."""
        for before, operator, text in zip([node.left, *node.comparators], node.ops, node.comparators, strict=False):
            if isinstance(operator, (ast.In, ast.NotIn)) and self._is_prose(text) and not self._is_prose(before):
                self._found(node)
        self.generic_visit(node)

    def _found(self, node: ast.expr) -> None:
        self.places.append(Place(self._path, node.lineno, self._functions[-1], ast.unparse(node)))

    def _is_prose(self, node: ast.expr) -> bool:
        if isinstance(node, ast.Name):
            return not node.id.isupper() and (bool(PROSE.search(node.id)) or node.id in self._bound[-1])
        if isinstance(node, ast.Attribute):
            return not node.attr.isupper() and bool(PROSE.search(node.attr))
        if isinstance(node, (ast.Subscript, ast.Starred)):
            return self._is_prose(node.value)
        if isinstance(node, (ast.Tuple, ast.List)):
            return any(map(self._is_prose, node.elts))
        return isinstance(node, ast.Call) and self._gives_prose(node)

    def _gives_prose(self, node: ast.Call) -> bool:
        """Whether a call's result is a text of people: of an exception, or one that was only changed in form."""
        if isinstance(node.func, ast.Name) and node.func.id == "str" and len(node.args) == 1:
            return _is_raised(node.args[0]) or self._is_prose(node.args[0])
        if not isinstance(node.func, ast.Attribute):
            return False
        if node.func.attr == "join":
            return any(map(self._is_prose, node.args))
        return node.func.attr in CHANGING and self._is_prose(node.func.value)


def _bindings(node: ast.AST) -> Iterator[tuple[ast.expr, ast.expr]]:
    """(target, what it is bound to) of an assignment, or of each turn of a loop."""
    if isinstance(node, ast.Assign):
        yield from ((target, node.value) for target in node.targets)
    elif isinstance(node, (ast.For, ast.comprehension)):
        yield node.target, node.iter
    elif isinstance(node, ast.NamedExpr):
        yield node.target, node.value


def _is_raised(node: ast.expr) -> bool:
    name = node.id if isinstance(node, ast.Name) else node.attr if isinstance(node, ast.Attribute) else ""
    return bool(RAISED.search(name))


def _is_line_break(node: ast.expr) -> bool:
    return (isinstance(node, ast.Constant) and node.value in LINES) or ast.unparse(node) in LINES


def _is_text(node: ast.expr) -> bool:
    """A literal text, or a name in capitals: `notes.index(note)` matches no words."""
    return (isinstance(node, ast.Constant) and isinstance(node.value, str)) or (
        isinstance(node, ast.Name) and node.id.isupper()
    )


def main() -> None:
    """Print every place."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--root", type=Path, default=ROOT, help="a checkout (default: this one)")
    for place in places_of_package(parser.parse_args().root):
        print(f"{place.path}:{place.line} {place.function}: {place.code}")


if __name__ == "__main__":
    main()
