"""What is found in a code object, before anything of it is disassembled."""

from __future__ import annotations

from dataclasses import dataclass

from pytest_attnperf.records.code import KernelCode


@dataclass(frozen=True)
class ObjectKernel:
    """One kernel of an object.

    code      all that the object says of it: `threads`, `lds_dynamic_bytes` and what disassembling adds are left out
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
    elf    the ELF file alone, out of any bundle: what a disassembler takes
    """

    arch: str
    kernels: tuple[ObjectKernel, ...]
    elf: bytes
