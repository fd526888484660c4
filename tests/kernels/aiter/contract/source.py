"""Reads functions out of a source tree of ROCm's aiter without importing it, and says where adapters do not fit."""

from __future__ import annotations

import ast
import functools
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from kernels.aiter.signatures import EntryPoint

HOW = "give a source tree of ROCm/aiter to check: AITER_SOURCE=<folder that holds aiter/>"


@dataclass(frozen=True)
class Found:
    """A function's parameters in order, and those of them that have a default."""

    names: tuple[str, ...]
    with_default: frozenset[str]
    anything: bool


class Tree(Protocol):
    """One version of aiter: its source tree, or what was recorded of it."""

    def has(self, module: str) -> bool:
        """Whether it has this module."""

    def function(self, module: str, name: str) -> Found | None:
        """Parameters of a function that a module defines or imports by its name; None where there is none."""


@dataclass(frozen=True)
class Source:
    """A source tree; `root` holds `aiter/`."""

    root: Path

    def has(self, module: str) -> bool:
        """Whether the tree has a file of this module."""
        return self.path(module) is not None

    def path(self, module: str) -> Path | None:
        """The file of a module; None where there is none."""
        base = self.root.joinpath(*module.split("."))
        return next((path for path in (base.with_suffix(".py"), base / "__init__.py") if path.is_file()), None)

    def tree(self, module: str) -> ast.Module | None:
        """The module, parsed; None where it does not exist."""
        path = self.path(module)
        return _parsed(path) if path else None

    def functions(self, module: str) -> dict[str, ast.FunctionDef]:
        """Top-level functions of a module; the last of several with one name, as Python takes it."""
        tree = self.tree(module)
        return {node.name: node for node in tree.body if isinstance(node, ast.FunctionDef)} if tree else {}

    def function(self, module: str, name: str) -> Found | None:
        """Parameters of a function that a module defines, or imports by its name; None where there is none."""
        node = self.functions(module).get(name)
        if node is not None:
            return _parameters(node.args)
        place = self._imported_from(module, name)
        return self.function(place, name) if place else None

    def _imported_from(self, module: str, name: str) -> str:
        """The module that a name is imported from at the top of this one; '' where it is not."""
        tree, package = self.tree(module), module.split(".")
        for node in tree.body if tree else []:
            if isinstance(node, ast.ImportFrom) and any(one.name == name and not one.asname for one in node.names):
                above = package[: len(package) - node.level] if node.level else []
                return ".".join([*above, *([node.module] if node.module else [])])
        return ""


def misfits(source: Tree, point: EntryPoint) -> list[str]:
    """Where a call of an entry point does not fit this tree; empty where it does.

    A module is looked for at its new place first, then at the old one, as the adapters do.
    """
    module = place_of(source, point)
    if module is None:
        return [f"no module {' or '.join(one for one in (point.module, point.old) if one)}"]
    found = source.function(module, point.function)
    if found is None:
        return [f"{module} has no {point.function}"]
    wrong = []
    missing = [name for name in (*point.needed, *point.positional) if name not in found.names and not found.anything]
    if missing:
        wrong.append(f"takes no {', '.join(missing)}; it takes {', '.join(found.names)}")
    order = [name for name in found.names if name in point.positional]
    if not missing and order != list(point.positional):
        wrong.append(f"takes {', '.join(order)} in this order, not {', '.join(point.positional)}")
    given = {*point.needed, *point.offered, *point.positional}
    asked = [name for name in found.names if name not in given and name not in found.with_default]
    if asked:
        wrong.append(f"asks for {', '.join(asked)}, which the adapter does not give")
    return wrong


def absent(source: Tree, point: EntryPoint) -> bool:
    """Whether the function does not exist in this tree at all."""
    module = place_of(source, point)
    return module is None or source.function(module, point.function) is None


def compiled(source: Source, module: str) -> set[str]:
    """Functions of a module that aiter compiles: those under its decorator `compile_ops`."""
    return {name for name, node in source.functions(module).items() if "compile_ops" in _decorators(node)}


def called_by(source: Source, module: str) -> dict[str, set[str]]:
    """Name -> the top-level functions and classes of a module that call it by that name."""
    tree = source.tree(module)
    callers: dict[str, set[str]] = {}
    for node in tree.body if tree else []:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            for call in ast.walk(node):
                if isinstance(call, ast.Call) and isinstance(call.func, ast.Name):
                    callers.setdefault(call.func.id, set()).add(node.name)
    return callers


def place_of(source: Tree, point: EntryPoint) -> str | None:
    """The module that an adapter imports a function from: the new place or else the old; None where neither exists."""
    return next((one for one in (point.module, point.old) if one and source.has(one)), None)


@functools.cache
def _parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def _parameters(node: ast.arguments) -> Found:
    plain = [*node.posonlyargs, *node.args]
    names = (*(one.arg for one in plain), *(one.arg for one in node.kwonlyargs))
    defaults = {one.arg for one in plain[len(plain) - len(node.defaults) :]}
    pairs = zip(node.kwonlyargs, node.kw_defaults, strict=True)
    defaults |= {one.arg for one, default in pairs if default is not None}
    return Found(names, frozenset(defaults), node.kwarg is not None)


def _decorators(node: ast.FunctionDef) -> set[str]:
    calls = [one.func if isinstance(one, ast.Call) else one for one in node.decorator_list]
    return {one.id for one in calls if isinstance(one, ast.Name)}
