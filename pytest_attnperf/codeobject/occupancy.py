"""Computes how many waves of a kernel fit a SIMD, in the compiler's form and as whole workgroups, and the limits.

The compiler's form is what LLVM prints as `; Occupancy:` (`AMDGPUSubtarget.cpp` getOccupancyWithWorkGroupSizes,
`GCNSubtarget.cpp` getOccupancyWithNumVGPRs, getOccupancyWithNumSGPRs), computed here from the launch: LLVM does not see
the LDS that a launch adds, which is all LDS of a Triton kernel. With w = ceil(threads / wave size):

    by VGPRs    = min(max_waves, vgprs_per_simd // roundup(max(VGPRs, 1), granule))
    groups      = min(simds * max_waves // w, barriers where w > 1, LDS of the block // roundup(LDS of a workgroup))
    occupancy   = min(by VGPRs, by SGPRs, ceil(groups * w / simds))

The hardware launches whole workgroups: min(groups, min(by VGPRs, by SGPRs) * simds // w) of them fit a block.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum

from pytest_attnperf.codeobject.arch import ARCHS, AgprRule, ArchLimits, limits_of
from pytest_attnperf.errors import CodeObjectError
from pytest_attnperf.records.code import KernelCode, Occupancy

SGPR_STEPS = ((80, 10), (88, 9), (100, 8))
"""(most SGPRs, waves per SIMD) of LLVM 19 to 22, getOccupancyWithNumSGPRs."""

WAVES_ABOVE_SGPR_STEPS = 7


class CompilerRules(Enum):
    """The compiler whose occupancy comment is computed; versions differ in SGPRs on gfx9 and in LDS granules."""

    LLVM_24 = "llvm24"
    """SGPRs in granules, with those of the trap handler; LDS in granules (llvm-project#205637). The hardware does the
    same, except for its larger LDS granule on RDNA."""
    LLVM_22 = "llvm22"
    """LLVM 19 to 22: SGPRs by `SGPR_STEPS`, LDS not rounded."""


@dataclass(frozen=True)
class Resources:
    """The resources that one kernel needs of a compute unit.

    vgprs, agprs   per lane, each without the other's, as in `KernelCode`
    sgprs          per wave, with the extra ones
    lds_bytes      of one workgroup as launched
    threads        lanes of a workgroup
    wave_size      64 or 32; 0 for the architecture's own
    wgp_mode       whether a workgroup may use both compute units of a WGP; ignored on CDNA
    reserved_vgprs, reserved_sgprs   registers that the kernel descriptor reserves, as in `KernelCode`; the hardware
                   allocates these if they are more
    """

    vgprs: int
    agprs: int
    sgprs: int
    lds_bytes: int
    threads: int
    wave_size: int = 0
    wgp_mode: bool = True
    reserved_vgprs: int = 0
    reserved_sgprs: int = 0

    @property
    def unreserved(self) -> Resources:
        """The resources without the descriptor's reservations: those that the code itself needs."""
        return replace(self, reserved_vgprs=0, reserved_sgprs=0)


@dataclass(frozen=True)
class ComputeBlock:
    """The hardware that shares LDS, a CU or a WGP, in one wave size and mode. Sizes in bytes, VGPRs per lane.

    waves_per_workgroup   of the kernel for which it was made
    """

    name: str
    wave_size: int
    simds: int
    vgprs_per_simd: int
    vgpr_granule: int
    lds_bytes: int
    max_workgroups: int
    waves_per_workgroup: int


@dataclass(frozen=True)
class Allocation:
    """What the hardware allocates: VGPRs per lane of a wave, SGPRs per wave, LDS bytes per workgroup."""

    vgprs: int
    sgprs: int
    lds_bytes: int


def occupancy_of(code: KernelCode) -> Occupancy | None:
    """Returns the occupancy of a compiled kernel as launched.

    None if the limits of its architecture (all of NVIDIA's) or the size of its workgroup are not known.
    Raises CodeObjectError if the object has values that are impossible for its architecture.
    """
    if code.arch.partition(":")[0] not in ARCHS or not code.workgroup:
        return None
    return occupancy_with(code.arch, resources_of(code))


def resources_of(code: KernelCode) -> Resources:
    """Returns the registers, LDS and workgroup size that a compiled kernel needs, as launched."""
    return Resources(
        vgprs=code.vgprs,
        agprs=code.agprs,
        sgprs=code.sgprs,
        lds_bytes=code.lds_bytes,
        threads=code.workgroup,
        wave_size=code.wave_size,
        wgp_mode=code.wgp_mode is not False,
        reserved_vgprs=code.reserved_vgprs,
        reserved_sgprs=code.reserved_sgprs,
    )


def occupancy_with(arch: str, asked: Resources, rules: CompilerRules = CompilerRules.LLVM_24) -> Occupancy:
    """Returns the occupancy of a kernel that needs `asked`.

    Raises CodeObjectError for an unknown architecture and for an impossible value. LDS over the limit is no error,
    because compilers make such kernels: they do not fit, and 0 waves run.
    """
    limits = limits_of(arch)
    check_resources(limits, asked)
    block, handed_out = block_of(limits, asked), compute_allocation(limits, asked)
    waves, simds, most = block.waves_per_workgroup, block.simds, limits.max_waves_per_simd
    by_slots = simds * most // waves
    by_barriers = block.max_workgroups if waves > 1 else by_slots
    granule = limits.lds_granule_bytes if rules is CompilerRules.LLVM_24 else 1
    by_lds = _workgroups_by_lds(limits, block, asked.lds_bytes, round_up(asked.lds_bytes, granule))
    allowed = {
        "vgprs": min(most, block.vgprs_per_simd // handed_out.vgprs),
        "lds": min(most, divide_up(by_lds * waves, simds)),
        "sgprs": _waves_by_sgprs(limits, asked, rules),
        "workgroups": min(most, divide_up(by_barriers * waves, simds)),
        "slots": min(most, divide_up(by_slots * waves, simds)),
    }
    lowest = min(allowed.values())
    registers = min(allowed["vgprs"], _waves_by_sgprs(limits, asked, CompilerRules.LLVM_24))
    hardware_lds = _workgroups_by_lds(limits, block, asked.lds_bytes, handed_out.lds_bytes)
    workgroups = min(registers * simds // waves, hardware_lds, by_slots, by_barriers)
    return Occupancy(
        waves_per_simd=lowest,
        whole_waves_per_simd=workgroups * waves / simds,
        max_waves_per_simd=most,
        workgroups=workgroups,
        waves_per_workgroup=waves,
        limits=allowed,
        limiters=tuple(name for name, count in allowed.items() if count == lowest < most),
        fits=workgroups > 0,
        block=block.name,
    )


def check_resources(limits: ArchLimits, asked: Resources) -> None:
    """Raises CodeObjectError naming a value that is impossible for the architecture, and the possible range."""
    most_agprs = 0 if limits.agpr_rule is AgprRule.NONE else limits.addressable_vgprs
    unified = limits.agpr_rule is AgprRule.UNIFIED
    together = "; metadata and profilers count VGPRs and AGPRs of this architecture together: subtract the AGPRs"
    ranges = (
        ("vgprs", asked.vgprs, 0, limits.addressable_vgprs, together if unified else ""),
        ("agprs", asked.agprs, 0, most_agprs, "" if most_agprs else "; it has no AGPRs"),
        ("sgprs", asked.sgprs, 0, limits.max_sgprs, ""),
        ("threads", asked.threads, 1, limits.max_threads, ""),
        ("reserved_vgprs", asked.reserved_vgprs, 0, limits.addressable_vgprs + most_agprs, ""),
        ("reserved_sgprs", asked.reserved_sgprs, 0, round_up(limits.max_sgprs, max(limits.sgpr_granule, 1)), ""),
    )
    for name, value, least, most, hint in ranges:
        if not least <= value <= most:
            raise CodeObjectError(f"{name} {value}: a kernel of {limits.arch} can have {least} to {most}{hint}")
    if asked.lds_bytes < 0:
        raise CodeObjectError(f"lds_bytes {asked.lds_bytes}: a kernel of {limits.arch} can have 0 or more")
    if asked.wave_size and asked.wave_size not in limits.wave_sizes:
        sizes = " or ".join(map(str, limits.wave_sizes))
        raise CodeObjectError(f"wave_size {asked.wave_size}: a kernel of {limits.arch} can have {sizes}")


def block_of(limits: ArchLimits, asked: Resources) -> ComputeBlock:
    """Returns the CU or WGP whose LDS the workgroups share. Wave64 on RDNA has half the VGPRs, in half granules."""
    own = limits.wave_sizes[0]
    size = asked.wave_size or own
    wgp = limits.wgp and asked.wgp_mode
    parts = 2 if limits.wgp and not wgp else 1
    return ComputeBlock(
        name="WGP" if wgp else "CU",
        wave_size=size,
        simds=limits.simds // parts,
        vgprs_per_simd=limits.vgprs_per_simd * own // size,
        vgpr_granule=limits.vgpr_granule * own // size,
        lds_bytes=limits.lds_bytes // parts,
        max_workgroups=limits.max_workgroups // parts,
        waves_per_workgroup=divide_up(asked.threads, size),
    )


def compute_allocation(limits: ArchLimits, asked: Resources) -> Allocation:
    """Returns the registers and LDS that the hardware allocates for a kernel, rounded up to granules; SGPRs include
    those of the trap handler."""
    if limits.agpr_rule is AgprRule.UNIFIED and asked.agprs:
        total = round_up(asked.vgprs, 4) + asked.agprs
    else:
        total = max(asked.vgprs, asked.agprs)
    return Allocation(
        vgprs=round_up(max(total, asked.reserved_vgprs, 1), block_of(limits, asked).vgpr_granule),
        sgprs=round_up(max(asked.sgprs, asked.reserved_sgprs, 1), limits.sgpr_granule) + limits.trap_sgprs,
        lds_bytes=round_up(asked.lds_bytes, limits.lds_hardware_granule_bytes),
    )


def _waves_by_sgprs(limits: ArchLimits, asked: Resources, rules: CompilerRules) -> int:
    most, sgprs = limits.max_waves_per_simd, max(asked.sgprs, asked.reserved_sgprs)
    if not limits.sgprs_per_simd:
        return most
    if rules is CompilerRules.LLVM_22:
        return min(most, next((waves for top, waves in SGPR_STEPS if sgprs <= top), WAVES_ABOVE_SGPR_STEPS))
    return min(most, limits.sgprs_per_simd // (round_up(max(sgprs, 1), limits.sgpr_granule) + limits.trap_sgprs))


def _workgroups_by_lds(limits: ArchLimits, block: ComputeBlock, lds_bytes: int, rounded_bytes: int) -> int:
    """Returns how many workgroups fit into the LDS of `block` (a CU or WGP): 0 if one workgroup needs too much, the
    number of the block's wave slots for a kernel without LDS."""
    if lds_bytes > limits.lds_per_workgroup_bytes:
        return 0
    return block.lds_bytes // rounded_bytes if rounded_bytes else block.simds * limits.max_waves_per_simd


def divide_up(value: int, divisor: int) -> int:
    """Returns value / divisor, rounded up."""
    return -(-value // divisor)


def round_up(value: int, granule: int) -> int:
    """Returns the least multiple of `granule` that is not below `value`."""
    return divide_up(value, granule) * granule
