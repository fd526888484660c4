"""Watches what a process and all its descendants use, and ends them all, also those that left their process group.

A process whose parent ends gets a new one: the nearest that has asked for it (a subreaper). So none can hide, and none
outlives the judging. Memory is added up over all of them: pages of their own, and shared memory; what a file backs is
not counted.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import stat
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar

_SET_CHILD_SUBREAPER, _GET_CHILD_SUBREAPER = 36, 37
END_SECONDS = 10.0
_SHOWN = {"RssAnon:", "RssShmem:", "VmSwap:"}


@contextlib.contextmanager
def adopting_orphans() -> Iterator[None]:
    """Makes this process the parent of descendants whose own parent ends, and ends those left at the end."""
    prctl = ctypes.CDLL(None, use_errno=True).prctl
    before = ctypes.c_int(0)
    prctl(_GET_CHILD_SUBREAPER, ctypes.byref(before), 0, 0, 0)
    kept = set(list_descendants(os.getpid()))
    prctl(_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    try:
        yield
    finally:
        end_descendants(os.getpid(), kept)
        prctl(_SET_CHILD_SUBREAPER, before.value, 0, 0, 0)


def list_descendants(pid: int) -> list[int]:
    """Returns the ids of all living processes below `pid`, parents before children."""
    children: dict[int, list[int]] = defaultdict(list)
    for entry in os.listdir("/proc"):
        if entry.isdigit() and (parent := _read_parent(entry)) is not None:
            children[parent].append(int(entry))
    found, pending = [], [pid]
    while pending:
        below = children.pop(pending.pop(), [])
        found += below
        pending += below
    return found


def _read_parent(pid: str) -> int | None:
    """Returns the id of a process's parent; None for one that has ended."""
    try:
        fields = Path("/proc", pid, "stat").read_text(errors="replace").rpartition(")")[2].split()
    except OSError:
        return None
    return None if fields[0] in "ZX" else int(fields[1])


def end_descendants(pid: int, kept: Iterable[int] = ()) -> None:
    """Kills every process below `pid` but those of `kept` and what is below them, until none is left or END_SECONDS
    are over. They are stopped first, so that none starts another meanwhile."""
    deadline = time.monotonic() + END_SECONDS
    while time.monotonic() < deadline:
        spared = {below for one in kept for below in (one, *list_descendants(one))}
        found = [one for one in list_descendants(pid) if one not in spared]
        for number in (signal.SIGSTOP, signal.SIGKILL):
            for one in found:
                with contextlib.suppress(OSError):
                    os.kill(one, number)
        for one in found:  # only of children of this process
            with contextlib.suppress(OSError):
                os.waitpid(one, os.WNOHANG)
        if not found:
            return
        time.sleep(0.005)


def count_memory(pids: Iterable[int]) -> int:
    """Returns the bytes of memory and swap of these processes that no file backs."""
    total = 0
    for pid in pids:
        with contextlib.suppress(OSError, ValueError, IndexError):
            for line in Path("/proc", str(pid), "status").read_text(errors="replace").splitlines():
                words = line.split()
                if words and words[0] in _SHOWN:
                    total += int(words[1]) * 1024
    return total


def count_disk(folders: Iterable[Path], pids: Iterable[int]) -> int:
    """Returns the bytes of files below the folders, and of files that these processes hold open though they are
    removed."""
    total = 0
    pending = list(map(str, folders))
    while pending:
        with contextlib.suppress(OSError), os.scandir(pending.pop()) as entries:
            for entry in entries:
                with contextlib.suppress(OSError):
                    if entry.is_dir(follow_symlinks=False):
                        pending.append(entry.path)
                    else:
                        total += entry.stat(follow_symlinks=False).st_blocks * 512
    return total + sum(map(_count_removed, pids))


def _count_removed(pid: int) -> int:
    total = 0
    with contextlib.suppress(OSError):
        for fd in os.listdir(f"/proc/{pid}/fd"):
            with contextlib.suppress(OSError):
                known = os.stat(f"/proc/{pid}/fd/{fd}")
                if stat.S_ISREG(known.st_mode) and known.st_nlink == 0:
                    total += known.st_blocks * 512
    return total


@dataclass(frozen=True)
class Exceeded:
    """A limit that was exceeded: 'memory' or 'disk', the bytes seen, and those allowed."""

    limit: str
    bytes: int
    most: int


@dataclass
class UsageWatch:
    """Kills the watched processes as soon as they use more than allowed. `exceeded` is the limit that they exceeded.

    list_processes returns the ids of the processes to watch
    memory_bytes   of all together; `disk_bytes` of files below `folders`, and of removed ones
    """

    list_processes: Callable[[], Sequence[int]]
    memory_bytes: int
    disk_bytes: int
    folders: tuple[Path, ...]
    exceeded: Exceeded | None = None
    most_memory_bytes: int = 0
    interval_seconds: ClassVar[float] = 0.1
    _ended: threading.Event = field(default_factory=threading.Event)

    @contextlib.contextmanager
    def running(self) -> Iterator[UsageWatch]:
        """Watches until the block ends."""
        thread = threading.Thread(target=self._watch, name="watch of a judged kernel", daemon=True)
        thread.start()
        try:
            yield self
        finally:
            self._ended.set()
            thread.join()

    def _watch(self) -> None:
        while not self._ended.wait(self.interval_seconds):
            pids = self.list_processes()
            memory = count_memory(pids)
            self.most_memory_bytes = max(self.most_memory_bytes, memory)
            disk = count_disk(self.folders, pids)
            if memory > self.memory_bytes:
                self._end(Exceeded("memory", memory, self.memory_bytes), pids)
            elif disk > self.disk_bytes:
                self._end(Exceeded("disk", disk, self.disk_bytes), pids)

    def _end(self, exceeded: Exceeded, pids: Iterable[int]) -> None:
        self.exceeded = self.exceeded or exceeded
        for number in (signal.SIGSTOP, signal.SIGKILL):
            for pid in pids:
                with contextlib.suppress(OSError):
                    os.kill(pid, number)
