"""Writing a file so that a reader, or a crash at any moment, sees the old or the new one, whole. Standard library."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import os
import time
import uuid
from pathlib import Path

ABANDONED_AFTER_S = 3600.0
"""A write takes milliseconds: a temporary file this old was left by a process that died, on whatever machine."""

_SUFFIX = ".tmp"


def write_atomically(path: Path, data: bytes) -> None:
    """Put `data` at `path`: a temporary file in the same folder, flushed to disk and renamed over the old one.

    Folders are made, and temporary files that killed writers of `path` left are removed. Raises OSError naming `path`;
    the old file is then as it was and nothing is left beside it.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{_machine_token()}-{os.getpid()}.{uuid.uuid4().hex[:8]}{_SUFFIX}")
    try:
        with temporary.open("xb") as stream:
            stream.write(data)
            stream.flush()
            os.fsync(stream.fileno())
        temporary.replace(path)
    except OSError as error:
        error.filename = str(path)  # a write, and a flush, do not say what they were of
        raise
    finally:
        temporary.unlink(missing_ok=True)
    _remove_abandoned(path)
    _sync_folder(path.parent)


def _remove_abandoned(path: Path) -> None:
    """Remove temporary files of writers of `path` that are dead, which a name tells of this machine's only."""
    start = f".{path.name}."
    with os.scandir(path.parent) as entries:
        left = [entry for entry in entries if entry.name.startswith(start) and entry.name.endswith(_SUFFIX)]
    for entry in left:
        with contextlib.suppress(OSError):  # another writer was quicker
            if _writer_is_dead(entry.name[len(start) :]) or time.time() - entry.stat().st_mtime > ABANDONED_AFTER_S:
                os.unlink(entry.path)


def _writer_is_dead(rest: str) -> bool:
    """Whether a name that ends so is of a process of this machine that is no more."""
    machine, _, number = rest.partition(".")[0].partition("-")
    return machine == _machine_token() and number.isdecimal() and not Path("/proc", number).exists()


@functools.lru_cache(maxsize=1)
def _machine_token() -> str:
    """What tells processes apart that have the same number: a start of a machine, and a container on it."""
    try:
        text = Path("/proc/sys/kernel/random/boot_id").read_text() + os.readlink("/proc/self/ns/pid")
    except OSError:  # without /proc a name fits nobody's, and only age tells
        text = uuid.uuid4().hex
    return hashlib.sha256(text.encode()).hexdigest()[:8]


def _sync_folder(folder: Path) -> None:
    """Make the rename itself last."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
