"""Extracts one ELF code object from the containers of compilers, and explains files that have none.

The layout of an offload bundle: "Clang Offload Bundler" in Clang's documentation.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass

from pytest_attnperf.codeobject.elf import ELF_MAGIC, EM_AMDGPU, EM_CUDA, Cursor, read_elf
from pytest_attnperf.codeobject.targets import plain_arch
from pytest_attnperf.errors import CodeObjectError

BUNDLE_MAGIC = b"__CLANG_OFFLOAD_BUNDLE__"

_COUNT = struct.Struct("<Q")
_ENTRY = struct.Struct("<QQQ")

MOST_BYTES = 64 * 2**20
"""Largest file in bytes that is read: ten times the largest known object of one kernel library."""

_UNBUNDLE = "clang-offload-bundler --unbundle --type=o --input=FILE --targets=ID --output=k.co"

_MACHINES = {3: "x86 (32-bit)", 21: "PowerPC64", 62: "x86-64", 183: "AArch64", 243: "RISC-V", 258: "LoongArch"}

_SIGNS = (
    (b"CCOB", f"a compressed offload bundle: compile with --no-offload-compress, or unpack it: {_UNBUNDLE}"),
    (b"\x10\xff\x10\xad", "an offload binary of LLVM: unpack it: llvm-offload-binary FILE --image=file=k.co,arch=ARCH"),
    (b"\x50\xed\x55\xba", "a CUDA fatbin: unpack it: cuobjdump -xelf all FILE"),
    (b"BC\xc0\xde", "LLVM bitcode: compile it without -emit-llvm and -fgpu-rdc"),
    (b"!<arch>", "an archive of objects: unpack it: ar x FILE"),
    (b"MZ", "a Windows program: extract its code object first"),
)
"""(first bytes of a file that is not an ELF code object, what it is and what to do)."""

_TEXTS = (
    (b".target sm_", "PTX text: assemble it: ptxas -arch=sm_90 FILE -o k.cubin"),
    (b".amdgcn_target", "assembler text: assemble it: clang -target amdgcn-amd-amdhsa -mcpu=ARCH FILE -o k.co"),
    (b"define ", "LLVM IR text: compile it with llc and ld.lld"),
)
"""(text near the beginning of a text file, what it is and what to do)."""

_TEXT_BYTES = 16384


@dataclass(frozen=True)
class BundleEntry:
    """One file of a bundle. Its id is e.g. 'hipv4-amdgcn-amd-amdhsa--gfx942:xnack-' or
    'host-x86_64-unknown-linux-gnu-'."""

    id: str
    content: bytes

    @property
    def arch(self) -> str:
        """The architecture, e.g. 'gfx942'; '' for a host's entry and for a target without architecture (SPIR-V)."""
        return plain_arch(self.id)

    @property
    def target(self) -> str:
        """The architecture with the features that the entry requires, e.g. 'gfx942:xnack-'."""
        features = self.id.partition(":")[1:]
        return self.arch + "".join(features)


def device_elf(data: bytes, source: str, arch: str = "") -> bytes:
    """Returns the ELF code object of a file: the file itself, or the entry for `arch` of a bundle, also in a host ELF.

    arch   may name features: 'gfx90a:xnack-' distinguishes entries of one architecture

    Raises CodeObjectError if the file is too large, has no code object, or has several that match.
    """
    if len(data) > MOST_BYTES:
        raise CodeObjectError(
            f"{source}: has {len(data)} bytes, more than the {MOST_BYTES} that are read; extract the one code object "
            "that is meant"
        )
    if data.startswith(BUNDLE_MAGIC):
        return _choose_entry(data, source, arch)
    if not data.startswith(ELF_MAGIC):
        raise CodeObjectError(f"{source}: is {_describe_data(data)}")
    elf = read_elf(data, source)
    if elf.machine in (EM_AMDGPU, EM_CUDA):
        return data
    held = elf.find_section(".hip_fatbin")
    if held is not None:
        content = elf.read_content(held)
        if not content.startswith(BUNDLE_MAGIC):
            raise CodeObjectError(f"{source}: its section .hip_fatbin is {_describe_data(content)}")
        return _choose_entry(content, source, arch)
    raise CodeObjectError(
        f"{source}: is an ELF file for {_MACHINES.get(elf.machine, f'machine {elf.machine}')} without a .hip_fatbin "
        "section: no GPU code object. Of a CUDA program, extract one: cuobjdump -xelf all FILE"
    )


def bundle_entries(data: bytes, source: str) -> Iterator[BundleEntry]:
    """Yields the entries of a bundle and of the bundles after it: a linked program has one per source file.

    Raises CodeObjectError if an entry extends beyond the bundle.
    """
    what = f"{source}: the offload bundle"
    begin = 0
    while begin >= 0:
        cursor = Cursor(data, what, begin + len(BUNDLE_MAGIC))
        end = begin + len(BUNDLE_MAGIC)
        for _ in range(cursor.read_fields(_COUNT)[0]):
            offset, size, id_bytes = cursor.read_fields(_ENTRY)
            name = cursor.take(id_bytes).decode("utf-8", "backslashreplace")
            content = Cursor(data, f"{what}'s entry {name!r}", begin + offset)
            yield BundleEntry(name, content.take(size))
            end = max(end, content.position)
        begin = data.find(BUNDLE_MAGIC, end)


def _choose_entry(data: bytes, source: str, arch: str) -> bytes:
    entries = [entry for entry in bundle_entries(data, source) if entry.content and not entry.id.startswith("host-")]
    named = [entry for entry in entries if entry.target == arch]
    wanted = named or [entry for entry in entries if not arch or entry.arch == plain_arch(arch)]
    if len(wanted) == 1:
        if not wanted[0].content.startswith(ELF_MAGIC):
            raise CodeObjectError(
                f"{source}: its bundle's entry {wanted[0].id!r} is {_describe_data(wanted[0].content)}"
            )
        return wanted[0].content
    listed = ", ".join(entry.id for entry in entries) or "none for a GPU"
    meant = f" for {arch}" if arch else ""
    if not wanted:
        raise CodeObjectError(
            f"{source}: its offload bundle has no code object{meant}; its entries: {listed}. Name the architecture of "
            "an entry, or compile it for that"
        )
    raise CodeObjectError(
        f"{source}: its offload bundle has {len(wanted)} code objects{meant}; its entries: {listed}. Name the "
        f"architecture that is meant or, where it is there more than once, extract one: {_UNBUNDLE}"
    )


def _describe_data(data: bytes) -> str:
    """Returns what kind of data this is instead of a code object, and how to get a code object from it."""
    if not data:
        return "empty"
    for sign, text in _SIGNS:
        if data.startswith(sign):
            return text
    for sign, text in _TEXTS:
        if sign in data[:_TEXT_BYTES]:
            return text
    return (
        f"no code object: it begins with {data[:8].hex(' ')}; expected an ELF file (.hsaco, .co, .cubin) or an offload "
        "bundle of clang"
    )
