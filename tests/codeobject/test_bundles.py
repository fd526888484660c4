from __future__ import annotations

import struct
from pathlib import Path

import pytest

from pytest_attnperf.codeobject.bundles import BUNDLE_MAGIC, BundleEntry, bundle_entries, device_elf
from pytest_attnperf.errors import CodeObjectError

DATA = Path(__file__).parents[1] / "data/code_objects"
GFX942 = (DATA / "saxpy.gfx942.co").read_bytes()
GFX1100 = (DATA / "saxpy.gfx1100.co").read_bytes()


def bundled(*entries: tuple[str, bytes]) -> bytes:
    """A bundle as clang lays it out: the table, then the files in its order."""
    table_bytes = 32 + sum(24 + len(name) for name, _ in entries)
    table, files = BUNDLE_MAGIC + struct.pack("<Q", len(entries)), b""
    for name, content in entries:
        table += struct.pack("<QQQ", table_bytes + len(files), len(content), len(name)) + name.encode()
        files += content
    return table + files


def target(arch: str) -> str:
    """The id of an entry for an AMD architecture."""
    return f"hipv4-amdgcn-amd-amdhsa--{arch}"


HOST = ("host-x86_64-unknown-linux-gnu-", b"")


@pytest.mark.parametrize("name", ["saxpy.bundle", "host.o"])
@pytest.mark.parametrize(("arch", "expected"), [("gfx942", GFX942), ("gfx1100", GFX1100), ("gfx942:xnack-", GFX942)])
def test_the_entry_of_an_architecture(name: str, arch: str, expected: bytes) -> None:
    """Of a bundle that clang-offload-bundler made, and of a host's object that holds it, the named entry is taken."""
    assert device_elf((DATA / name).read_bytes(), name, arch) == expected


def test_a_code_object_is_its_own() -> None:
    """What is an AMD object or a cubin already is returned as it is, whatever architecture is asked for."""
    cubin = (DATA / "kernels.sm_90.cubin").read_bytes()
    assert device_elf(GFX942, "k.co", "gfx90a") is GFX942
    assert device_elf(cubin, "k.cubin") is cubin


def test_the_only_device_entry_needs_no_name() -> None:
    """A host's entry is not counted, whether it is empty or an object of its own."""
    assert device_elf(bundled(HOST, (target("gfx942"), GFX942)), "k") == GFX942
    assert device_elf(bundled((HOST[0], b"\x7fELF of the host"), (target("gfx942"), GFX942)), "k") == GFX942


@pytest.mark.parametrize("name", ["saxpy.bundle", "host.o"])
def test_several_entries_need_a_name(name: str) -> None:
    """Without an architecture the entries are listed."""
    expected = rf"{name}: its offload bundle has 2 code objects; its entries: {target('gfx942')}, {target('gfx1100')}"
    with pytest.raises(CodeObjectError, match=expected):
        device_elf((DATA / name).read_bytes(), name)


def test_an_architecture_that_is_not_there() -> None:
    """The entries that there are are listed, the host's not among them."""
    expected = f"saxpy.bundle: its offload bundle has no code object for gfx950; its entries: {target('gfx942')}, "
    with pytest.raises(CodeObjectError, match=expected):
        device_elf((DATA / "saxpy.bundle").read_bytes(), "saxpy.bundle", "gfx950")
    with pytest.raises(CodeObjectError, match=r"has no code object; its entries: none for a GPU"):
        device_elf(bundled(HOST), "k")


def test_features_tell_entries_of_one_architecture_apart() -> None:
    """An entry is chosen by its features; without them two of one architecture are listed."""
    data = bundled((target("gfx90a:xnack+"), GFX942), (target("gfx90a:xnack-"), GFX1100))
    assert device_elf(data, "k", "gfx90a:xnack-") == GFX1100
    with pytest.raises(
        CodeObjectError, match=r"k: its offload bundle has 2 code objects for gfx90a; .*xnack\+, .*xnack-"
    ):
        device_elf(data, "k", "gfx90a")


def test_bundles_of_several_source_files() -> None:
    """A linked program has one bundle for each source file, with gaps between: all of them are entries."""
    data = bundled((target("gfx942"), GFX942)) + bytes(100) + bundled((target("gfx1100"), GFX1100))
    assert [entry.arch for entry in bundle_entries(data, "k")] == ["gfx942", "gfx1100"]
    assert device_elf(data, "k", "gfx1100") == GFX1100
    with pytest.raises(
        CodeObjectError, match=r"has 2 code objects for gfx942.*where it is there more than once, extract"
    ):
        device_elf(data + data, "k", "gfx942")


@pytest.mark.parametrize(
    ("id_", "arch", "full"),
    [
        (target("gfx942"), "gfx942", "gfx942"),
        (target("gfx90a:sramecc+:xnack-"), "gfx90a", "gfx90a:sramecc+:xnack-"),
        ("hip-spirv64-amd-amdhsa--amdgcnspirv", "", ""),
        (HOST[0], "", ""),
    ],
)
def test_targets_of_entries(id_: str, arch: str, full: str) -> None:
    """The architecture and the features of an entry are the end of its id."""
    entry = BundleEntry(id_, b"")
    assert (entry.arch, entry.target) == (arch, full)


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (BUNDLE_MAGIC, "k: the offload bundle ends at byte 24, but 8 bytes"),
        (BUNDLE_MAGIC + b"\xff" * 8, "k: the offload bundle ends at byte 32, but 24 bytes"),
        (BUNDLE_MAGIC + struct.pack("<QQQQ", 1, 0, 8, 2**63), "but 9223372036854775808 bytes"),
        (BUNDLE_MAGIC + struct.pack("<QQQQ", 1, 2**63, 8, 1) + b"a", "entry 'a' begins at byte 9223372036854775808"),
        (BUNDLE_MAGIC + struct.pack("<QQQQ", 1, 57, 8, 1) + b"a", "entry 'a' ends at byte 57, but 8 bytes"),
    ],
)
def test_a_damaged_bundle(data: bytes, expected: str) -> None:
    """A table or a file that reaches beyond the end is an error that says which."""
    with pytest.raises(CodeObjectError, match=expected):
        list(bundle_entries(data, "k"))


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"", "k: is empty"),
        (
            b"CCOB\x03\0",
            "k: is a compressed offload bundle: compile with --no-offload-compress, or unpack it: clang-off",
        ),
        (b"\x10\xff\x10\xad\x01", "an offload binary of LLVM: unpack it: llvm-offload-binary"),
        (b"\x50\xed\x55\xba\x01", "a CUDA fatbin: unpack it: cuobjdump -xelf all"),
        (b"BC\xc0\xde5", "LLVM bitcode: compile it without -emit-llvm"),
        (b"!<arch>\n", "an archive of objects: unpack it: ar x"),
        ((DATA / "kernels.ptx").read_bytes(), "PTX text: assemble it: ptxas"),
        ((DATA / "by_hand.s").read_bytes(), "assembler text: assemble it: clang"),
        (b"define amdgpu_kernel void @k() {", "LLVM IR text"),
        (b"Not Found: 404", "no code object: it begins with 4e 6f 74 20 46 6f 75 6e; expected an ELF file"),
    ],
)
def test_what_is_no_code_object_is_named(data: bytes, expected: str) -> None:
    """Files that people take for code objects are called what they are, with the way to get one out of them."""
    with pytest.raises(CodeObjectError, match=expected):
        device_elf(data, "k")


def test_an_entry_that_is_no_elf_file() -> None:
    """What stands in a bundle is named, too."""
    data = bundled((target("gfx942"), b"BC\xc0\xde5"))
    with pytest.raises(CodeObjectError, match=rf"k: its bundle's entry '{target('gfx942')}' is LLVM bitcode"):
        device_elf(data, "k", "gfx942")


def test_a_host_file_without_gpu_code() -> None:
    """A program without a .hip_fatbin section is an error naming its machine; a compressed section is one, too."""
    host = (DATA / "host.o").read_bytes()
    with pytest.raises(CodeObjectError, match=r"k: is an ELF file for x86-64 without a \.hip_fatbin section"):
        device_elf(host.replace(b"\0.hip_fatbin\0", b"\0.hop_fatbin\0"), "k", "gfx942")
    with pytest.raises(CodeObjectError, match=r"is an ELF file for machine 9999"):
        device_elf(GFX942[:18] + struct.pack("<H", 9999) + GFX942[20:], "k")
    with pytest.raises(CodeObjectError, match=r"k: its section \.hip_fatbin is a compressed offload bundle"):
        device_elf(host.replace(BUNDLE_MAGIC, b"CCOB" + BUNDLE_MAGIC[4:]), "k", "gfx942")


def test_a_file_that_is_too_large_is_refused() -> None:
    """More than 64 MiB are not read, whatever they are."""
    with pytest.raises(CodeObjectError, match=r"k: has 67108865 bytes, more than the 67108864 that are read"):
        device_elf(GFX942 + bytes(64 * 2**20 + 1 - len(GFX942)), "k")
