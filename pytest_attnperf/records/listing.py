"""Imports modules that a list names as text, when they are used; errors name the list's file and line."""

from __future__ import annotations

import ast
import contextlib
import difflib
import inspect
import tokenize
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

from pytest_attnperf.errors import AttnperfError, UsageError
from pytest_attnperf.records.raised import describe_raised

NEAR = 0.8
"""Least similarity of a name that a message proposes for one that does not exist."""


def import_listed_module(module: str, listing: str, text: str) -> ModuleType:
    """Imports and returns the module that `listing`, a file, names in a line with `text`. Raises UsageError naming that
    line if it does not exist, or the line of the module's files that raised an error."""
    name = text.strip("\"'")
    if "/" in name or name.endswith(".py"):
        dotted = name.removesuffix(".py").replace("/", ".")
        raise UsageError(f'{find_place(listing, text)} names {text}: use dots, without .py: "{dotted}"')
    try:
        return import_module(module)
    except AttnperfError:
        raise
    except Exception as error:
        lacking = error.name if isinstance(error, ModuleNotFoundError) else None
        if lacking is None or not f"{module}.".startswith(f"{lacking}."):
            raise UsageError(f"{describe_raised(error)}; {find_place(listing, text)} lists this module") from error
        raise UsageError(_describe_absent(module, listing, text)) from None


def import_listed_function(module: str, name: str, listing: str, text: str) -> Callable[..., Any]:
    """Returns function `name` of `module`, which the file `listing` names in a line with `text`. Raises UsageError
    naming both files if it does not exist."""
    found = import_listed_module(module, listing, text)
    if not hasattr(found, name):
        raise UsageError(f"{found.__file__}:1: has no {name}(), which {find_place(listing, text)} names; correct one")
    function: Callable[..., Any] = getattr(found, name)
    return function


def find_place(path: str, text: str) -> str:
    """Returns 'FILE:LINE' of the first line in file `path` that contains `text`, or where a literal with that value
    begins; line 1 if there is neither."""
    lines = enumerate(Path(path).read_text(encoding="utf-8").splitlines(), 1)
    line = next((number for number, line in lines if text in line), 0)
    return f"{path}:{line or _find_literal(path, text)[0]}"


def find_class_place(kind: type) -> str:
    """Returns 'FILE:LINE' where a class begins, e.g. 'perf/conftest.py:12'; its module's name if no source is known."""
    try:
        return f"{inspect.getsourcefile(kind)}:{inspect.getsourcelines(kind)[1]}"
    except (OSError, TypeError):
        return kind.__module__


def _describe_absent(module: str, listing: str, text: str) -> str:
    """Returns a message that a listed module does not exist, with what was probably meant: a comma, or another name."""
    where = f"{find_place(listing, text)} names {text}"
    if len(parts := _find_literal(listing, text)[1]) > 1:
        return f'{where}: a comma is missing behind "{parts[0]}"'
    name = text.strip("\"'")
    modules = list(_list_modules(Path(listing).parent))
    same = [f'"{one}"' for one in modules if one.rpartition(".")[2] == name != one]
    near = same or [f'"{one}"' for one in difflib.get_close_matches(name, modules, 1, NEAR) if one != name]
    advice = f"write {' or '.join(near)}" if near else "correct one"
    return f"{where}, but there is no {module.replace('.', '/')}.py; {advice}"


def _find_literal(path: str, text: str) -> tuple[int, tuple[str, ...]]:
    """Returns (line, parts) of the first literal in file `path` whose value is the quoted `text`. Several parts stand
    behind each other without a comma, which Python joins. (1, ()) if there is none."""
    found: list[tuple[int, str]] = []
    with tokenize.open(path) as file:
        for token in tokenize.generate_tokens(file.readline):
            if token.type == tokenize.STRING:
                with contextlib.suppress(ValueError, SyntaxError):  # an f-string has no value yet
                    found.append((token.start[0], str(ast.literal_eval(token.string))))
            elif token.type not in (tokenize.NL, tokenize.COMMENT):
                parts = tuple(part for _, part in found)
                if found and "".join(parts) == text.strip("\"'"):
                    return found[0][0], parts
                found = []
    return 1, ()


def _list_modules(folder: Path) -> Iterator[str]:
    """Yields the modules below a folder as a list names them: 'native.rope', or 'triton.rope' for a folder's
    `backend`."""
    for path in sorted(folder.rglob("*.py")):
        parts = path.relative_to(folder).with_suffix("").parts
        yield ".".join(parts[:-1] if parts[-1] == "backend" else parts)
