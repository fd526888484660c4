from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest

from pytest_attnperf.errors import BaselineError, UsageError
from pytest_attnperf.records.regular_file import describe_os_error, open_regular, read_regular


def test_a_file_within_the_limit_is_read_whole(tmp_path: Path) -> None:
    """As many bytes as are allowed are read."""
    path = tmp_path / "a"
    path.write_bytes(b"12345")
    assert read_regular(path, 5) == b"12345"
    with open_regular(path) as stream:
        assert stream.read() == b"12345"


def test_a_larger_file_is_refused_unread(tmp_path: Path) -> None:
    """A sparse file of a terabyte is refused by its size, which stands beside the limit and the advice."""
    path = tmp_path / "a"
    path.touch()
    os.truncate(path, 1 << 40)
    with pytest.raises(BaselineError) as refused:
        read_regular(path, 1000, BaselineError, "; split it")
    assert str(refused.value) == f"{path} has 1,099,511,627,776 bytes; at most 1,000 are read; split it"


def test_what_is_no_regular_file_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A pipe, a device, a folder and a socket are named as what they are, and none is opened."""
    monkeypatch.chdir(tmp_path)  # the path of a socket has at most 107 bytes
    os.mkfifo("pipe")
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind("socket")
        for path, kind in (("pipe", "a pipe"), ("/dev/zero", "a device"), (".", "a folder"), ("socket", "a socket")):
            with pytest.raises(UsageError) as refused:
                read_regular(Path(path), 10)
            assert str(refused.value) == f"{path} is {kind}; give a regular file"


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    """It is the OSError that it always was."""
    with pytest.raises(FileNotFoundError):
        read_regular(tmp_path / "none", 10)


def test_an_error_of_the_system_names_the_file_and_the_nearest_one(tmp_path: Path) -> None:
    """Without the error's number; a file that is spelled otherwise is not proposed, and an error without a file is as
    it was."""
    (tmp_path / "results.json").touch()
    for name, advice in (("reslts.json", f" (did you mean {tmp_path}/results.json?)"), ("a.csv", "; name an existing")):
        with pytest.raises(FileNotFoundError) as caught:
            (tmp_path / name).read_bytes()
        assert describe_os_error(caught.value).startswith(f"{tmp_path / name} does not exist{advice}")
    with pytest.raises(IsADirectoryError) as folder:
        tmp_path.read_bytes()
    assert describe_os_error(folder.value) == f"{tmp_path}: Is a directory"
    assert describe_os_error(OSError(28, "No space left on device")) == "[Errno 28] No space left on device"
