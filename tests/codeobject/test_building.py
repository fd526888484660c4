from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from pytest_attnperf.codeobject import building
from pytest_attnperf.codeobject.building import build_object, unsupported_reasons
from pytest_attnperf.codeobject.built import (
    Built,
    assembly_text,
    object_bytes,
    pack_bytes,
)
from pytest_attnperf.errors import CodeObjectError
from pytest_attnperf.kernel_builds import KernelBuild, ObjectFile

BUILT = Built(pack_bytes(b"\x7fELF"), pack_bytes(b"s_endpgm"), "copy", 64, 0, "clang 22.1.8", {"flags": "-O3"})


def existing(path: Path) -> KernelBuild:
    """A declaration of an object file."""
    source = ObjectFile(path, "copy", threads=256, dynamic_lds_bytes=1024, compiler="hipcc 6.4")
    return KernelBuild("vendor.copy", "plain", "gfx942", source)


def test_an_object_file_is_read_as_it_is(tmp_path: Path) -> None:
    """Its bytes, what was declared of its launch, and its hash under a path relative to its project."""
    path = tmp_path / "copy.hsaco"
    path.write_bytes(b"\x7fELF and more")
    built = build_object(existing(path), tmp_path / "cache")
    assert object_bytes(built) == b"\x7fELF and more"
    assert assembly_text(built) == ""
    assert (built.kernel, built.threads, built.lds_dynamic_bytes) == ("copy", 256, 1024)
    assert (built.compiler, built.cached, built.seconds > 0) == ("hipcc 6.4", False, True)
    assert built.sources == {"copy.hsaco": hashlib.sha256(path.read_bytes()).hexdigest()}
    assert built.source_root == str(tmp_path)
    assert not (tmp_path / "cache").exists()


def test_a_missing_object_file_is_named(tmp_path: Path) -> None:
    """The error names the build and the path, and says what to do."""
    with pytest.raises(CodeObjectError, match=r"vendor.copy, configuration 'plain', for gfx942: .*no.hsaco cannot be"):
        build_object(existing(tmp_path / "no.hsaco"), tmp_path)


def test_an_object_file_beyond_all_reason_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file over the limit is not read; its size and the limit are named."""
    monkeypatch.setattr(building, "OBJECT_LIMIT_BYTES", 1000)
    path = tmp_path / "all.a"
    path.write_bytes(b"x" * 1001)
    with pytest.raises(CodeObjectError, match=r"all.a has 1,001 bytes, and at most 1,000 are read"):
        build_object(existing(path), tmp_path)


def test_an_object_file_needs_no_compiler(tmp_path: Path) -> None:
    """Nothing stands in the way of reading a file, whatever is installed."""
    assert unsupported_reasons(existing(tmp_path / "no.hsaco")) == []
