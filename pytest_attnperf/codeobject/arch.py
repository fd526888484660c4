"""Resources of a compute unit of each AMD architecture: registers, LDS, wave slots, and their allocation.

Sources, by figure; "LLVM" is `llvm/lib/Target/AMDGPU` of LLVM 19 to 24:

- wave sizes, SIMDs per block: LLVM `Utils/AMDGPUBaseInfo.cpp` getEUsPerCU (4; 2 in CU mode on RDNA).
- waves per SIMD: LLVM getMaxWavesPerEU (10 on gfx906 and gfx908, 8 from gfx90a on, 16 from gfx1030 on). HIP's own
  occupancy calls stop at 8 on every gfx9.
- VGPRs per lane and granule: LLVM getTotalNumVGPRs and getVGPRAllocGranule (512 in granules of 8 with GFX90AInsts;
  1,536 of 24 with Feature1_5xVGPRs and 1,024 of 16 on the other gfx10.3 to gfx12, both in wave32; 256 of 4 before).
  AMD's gpu-arch-specs page gives the same sizes of the register files.
- addressable VGPRs: LLVM getAddressableNumArchVGPRs (256).
- AGPRs: LLVM getTotalNumVGPRs(has90AInsts, agprs, vgprs): one file from gfx90a on, its VGPRs aligned to 4; a file of
  their own on gfx908; none elsewhere.
- SGPRs: LLVM getTotalNumSGPRs (800), getSGPRAllocGranule (16), TRAP_NUM_SGPRS (16), getMaxNumSGPRs (112 on gfx9, the
  extra ones among them). From gfx10 on every wave has 128, and they limit nothing.
- LDS: AMD's gpu-arch-specs page and LLVM's getLocalMemorySize, getAddressableLocalMemorySize; on RDNA a WGP holds two
  blocks of 64 KiB and a workgroup may ask for 64 KiB.
- LDS granule: LLVM getLdsDwGranularity for the compiler's (512 bytes, 1,280 on gfx950). From gfx1030 on RDNA allocates
  1,024 bytes: Mesa's `ac_gpu_info.c` (lds_alloc_granularity), and llvm-project#219495, which would correct LLVM.
- workgroups (barriers): LLVM getMaxWorkGroupsPerCU (16 per CU, 32 per WGP, for workgroups of more than one wave).
- threads: LLVM getMaxFlatWorkGroupSize (1024).
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from pytest_attnperf.errors import CodeObjectError, propose_name

KIB = 1024


class AgprRule(Enum):
    """The register file that accumulation VGPRs (AGPRs) are allocated from."""

    NONE = "none"
    SEPARATE = "separate"
    """A separate file, as large as that of the VGPRs: the larger of the two numbers counts."""
    UNIFIED = "unified"
    """The same file: VGPRs aligned to 4, plus AGPRs."""


@dataclass(frozen=True)
class ArchLimits:
    """The resources of one architecture. Registers are counted per lane, sizes in bytes.

    A block shares LDS: a CU, or on RDNA a WGP of two CUs (in CU mode one of them). Registers are given for the
    architecture's own wave size; wave64 on RDNA has half as many, in half granules.

    wave_sizes                the architecture's own first
    simds                     per block
    max_waves_per_simd        wave slots of a SIMD
    vgprs_per_simd            of one lane: shared by all waves of a SIMD
    vgpr_granule              a wave's VGPRs are rounded up to its multiple
    addressable_vgprs         most that one wave can address, and as many AGPRs if there are any
    agpr_rule                 the register file of AGPRs
    sgprs_per_simd            shared by all waves of a SIMD; 0 if each has its own and they limit nothing
    sgpr_granule              a wave's SGPRs are rounded up to its multiple
    trap_sgprs                added to every wave for the trap handler that the driver installs
    max_sgprs                 most that one wave can be allocated
    lds_bytes                 of one block
    lds_per_workgroup_bytes   most that one workgroup can have
    lds_granule_bytes         the compiler rounds a workgroup's LDS up to its multiple
    lds_hardware_granule_bytes  the hardware rounds it up to its multiple
    max_workgroups            of more than one wave, per block (barriers)
    max_threads               of one workgroup
    wgp                       whether a block may be a WGP
    """

    arch: str
    wave_sizes: tuple[int, ...]
    simds: int
    max_waves_per_simd: int
    vgprs_per_simd: int
    vgpr_granule: int
    addressable_vgprs: int
    agpr_rule: AgprRule
    sgprs_per_simd: int
    sgpr_granule: int
    trap_sgprs: int
    max_sgprs: int
    lds_bytes: int
    lds_per_workgroup_bytes: int
    lds_granule_bytes: int
    lds_hardware_granule_bytes: int
    max_workgroups: int
    max_threads: int = 1024
    wgp: bool = False


def _cdna(
    arch: str,
    agpr_rule: AgprRule,
    *,
    waves: int = 8,
    vgprs: int = 512,
    vgpr_granule: int = 8,
    lds_bytes: int = 64 * KIB,
    lds_granule_bytes: int = 512,
) -> ArchLimits:
    """Returns the limits of a gfx9: wave64, 4 SIMDs per CU; the waves of a SIMD share SGPRs.

    A wave addresses 102 SGPRs, and up to 6 more are reserved for VCC, XNACK mask and flat scratch: 7 granules of 16.
    """
    return ArchLimits(
        arch=arch,
        wave_sizes=(64,),
        simds=4,
        max_waves_per_simd=waves,
        vgprs_per_simd=vgprs,
        vgpr_granule=vgpr_granule,
        addressable_vgprs=256,
        agpr_rule=agpr_rule,
        sgprs_per_simd=800,
        sgpr_granule=16,
        trap_sgprs=16,
        max_sgprs=112,
        lds_bytes=lds_bytes,
        lds_per_workgroup_bytes=lds_bytes,
        lds_granule_bytes=lds_granule_bytes,
        lds_hardware_granule_bytes=lds_granule_bytes,
        max_workgroups=16,
    )


def _rdna(arch: str, *, vgprs: int, vgpr_granule: int) -> ArchLimits:
    """Returns the limits of a gfx10 to gfx12: wave32 or wave64, 4 SIMDs per WGP; every wave has its own 128 SGPRs."""
    return ArchLimits(
        arch=arch,
        wave_sizes=(32, 64),
        simds=4,
        max_waves_per_simd=16,
        vgprs_per_simd=vgprs,
        vgpr_granule=vgpr_granule,
        addressable_vgprs=256,
        agpr_rule=AgprRule.NONE,
        sgprs_per_simd=0,
        sgpr_granule=128,
        trap_sgprs=0,
        max_sgprs=128,
        lds_bytes=128 * KIB,
        lds_per_workgroup_bytes=64 * KIB,
        lds_granule_bytes=512,
        lds_hardware_granule_bytes=1024,
        max_workgroups=32,
        wgp=True,
    )


_ALL = (
    _cdna("gfx906", AgprRule.NONE, waves=10, vgprs=256, vgpr_granule=4),
    _cdna("gfx908", AgprRule.SEPARATE, waves=10, vgprs=256, vgpr_granule=4),
    _cdna("gfx90a", AgprRule.UNIFIED),
    _cdna("gfx942", AgprRule.UNIFIED),
    _cdna("gfx950", AgprRule.UNIFIED, lds_bytes=160 * KIB, lds_granule_bytes=1280),
    *(_rdna(arch, vgprs=1024, vgpr_granule=16) for arch in ("gfx1030", "gfx1102", "gfx1150", "gfx1152", "gfx1153")),
    *(_rdna(arch, vgprs=1536, vgpr_granule=24) for arch in ("gfx1100", "gfx1101", "gfx1151", "gfx1200", "gfx1201")),
)

ARCHS: dict[str, ArchLimits] = {limits.arch: limits for limits in sorted(_ALL, key=lambda one: int(one.arch[3:], 16))}
"""Architecture name -> limits, oldest first."""


def limits_of(arch: str) -> ArchLimits:
    """Returns the limits of an architecture; ignores features of a target id ('gfx942:sramecc+:xnack-').

    Raises CodeObjectError that lists the known architectures.
    """
    known = ARCHS.get(arch.partition(":")[0])
    if known is None:
        raise CodeObjectError(
            f"the register and LDS limits of {arch!r} are not known{propose_name(arch, ARCHS)}; known: "
            f"{', '.join(ARCHS)}. "
            "A new architecture is one line in pytest_attnperf/codeobject/arch.py"
        )
    return known


SHARED_PER_BLOCK_KIB = {
    "sm_70": 96,
    "sm_75": 64,
    "sm_80": 163,
    "sm_86": 99,
    "sm_87": 163,
    "sm_89": 99,
    "sm_90": 227,
    "sm_100": 227,
    "sm_120": 99,
}
"""CUDA C++ Programming Guide, "Technical Specifications per Compute Capability": maximum amount of shared memory per
thread block. Nothing else of NVIDIA's architectures is known here."""


def lds_limit_bytes(arch: str) -> int:
    """Returns the most LDS (shared memory) of one workgroup, in bytes. Raises CodeObjectError if it is not known."""
    nvidia = SHARED_PER_BLOCK_KIB.get(arch.removesuffix("a"))
    return limits_of(arch).lds_per_workgroup_bytes if nvidia is None else nvidia * KIB
