"""Reads the kernels of an AMD code object: its metadata note, compared with the kernel descriptors.

Layouts from LLVM's "User Guide for AMDGPU Backend": code object V3 and later metadata, and the kernel descriptor.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Literal

import msgspec

from pytest_attnperf.codeobject.contents import ObjectKernel
from pytest_attnperf.codeobject.elf import Elf, Symbol
from pytest_attnperf.codeobject.isa_hash import AmdHashes
from pytest_attnperf.codeobject.targets import (
    arch_of_flags,
    has_unified_vgprs,
    has_workgroup_processors,
    plain_arch,
)
from pytest_attnperf.errors import CodeObjectError
from pytest_attnperf.records.code import KernelCode

_OWNER = "AMDGPU"
_NT_AMDGPU_METADATA = 32
_METADATA_MAJOR = 1

_UNIFIED_GRANULE = 8
"""VGPRs per step of GRANULATED_WORKITEM_VGPR_COUNT on gfx90a and later CDNA."""

Count = Annotated[int, msgspec.Meta(ge=0, le=2**32 - 1)]


class KernelMetadata(msgspec.Struct, frozen=True):
    """The metadata of one kernel, a map in `amdhsa.kernels`. Hand-written objects may lack fields that have a
    default."""

    name: str = msgspec.field(name=".name")
    symbol: str = msgspec.field(name=".symbol")
    vgpr_count: Count = msgspec.field(name=".vgpr_count")
    sgpr_count: Count = msgspec.field(name=".sgpr_count")
    group_segment_bytes: Count = msgspec.field(name=".group_segment_fixed_size")
    private_segment_bytes: Count = msgspec.field(name=".private_segment_fixed_size")
    kernarg_bytes: Count = msgspec.field(name=".kernarg_segment_size")
    max_flat_workgroup_size: Count = msgspec.field(name=".max_flat_workgroup_size")
    wavefront_size: Literal[32, 64] = msgspec.field(name=".wavefront_size")
    agpr_count: Count = msgspec.field(name=".agpr_count", default=0)
    vgpr_spill_count: Count | None = msgspec.field(name=".vgpr_spill_count", default=None)
    sgpr_spill_count: Count | None = msgspec.field(name=".sgpr_spill_count", default=None)
    uses_dynamic_stack: bool = msgspec.field(name=".uses_dynamic_stack", default=False)
    workgroup_processor_mode: bool | int | None = msgspec.field(name=".workgroup_processor_mode", default=None)


class ObjectMetadata(msgspec.Struct, frozen=True):
    """The content of an object's metadata note: version, kernels and target."""

    version: list[int] = msgspec.field(name="amdhsa.version")
    kernels: list[KernelMetadata] = msgspec.field(name="amdhsa.kernels", default_factory=list)
    target: str = msgspec.field(name="amdhsa.target", default="")


@dataclass(frozen=True)
class KernelDescriptor:
    """The 64 bytes that the command processor reads to start a kernel.

    entry_offset   of the first instruction, counted from the descriptor
    """

    content: bytes
    entry_offset: int
    compute_pgm_rsrc3: int
    compute_pgm_rsrc1: int

    @property
    def accum_offset(self) -> int:
        """Number of VGPRs before the first AGPR in the common register file of gfx90a and later CDNA."""
        return ((self.compute_pgm_rsrc3 & 0x3F) + 1) * 4

    @property
    def unified_vgprs(self) -> int:
        """Number of registers, VGPRs plus AGPRs, that the hardware allocates per lane on gfx90a and later CDNA."""
        return ((self.compute_pgm_rsrc1 & 0x3F) + 1) * _UNIFIED_GRANULE

    def reserved_vgprs(self, arch: str, wave_size: int) -> int:
        """Returns the VGPRs per lane that the hardware allocates: the descriptor's number of steps times the size of a
        step, which depends on architecture and wave size."""
        steps = (self.compute_pgm_rsrc1 & 0x3F) + 1
        if has_unified_vgprs(arch):
            return steps * _UNIFIED_GRANULE
        return steps * (8 if wave_size == 32 else 4)

    def reserved_sgprs(self, arch: str) -> int:
        """Returns the SGPRs per wave that gfx9 allocates, in steps of 16; 0 from gfx10 on, where the number is fixed.

        LLVM's guide, GRANULATED_WAVEFRONT_SGPR_COUNT: 2 * max(0, ceil(SGPRs / 16) - 1).
        """
        return 0 if has_workgroup_processors(arch) else ((self.compute_pgm_rsrc1 >> 6 & 0xF) // 2 + 1) * 16

    @property
    def wgp_mode(self) -> bool:
        """Whether a workgroup may use both compute units of a workgroup processor."""
        return bool(self.compute_pgm_rsrc1 >> 29 & 1)


_DESCRIPTOR = struct.Struct("<16xq20xII12x")


def amd_arch(elf: Elf) -> str:
    """Returns an AMD code object's architecture, e.g. 'gfx942', from its ELF header. CodeObjectError if it is
    unknown."""
    return arch_of_flags(elf.flags, elf.source)


def amd_kernels(elf: Elf) -> tuple[ObjectKernel, ...]:
    """Returns the kernels of an AMD code object, in the order of its metadata.

    Raises CodeObjectError without metadata, if metadata and header name different architectures, and if a kernel of
    the metadata has no symbol.
    """
    arch, metadata = amd_arch(elf), read_metadata(elf)
    if metadata.target and plain_arch(metadata.target) != arch:
        raise CodeObjectError(
            f"{elf.source}: its ELF header says {arch}, its metadata {metadata.target!r}; the file is damaged or was "
            "put together from two"
        )
    names = {kernel.symbol.removesuffix(".kd") for kernel in metadata.kernels}
    hashes = AmdHashes(elf, arch, names)
    symbols = {symbol.name: symbol for symbol in elf.symbols}
    return tuple(_read_kernel(elf, arch, kernel, symbols, hashes) for kernel in metadata.kernels)


def read_metadata(elf: Elf) -> ObjectMetadata:
    """Returns the content of the metadata note. Raises CodeObjectError if it is missing or does not match LLVM's
    documentation."""
    notes = [note for note in elf.read_notes() if (note.owner, note.kind) == (_OWNER, _NT_AMDGPU_METADATA)]
    if not notes:
        raise CodeObjectError(
            f"{elf.source}: has no {_OWNER} metadata note (NT_AMDGPU_METADATA): it is no HSA code object of version 3 "
            "or later. Compile it for amdgcn-amd-amdhsa, and do not strip its notes"
        )
    try:
        metadata = msgspec.msgpack.decode(notes[0].content, type=ObjectMetadata)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise CodeObjectError(
            f"{elf.source}: its metadata note is not what LLVM documents for code objects: {error}. Is the file "
            "damaged, or made by hand?"
        ) from error
    if metadata.version[:1] != [_METADATA_MAJOR]:
        raise CodeObjectError(
            f"{elf.source}: its metadata has version {metadata.version}; only {_METADATA_MAJOR}.x can be read "
            "(code object versions 3 to 6)"
        )
    return metadata


def _read_kernel(
    elf: Elf, arch: str, metadata: KernelMetadata, symbols: Mapping[str, Symbol], hashes: AmdHashes
) -> ObjectKernel:
    descriptor_symbol = _require_symbol(elf, metadata, metadata.symbol, symbols)
    function = _require_symbol(elf, metadata, metadata.symbol.removesuffix(".kd"), symbols)
    content = elf.read_code(descriptor_symbol.section, descriptor_symbol.address, _DESCRIPTOR.size)
    descriptor = KernelDescriptor(content, *_DESCRIPTOR.unpack(content))
    entry = descriptor_symbol.address + descriptor.entry_offset
    if not elf.relocatable and entry != function.address:
        raise CodeObjectError(
            f"{elf.source}: the descriptor of kernel {metadata.name!r} starts it at {entry:#x}, but its symbol is at "
            f"{function.address:#x}; is the file damaged?"
        )
    size = elf.size_of(function)
    code = _make_code(arch, metadata, descriptor, size, hashes.hash_kernel(function, content))
    return ObjectKernel(code, function.address, size, function.section.name)


def _require_symbol(elf: Elf, metadata: KernelMetadata, name: str, symbols: Mapping[str, Symbol]) -> Symbol:
    if name not in symbols:
        raise CodeObjectError(
            f"{elf.source}: its metadata has a kernel {metadata.name!r}, but its {len(symbols)} symbols have no "
            f"{name!r}; was the file stripped of them?"
        )
    return symbols[name]


def _make_code(
    arch: str, metadata: KernelMetadata, descriptor: KernelDescriptor, code_bytes: int, isa_hash: str
) -> KernelCode:
    vgprs, agprs, unified_vgprs = _count_registers(arch, metadata, descriptor)
    wgp_mode = None
    if has_workgroup_processors(arch):
        stated = metadata.workgroup_processor_mode
        wgp_mode = descriptor.wgp_mode if stated is None else bool(stated)
    return KernelCode(
        name=metadata.name,
        arch=arch,
        vgprs=vgprs,
        agprs=agprs,
        unified_vgprs=unified_vgprs,
        sgprs=metadata.sgpr_count,
        vgpr_spills=metadata.vgpr_spill_count,
        sgpr_spills=metadata.sgpr_spill_count,
        scratch_bytes=metadata.private_segment_bytes,
        lds_static_bytes=metadata.group_segment_bytes,
        lds_dynamic_bytes=0,
        kernarg_bytes=metadata.kernarg_bytes,
        threads=0,
        max_threads=metadata.max_flat_workgroup_size,
        wave_size=metadata.wavefront_size,
        wgp_mode=wgp_mode,
        dynamic_stack=metadata.uses_dynamic_stack,
        code_bytes=code_bytes,
        isa_hash=isa_hash,
        reserved_vgprs=descriptor.reserved_vgprs(arch, metadata.wavefront_size),
        reserved_sgprs=descriptor.reserved_sgprs(arch),
    )


def _count_registers(arch: str, metadata: KernelMetadata, descriptor: KernelDescriptor) -> tuple[int, int, int]:
    """Returns the numbers of architectural, accumulation and allocated VGPRs.

    On gfx90a and later CDNA `.vgpr_count` is the unified total. Compilers' metadata agrees with the descriptor.
    Hand-written metadata lacks AGPRs or says 0; then the descriptor's allocation counts. On gfx908 `.vgpr_count` is
    the larger of the two, so there may be fewer architectural ones. RDNA has no AGPRs.
    """
    total, agprs = metadata.vgpr_count, metadata.agpr_count
    if not has_unified_vgprs(arch):
        return total, agprs, max(total, agprs)
    accum_offset = descriptor.accum_offset
    if accum_offset == _round_up(max(total - agprs, 1), 4):
        return total - agprs, agprs, total
    total = max(accum_offset, min(total, descriptor.unified_vgprs))
    return accum_offset, total - accum_offset, total


def _round_up(value: int, granule: int) -> int:
    return -(-value // granule) * granule
