"""Processes that a judged kernel starts: all are found, counted and ended."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from pytest_attnperf.tools.judging.process_tree import (
    UsageWatch,
    adopting_orphans,
    count_disk,
    count_memory,
    end_descendants,
    list_descendants,
)

LEAVES = """
import os, sys, time
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        open(sys.argv[1], "w").write(str(os.getpid()))
        time.sleep(1000)
    os._exit(0)
os.wait()
"""
"""A process that goes into a session of its own, and whose parents all end."""


def is_running(pid: int) -> bool:
    """Whether a process lives; one that has ended and is not yet waited for does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def wait_until(done: Callable[[], bool]) -> None:
    """Waits at most 20 s."""
    deadline = time.monotonic() + 20
    while not done() and time.monotonic() < deadline:
        time.sleep(0.02)
    assert done()


def test_an_orphan_is_ended(tmp_path: Path) -> None:
    """It has left session, group and parents; without adoption it is nobody's descendant."""
    with adopting_orphans():
        told = tmp_path / "pid"
        subprocess.run([sys.executable, "-c", LEAVES, str(told)], check=True)
        wait_until(lambda: told.exists() and told.read_text() != "")
        orphan = int(told.read_text())
        assert orphan in list_descendants(os.getpid())
        assert is_running(orphan)
    assert not is_running(orphan)


def test_what_ran_before_is_kept() -> None:
    """A process of the user's, started before, survives the end."""
    with subprocess.Popen(["sleep", "60"]) as before:
        with adopting_orphans():
            after = subprocess.Popen(["sleep", "60"])
        assert is_running(before.pid)
        assert not is_running(after.pid)
        before.kill()


def test_kept_processes_keep_their_children() -> None:
    """Only what is below none of them is ended."""
    with subprocess.Popen(["sh", "-c", "sleep 60 & wait"]) as kept, subprocess.Popen(["sleep", "60"]) as other:
        wait_until(lambda: len(list_descendants(kept.pid)) == 1)
        others = [pid for pid in list_descendants(os.getpid()) if pid != other.pid]
        end_descendants(os.getpid(), others)
        assert is_running(kept.pid)
        assert len(list_descendants(kept.pid)) == 1
        end_descendants(kept.pid)
        kept.kill()


def test_memory_of_processes_is_added_up() -> None:
    """Its own pages; a process that does not exist counts as nothing."""
    program = "import sys; kept = bytearray(b'a') * (64 << 20); print('ready', flush=True); sys.stdin.read()"
    with subprocess.Popen([sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        assert 64 << 20 < count_memory([process.pid, 2**22 + 1]) < 128 << 20
        process.kill()


def test_removed_files_are_counted(tmp_path: Path) -> None:
    """As long as a process holds them; links are not followed."""
    (tmp_path / "below").mkdir()
    (tmp_path / "below" / "a").write_bytes(bytes(1 << 20))
    (tmp_path / "link").symlink_to("/")
    assert count_disk([tmp_path], []) == 1 << 20
    with (tmp_path / "removed").open("wb") as held:
        held.write(bytes(2 << 20))
        held.flush()
        (tmp_path / "removed").unlink()
        assert count_disk([tmp_path], [os.getpid()]) >= 3 << 20
    assert count_disk([tmp_path / "absent"], []) == 0


@pytest.mark.parametrize(
    ("program", "limit"),
    [
        ("kept = [bytearray(b'a') * (8 << 20) for _ in range(64)]\nimport time; time.sleep(60)", "memory"),
        ("import time; open('large', 'wb').write(bytes(256 << 20)); time.sleep(60)", "disk"),
        ("import os, time\nfor _ in range(8):\n  if os.fork() == 0: kept = bytearray(b'a') * (32 << 20); time.sleep(60)"
         "\ntime.sleep(60)", "memory"),
    ],
    ids=["memory", "disk", "memory of children"],
)  # fmt: skip
def test_a_watch_ends_what_uses_too_much(tmp_path: Path, program: str, limit: str) -> None:
    """And says which limit it was, with the bytes seen."""
    with subprocess.Popen([sys.executable, "-c", program], cwd=tmp_path) as process:
        watch = UsageWatch(lambda: [process.pid, *list_descendants(process.pid)], 128 << 20, 128 << 20, (tmp_path,))
        with watch.running():
            assert process.wait(60) == -9
        assert watch.exceeded is not None
        assert watch.exceeded.limit == limit
        assert watch.exceeded.bytes > watch.exceeded.most == 128 << 20


def test_a_watch_leaves_what_uses_little(tmp_path: Path) -> None:
    """It has seen how much that was."""
    with subprocess.Popen(["sleep", "0.5"], cwd=tmp_path) as process:
        watch = UsageWatch(lambda: [process.pid], 128 << 20, 128 << 20, (tmp_path,))
        with watch.running():
            assert process.wait(60) == 0
        assert watch.exceeded is None
        assert watch.most_memory_bytes > 0
