"""The content of a code object before it is disassembled."""

from __future__ import annotations

from dataclasses import dataclass

from pytest_attnperf.records.code import KernelCode


@dataclass(frozen=True)
class ObjectKernel:
    """One kernel of an object.

    code      everything in the object's metadata, without `threads`, `lds_dynamic_bytes` and disassembly results
    address   of its first instruction, as a disassembler counts; 0 in a cubin, where each kernel has its own section
    size      bytes of machine code
    section   '.text', in a cubin '.text.<kernel>'
    """

    code: KernelCode
    address: int
    size: int
    section: str


@dataclass(frozen=True)
class ObjectContents:
    """The kernels of an object.

    arch   'gfx942', 'sm_90'
    elf    the bare ELF file, extracted from any bundle, for a disassembler
    """

    arch: str
    kernels: tuple[ObjectKernel, ...]
    elf: bytes
