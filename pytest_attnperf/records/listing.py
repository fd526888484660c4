"""What a list names by its text is imported when it is used; what it lacks is said with file and line."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

from pytest_attnperf.errors import UsageError


def import_listed_module(module: str, listing: str, text: str) -> ModuleType:
    """The module that a line of the file `listing` names; `text` is in that line. Raises UsageError for none."""
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        if not module.startswith(str(error.name)):
            raise  # something that it imports
        raise UsageError(
            f"{find_place(listing, text)} names {text}: there is no {module.replace('.', '/')}.py"
        ) from None


def import_listed_function(module: str, name: str, listing: str, text: str) -> Callable[..., Any]:
    """A function of that module. Raises UsageError where it has none of this name."""
    found = import_listed_module(module, listing, text)
    if not hasattr(found, name):
        raise UsageError(f"{found.__file__}:1: has no {name}(), and {find_place(listing, text)} names it")
    function: Callable[..., Any] = getattr(found, name)
    return function


def find_place(path: str, text: str) -> str:
    """'kernels/__init__.py:20': the first line of a file that holds this text; its first where none does."""
    lines = enumerate(Path(path).read_text(encoding="utf-8").splitlines(), 1)
    return f"{path}:{next((number for number, line in lines if text in line), 1)}"


def find_class_place(kind: type) -> str:
    """'perf/conftest.py:12': where a class begins; its module where no source is known."""
    try:
        return f"{inspect.getsourcefile(kind)}:{inspect.getsourcelines(kind)[1]}"
    except (OSError, TypeError):
        return kind.__module__
