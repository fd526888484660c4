from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kernels.hip import prebuilt
from kernels.hip.prebuilt import OBJECTS, find_prebuilt
from kernels.hip.sources import HipKernel
from pytest_attnperf.codeobject.object_manifest import NAME, PrebuiltObject, write_manifest
from pytest_attnperf.errors import CodeObjectError, UsageError

DATA = b"\x7fELF of scale"
SOURCE = "KERNEL(64) scale(int count) {}\n"
Folder = Callable[..., dict[str, str]]


@pytest.fixture
def kernel(tmp_path: Path) -> HipKernel:
    """A kernel whose source exists."""
    (tmp_path / "k.hip").write_text(SOURCE)
    return HipKernel(str(tmp_path / "k.hip"), "scale", 64, {"D": "64"})


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    """Writes build/gfx942 with one object, some of its entry changed; gives the environment that names the folder."""

    def write(**changes: Any) -> dict[str, str]:
        digest = {"k.hip": hashlib.sha256(SOURCE.encode()).hexdigest()}
        entry: dict[str, Any] = {"file": "hip.scale-d64.co", "sha256": hashlib.sha256(DATA).hexdigest()}
        entry |= {"kernel": "hip.scale", "config": "d64", "function": "scale", "source": "k.hip", "sources": digest}
        entry |= {"defines": {"D": "64"}, "threads": 64}
        objects = tmp_path / "build" / "gfx942"
        write_manifest(objects, "gfx942", [PrebuiltObject(**{**entry, **changes})])
        (objects / "hip.scale-d64.co").write_bytes(DATA)
        return {OBJECTS: str(tmp_path / "build")}

    return write


def test_an_object_that_fits_is_found(kernel: HipKernel, folder: Folder, tmp_path: Path) -> None:
    """File, function, macros and architecture are equal and no source has changed: the object is read."""
    found = find_prebuilt(kernel, "gfx942", folder())
    assert found is not None
    assert (found.data, found.path.name) == (DATA, "hip.scale-d64.co")


@pytest.mark.parametrize("changes", [{"function": "other"}, {"defines": {"D": "128"}}, {"source": "other.hip"}])
def test_another_kernels_object_is_left(
    kernel: HipKernel, folder: Folder, tmp_path: Path, changes: dict[str, Any]
) -> None:
    """An object of another function, file or with other macros is not taken, and is no error."""
    assert find_prebuilt(kernel, "gfx942", folder(**changes)) is None


def test_nothing_is_asked_for_or_built(kernel: HipKernel, folder: Folder, tmp_path: Path) -> None:
    """Without the variable nothing is looked for; of an architecture that was not built nothing is found."""
    environ = folder()
    assert find_prebuilt(kernel, "gfx942", {}) is None
    assert find_prebuilt(kernel, "gfx950", environ) is None


def test_a_folder_that_is_not_there(kernel: HipKernel, tmp_path: Path) -> None:
    """A folder that does not exist is an error that says how to make it."""
    with pytest.raises(UsageError, match=r"ATTNPERF_HIP_OBJECTS=.*/none is no folder; build the kernels first"):
        find_prebuilt(kernel, "gfx942", {OBJECTS: str(tmp_path / "none")})


@pytest.mark.parametrize("sources", [{"k.hip": "0" * 64}, {}])
def test_a_stale_object_is_an_error(kernel: HipKernel, folder: Folder, tmp_path: Path, sources: dict[str, str]) -> None:
    """An object of another version of the source is never run: the message says to build again."""
    with pytest.raises(
        CodeObjectError, match=r"scale-d64\.co was compiled from another k\.hip than the present one; build it"
    ):
        find_prebuilt(kernel, "gfx942", folder(sources=sources))


def test_a_missing_include_is_stale(kernel: HipKernel, folder: Folder, tmp_path: Path) -> None:
    """A source that is gone makes the object stale, too."""
    sources = {"k.hip": hashlib.sha256(SOURCE.encode()).hexdigest(), "gone.h": "0" * 64}
    with pytest.raises(CodeObjectError, match=r"another gone\.h"):
        find_prebuilt(kernel, "gfx942", folder(sources=sources))


def test_an_object_that_was_cut_off(kernel: HipKernel, folder: Folder, tmp_path: Path) -> None:
    """A half-written object, and one that is gone, are named."""
    environ = folder()
    path = tmp_path / "build" / "gfx942" / "hip.scale-d64.co"
    path.write_bytes(DATA[:5])
    with pytest.raises(CodeObjectError, match="is not the object that the manifest describes; build it again"):
        find_prebuilt(kernel, "gfx942", environ)
    path.unlink()
    with pytest.raises(CodeObjectError, match=r"is in the manifest and cannot be read \(No such file"):
        find_prebuilt(kernel, "gfx942", environ)


def test_a_huge_object_is_not_read(kernel: HipKernel, folder: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file that is larger than any kernel is refused by its size."""
    monkeypatch.setattr(prebuilt, "OBJECT_LIMIT_BYTES", 10)
    with pytest.raises(CodeObjectError, match=r"d64\.co has more than 10 bytes, which no kernel has; build it again"):
        find_prebuilt(kernel, "gfx942", folder())


def test_a_hostile_manifest_reads_nothing_elsewhere(kernel: HipKernel, folder: Folder, tmp_path: Path) -> None:
    """A manifest that names a file outside of its folder is refused before anything is read."""
    environ = folder()
    path = tmp_path / "build" / "gfx942" / NAME
    path.write_text(json.dumps(json.loads(path.read_text())).replace("hip.scale-d64.co", "../../k.hip"))
    with pytest.raises(CodeObjectError, match=r"whose file is '\.\./\.\./k\.hip', no plain name"):
        find_prebuilt(kernel, "gfx942", environ)
