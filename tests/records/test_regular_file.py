from __future__ import annotations

import json
import os
import socket
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_attnperf.baselines import code_schema, schema
from pytest_attnperf.errors import BaselineError, UsageError
from pytest_attnperf.records.regular_file import open_regular, read_regular, require_unique_keys


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


ROOT = Path(__file__).parents[2]
TIMED = min((ROOT / "baselines" / "sm_90" / "h200").glob("*.json"), key=lambda path: path.stat().st_size)
KERNELS = ROOT / "examples/own-kernel/baselines/gfx942/code_objects.json"
JSON = st.recursive(
    st.text('ab"\\:{,', max_size=4) | st.integers(0, 9),
    lambda part: st.lists(part, max_size=2) | st.dictionaries(st.text('ab"\\', max_size=2), part, max_size=3),
    max_leaves=8,
)


def twice(text: str, key: str, value: str) -> bytes:
    """The text with one pair more before the first of that key."""
    assert f'"{key}": ' in text
    return text.replace(f'"{key}": ', f'"{key}": {value}, "{key}": ', 1).encode()


def test_an_entry_or_a_field_that_stands_twice_is_named() -> None:
    """Two entries of one name, two fields of one entry, two tables: reading any of them is an error, never the last."""
    text = TIMED.read_text()
    entry = next(iter(json.loads(text)["entries"]))
    whole = json.dumps(json.loads(text)["entries"][entry])
    for key, value in ((entry, whole), ("summary", '"1 us"'), ("entries", "{}")):
        with pytest.raises(BaselineError, match=rf"prefill: the key '{key}' stands twice in one object: both sides of"):
            schema.decode(twice(text, key, value), "prefill")
    with pytest.raises(BaselineError, match="kernels: the key 'vgprs' stands twice"):
        code_schema.decode(twice(KERNELS.read_text(), "vgprs", "1"), "kernels")


@settings(max_examples=60, deadline=None)
@given(value=JSON, other=st.booleans())
def test_any_object_is_looked_at_and_no_sound_text_refused(value: object, *, other: bool) -> None:
    """Whatever its strings hold, and however their quotation marks are written: only a key that is dropped counts."""
    text = json.dumps({"a": value, "b": [{"c": value}]})
    text = text.replace('\\"', "\\u0022") if other and "\\\\" not in text else text
    require_unique_keys(text.encode(), "x")
    with pytest.raises(BaselineError, match="x: the key 'c' stands twice"):
        require_unique_keys(text.replace('{"c": ', '{"c": "", "c": ', 1).encode(), "x")


def test_bytes_that_are_no_text_are_refused() -> None:
    """In a field that nobody reads, too."""
    with pytest.raises(BaselineError, match=r"x: is not readable as JSON .*; restore it"):
        require_unique_keys(b'{"a": "\xff"}', "x")
