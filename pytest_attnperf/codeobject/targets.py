"""Names of GPU architectures, from the number in an AMD object's ELF header and from target strings."""

from __future__ import annotations

import re

from pytest_attnperf.errors import CodeObjectError

# EF_AMDGPU_MACH_AMDGCN_* of LLVM 22 (llvm/BinaryFormat/ELF.h); each was compared with an object that clang 22 made for
# that architecture and llvm-readelf 22 read. Numbers without an architecture are reserved there.
_ARCH_OF_MACHINE = {
    0x20: "gfx600",
    0x21: "gfx601",
    0x22: "gfx700",
    0x23: "gfx701",
    0x24: "gfx702",
    0x25: "gfx703",
    0x26: "gfx704",
    0x28: "gfx801",
    0x29: "gfx802",
    0x2A: "gfx803",
    0x2B: "gfx810",
    0x2C: "gfx900",
    0x2D: "gfx902",
    0x2E: "gfx904",
    0x2F: "gfx906",
    0x30: "gfx908",
    0x31: "gfx909",
    0x32: "gfx90c",
    0x33: "gfx1010",
    0x34: "gfx1011",
    0x35: "gfx1012",
    0x36: "gfx1030",
    0x37: "gfx1031",
    0x38: "gfx1032",
    0x39: "gfx1033",
    0x3A: "gfx602",
    0x3B: "gfx705",
    0x3C: "gfx805",
    0x3D: "gfx1035",
    0x3E: "gfx1034",
    0x3F: "gfx90a",
    0x41: "gfx1100",
    0x42: "gfx1013",
    0x43: "gfx1150",
    0x44: "gfx1103",
    0x45: "gfx1036",
    0x46: "gfx1101",
    0x47: "gfx1102",
    0x48: "gfx1200",
    0x49: "gfx1250",
    0x4A: "gfx1151",
    0x4C: "gfx942",
    0x4E: "gfx1201",
    0x4F: "gfx950",
    0x51: "gfx9-generic",
    0x52: "gfx10-1-generic",
    0x53: "gfx10-3-generic",
    0x54: "gfx11-generic",
    0x55: "gfx1152",
    0x58: "gfx1153",
    0x59: "gfx12-generic",
    0x5A: "gfx1251",
    0x5F: "gfx9-4-generic",
}

_UNIFIED = ("gfx90a", "gfx942", "gfx950", "gfx9-4-generic")
_NAME = re.compile(r"(gfx[0-9][0-9a-z]*(?:-[0-9]+)*(?:-generic)?|sm_[0-9]+)[af]?")


def arch_of_flags(flags: int, source: str) -> str:
    """Returns the architecture in the lowest byte of an AMDGPU file's e_flags.

    Raises CodeObjectError for an unknown number.
    """
    arch = _ARCH_OF_MACHINE.get(flags & 0xFF)
    if arch is None:
        raise CodeObjectError(
            f"{source}: was compiled for AMD machine number {flags & 0xFF:#x} (e_flags {flags:#x}), an unknown one; "
            f"known: {', '.join(sorted(_ARCH_OF_MACHINE.values()))}"
        )
    return arch


def plain_arch(target: str) -> str:
    """Returns the architecture of a target or of a name with features; '' if there is none.

    'amdgcn-amd-amdhsa--gfx942:sramecc+:xnack-', 'amdgpu9.42-amd-amdhsa-unknown-gfx942' and 'gfx942:xnack-' are gfx942;
    'sm_90a' is sm_90.
    """
    name = target.partition(":")[0]
    begin = max(name.find("gfx"), name.find("sm_"))
    found = _NAME.fullmatch(name[begin:]) if begin >= 0 else None
    return found.group(1) if found else ""


def has_unified_vgprs(arch: str) -> bool:
    """Returns whether architectural and accumulation VGPRs share one register file (CDNA 2 and later)."""
    return arch in _UNIFIED


def has_workgroup_processors(arch: str) -> bool:
    """Returns whether two compute units form a workgroup processor (RDNA 1 to 4; gfx125x has compute units only)."""
    return arch.startswith(("gfx10", "gfx11", "gfx12")) and not arch.startswith("gfx125")
