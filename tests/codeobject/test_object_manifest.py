from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pytest_attnperf.codeobject import object_manifest
from pytest_attnperf.codeobject.object_manifest import NAME, PrebuiltObject, read_manifest, write_manifest
from pytest_attnperf.errors import CodeObjectError

ONE = PrebuiltObject("k.co", "00", "hip.k", "d64", "k", "k.hip", {"k.hip": "11"}, {"D": "64"}, 64, 128, "clang 22.1.8")


def test_what_was_written_is_read(tmp_path: Path) -> None:
    """Entries come back as they were; a folder without a manifest has none."""
    assert read_manifest(tmp_path / "gfx942", "gfx942") == ()
    path = write_manifest(tmp_path / "gfx942", "gfx942", [ONE])
    assert read_manifest(path.parent, "gfx942") == (ONE,)
    assert json.loads(path.read_text())["objects"][0]["compiler"] == "clang 22.1.8"


def _entry(**changes: Any) -> Callable[[dict[str, Any]], object]:
    return lambda content: content["objects"][0].update(changes)


CHANGES: list[tuple[Callable[[dict[str, Any]], object], str]] = [
    (lambda content: content.update(format=2), "has format 2, and this version reads 1"),
    (lambda content: content.update(arch="gfx950"), "is for 'gfx950', in the folder of gfx942"),
    (lambda content: content.update(objects={}), "has no list 'objects'"),
    (lambda content: content["objects"].append(3), "has an entry 1 with int, and not with file, sha256"),
    (lambda content: content["objects"][0].pop("source"), "has an entry 0 with 'compiler', "),
    (_entry(extra=1), "has an entry 0 with .*'extra'"),
    (_entry(threads="64"), "whose threads is '64', no int"),
    (_entry(threads=True), "whose threads is True, no int"),
    (_entry(defines={"D": 64}), "whose defines is {'D': 64}, no dict of texts"),
    (_entry(file="/etc/passwd"), "whose file is '/etc/passwd', no plain name in its own folder"),
    (_entry(file=".."), r"whose file is '\.\.', no plain name"),
    (_entry(file="a\x00b"), "no plain name"),
    (_entry(source="/etc/passwd"), "a source '/etc/passwd' outside of the project"),
    (_entry(sources={"../secret": "00"}), "a source '../secret' outside of the project"),
]


@pytest.mark.parametrize(("change", "message"), CHANGES)
def test_what_nobody_wrote_is_refused(tmp_path: Path, change: Callable[[dict[str, Any]], object], message: str) -> None:
    """Missing, additional and mistyped fields, and paths that lead elsewhere, are named with file and entry."""
    path = write_manifest(tmp_path, "gfx942", [ONE])
    content = json.loads(path.read_text())
    change(content)
    path.write_text(json.dumps(content))
    with pytest.raises(CodeObjectError, match=rf"{NAME} .*{message}.*build it again"):
        read_manifest(tmp_path, "gfx942")


@pytest.mark.parametrize("data", [b"", b'{"format": 1, "arch"', b"\xff\xfe", b"[1]", b"[" * 100_000])
def test_what_is_no_manifest_is_refused(tmp_path: Path, data: bytes) -> None:
    """A half-written file, binary data, another structure and endless nesting end in one error that names the file."""
    (tmp_path / NAME).write_bytes(data)
    with pytest.raises(CodeObjectError, match=r"manifest\.json (is no JSON|has format).*build it again"):
        read_manifest(tmp_path, "gfx942")


def test_a_huge_manifest_is_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file beyond the limit is refused by its size."""
    monkeypatch.setattr(object_manifest, "BYTES_MOST", 10)
    write_manifest(tmp_path, "gfx942", [])
    with pytest.raises(CodeObjectError, match=r"has \d+ bytes; at most 10 are read"):
        read_manifest(tmp_path, "gfx942")


def test_a_manifest_that_cannot_be_read(tmp_path: Path) -> None:
    """A folder in its place is an error that names it."""
    (tmp_path / NAME).mkdir()
    with pytest.raises(CodeObjectError, match=r"manifest\.json is a folder; give a regular file"):
        read_manifest(tmp_path, "gfx942")
