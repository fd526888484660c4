"""Reads the kernels of a cubin and their properties.

NVIDIA documents the sections (CUDA Binary Utilities, "cuobjdump") but not their layout. The attributes' numbers below
are those that cuobjdump prints by name; the values were compared with what ptxas -v and cuobjdump --dump-resource-usage
print, for ptxas 12.9, 13.0 and 13.4 and sm_80 to sm_120.
"""

from __future__ import annotations

import math
import struct
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from pytest_attnperf.codeobject.contents import ObjectKernel
from pytest_attnperf.codeobject.elf import Cursor, Elf, Symbol
from pytest_attnperf.codeobject.isa_hash import cubin_hash
from pytest_attnperf.errors import CodeObjectError
from pytest_attnperf.records.code import KernelCode

_NEW_ABI = 8
"""ELF ABI version of CUDA 13 and, for sm_100 and later, CUDA 12.8: the architecture moved within e_flags."""

_STO_CUDA_ENTRY = 0x10
"""Bit of st_other that is set for kernels and not for other functions."""

_EIFMT_SVAL = 4
"""Format of an attribute whose header ends with the size of its content; other headers end with the value."""

_MAX_THREADS = 0x05
_PARAM_CBANK = 0x0A
_REQNTID = 0x10
_FRAME_SIZE = 0x11
_MIN_STACK_SIZE = 0x12
_CBANK_PARAM_SIZE = 0x19
_REGCOUNT = 0x2F

_UNKNOWN_STACK = 0xFFFFFFFF

_RESERVED_SHARED_BYTES = 1024
"""Bytes per block for the system, on sm_90 and later. The section includes them, ptxas' output does not."""

_WARP = 32
_ATTRIBUTE = struct.Struct("<BBH")
_PER_FUNCTION = struct.Struct("<II")
_THREADS = struct.Struct("<III")
_PARAM = struct.Struct("<IHH")


@dataclass(frozen=True)
class Attribute:
    """One entry of a `.nv.info` section; `content` is empty if the value is in the header."""

    number: int
    value: int
    content: bytes


@dataclass
class _FunctionTable:
    """Values per function, by symbol index."""

    registers: dict[int, int] = field(default_factory=dict)
    frame_bytes: dict[int, int] = field(default_factory=dict)
    stack_bytes: dict[int, int] = field(default_factory=dict)


def cubin_arch(elf: Elf) -> str:
    """Returns a cubin's architecture, e.g. 'sm_90', also for sm_90a and sm_90f: newer files do not distinguish
    these."""
    shift = 8 if elf.abi_version >= _NEW_ABI else 0
    return f"sm_{elf.flags >> shift & 0xFF}"


def cubin_kernels(elf: Elf) -> tuple[ObjectKernel, ...]:
    """Returns the kernels of a cubin, in the order of its symbols.

    Raises CodeObjectError if an attribute is truncated or the register count is missing.
    """
    arch, table = cubin_arch(elf), _read_function_table(elf)
    kernels = [symbol for symbol in elf.functions if symbol.other & _STO_CUDA_ENTRY]
    sections = {kernel.section for kernel in kernels}
    others = [
        elf.read_content(section)
        for section in elf.sections
        if section.name.startswith(".text.") and section not in sections
    ]
    inside: dict[object, list[int]] = defaultdict(list)
    for function in elf.functions:
        inside[function.section].append(function.index)
    return tuple(_read_kernel(elf, arch, kernel, table, inside[kernel.section], others) for kernel in kernels)


def read_attributes(elf: Elf, name: str) -> Iterator[Attribute]:
    """Yields the attributes in the `.nv.info` section that is called `name`; none if the section does not exist."""
    section = elf.find_section(name)
    cursor = Cursor(elf.read_content(section) if section else b"", f"{elf.source}: section {name!r}")
    while cursor:
        layout, number, value = cursor.read_fields(_ATTRIBUTE)
        yield Attribute(number, value, cursor.take(value) if layout == _EIFMT_SVAL else b"")


def _read_function_table(elf: Elf) -> _FunctionTable:
    table = _FunctionTable()
    columns = {_REGCOUNT: table.registers, _FRAME_SIZE: table.frame_bytes, _MIN_STACK_SIZE: table.stack_bytes}
    for attribute in read_attributes(elf, ".nv.info"):
        if attribute.number in columns:
            index, value = Cursor(attribute.content, f"{elf.source}: section '.nv.info'").read_fields(_PER_FUNCTION)
            columns[attribute.number][index] = value
    return table


def _read_kernel(
    elf: Elf, arch: str, kernel: Symbol, table: _FunctionTable, functions: list[int], others: list[bytes]
) -> ObjectKernel:
    registers = _count_registers(elf, kernel, table)
    stack_bytes = table.stack_bytes.get(kernel.index, 0)
    frame_bytes = max(table.frame_bytes.get(index, 0) for index in functions)
    shared_bytes = _shared_bytes(elf, kernel.name)
    launch = _read_launch(elf, kernel.name)
    content = elf.read_content(kernel.section)
    code = KernelCode(
        name=kernel.name,
        arch=arch,
        vgprs=registers,
        agprs=0,
        unified_vgprs=registers,
        sgprs=0,
        vgpr_spills=None,
        sgpr_spills=None,
        scratch_bytes=frame_bytes if stack_bytes == _UNKNOWN_STACK else max(stack_bytes, frame_bytes),
        lds_static_bytes=shared_bytes,
        lds_dynamic_bytes=0,
        kernarg_bytes=launch.get(_CBANK_PARAM_SIZE, launch.get(_PARAM_CBANK, 0)),
        threads=0,
        max_threads=launch.get(_REQNTID, launch.get(_MAX_THREADS, 0)),
        wave_size=_WARP,
        wgp_mode=None,
        # A frame larger than the kernel's stack belongs to a recursive function; from sm_90 on no size is given.
        dynamic_stack=stack_bytes == _UNKNOWN_STACK or frame_bytes > stack_bytes,
        code_bytes=len(content),
        isa_hash=cubin_hash(arch, content, registers, shared_bytes, others),
    )
    return ObjectKernel(code, 0, len(content), kernel.section.name)


def _count_registers(elf: Elf, kernel: Symbol, table: _FunctionTable) -> int:
    """Returns a kernel's registers per thread: from .nv.info, else from the section header, where older files have
    them. Raises CodeObjectError if neither has them."""
    registers = table.registers.get(kernel.index, kernel.section.info >> 24)
    if not registers:
        raise CodeObjectError(
            f"{elf.source}: gives no register count for kernel {kernel.name!r} (EIATTR_REGCOUNT in .nv.info); "
            "is the file damaged?"
        )
    return registers


def _shared_bytes(elf: Elf, kernel: str) -> int:
    section = elf.find_section(f".nv.shared.{kernel}")
    if section is None:
        return 0
    reserved = _RESERVED_SHARED_BYTES if elf.find_section(".nv.shared.reserved.0") else 0
    return max(section.size - reserved, 0)


def _read_launch(elf: Elf, kernel: str) -> Mapping[int, int]:
    """Returns a kernel's launch attributes, number -> value: most threads of a block, bytes of its parameters. Absent
    ones are left out."""
    name = f".nv.info.{kernel}"
    found = {}
    for attribute in read_attributes(elf, name):
        cursor = Cursor(attribute.content, f"{elf.source}: section {name!r}")
        if attribute.number in (_REQNTID, _MAX_THREADS):
            found[attribute.number] = math.prod(cursor.read_fields(_THREADS))
        elif attribute.number == _PARAM_CBANK:
            found[_PARAM_CBANK] = cursor.read_fields(_PARAM)[2]
        elif attribute.number == _CBANK_PARAM_SIZE:
            found[_CBANK_PARAM_SIZE] = attribute.value
    return found
