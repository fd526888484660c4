from pathlib import Path

import pytest

from pytest_attnperf.atomic_file import write_atomically


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
