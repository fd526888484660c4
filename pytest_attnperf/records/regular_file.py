"""Reading a file that a user names or somebody else made: a regular one, no larger than its reader expects.

A pipe keeps its reader waiting for ever, a device may have no end, and a sparse file of gigabytes takes no room on the
disk that it came from. Standard library.
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
    """The content of a file of at most `most_bytes`, as long as it was when it was opened.

    Raises `error`, which ends in `advice`, for a larger file and as `open_regular`; OSError where it cannot be read.
    """
    with open_regular(path, error) as stream:
        size = os.fstat(stream.fileno()).st_size
        if size > most_bytes:
            raise error(f"{path} has {size:,} bytes; at most {most_bytes:,} are read{advice}")
        return stream.read(size)


def open_regular(path: Path, error: type[AttnperfError] = UsageError) -> BinaryIO:
    """The file, opened for reading. Raises as `require_regular`."""
    require_regular(path, error)  # first, for opening a pipe waits until somebody writes to it
    return path.open("rb")


def require_regular(path: Path, error: type[AttnperfError] = UsageError) -> None:
    """Raise `error` for a pipe, a device, a socket and a folder; OSError where there is nothing, or no access."""
    kind = stat.S_IFMT(path.stat().st_mode)
    if kind != stat.S_IFREG:
        raise error(f"{path} is {KINDS.get(kind, 'something else')}; give a regular file")
