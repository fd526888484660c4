"""Finds the commands of `attnperf`: files of commands/, and folders there, whose files are actions of one command.

`attnperf list` is commands/list.py, `attnperf baselines check` is commands/baselines/check.py. A name is written as it
is typed: 'list', 'baselines check'. Files are read as text: only the command that was typed is imported.
"""

from __future__ import annotations

import os
import re
from importlib import import_module
from types import ModuleType
from typing import NamedTuple

from pytest_attnperf.cli import commands
from pytest_attnperf.errors import UsageError

NAME_COLUMNS, WIDTH = 12, 80
UNLISTED = "also"
"""GROUP of commands that are rarely typed: the list only names them, in its last line."""

FACT = re.compile(r"^(GROUP|ORDER|SUMMARY) = (.+)$", re.MULTILINE)
LAST = 1000
NEEDED = ("GROUP", "SUMMARY", "DESCRIPTION", "EPILOG", "add_arguments(parser)", "run(options)")
"""Names that the file of a command must define. An action needs no GROUP, and a folder's __init__.py no functions."""


class Command(NamedTuple):
    """A command as a list shows it. `group` is its heading, '' of an action; `summary` one line, also the `help` of its
    parser; `order` its place in the list. Groups stand in the order of their first commands."""

    group: str
    summary: str
    order: int


def list_names(parent: str = "") -> list[str]:
    """Returns the sorted names of all commands as typed, or, with `parent`, of the actions of that command, without
    it. Underscores of files become hyphens."""
    found = set()
    for folder in _list_folders(parent):
        for file in os.listdir(folder):
            if file.endswith(".py") and not file.startswith("_"):
                found.add(file[:-3].replace("_", "-"))
            elif os.path.exists(os.path.join(folder, file, "__init__.py")):
                found.add(file.replace("_", "-"))
    return sorted(found)


def list_whole_names() -> list[str]:
    """Returns all that can be typed, in the order of the list: each command, or each of its actions with its name."""
    return [whole for name in read_commands() for whole in ([f"{name} {one}" for one in read_commands(name)] or [name])]


def has_actions(name: str) -> bool:
    """Tells whether the command is a folder of actions."""
    return bool(_list_folders(name))


def read_commands(parent: str = "") -> dict[str, Command]:
    """Returns name -> Command of all commands, or of the actions of `parent`, in the order of the list. Raises
    UsageError if a file lacks what the list needs."""
    found = {name: _read_command(parent, name) for name in list_names(parent)}
    first = {one.group: one.order for one in sorted(found.values(), key=lambda one: one.order, reverse=True)}
    return dict(sorted(found.items(), key=lambda item: (first[item[1].group], item[1].order, item[0])))


def render_list(parent: str = "") -> str:
    """Returns the list of commands with their summaries under headings, or of the actions of `parent`, for 80 columns.
    UNLISTED commands are only named in its last line."""
    import textwrap

    lines: list[str] = []
    also: list[str] = []
    heading = ""
    for name, command in read_commands(parent).items():
        if command.group == UNLISTED:
            also.append(name)
            continue
        group = command.group or "actions"
        if group != heading:
            heading = group
            lines += ["", f"{group}:"] if lines else [f"{group}:"]
        first = f"  {name:<{NAME_COLUMNS}}"
        lines += textwrap.wrap(command.summary, WIDTH, initial_indent=first, subsequent_indent=" " * len(first))
    return "\n".join([*lines, *(["", f"{UNLISTED}: {', '.join(also)}"] if also else [])])


def import_command(name: str) -> ModuleType:
    """Imports and returns the module of a command, an action ('baselines check') or a folder. Raises UsageError if it
    lacks one of the names that it needs."""
    module = import_module(f"{commands.__name__}.{_to_path(name).replace(os.sep, '.')}")
    functions = () if has_actions(name) else ("add_arguments", "run")
    for lacking in ("DESCRIPTION", "EPILOG", *functions):
        if not hasattr(module, lacking):
            raise UsageError(f"{module.__file__}:1: a command needs {', '.join(NEEDED)}; {lacking} is missing")
    return module


def _list_folders(name: str) -> list[str]:
    """Returns the folders whose files are commands ('') or actions of a command; [] for one without actions."""
    if not name:
        return list(commands.__path__)
    paths = (os.path.join(folder, _to_path(name)) for folder in commands.__path__)
    return [path for path in paths if os.path.exists(os.path.join(path, "__init__.py"))]


def _to_path(name: str) -> str:
    return name.replace("-", "_").replace(" ", os.sep)


def _read_command(parent: str, name: str) -> Command:
    """Returns GROUP, SUMMARY, ORDER, read from lines of a command's file. Raises UsageError without the first two, of
    an action without SUMMARY."""
    from ast import literal_eval

    tails = (f"{_to_path(name)}.py", os.path.join(_to_path(name), "__init__.py"))
    paths = (os.path.join(folder, tail) for folder in _list_folders(parent) for tail in tails)
    path = next(path for path in paths if os.path.exists(path))
    with open(path, encoding="utf-8") as file:
        facts = {fact: literal_eval(value) for fact, value in FACT.findall(file.read())}
    needed = ("SUMMARY",) if parent else ("GROUP", "SUMMARY")
    if not facts.keys() >= set(needed):
        wanted = " and ".join(f"{fact} = ..." for fact in needed)
        raise UsageError(f"{path}:1: {'an action' if parent else 'a command'} needs {wanted}, each on its own line")
    return Command("" if parent else facts["GROUP"], facts["SUMMARY"], facts.get("ORDER", LAST))
