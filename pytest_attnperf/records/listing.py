"""Imports modules that a list names as text, when they are used; errors name the list's file and line."""

from __future__ import annotations

import inspect
import traceback
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

from pytest_attnperf.errors import UsageError


def import_listed_module(module: str, listing: str, text: str) -> ModuleType:
    """Imports and returns the module that `listing`, a file, names in a line with `text`. Raises UsageError naming that
    line if it does not exist."""
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        if not module.startswith(str(error.name)):
            raise  # it imports something that is missing
        raise UsageError(
            f"{find_place(listing, text)} names {text}, but there is no {module.replace('.', '/')}.py; correct one"
        ) from None


def import_listed_function(module: str, name: str, listing: str, text: str) -> Callable[..., Any]:
    """Returns function `name` of `module`, which the file `listing` names in a line with `text`. Raises UsageError
    naming both files if it does not exist."""
    found = import_listed_module(module, listing, text)
    if not hasattr(found, name):
        raise UsageError(f"{found.__file__}:1: has no {name}(), which {find_place(listing, text)} names; correct one")
    function: Callable[..., Any] = getattr(found, name)
    return function


def find_place(path: str, text: str) -> str:
    """Returns 'FILE:LINE' of the first line in file `path` that contains `text`, line 1 if none does."""
    lines = enumerate(Path(path).read_text(encoding="utf-8").splitlines(), 1)
    return f"{path}:{next((number for number, line in lines if text in line), 1)}"


def find_raise_place(error: BaseException, path: str = "") -> str:
    """Returns 'FILE:LINE' of the deepest call in file `path` that led to the error. `path` '' means the file of the
    function that the catcher called. Returns '' if no call was in that file."""
    calls = traceback.extract_tb(error.__traceback__)[1:]
    path = path or (calls[0].filename if calls else "")
    return next((f"{call.filename}:{call.lineno}" for call in reversed(calls) if call.filename == path), "")


def find_class_place(kind: type) -> str:
    """Returns 'FILE:LINE' where a class begins, e.g. 'perf/conftest.py:12'; its module's name if no source is known."""
    try:
        return f"{inspect.getsourcefile(kind)}:{inspect.getsourcelines(kind)[1]}"
    except (OSError, TypeError):
        return kind.__module__
