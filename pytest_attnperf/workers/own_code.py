"""Whether the code that judges and measures is this package's own, and not what a suite has put in its place.

A conftest that replaces a reference, a comparison or a timer makes every verdict worthless, and most do not mean to:
a fixture that patches a function for its own tests may stay for a whole process.
"""

from __future__ import annotations

import functools
import inspect
import sys
import sysconfig
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any

import pytest_attnperf

ROOMS = ("correctness", "measure", "stats", "workloads")
"""Parts of the package whose code decides what is right and how long it took."""

_PACKAGE = Path(pytest_attnperf.__file__).resolve().parent
_PREFIXES = tuple(f"{pytest_attnperf.__name__}.{room}" for room in ROOMS)
_LIBRARIES = tuple(
    {str(Path(sysconfig.get_path(kind)).resolve()) for kind in ("stdlib", "platstdlib", "purelib", "platlib")}
)

Place = tuple[Mapping[str, Any], str, Any]
"""Where a function or class is looked up: the namespace, the name, and what stands there."""


class OwnCode:
    """Looks at every function of the loaded modules; the first look at each remembers what it saw."""

    def __init__(self) -> None:
        self._seen: dict[str, list[Place]] = {}

    def problem(self) -> str:
        """Says what was replaced, and by which code; '' where nothing was."""
        for name, module in list(sys.modules.items()):
            if not name.startswith(_PREFIXES):
                continue
            places = self._seen.get(name)
            found = self._first_look(name, module) if places is None else self._other_since(name, places)
            if found:
                return found
        return ""

    def _first_look(self, name: str, module: ModuleType) -> str:
        file = str(getattr(module, "__file__", "") or "")
        if not _is_own(file):
            return _text(name, file or "a module without a file")
        places = list(self._places(module))
        for namespace, attribute, value in places:
            if other := self._other_code(value):
                return _text(f"{name}.{_described(namespace, attribute)}", other)
        self._seen[name] = places
        return ""

    def _other_since(self, name: str, places: list[Place]) -> str:
        for namespace, attribute, value in places:
            if (now := namespace.get(attribute)) is not value:
                other = self._other_code(now) or repr(now)[:80]
                return _text(f"{name}.{_described(namespace, attribute)}", other)
        return ""

    def _places(self, module: ModuleType) -> Iterator[Place]:
        for name, value in vars(module).items():
            if isinstance(value, (FunctionType, type, functools.partial)) or hasattr(value, "__wrapped__"):
                yield vars(module), name, value
            if isinstance(value, type) and value.__module__ == module.__name__:
                for attribute, member in vars(value).items():
                    if _function(member) is not None:
                        yield vars(value), attribute, member

    def _other_code(self, value: Any) -> str:
        """The file that a function or class comes from, where that is neither ours nor a library's."""
        if isinstance(value, type):
            file = str(getattr(sys.modules.get(value.__module__), "__file__", None) or "<built in>")
            return "" if file.startswith(("<", *_LIBRARIES)) or _is_own(file) else file
        function = _function(value)
        if function is None:
            return ""
        file = function.__code__.co_filename
        if file.startswith("<"):  # what dataclasses and named tuples make
            file = str(function.__globals__.get("__file__", "<frozen"))
        if _is_own(file) or file.startswith(("<frozen", *_LIBRARIES)):
            return ""
        return f"{file}:{function.__code__.co_firstlineno}"


@functools.cache
def _is_own(file: str) -> bool:
    """Whether a file is the package's, which workers import through a link."""
    return Path(file).resolve().is_relative_to(_PACKAGE)


def _function(value: Any) -> FunctionType | None:
    """The Python function in a method, property, partial or decorated function."""
    if isinstance(value, (staticmethod, classmethod)):
        value = value.__func__
    if isinstance(value, property):
        value = value.fget
    if isinstance(value, functools.partial):
        value = value.func
    value = inspect.unwrap(value) if callable(value) and not isinstance(value, type) else value
    return value if isinstance(value, FunctionType) else None


def _described(namespace: Mapping[str, Any], attribute: str) -> str:
    """The name within its module; in a class with the name of it."""
    owner = next((str(value.__qualname__).rsplit(".", 1)[0] for value in namespace.values() if _is_method(value)), "")
    return f"{owner}.{attribute}" if owner and "__name__" not in namespace else attribute


def _is_method(value: Any) -> bool:
    return isinstance(value, FunctionType) and "." in value.__qualname__


def _text(name: str, by: str) -> str:
    return (
        f"{name} was replaced by {by}: what judges and measures must be the package's own code. Remove what replaces "
        "it; to add a workload, a backend or a reference, register your own"
    )
