"""Reads a file that a user names or somebody else made: only a regular one, no larger than its reader expects.

A pipe may block its reader for ever, a device may have no end, and a sparse file of gigabytes takes no room on disk.
Standard library only.
"""

from __future__ import annotations

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
