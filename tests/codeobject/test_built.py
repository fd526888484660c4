from __future__ import annotations

import base64
import hashlib
import zlib
from dataclasses import replace
from pathlib import Path

import pytest

from pytest_attnperf.codeobject import built
from pytest_attnperf.codeobject.built import (
    Built,
    assembly_text,
    object_bytes,
    pack_bytes,
    project_root,
    source_hashes,
    through_cache,
)
from pytest_attnperf.errors import CodeObjectError

BUILT = Built(pack_bytes(b"\x7fELF"), pack_bytes(b"s_endpgm"), "copy", 64, 0, "clang 22.1.8", {"flags": "-O3"})


def test_object_and_text_survive_the_way() -> None:
    """What was packed is unpacked, byte for byte."""
    assert (object_bytes(BUILT), assembly_text(BUILT)) == (b"\x7fELF", "s_endpgm")


@pytest.mark.parametrize(
    "text",
    [
        "no base64!",
        pack_bytes(b"x")[:8] + "!" + pack_bytes(b"x")[8:],
        base64.b64encode(b"no zlib").decode(),
        pack_bytes(b"x" * 1000)[:12],
        "ä",
        pack_bytes(b"x")[:-1],
    ],
)
def test_damaged_text_is_named(text: str) -> None:
    """Text that is no base64 of zlib, or only its beginning, is an error that names the kernel."""
    with pytest.raises(CodeObjectError, match=r"the object of copy came back damaged \(.*: compile it again"):
        object_bytes(replace(BUILT, object_base64=text))
    with pytest.raises(CodeObjectError, match="the assembler text of copy came back damaged"):
        assembly_text(replace(BUILT, assembly_base64=text))


def test_the_cache_is_asked_first(tmp_path: Path) -> None:
    """The second build of a key compiles nothing and says so; another key compiles."""
    calls = []

    def compile_it() -> Built:
        calls.append(1)
        return BUILT

    assert through_cache(tmp_path, "key", compile_it) == BUILT
    assert through_cache(tmp_path, "key", compile_it) == replace(BUILT, cached=True)
    assert len(calls) == 1
    assert through_cache(tmp_path, "other", compile_it) == BUILT
    assert len(calls) == 2


def test_a_broken_cache_file_is_compiled_again(tmp_path: Path) -> None:
    """A truncated file is replaced by what the compiler makes."""
    through_cache(tmp_path, "key", lambda: BUILT)
    (file,) = tmp_path.iterdir()
    file.write_bytes(file.read_bytes()[:50])
    again = replace(BUILT, object_base64=pack_bytes(b"again"))
    assert through_cache(tmp_path, "key", lambda: again) == again
    assert through_cache(tmp_path, "key", lambda: BUILT) == replace(again, cached=True)


def test_a_failed_compilation_leaves_nothing(tmp_path: Path) -> None:
    """An error is raised each time, and nothing is stored."""

    def fail() -> Built:
        raise CodeObjectError("line 3: no")

    for _ in range(2):
        with pytest.raises(CodeObjectError, match="line 3: no"):
            through_cache(tmp_path, "key", fail)
    assert list(tmp_path.iterdir()) == []


def test_a_record_of_another_layout_is_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A cache that a version with other fields wrote is not asked: its objects are made again."""
    through_cache(tmp_path, "key", lambda: BUILT)
    original = built.fields
    monkeypatch.setattr(built, "fields", lambda record: original(record)[:-1])
    assert through_cache(tmp_path, "key", lambda: BUILT) == BUILT


@pytest.mark.parametrize("mark", [".git", "pyproject.toml"])
def test_the_project_is_the_nearest_one_above(tmp_path: Path, mark: str) -> None:
    """The nearest folder with a mark of a project; without any, the file's own folder."""
    (tmp_path / "outer/inner/kernels/hip").mkdir(parents=True)
    file = tmp_path / "outer/inner/kernels/hip/copy.hip"
    assert project_root(file) == file.parent
    (tmp_path / "outer" / mark).touch()
    assert project_root(file) == tmp_path / "outer"
    (tmp_path / "outer/inner" / mark).touch()
    assert project_root(file) == tmp_path / "outer/inner"


def test_sources_are_named_relative_to_their_project(tmp_path: Path) -> None:
    """Files below the root have relative names, others absolute ones; one file counts once."""
    inside, outside = tmp_path / "project/a.hip", tmp_path / "b.h"
    inside.parent.mkdir()
    inside.write_text("a")
    outside.write_text("b")
    found = source_hashes([inside, outside, tmp_path / "project/../b.h"], tmp_path / "project")
    assert found == {"a.hip": hashlib.sha256(b"a").hexdigest(), str(outside): hashlib.sha256(b"b").hexdigest()}


def test_packing_makes_text_smaller() -> None:
    """Assembler text, which repeats itself, travels compressed."""
    text = b"v_mfma_f32_32x32x8_f16 a[0:15], v[0:1], v[2:3], a[0:15]\n" * 100
    assert len(pack_bytes(text)) < len(text) / 10
    assert zlib.decompress(base64.b64decode(pack_bytes(text))) == text
