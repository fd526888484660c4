from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from pytest_attnperf.codeobject.building import build_object, unsupported_reasons
from pytest_attnperf.codeobject.built import object_bytes
from pytest_attnperf.codeobject.hip_toolchain import CLANG, find_linker, find_toolchain, hip_reasons
from pytest_attnperf.errors import CodeObjectError, ToolMissingError
from pytest_attnperf.kernel_builds import HipSource, KernelBuild

DATA = Path(__file__).parents[1] / "data/hip"
REASONS = hip_reasons("gfx942")

needs_clang = pytest.mark.skipif(bool(REASONS), reason="; ".join(REASONS))


def checkout(folder: Path) -> Path:
    """A project that holds the kernel; its root."""
    shutil.copytree(DATA, folder / "kernels/hip")
    (folder / "pyproject.toml").touch()
    return folder


def declared(root: Path, arch: str = "gfx942", **source: Any) -> KernelBuild:
    """The kernel of a checkout, 64 lanes unless told otherwise."""
    given = {"kernel": "scale_add", "defines": {"LANES": "64"}, "threads": 64, **source}
    return KernelBuild("hip.scale_add", "l64", arch, HipSource(root / "kernels/hip/scale.hip", **given))


def program(path: Path, script: str) -> Path:
    """An executable shell script."""
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return path


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    """An empty cache."""
    return tmp_path / "cache"


@needs_clang
@pytest.mark.parametrize("arch", ["gfx942", "gfx1100"])
def test_a_kernel_is_compiled(tmp_path: Path, cache: Path, arch: str) -> None:
    """An ELF for AMD GPUs with the kernel in it, and everything that went into it; no path of this machine."""
    root = checkout(tmp_path / "project")
    built = build_object(declared(root, arch, dynamic_lds_bytes=512), cache)
    data = object_bytes(built)
    assert (data[:4], int.from_bytes(data[18:20], "little")) == (b"\x7fELF", 224)  # EM_AMDGPU
    assert b"scale_add.kd" in data
    assert b"kernels/hip" in data
    assert str(tmp_path).encode() not in data
    assert (built.kernel, built.threads, built.lds_dynamic_bytes) == ("scale_add", 64, 512)
    assert built.compiler == find_toolchain(arch).name
    assert built.options == {"LANES": "64", "flags": "-O3"}
    assert set(built.sources) == {"kernels/hip/scale.hip", "kernels/hip/scale.h"}
    assert (built.source_root, built.cached) == (str(root), False)


@needs_clang
def test_two_checkouts_give_equal_objects(tmp_path: Path) -> None:
    """Another folder and another cache: the same bytes, and the same names of the sources."""
    folders = [checkout(tmp_path / "one"), checkout(tmp_path / "another/much deeper")]
    for each in folders:  # an absolute include path of the checkout must not tell where it is either
        source = each / "kernels/hip/scale.hip"
        source.write_text(source.read_text().replace('"scale.h"', "<scale.h>"))
    ones = [build_object(declared(each, flags=[f"-I{each}/kernels/hip"]), each / "cache") for each in folders]
    assert ones[0].object_base64 == ones[1].object_base64
    assert ones[0].sources == ones[1].sources
    shared = build_object(declared(folders[1], flags=[f"-I{folders[1]}/kernels/hip"]), folders[0] / "cache")
    assert (shared.cached, shared.source_root) == (True, str(folders[1]))


@needs_clang
def test_the_cache_answers_to_what_is_compiled(tmp_path: Path, cache: Path) -> None:
    """The same text is compiled once, also after a comment changed; a macro, a flag, an include or a target is new."""
    root = checkout(tmp_path / "project")
    first = build_object(declared(root), cache)
    assert build_object(declared(root), cache).cached
    source, header = root / "kernels/hip/scale.hip", root / "kernels/hip/scale.h"
    source.write_text(source.read_text().replace("y = a x + y.", "Adds."))
    commented = build_object(declared(root, threads=32), cache)
    assert (commented.cached, commented.threads) == (True, 32)
    assert commented.sources != first.sources
    others = [
        build_object(declared(root, defines={"LANES": "128"}), cache),
        build_object(declared(root, flags=["-ffp-contract=off"]), cache),
        build_object(declared(root, "gfx90a"), cache),
    ]
    header.write_text(header.read_text().replace("a * x", "a / x"))
    others.append(build_object(declared(root), cache))
    assert not any(other.cached for other in others)
    assert len({first.object_base64, *(other.object_base64 for other in others)}) == 5


@needs_clang
@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("y[i] +=", "y[j] +=", "kernels/hip/scale.hip:10:16: error: use of undeclared identifier 'j'\n"),
        ('"scale.h"', '"hip/hip_runtime.h"', "hip:2:10: fatal error: 'hip/hip_runtime.h' file not found\n"),
        ("a * x", "__ockl_sqrt(x)", "kernels/hip/scale.h:1:"),
        ("tile[LANES];", "tile[LANES * 1024];", "error: local memory (262144) exceeds limit (65536)"),
    ],
)
def test_the_first_error_is_shown(tmp_path: Path, cache: Path, old: str, new: str, said: str) -> None:
    """What does not compile is named with build, file and line, what clang says, and which clang."""
    root = checkout(tmp_path / "project")
    for file in (root / "kernels/hip").glob("scale.*"):
        file.write_text(file.read_text().replace(old, new))
    with pytest.raises(CodeObjectError) as caught:
        build_object(declared(root), cache)
    text = str(caught.value)
    assert text.startswith("hip.scale_add, configuration 'l64', for gfx942: ")
    assert said in text
    assert f"(compiled by {find_toolchain('gfx942').name}" in text
    assert text.endswith(f" in {root}, without HIP headers and device libraries)")
    assert len(text.splitlines()) <= 5


@needs_clang
def test_a_function_of_the_device_library_is_named(tmp_path: Path, cache: Path) -> None:
    """A declared function that nobody defines is the linker's error, which names it."""
    root = checkout(tmp_path / "project")
    header = root / "kernels/hip/scale.h"
    declaration = 'extern "C" __attribute__((device)) float __ocml_exp_f32(float);'
    header.write_text(f"{declaration}\n{header.read_text().replace('a * x', '__ocml_exp_f32(x)')}")
    with pytest.raises(CodeObjectError, match=r"error: undefined (hidden |protected )?symbol: __ocml_exp_f32"):
        build_object(declared(root), cache)


@needs_clang
def test_a_clang_that_cannot_link_is_helped(tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where compiler and linker are separate commands of one program (ziglang), the same machine code comes out."""
    root = checkout(tmp_path / "project")
    expected = object_bytes(build_object(declared(root), cache))
    (tmp_path / "ziglang").mkdir()
    (tmp_path / "ziglang/__init__.py").touch()
    clang, linker = find_toolchain("gfx942").clang[0], find_linker()
    script = f'case $1 in clang) shift; exec {clang} "$@" ;; ld.lld) shift; exec {linker} "$@" ;; esac'
    program(tmp_path / "ziglang/zig", script)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path / "empty"))
    for name in (CLANG, "ROCM_PATH"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr("pytest_attnperf.codeobject.hip_toolchain._ROCM", tmp_path / "no-rocm")
    built = build_object(declared(root), cache)
    assert (built.compiler.endswith("(ziglang)"), built.cached) == (True, False)
    assert machine_code(object_bytes(built)) == machine_code(expected)


def machine_code(elf: bytes) -> bytes:
    """The section .text of a 64-bit ELF."""
    headers, size, count, names = (
        int.from_bytes(elf[at : at + n], "little") for at, n in ((40, 8), (58, 2), (60, 2), (62, 2))
    )
    sections = [elf[headers + index * size : headers + (index + 1) * size] for index in range(count)]
    fields = [[int.from_bytes(one[at : at + n], "little") for at, n in ((0, 4), (24, 8), (32, 8))] for one in sections]
    strings = fields[names][1]
    (found,) = [(at, length) for name, at, length in fields if elf[strings + name :].startswith(b".text\0")]
    return elf[found[0] : found[0] + found[1]]


def test_a_missing_file_is_named(tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A source that is not there is named, and no compiler is blamed."""
    answers = 'case "$*" in *version*) echo clang version 22.1.8 ;; *prog-name*) echo sh ;; esac'
    monkeypatch.setenv(CLANG, str(program(tmp_path / "clang", answers)))
    with pytest.raises(
        CodeObjectError, match=r"configuration 'l64', for gfx942: there is no file .*scale.hip; correct"
    ):
        build_object(declared(tmp_path), cache)


def test_a_silent_failure_is_named(tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A compiler that fails without a word is named with its exit status."""
    answers = """case "$*" in
*version*) echo clang version 22.1.8 ;; *prog-name*) echo sh ;; *fsyntax*) ;; *) exit 70 ;;
esac"""
    monkeypatch.setenv(CLANG, str(program(tmp_path / "clang", answers)))
    with pytest.raises(CodeObjectError, match=r"for gfx942: exit status 70, no message\n\(compiled by clang 22.1.8 in"):
        build_object(declared(checkout(tmp_path / "project")), cache)


def test_without_clang_the_build_is_unsupported(tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The reason is known before building, and building raises it with the name of the build."""
    monkeypatch.setenv(CLANG, str(tmp_path / "no-such-clang"))
    build_of = declared(tmp_path)
    (reason,) = unsupported_reasons(build_of)
    assert f"{tmp_path}/no-such-clang is no clang: " in reason
    with pytest.raises(
        ToolMissingError, match=r"hip.scale_add, configuration 'l64', for gfx942: no clang here compiles"
    ):
        build_object(build_of, cache)
