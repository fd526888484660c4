"""Parses `--attnperf-against`: a revision, a directory, an interpreter or a command. It starts nothing."""

from __future__ import annotations

import enum
import os
import shlex
import shutil
from dataclasses import dataclass
from pathlib import Path

from pytest_attnperf.errors import UsageError

OPTION = "--attnperf-against"
INTERPRETER_NAME = "python"


class BaseKind(str, enum.Enum):
    """Kind of a base side. The value is also the prefix that forces the kind: `dir:main`."""

    REV = "rev"
    DIR = "dir"
    PYTHON = "python"
    COMMAND = "command"


@dataclass(frozen=True)
class BaseSpec:
    """A parsed `--attnperf-against`.

    kind   kind of the base side
    text   the value without its prefix
    path   absolute path of the directory or interpreter; None for the other kinds
    argv   words of the command; empty for the other kinds
    tried  for a revision without a prefix: a sentence per other kind on why the value is not of that kind
    """

    kind: BaseKind
    text: str
    path: Path | None = None
    argv: tuple[str, ...] = ()
    tried: tuple[str, ...] = ()


def parse_spec(value: str, cwd: Path) -> BaseSpec:
    """Parses the value of `--attnperf-against`; relative paths are relative to `cwd`.

    Without a prefix the first kind that fits is taken: an existing directory, an executable file whose name begins with
    python, several words that begin with a command, else a revision, which is not looked up here. Raises UsageError for
    an empty value, and for a prefix whose kind does not fit.
    """
    if not value.strip():
        raise UsageError(f"{OPTION} is empty; name a revision, a directory, an interpreter or a command")
    prefix, colon, rest = value.partition(":")
    if colon and prefix in {kind.value for kind in BaseKind}:
        return _parse_forced(BaseKind(prefix), rest.strip(), cwd)
    tried: list[str] = []
    for reader in (_parse_directory, _parse_interpreter, _parse_command):
        read = reader(value, cwd)
        if isinstance(read, BaseSpec):
            return read
        tried.append(read)
    return BaseSpec(BaseKind.REV, value, tried=tuple(tried))


def _parse_forced(kind: BaseKind, text: str, cwd: Path) -> BaseSpec:
    if not text:
        raise UsageError(f"{OPTION}={kind.value}: names nothing; write the value behind the colon")
    if kind is BaseKind.REV:
        return BaseSpec(kind, text)
    if kind is BaseKind.DIR:
        read = _parse_directory(text, cwd)
    elif kind is BaseKind.PYTHON:
        read = _parse_interpreter(text, cwd, any_name=True)
    else:
        read = _parse_command(text, cwd, one_word=True)
    if isinstance(read, BaseSpec):
        return read
    raise UsageError(f"{OPTION}={kind.value}:{text}: {read}; leave out the prefix {kind.value!r} to try all kinds")


# Each of these functions returns the spec, or a short reason why the value is not of its kind.


def _parse_directory(text: str, cwd: Path) -> BaseSpec | str:
    path = _absolute_path(text, cwd)
    if not os.path.isdir(path):
        return f"no directory: {path} {'is a file' if os.path.exists(path) else 'does not exist'}"
    return BaseSpec(BaseKind.DIR, text, Path(path).resolve())


def _parse_interpreter(text: str, cwd: Path, *, any_name: bool = False) -> BaseSpec | str:
    """Returns the interpreter, or a short reason why the text is none. `any_name` allows names that do not begin with
    python. The path is made absolute, but links are kept: they lead to its virtual environment."""
    if not any_name and not Path(text).name.startswith(INTERPRETER_NAME):
        return f"no interpreter: the name does not begin with {INTERPRETER_NAME}"
    path = _absolute_path(text, cwd)
    if not os.path.isfile(path) and "/" not in text and (found := shutil.which(text)):
        path = os.path.abspath(found)
    if not os.path.isfile(path):
        return f"no interpreter: {path} does not exist"
    if not os.access(path, os.X_OK):
        return f"no interpreter: {path} is not executable"
    return BaseSpec(BaseKind.PYTHON, text, Path(path))


def _parse_command(text: str, cwd: Path, *, one_word: bool = False) -> BaseSpec | str:
    try:
        words = shlex.split(text)
    except ValueError as error:
        return f"no command: {error}"
    if not one_word and len(words) < 2:
        return f"no command: it is one word (write {BaseKind.COMMAND.value}:{text} to mean one)"
    if not words:
        return "no command: it has no word"
    if "/" in words[0]:
        path = _absolute_path(words[0], cwd)
        if not os.path.isfile(path):
            return f"no command: {path} does not exist"
        words[0] = path
    elif shutil.which(words[0]) is None:
        return f"no command: {words[0]!r} is not on PATH"
    return BaseSpec(BaseKind.COMMAND, text, argv=tuple(words))


def _absolute_path(text: str, cwd: Path) -> str:
    """Returns the absolute path, from `cwd`, with `~` expanded. pathlib would raise for an unknown ~user."""
    return os.path.abspath(os.path.join(cwd, os.path.expanduser(text)))
