from __future__ import annotations

import multiprocessing
import os
import time
from pathlib import Path

import pytest

from pytest_attnperf.codeobject.object_cache import ABANDONED_AFTER_S, ObjectCache, cache_key


def age(cache: ObjectCache, key: str, seconds: float) -> None:
    """Make an entry one that was used so long ago."""
    then = time.time() - seconds
    os.utime(cache.folder / f"{key}.object", (then, then))


def kept(cache: ObjectCache, *keys: str) -> list[str]:
    """Which of the keys are still there."""
    return [key for key in keys if cache.load(key) is not None]


def test_what_was_stored_is_loaded(tmp_path: Path) -> None:
    """A key gives the bytes last stored under it, in a folder that did not exist; another key gives nothing."""
    cache = ObjectCache(tmp_path / "deep" / "objects")
    cache.store("one", b"old")
    cache.store("one", b"\x7fELF new")
    assert cache.load("one") == b"\x7fELF new"
    assert cache.load("two") is None


@pytest.mark.parametrize("damage", [b"", b"short", b"\0" * 200, None])
def test_a_broken_file_counts_as_absent_and_goes(tmp_path: Path, damage: bytes | None) -> None:
    """An empty, truncated, overwritten file, or one with a flipped bit, is removed, and can be stored anew."""
    cache = ObjectCache(tmp_path)
    cache.store("one", b"object" * 20)
    path = tmp_path / "one.object"
    path.write_bytes(path.read_bytes()[:-1] + b"u" if damage is None else damage)
    assert cache.load("one") is None
    assert not path.exists()
    cache.store("one", b"again")
    assert cache.load("one") == b"again"


def test_what_was_used_longest_ago_goes_first(tmp_path: Path) -> None:
    """Beyond the limit the entries unused for longest are removed, no more than needed; loading one is a use."""
    cache = ObjectCache(tmp_path, limit_bytes=3 * (100 + 32))
    for position, key in enumerate("abc"):
        cache.store(key, b"x" * 100)
        age(cache, key, 100 - position)
    cache.load("a")
    cache.store("d", b"x" * 100)
    assert kept(cache, *"abcd") == ["a", "c", "d"]


def test_the_newest_entry_stays(tmp_path: Path) -> None:
    """An object larger than the limit is stored all the same, alone."""
    cache = ObjectCache(tmp_path, limit_bytes=64)
    cache.store("small", b"x")
    cache.store("large", b"x" * 1000)
    assert kept(cache, "small", "large") == ["large"]


def test_what_dead_processes_left_is_removed(tmp_path: Path) -> None:
    """A temporary file of an hour ago goes; one that may still be written, and files that are not ours, stay."""
    names = (".a.object.1.aa.tmp", ".b.object.2.bb.tmp", "notes.txt")
    for name in names:
        (tmp_path / name).write_bytes(b"half")
        long_ago = time.time() - ABANDONED_AFTER_S - 60
        os.utime(tmp_path / name, (long_ago, long_ago))
    os.utime(tmp_path / names[1])
    ObjectCache(tmp_path).store("one", b"x")
    assert {path.name for path in tmp_path.iterdir()} == {*names[1:], "one.object"}


def test_a_folder_that_cannot_be_written_is_no_error(tmp_path: Path) -> None:
    """Where a file stands in the folder's place nothing is stored, and nothing fails."""
    (tmp_path / "objects").write_text("a file")
    cache = ObjectCache(tmp_path / "objects")
    cache.store("one", b"x")
    assert cache.load("one") is None


def hammer(folder: Path, failures: multiprocessing.Queue[str]) -> None:
    """Store and load the same few keys in a cache that is always full."""
    cache = ObjectCache(folder, limit_bytes=3000)
    for turn in range(60):
        key = str(turn % 5)
        cache.store(key, key.encode() * 1000)
        if cache.load(key) not in (None, key.encode() * 1000):
            failures.put(f"key {key} gave something else")


def test_processes_share_a_folder(tmp_path: Path) -> None:
    """Three processes that store, load and evict the same keys at once see whole objects or none, and no error."""
    context = multiprocessing.get_context("fork")
    failures: multiprocessing.Queue[str] = context.Queue()
    processes = [context.Process(target=hammer, args=(tmp_path, failures)) for _ in range(3)]
    for process in processes:
        process.start()
    for process in processes:
        process.join(timeout=30)
    assert [process.exitcode for process in processes] == [0, 0, 0]
    assert failures.empty()


def test_parts_of_a_key_do_not_run_together() -> None:
    """Parts that join to one text give different keys, and the same parts the same key."""
    keys = {cache_key("ab", "c"), cache_key("a", "bc"), cache_key("abc"), cache_key("abc", "")}
    assert len(keys) == 4
    assert cache_key("ab", "c") in keys
