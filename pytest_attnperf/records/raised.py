"""Where in the user's files an error was raised: the place for messages, and a traceback of these files only."""

from __future__ import annotations

import dataclasses
import functools
import os
import sysconfig
import traceback
from collections.abc import Iterator
from pathlib import Path
from types import FrameType

from pytest_attnperf.errors import AttnperfError

_PACKAGE = str(Path(__file__).parents[1]) + os.sep
_FAMILIES = os.path.join(_PACKAGE, "workloads") + os.sep
_INSTALLED = frozenset({"site-packages", "dist-packages"})
_OPTIMIZED = 1
"""CO_OPTIMIZED of `co_flags`: set for functions, not for the body of a module or class."""

ADVICE = "write @dataclass(frozen=True) above the class, and fields without a default before those with one"
"""What helps if `dataclasses` refuses a class of a backend or an op family."""

ENTRIES_MOST = 12


def describe_raised(error: BaseException) -> str:
    """Returns one line: 'FILE:LINE: TYPE: first line' of the deepest of the user's frames, and what to do if the module
    `dataclasses` raised the error. Of an AttnperfError only its text, which names its place itself."""
    if isinstance(error, AttnperfError):
        return str(error)
    lines = str(error).splitlines()
    if isinstance(error, SyntaxError) and error.filename:
        place, lines = f"{error.filename}:{error.lineno}", [error.msg]
    else:
        place = _find_raising_place(error)
    frames = list(traceback.walk_tb(error.__traceback__))
    refused = bool(frames) and frames[-1][0].f_code.co_filename == dataclasses.__file__
    said = f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__
    return f"{place}: {said}{f'; {ADVICE}' if refused else ''}"


def find_raise_place(error: BaseException, path: str = "") -> str:
    """Returns 'FILE:LINE' of the deepest call in file `path` that led to the error. `path` '' means the file of the
    function that the catcher called. Returns '' if no call was in that file."""
    calls = traceback.extract_tb(error.__traceback__)[1:]
    path = path or (calls[0].filename if calls else "")
    return next((f"{call.filename}:{call.lineno}" for call in reversed(calls) if call.filename == path), "")


def format_user_frames(error: BaseException) -> str:
    """Formats the traceback without frames of this package, and without those before the user's first; '' for an
    AttnperfError that only files of this package raised. Files of its op families count as the user's where there is
    no other. An error without frames of the user keeps all of them."""
    told = traceback.TracebackException.from_exception(error)
    chain = list(_list_chain(told))
    paths = {frame.filename for one in chain for frame in one.stack if is_users_file(frame.filename)}
    outside = {path for path in paths if not path.startswith(_FAMILIES)}
    if not outside and isinstance(error, AttnperfError):
        return ""
    for one in chain:
        first = next((n for n, frame in enumerate(one.stack) if frame.filename in (outside or paths)), None)
        if first is not None:
            kept = [frame for frame in one.stack[first:] if not _is_harness(frame.filename)]
            one.stack = traceback.StackSummary.from_list(kept)
    return "".join(list(told.format())[-ENTRIES_MOST:])


@functools.cache
def is_users_file(path: str) -> bool:
    """Returns whether a source file is the user's: a project's, or one of this package's op families, which belong to
    whoever adds one. Python's library, installed packages and '<string>' are not."""
    if path.startswith("<") or _is_harness(path) or not _INSTALLED.isdisjoint(Path(path).parts):
        return path.startswith(_FAMILIES)
    paths = sysconfig.get_paths()
    return not path.startswith((paths["stdlib"] + os.sep, paths["platstdlib"] + os.sep))


def _is_harness(path: str) -> bool:
    return path.startswith(_PACKAGE) and not path.startswith(_FAMILIES)


def _list_chain(told: traceback.TracebackException | None) -> Iterator[traceback.TracebackException]:
    while told is not None:
        yield told
        told = told.__cause__ or told.__context__


def _find_raising_place(error: BaseException) -> str:
    """Returns 'FILE:LINE' of the deepest frame of the user's files, or of what a module of this package states outside
    functions; of the deepest frame if there is none, '' without frames."""
    frames = list(traceback.walk_tb(error.__traceback__))
    stated = [(frame, line) for frame, line in frames if _is_stated(frame)] or frames
    return f"{stated[-1][0].f_code.co_filename}:{stated[-1][1]}" if stated else ""


def _is_stated(frame: FrameType) -> bool:
    path = frame.f_code.co_filename
    return is_users_file(path) or (path.startswith(_PACKAGE) and not frame.f_code.co_flags & _OPTIMIZED)
