"""Imports a file by its path, whatever its name is, and finds a function in it."""

from __future__ import annotations

import importlib.util
import os
import sys
from collections.abc import Callable
from importlib.machinery import SourceFileLoader
from types import ModuleType
from typing import Any

from pytest_attnperf.errors import AttnperfError, propose_name
from pytest_attnperf.records.call_fit import format_kind


class FunctionMissingError(AttnperfError):
    """A file that has no function of the name that was asked for."""


def load_file(path: str, name: str = "kernel_under_judgement") -> ModuleType:
    """Imports a file as the module `name`, with its folder on the path while it runs. Raises what it raises."""
    loader = SourceFileLoader(name, path)  # whatever the file's suffix is
    spec = importlib.util.spec_from_loader(name, loader)
    assert spec is not None, path
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    sys.path.insert(0, os.path.dirname(path))
    try:
        loader.exec_module(module)
    finally:
        sys.path.remove(os.path.dirname(path))
    return module


def find_function(module: ModuleType, name: str, file: str) -> Callable[..., Any]:
    """Returns the callable `name` of a module. Raises FunctionMissingError with those that there are."""
    found = getattr(module, name, None)
    if callable(found):
        function: Callable[..., Any] = found
        return function
    own = [key for key, value in vars(module).items() if callable(value) and not key.startswith("_")]
    here = [key for key in own if getattr(vars(module)[key], "__module__", "") == module.__name__] or own
    has = f"it has {', '.join(here[:20])}" if here else "it has none"
    kind = "no function" if found is None else f"{format_kind(found)}, not a function, as"
    raise FunctionMissingError(f"{file} has {kind} {name!r}{propose_name(name, here)}; {has}")
