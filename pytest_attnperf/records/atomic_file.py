"""Writes a file so that a reader, or a crash at any moment, sees the complete old or new one. Standard library only."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import os
import time
import uuid
from pathlib import Path

ABANDONED_AFTER_S = 3600.0
"""Age of a temporary file from which its writer counts as dead, on whatever machine: a write takes milliseconds."""

_SUFFIX = ".tmp"


def write_atomically(path: Path, data: bytes) -> None:
    """Writes `data` to `path` by a temporary file in the same folder, flushed to disk and renamed over the old one.

    Makes folders, and removes temporary files that killed writers of `path` left. Raises OSError naming `path`; the old
    file then stays unchanged, and no temporary file is left.
    """
    replace_file(path, data)
    _remove_abandoned(path)
    _sync_folder(path.parent)


def replace_file(path: Path, data: bytes, *, flush: bool = True) -> None:
    """Writes `data` to `path` as `write_atomically` does, but leaves the folder's entry list to the system, and with
    `flush` off the file, too: for many files that are made again if the machine fails. Raises OSError naming `path`."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{_machine_token()}-{os.getpid()}.{uuid.uuid4().hex[:8]}{_SUFFIX}")
    try:
        with temporary.open("xb") as stream:
            stream.write(data)
            if flush:
                stream.flush()
                os.fsync(stream.fileno())
        temporary.replace(path)
    except OSError as error:
        error.filename = str(path)  # errors of a write or flush do not name the file
        raise
    finally:
        temporary.unlink(missing_ok=True)


def _remove_abandoned(path: Path) -> None:
    """Deletes temporary files of dead writers of `path` on this machine, and any older than ABANDONED_AFTER_S."""
    start = f".{path.name}."
    with os.scandir(path.parent) as entries:
        left = [entry for entry in entries if entry.name.startswith(start) and entry.name.endswith(_SUFFIX)]
    for entry in left:
        with contextlib.suppress(OSError):  # another writer has removed it
            if _writer_is_dead(entry.name[len(start) :]) or time.time() - entry.stat().st_mtime > ABANDONED_AFTER_S:
                os.unlink(entry.path)


def _writer_is_dead(rest: str) -> bool:
    """Returns whether `rest` ('MACHINE-PID...' of a file's name) is of this machine, and the process has ended."""
    machine, _, number = rest.partition(".")[0].partition("-")
    return machine == _machine_token() and number.isdecimal() and not Path("/proc", number).exists()


@functools.lru_cache(maxsize=1)
def _machine_token() -> str:
    """Returns 8 hex digits of this machine's boot and container, which make process ids unique; random without
    /proc."""
    try:
        text = Path("/proc/sys/kernel/random/boot_id").read_text() + os.readlink("/proc/self/ns/pid")
    except OSError:  # without /proc no name matches, and only age counts
        text = uuid.uuid4().hex
    return hashlib.sha256(text.encode()).hexdigest()[:8]


def _sync_folder(folder: Path) -> None:
    """Flushes the folder's entry list to disk, so that a rename in it survives a crash."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
