import os
import signal
import time
from pathlib import Path

import pytest

from pytest_attnperf.records.atomic_file import ABANDONED_AFTER_S, replace_file, write_atomically


def test_the_new_content_is_there_and_nothing_else(tmp_path: Path) -> None:
    """Folders are made, the old content is replaced, no temporary file stays."""
    path = tmp_path / "deep" / "results.json"
    write_atomically(path, b"old")
    write_atomically(path, b"new")
    assert path.read_bytes() == b"new"
    assert [found.name for found in path.parent.iterdir()] == ["results.json"]


def test_a_failed_write_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A full disk or a crash before the rename: the old file whole, no temporary file beside it."""
    path = tmp_path / "results.json"
    write_atomically(path, b"old")

    def full(_descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(OSError, match="No space left"):
        write_atomically(path, b"new")
    assert path.read_bytes() == b"old"
    assert [found.name for found in tmp_path.iterdir()] == ["results.json"]


def test_what_a_killed_writer_left_goes_with_the_next(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its temporary file is removed at once on the same machine, and anywhere once it is old; those of the living, of
    other machines and of other files stay."""
    path = tmp_path / "a.json"
    child = os.fork()
    if child == 0:
        try:
            monkeypatch.setattr("os.fsync", lambda descriptor: os.kill(os.getpid(), signal.SIGKILL))
            write_atomically(path, b"never there")
        finally:
            os._exit(1)
    os.waitpid(child, 0)
    (left,) = tmp_path.iterdir()
    assert left.name.endswith(".tmp")
    machine = left.name.removeprefix(".a.json.").partition("-")[0]
    others = [f".a.json.{machine}-{os.getpid()}.aa.tmp", ".a.json.0ther-1.aa.tmp", f".ba.json.{machine}-{child}.aa.tmp"]
    for name in (*others, ".a.json.0ther-1.old.tmp"):
        (tmp_path / name).write_bytes(b"")
    long_ago = time.time() - ABANDONED_AFTER_S - 60
    os.utime(tmp_path / ".a.json.0ther-1.old.tmp", (long_ago, long_ago))
    write_atomically(path, b"new")
    assert sorted(found.name for found in tmp_path.iterdir()) == sorted([*others, "a.json"])
    assert path.read_bytes() == b"new"


@pytest.mark.parametrize("flush", [True, False])
def test_a_file_that_is_made_again_is_replaced_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, flush: bool
) -> None:
    """Without a flush too: the name leads to the old or the new content, and no temporary file is left."""
    flushed: list[int] = []
    monkeypatch.setattr(os, "fsync", flushed.append)
    path = tmp_path / "pages" / "a.html"
    for data in (b"old", b"new"):
        replace_file(path, data, flush=flush)
        assert path.read_bytes() == data
    assert len(flushed) == 2 * flush
    assert [one.name for one in path.parent.iterdir()] == ["a.html"]
