"""Reads a file that a user names or somebody else made: only a regular one, no larger than its reader expects.

A pipe may block its reader for ever, a device may have no end, and a sparse file of gigabytes takes no room on disk.
Standard library only.
"""

from __future__ import annotations

import contextlib
import difflib
import itertools
import os
import stat
from pathlib import Path
from typing import BinaryIO

from pytest_attnperf.errors import AttnperfError, UsageError

KINDS = {
    stat.S_IFDIR: "a folder",
    stat.S_IFIFO: "a pipe",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
    stat.S_IFSOCK: "a socket",
}


NAME_CUTOFF = 0.8
COMPARED_NAMES = 1000
"""Most names of a folder that a missing file's is compared with."""


def describe_os_error(error: OSError) -> str:
    """Returns what went wrong with a file, without the number of the error: 'a.json does not exist (did you mean
    b.json?)'. Of an error that names no file its own text."""
    if error.filename is None:
        return str(error)
    if isinstance(error, FileNotFoundError):
        near = propose_path(Path(os.fsdecode(error.filename)))
        return f"{error.filename} does not exist{near or '; name an existing file'}"
    return f"{error.filename}: {error.strerror}"


def propose_path(path: Path) -> str:
    """Returns ' (did you mean results.json?)' with the file beside a missing one that is spelled most like it; '' if
    none is similar."""
    near: list[str] = []
    with contextlib.suppress(OSError), os.scandir(path.parent) as entries:
        names = [one.name for one in itertools.islice(entries, COMPARED_NAMES)]
        near = difflib.get_close_matches(path.name, names, 1, NAME_CUTOFF)
    return f" (did you mean {path.parent / near[0]}?)" if near and near[0] != path.name else ""


def read_regular(path: Path, most_bytes: int, error: type[AttnperfError] = UsageError, advice: str = "") -> bytes:
    """Returns the content of a regular file of at most `most_bytes` bytes; ignores what is appended while it is read.

    Raises `error` for a larger file (its text ends in `advice`) and for a folder, pipe, socket or device; OSError for
    an unreadable or missing one.
    """
    with open_regular(path, error) as stream:
        size = os.fstat(stream.fileno()).st_size
        if size > most_bytes:
            raise error(f"{path} has {size:,} bytes; at most {most_bytes:,} are read{advice}")
        return stream.read(size)


def open_regular(path: Path, error: type[AttnperfError] = UsageError) -> BinaryIO:
    """Opens a regular file for reading bytes. Raises `error` for anything else, and OSError if it cannot be read."""
    require_regular(path, error)  # first, because opening a pipe waits for a writer
    return path.open("rb")


def require_regular(path: Path, error: type[AttnperfError] = UsageError) -> None:
    """Raises `error` for a folder, pipe, socket or device; OSError if there is no file, or no access. Opens nothing."""
    kind = stat.S_IFMT(path.stat().st_mode)
    if kind != stat.S_IFREG:
        raise error(f"{path} is {KINDS.get(kind, 'something else')}; give a regular file")
