from __future__ import annotations

import struct
from pathlib import Path

import pytest

from pytest_attnperf.codeobject.cubin import cubin_arch, cubin_kernels, read_attributes
from pytest_attnperf.codeobject.elf import Elf, read_elf
from pytest_attnperf.errors import CodeObjectError
from pytest_attnperf.records.code import KernelCode

DATA = Path(__file__).parents[1] / "data/code_objects"
FLAGS = 0x30
ABI_VERSION = 8

MAX_THREADS, PARAM_CBANK, REQNTID, FRAME_SIZE, MIN_STACK_SIZE, CBANK_PARAM_SIZE, REGCOUNT = (
    b"\x04\x05\x0c\x00",
    b"\x04\x0a\x08\x00",
    b"\x04\x10\x0c\x00",
    b"\x04\x11\x08\x00",
    b"\x04\x12\x08\x00",
    b"\x03\x19",
    b"\x04\x2f\x08\x00",
)
PARAMETER = b"\x04\x17\x0c\x00"
UNKNOWN = b"\x04\x7e\x08\x00"


def opened(name: str, *changes: tuple[bytes, bytes]) -> Elf:
    """A stored cubin with these bytes replaced by as many others, each of which must be there."""
    data = (DATA / name).read_bytes()
    for old, new in changes:
        assert len(old) == len(new)
        assert old in data
        data = data.replace(old, new)
    return read_elf(data, "k.cubin")


def kernels(elf: Elf) -> dict[str, KernelCode]:
    """Kernels by name."""
    return {kernel.code.name: kernel.code for kernel in cubin_kernels(elf)}


def index_of(elf: Elf, name: str) -> int:
    """Of a symbol."""
    return next(symbol.index for symbol in elf.symbols if symbol.name == name)


@pytest.mark.parametrize(
    ("name", "arch", "registers", "code_bytes"),
    [
        ("kernels.sm_80.cubin", "sm_80", (10, 10, 10), (384, 384, 384)),
        ("kernels.sm_90.cubin", "sm_90", (10, 12, 10), (512, 512, 384)),
    ],
)
def test_what_ptxas_prints(name: str, arch: str, registers: tuple[int, ...], code_bytes: tuple[int, ...]) -> None:
    """Registers, shared and local memory are those that `ptxas -v` printed when it made the stored cubins."""
    found = kernels(opened(name))
    codes = [found[each] for each in ("saxpy", "reversed", "stacked")]
    assert tuple(code.vgprs for code in codes) == registers
    assert tuple(code.unified_vgprs for code in codes) == registers
    assert tuple(code.code_bytes for code in codes) == code_bytes
    assert [code.lds_static_bytes for code in codes] == [0, 1024, 0]
    assert [code.scratch_bytes for code in codes] == [0, 0, 256]
    assert [code.kernarg_bytes for code in codes] == [24, 8, 8]
    assert [code.max_threads for code in codes] == [256, 256, 0]
    assert {code.arch for code in codes} == {arch}


def test_what_a_cubin_does_not_say() -> None:
    """Spills are not told, and what is AMD's own is absent."""
    kernel = next(each for each in cubin_kernels(opened("kernels.sm_90.cubin")) if each.code.name == "reversed")
    code = kernel.code
    assert (code.vgpr_spills, code.sgpr_spills, code.wgp_mode) == (None, None, None)
    assert (code.agprs, code.sgprs, code.wave_size, code.dynamic_stack) == (0, 0, 32, False)
    assert (kernel.address, kernel.size, kernel.section) == (0, code.code_bytes, ".text.reversed")


@pytest.mark.parametrize(
    ("abi_version", "flags", "arch"),
    [
        (7, 0x500550, "sm_80"),
        (7, 0x5A055A, "sm_90"),
        (7, 0x5A0D5A, "sm_90"),
        (8, 0x6005004, "sm_80"),
        (8, 0x9005A04, "sm_90"),
        (8, 0x600640A, "sm_100"),
        (8, 0x6006702, "sm_103"),
        (8, 0x6007802, "sm_120"),
    ],
)
def test_architecture_of_both_layouts(abi_version: int, flags: int, arch: str) -> None:
    """Flags that ptxas 12.9, 13.0 and 13.4 wrote, 'a' variants among them, and what llvm-readelf 22 calls them."""
    data = bytearray((DATA / "kernels.sm_90.cubin").read_bytes())
    data[ABI_VERSION] = abi_version
    struct.pack_into("<I", data, FLAGS, flags)
    assert cubin_arch(read_elf(bytes(data), "k.cubin")) == arch


def test_registers_of_older_files() -> None:
    """Without the attribute the count in the section's header is taken; without both there is an error."""
    old = opened("kernels.sm_80.cubin", (REGCOUNT, UNKNOWN))
    assert {code.vgprs for code in kernels(old).values()} == {10}
    with pytest.raises(CodeObjectError, match=r"k.cubin: gives no register count for kernel '\w+' \(EIATTR_REGCOUNT"):
        kernels(opened("kernels.sm_90.cubin", (REGCOUNT, UNKNOWN)))


def test_launch_limits() -> None:
    """A required block size counts before a largest one; the parameters' size is told twice."""
    name = "kernels.sm_90.cubin"
    both = opened(name, (PARAMETER, MAX_THREADS))
    assert [each.number for each in read_attributes(both, ".nv.info.reversed")].count(0x05) == 1
    assert kernels(both)["reversed"].max_threads == 256
    assert kernels(opened(name, (REQNTID, MAX_THREADS)))["reversed"].max_threads == 256
    assert kernels(opened(name, (CBANK_PARAM_SIZE, b"\x03\x7e")))["saxpy"].kernarg_bytes == 24
    assert kernels(opened(name, (CBANK_PARAM_SIZE, b"\x03\x7e"), (PARAM_CBANK, UNKNOWN)))["saxpy"].kernarg_bytes == 0


@pytest.mark.parametrize(
    ("stack", "scratch_bytes", "dynamic"), [(64, 256, True), (512, 512, False), (2**32 - 1, 256, True)]
)
def test_stacks(stack: int, scratch_bytes: int, dynamic: bool) -> None:
    """The larger of stack and frame counts; a stack that is unknown or does not hold a frame is a dynamic one."""
    elf = opened("kernels.sm_90.cubin")
    entry = MIN_STACK_SIZE + struct.pack("<I", index_of(elf, "stacked"))
    changed = opened("kernels.sm_90.cubin", (entry + struct.pack("<I", 256), entry + struct.pack("<I", stack)))
    code = kernels(changed)["stacked"]
    assert (code.scratch_bytes, code.dynamic_stack) == (scratch_bytes, dynamic)


def test_reserved_shared_memory_is_not_the_kernels() -> None:
    """The system's 1024 bytes are taken away only where the object reserves them."""
    elf = opened("kernels.sm_90.cubin", (b".nv.shared.reserved.0", b".nv.shared.reserved.1"))
    assert kernels(elf)["reversed"].lds_static_bytes == 2048
    assert kernels(opened("kernels.sm_90.cubin"))["saxpy"].lds_static_bytes == 0


def test_functions_are_no_kernels() -> None:
    """A function whose symbol is not marked as an entry is left out; its code counts for the kernels' hash."""
    elf = opened("kernels.sm_90.cubin")
    table = elf.find_section(".symtab")
    assert table is not None
    data = bytearray(elf.data)
    data[table.offset + 24 * index_of(elf, "stacked") + 5] = 0
    fewer = kernels(read_elf(bytes(data), "k.cubin"))
    assert set(fewer) == {"saxpy", "reversed"}
    assert fewer["saxpy"].isa_hash != kernels(elf)["saxpy"].isa_hash


def test_a_truncated_attribute_is_named() -> None:
    """An attribute that is longer than its section, or too short for what it holds, is an error."""
    with pytest.raises(CodeObjectError, match=r"k.cubin: section '.nv.info' ends at byte \d+, but 65288 bytes"):
        kernels(opened("kernels.sm_90.cubin", (REGCOUNT, b"\x04\x2f\x08\xff")))
    with pytest.raises(CodeObjectError, match=r"section '.nv.info.reversed' ends at byte"):
        kernels(opened("kernels.sm_90.cubin", (REQNTID, b"\x04\x10\x04\x00")))


def test_attributes_of_no_section() -> None:
    """Where there is no such section there are none."""
    assert list(read_attributes(opened("kernels.sm_90.cubin"), ".nv.info.absent")) == []
