from __future__ import annotations

import random
import struct
from pathlib import Path

import pytest

from pytest_attnperf.codeobject.line_table import read_line_table
from pytest_attnperf.codeobject.objects import ObjectContents, read_object, select_kernel
from pytest_attnperf.errors import CodeObjectError

DATA = Path(__file__).parents[1] / "data/code_objects"
STORED = {
    path.name: path.read_bytes() for path in sorted(DATA.glob("*.*")) if path.suffix in {".co", ".cubin", ".bundle"}
}

# What llvm-readelf 22 and cuobjdump print: kernels with address and size.
KERNELS = {
    "by_hand.gfx942.co": ("gfx942", [("by_hand", 0x1500, 8)]),
    "kernels.sm_80.cubin": ("sm_80", [("stacked", 0, 384), ("reversed", 0, 384), ("saxpy", 0, 384)]),
    "kernels.sm_90.cubin": ("sm_90", [("stacked", 0, 384), ("reversed", 0, 512), ("saxpy", 0, 512)]),
    "lines4.gfx942.co": ("gfx942", [("first", 0x1A00, 264), ("second", 0x1C00, 44)]),
    "lines5.gfx942.co": ("gfx942", [("first", 0x1A00, 264), ("second", 0x1C00, 44)]),
    "mfma.gfx942.co": ("gfx942", [("product", 0x1600, 388)]),
    "no_store.gfx942.co": ("gfx942", [("nothing", 0x1600, 40)]),
    "saxpy.bundle": ("gfx1100", [("saxpy", 0x1600, 136)]),
    "saxpy.gfx1100.co": ("gfx1100", [("saxpy", 0x1600, 136)]),
    "saxpy.gfx942.co": ("gfx942", [("saxpy", 0x1600, 108)]),
    "spills.gfx942.co": ("gfx942", [("hold", 0x1600, 1464)]),
    "two_kernels.gfx90a.co": ("gfx90a", [("first", 0x1A00, 264), ("second", 0x1C00, 44)]),
}

EXTREMES = (0, 1, 0x7F, 0x80, 0xFF, 0xFFFF, 0x7FFFFFFF, 0xFFFFFFFF, 2**63, 2**64 - 1)


def stored(name: str, arch: str = "") -> ObjectContents:
    """A stored object."""
    return read_object(STORED[name], name, arch=arch)


def test_every_stored_object_is_listed() -> None:
    """The table above says something of each of them."""
    assert set(STORED) == set(KERNELS)


@pytest.mark.parametrize("name", KERNELS)
def test_kernels_of_every_stored_object(name: str) -> None:
    """Of AMD objects, a bundle and cubins of both layouts: architecture, kernels, their begin and their size."""
    arch, kernels = KERNELS[name]
    contents = stored(name, arch)
    assert contents.arch == arch
    assert [(kernel.code.name, kernel.address, kernel.size) for kernel in contents.kernels] == kernels
    assert {kernel.code.arch for kernel in contents.kernels} == {arch}
    assert all(kernel.size == kernel.code.code_bytes for kernel in contents.kernels)


def test_the_elf_file_is_unbundled() -> None:
    """What a disassembler takes is the object alone, which reads the same."""
    contents = stored("saxpy.bundle", "gfx942")
    assert contents.elf == STORED["saxpy.gfx942.co"]
    assert contents == stored("saxpy.gfx942.co")


@pytest.mark.parametrize(
    ("name", "arch"),
    [
        ("saxpy.gfx942.co", "gfx942"),
        ("saxpy.gfx942.co", "gfx942:sramecc+:xnack-"),
        ("kernels.sm_90.cubin", "sm_90"),
        ("kernels.sm_90.cubin", "sm_90a"),
    ],
)
def test_the_wanted_architecture(name: str, arch: str) -> None:
    """Features and suffixes of the architecture that is asked for do not matter."""
    assert stored(name, arch) == stored(name)


@pytest.mark.parametrize(
    ("name", "arch", "found"),
    [
        ("saxpy.gfx942.co", "gfx90a", "gfx942"),
        ("saxpy.gfx942.co", "sm_90", "gfx942"),
        ("kernels.sm_80.cubin", "sm_90", "sm_80"),
        ("saxpy.gfx1100.co", "anything", "gfx1100"),
    ],
)
def test_an_object_of_another_architecture(name: str, arch: str, found: str) -> None:
    """It is refused, and both are named."""
    with pytest.raises(CodeObjectError, match=rf"{name}: was compiled for {found}, not for {arch}"):
        stored(name, arch)


def test_objects_without_kernels() -> None:
    """An AMD object whose metadata lists none, and a cubin of functions only, are errors."""
    empty = STORED["saxpy.gfx942.co"].replace(b"amdhsa.kernels", b"amdhsa.kernelz")
    with pytest.raises(CodeObjectError, match=r"k.co: is a code object for gfx942 without any kernel"):
        read_object(empty, "k.co")
    functions = STORED["kernels.sm_90.cubin"].replace(b"\x12\x10", b"\x12\x00")
    with pytest.raises(CodeObjectError, match=r"k.cubin: is a code object for sm_90 without any kernel"):
        read_object(functions, "k.cubin")


def test_selecting_a_kernel() -> None:
    """The only kernel needs no name; of several the named one is taken."""
    assert select_kernel(stored("mfma.gfx942.co"), "", "k").code.name == "product"
    assert select_kernel(stored("mfma.gfx942.co"), "product", "k").code.name == "product"
    assert select_kernel(stored("two_kernels.gfx90a.co"), "second", "k").code.name == "second"


def test_selecting_what_is_not_there() -> None:
    """A name that is not there, and no name where there are several, list what exists."""
    contents = stored("two_kernels.gfx90a.co")
    with pytest.raises(CodeObjectError, match=r"k.co: has no kernel 'third'; it has: first, second"):
        select_kernel(contents, "third", "k.co")
    with pytest.raises(CodeObjectError, match=r"k.co: has 2 kernels; name the one that is meant: first, second"):
        select_kernel(contents, "", "k.co")
    twice = ObjectContents("gfx90a", contents.kernels * 2, b"")
    with pytest.raises(CodeObjectError, match=r"k.co: has 2 kernels 'first'"):
        select_kernel(twice, "first", "k.co")
    many = ObjectContents("gfx90a", contents.kernels[:1] * 30, b"")
    with pytest.raises(CodeObjectError, match=r"first and 10 more"):
        select_kernel(many, "", "k.co")


@pytest.mark.parametrize("name", STORED)
def test_truncated_files(name: str) -> None:
    """A file that is cut short anywhere is an error that names it."""
    data = STORED[name]
    for size in [*range(200), *range(200, len(data), 61), len(data) - 1]:
        with pytest.raises(CodeObjectError, match=name):
            read_object(data[:size], name, arch=KERNELS[name][0])


def mutated(data: bytes, random_: random.Random) -> bytes:
    """One to four changes: single bytes, extreme numbers at any place, stretches moved, repeated or cut out."""
    changed = bytearray(data)
    for _ in range(random_.randint(1, 4)):
        position = random_.randrange(len(changed))
        kind = random_.randrange(6)
        if kind < 2:
            changed[position] = random_.randrange(256)
        elif kind < 4:
            value = struct.pack("<Q", random_.choice(EXTREMES))[: random_.choice((1, 2, 4, 8))]
            changed[position : position + len(value)] = value[: len(changed) - position]
        elif kind == 4:
            other, size = random_.randrange(len(changed)), random_.randrange(64)
            changed[position : position + size] = changed[other : other + size]
        else:
            del changed[position : position + random_.randrange(1, 64)]
    return bytes(changed)


def errors_of(count: int, seed: int) -> int:
    """Reads that many mutated objects whole; how many were refused. Any other exception is raised."""
    random_, messages = random.Random(seed), []
    for _ in range(count):
        name = random_.choice(sorted(STORED))
        data = mutated(STORED[name], random_)
        try:
            contents = read_object(data, name, arch=random_.choice(("", KERNELS[name][0])))
            read_line_table(contents.elf)
            select_kernel(contents, contents.kernels[0].code.name, name)
        except CodeObjectError as error:
            messages.append(str(error))
    assert all(messages)
    return len(messages)


def test_mutated_objects() -> None:
    """Two thousand damaged objects are read or refused, and nothing else happens; both do happen."""
    refused = errors_of(2000, seed=5)
    assert 500 < refused < 1900


@pytest.mark.soak
def test_a_hundred_thousand_mutated_objects() -> None:
    """The same of a hundred thousand."""
    refused = errors_of(100_000, seed=11)
    assert 25_000 < refused < 95_000
