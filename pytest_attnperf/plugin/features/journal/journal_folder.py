"""The journals of a tree: which are of runs that ended unfinished, and the one that this run writes.

A run holds a lock on its journal for as long as it lives, however it ends.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import subprocess
import time
from collections.abc import Callable, Iterable
from datetime import datetime, timezone
from pathlib import Path

from pytest_attnperf.reports.files.journal import JournalContent, JournalError, read_content

KEPT_UNFINISHED = 3
SUFFIX, UNNAMED = ".jsonl", ".begun"
SYNC_EVERY_S = 1.0
"""What a power cut may lose; a process that is killed loses nothing that was written."""


def is_alive(path: Path) -> bool:
    """Whether the run that writes a journal goes on."""
    with contextlib.suppress(OSError):
        descriptor = os.open(path, os.O_RDONLY)
        try:
            # Shared, so that two that look at once do not take each other for the run.
            fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except OSError as error:
            return error.errno in (errno.EAGAIN, errno.EACCES)
        finally:
            os.close(descriptor)
    return False


def unfinished(folder: Path) -> list[Path]:
    """Journals of runs that ended before they had judged everything, the newest first."""
    return [path for path in sorted(folder.glob(f"*{SUFFIX}"), reverse=True) if not is_alive(path)]


def living(folder: Path) -> list[Path]:
    """Journals of runs that go on."""
    return [path for path in folder.glob(f"*{SUFFIX}") if is_alive(path)]


def readable(paths: Iterable[Path]) -> list[tuple[Path, JournalContent]]:
    """What these journals hold, without those that a kill ended before their first line was whole.

    Raises JournalError for one that is damaged otherwise, or cannot be read.
    """
    read = ((path, _read(path)) for path in paths)
    return [(path, content) for path, content in read if content is not None]


def _read(path: Path) -> JournalContent | None:
    try:
        with path.open("rb") as stream:
            begun = b"\n" in stream.read(1 << 20)
        return read_content(path) if begun else None
    except FileNotFoundError:  # another run has just forgotten it
        return None
    except OSError as error:
        raise JournalError(f"{path} cannot be read ({error.strerror}); remove it, or start anew") from error


def require_own(root: Path, folder: Path) -> None:
    """Raise JournalError where journals came with the tree: a change under review could bring its own verdicts."""
    try:
        command = ["git", "-C", str(root), "ls-files", "--", str(folder)]
        answer = subprocess.run(command, capture_output=True, text=True, errors="replace", timeout=10, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return
    if answer.returncode == 0 and answer.stdout.strip():
        raise JournalError(
            f"{folder} is under version control, so its verdicts need not be of a run of yours; take it out "
            f"(git rm -r --cached {folder}), remove the files, and start anew"
        )


class JournalWriter:
    """Appends lines, each with one write: the process may be killed between any two."""

    def __init__(self, folder: Path, first: Iterable[bytes], now: Callable[[], float] = time.monotonic) -> None:
        """Make and lock a journal that begins with these lines, and forget the oldest unfinished ones. Raises OSError.

        It has its name, by which a later run finds it, only once all of them are in it.
        """
        folder.mkdir(parents=True, exist_ok=True)
        stamp = datetime.now(timezone.utc).strftime("%Y%m%d-%H%M%S-%f")
        self.path = folder / f"{stamp}-{os.getpid()}{UNNAMED}"
        self._now, self._synced = now, now()
        self._descriptor = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND, 0o644)
        try:
            with contextlib.suppress(OSError):  # a file system without locks: nothing on it is known to go on
                fcntl.flock(self._descriptor, fcntl.LOCK_EX)
            for line in first:
                self.append(line)
            self.path = self.path.rename(self.path.with_suffix(SUFFIX))
        except BaseException:
            self.close(keep=False)
            raise
        _forget(folder)

    def append(self, line: bytes) -> None:
        """Add a whole line or nothing. Raises OSError, with the file as it was."""
        size = os.fstat(self._descriptor).st_size
        try:
            written = os.write(self._descriptor, line)
        except OSError:
            os.ftruncate(self._descriptor, size)
            raise
        if written != len(line):
            os.ftruncate(self._descriptor, size)
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(self.path))
        if self._now() - self._synced >= SYNC_EVERY_S:
            self.sync()

    def sync(self) -> None:
        """Bring what was written to the disk itself."""
        os.fsync(self._descriptor)
        self._synced = self._now()

    def close(self, *, keep: bool) -> None:
        """Give the lock back; remove the file unless it is to be kept."""
        with contextlib.suppress(OSError):
            if keep:
                self.sync()
            else:
                self.path.unlink(missing_ok=True)
        os.close(self._descriptor)


def _forget(folder: Path) -> None:
    """Remove what dead runs left half-begun, and all but the newest of what they left unfinished."""
    begun = [path for path in folder.glob(f"*{UNNAMED}") if not is_alive(path)]
    for old in [*begun, *unfinished(folder)[KEPT_UNFINISHED:]]:
        with contextlib.suppress(OSError):
            old.unlink(missing_ok=True)
