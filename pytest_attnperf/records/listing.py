"""Imports modules that a list names as text, when they are used; errors name the list's file and line."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

from pytest_attnperf.errors import UsageError


def import_listed_module(module: str, listing: str, text: str) -> ModuleType:
    """Imports a module that the file `listing` names in a line with `text`. Raises UsageError where there is none."""
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        if not module.startswith(str(error.name)):
            raise  # it imports something that is missing
        raise UsageError(
            f"{find_place(listing, text)} names {text}: there is no {module.replace('.', '/')}.py"
        ) from None


def import_listed_function(module: str, name: str, listing: str, text: str) -> Callable[..., Any]:
    """Returns a function of that module. Raises UsageError where it has none of this name."""
    found = import_listed_module(module, listing, text)
    if not hasattr(found, name):
        raise UsageError(f"{found.__file__}:1: has no {name}(), which {find_place(listing, text)} names")
    function: Callable[..., Any] = getattr(found, name)
    return function


def find_place(path: str, text: str) -> str:
    """Returns e.g. 'kernels/__init__.py:20', the first line of a file with this text; line 1 where none has it."""
    lines = enumerate(Path(path).read_text(encoding="utf-8").splitlines(), 1)
    return f"{path}:{next((number for number, line in lines if text in line), 1)}"


def find_class_place(kind: type) -> str:
    """Returns e.g. 'perf/conftest.py:12', where a class begins; its module where no source is known."""
    try:
        return f"{inspect.getsourcefile(kind)}:{inspect.getsourcelines(kind)[1]}"
    except (OSError, TypeError):
        return kind.__module__
