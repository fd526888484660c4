"""Computes occupancy from a profiler's figures of a kernel's resources, with caveats that limit its meaning.

The register columns `arch_vgpr_count`, `accum_vgpr_count` and `sgpr_count` of rocprofiler-sdk (and of the older
rocprof, with the same arithmetic) decode the kernel descriptor, so they count allocated registers.
- gfx90a, gfx94x: VGPRs are accum_offset, AccVGPRs the rest of the allocation.
- gfx908: AccVGPRs repeat VGPRs.
- gfx950: before rocm-systems#5862 (2026-05) VGPRs are half the allocation, AccVGPRs 0.
- gfx10 and later: SGPRs are 128.
- LDS: rocprofv3's kernel_trace writes the code object's static LDS rounded up to 512; rocpd, rocprof v1 and v2, and
  torch.profiler write the launch's LDS.
"""

from __future__ import annotations

from dataclasses import dataclass

from pytest_attnperf.codeobject.arch import ARCHS, AgprRule, ArchLimits
from pytest_attnperf.codeobject.nvidia_occupancy import SMS, nvidia_occupancy_with
from pytest_attnperf.codeobject.occupancy import Resources, occupancy_with
from pytest_attnperf.errors import CodeObjectError
from pytest_attnperf.records.code import Occupancy
from pytest_attnperf.records.profiles import Agent, KernelShape, ShapeTime, Spread

CALCULATED = "the occupancy is a calculated upper bound: no counter was read"
TELLS = "the kernel's code object has it (attnperf occupancy FILE)"
LAUNCH_LDS_FORMS = ("rocpd", "rocprof v1", "rocprof v2", "torch.profiler")
"""Prefixes of `ProfileSource.form` whose LDS is that of the launch, including dynamic LDS."""

STATIC_LDS_GRANULE = 512
RDNA_GRANULES = {32: 8, 64: 4}
"""Wave size -> granule of VGPRs in RDNA's kernel descriptors; the hardware allocates larger granules."""

UNTOLD_ARCH = "gfx950"
FULL_ROUNDS = 0.9
"""Used share of the device over all rounds of workgroups from which there is no caveat."""


@dataclass(frozen=True)
class GridFill:
    """How a launch's workgroups fill the device.

    units       compute units (SMs)
    capacity    workgroups that run at once by the calculated occupancy; None without one
    """

    workgroups: int
    units: int
    capacity: int | None

    @property
    def idle_units(self) -> int:
        """Compute units that never get a workgroup."""
        return max(0, self.units - self.workgroups)

    @property
    def rounds(self) -> float | None:
        """Workgroups over capacity: how often the whole device is filled; None without a capacity."""
        return self.workgroups / self.capacity if self.capacity else None

    @property
    def used_share(self) -> float | None:
        """Workgroups over what the device could hold in the rounds that they need: below 1 if the last round is partly
        empty; None without a capacity."""
        return self.workgroups / (-(-self.workgroups // self.capacity) * self.capacity) if self.capacity else None


def shape_time(shape: KernelShape, spread: Spread, agent: Agent | None, *, form: str = "") -> ShapeTime:
    """Returns times of a kernel at one launch size with its calculated occupancy and caveats. Occupancy is None for a
    copy or memory set, and if the profile lacks figures for it or they contradict each other.

    form   `ProfileSource.form` of its file; '' if not known
    """
    if shape.kind != "kernel":
        return ShapeTime(shape, spread)
    found, caveats = _compute_occupancy(shape, agent, form)
    fill = grid_fill(shape, found, agent)
    grid = _list_grid_caveats(fill) if fill else []
    return ShapeTime(shape, spread, found, tuple(([CALCULATED] if found else []) + caveats + grid))


def grid_fill(shape: KernelShape, occupancy: Occupancy | None, agent: Agent | None) -> GridFill | None:
    """Returns how a launch's workgroups fill its device; None if their number or the compute units are not known."""
    if shape.workgroups is None or agent is None or not agent.compute_units:
        return None
    blocks = agent.compute_units // 2 if occupancy and occupancy.block == "WGP" else agent.compute_units
    return GridFill(shape.workgroups, agent.compute_units, occupancy.workgroups * blocks if occupancy else None)


def _compute_occupancy(shape: KernelShape, agent: Agent | None, form: str) -> tuple[Occupancy | None, list[str]]:
    if not shape.threads or shape.vgprs is None:
        missing = "size of a workgroup" if not shape.threads else "registers"
        return None, [
            f"no occupancy: the file does not say the {missing}; kernel_trace of ROCm 7.0 and later and rocpd do, and "
            f"{TELLS}"
        ]
    arch = agent.arch.partition(":")[0] if agent else ""
    if arch.removesuffix("a") in SMS:
        return _compute_nvidia_occupancy(shape, arch)
    if not arch:
        return None, [
            f"no occupancy: the profile does not say the architecture of agent {shape.agent!r}; agent_info and rocpd "
            "do, or attnperf profile --device NAME"
        ]
    limits = ARCHS.get(arch)
    if limits is None:
        return None, [f"no occupancy: the limits of {arch!r} are not known; known: {', '.join((*ARCHS, *SMS))}"]
    return _compute_amd_occupancy(shape, limits, agent.wave_size if agent else None, form)


def _compute_nvidia_occupancy(shape: KernelShape, arch: str) -> tuple[Occupancy | None, list[str]]:
    registers = shape.vgprs or 0
    found = nvidia_occupancy_with(arch, shape.threads or 0, registers, shape.lds_bytes or 0)
    if found is None or not found.fits:
        asked = f"{shape.threads} threads with {registers} registers and {shape.lds_bytes or 0} bytes of shared memory"
        return None, [f"no occupancy: a block of {asked} does not fit {arch}, though it ran; {TELLS}"]
    return found, [] if shape.lds_bytes is not None else ["shared memory is not in the file, and not counted"]


def _compute_amd_occupancy(
    shape: KernelShape, limits: ArchLimits, agent_wave: int | None, form: str
) -> tuple[Occupancy | None, list[str]]:
    wave, caveats = _choose_wave_size(limits, agent_wave)
    caveats = [
        *_list_register_caveats(shape, limits, wave),
        *_list_sgpr_caveats(shape, limits),
        *_list_lds_caveats(shape, form),
        *caveats,
    ]
    distrust = _reason_registers_unusable(shape, limits)
    if distrust:
        return None, [f"no occupancy: {distrust}; {TELLS}", *caveats]
    vgprs, accum = shape.vgprs or 0, shape.accum_vgprs or 0
    asked = Resources(
        vgprs=vgprs,
        agprs=accum if limits.agpr_rule is not AgprRule.NONE else 0,
        sgprs=shape.sgprs or 0,
        lds_bytes=shape.lds_bytes or 0,
        threads=shape.threads or 0,
        wave_size=wave,
    )
    try:
        found = occupancy_with(limits.arch, asked)
    except CodeObjectError as error:
        return None, [f"no occupancy: {error}; {TELLS}", *caveats]
    if not found.fits:
        asked_text = f"{asked.threads} threads with {vgprs + accum} VGPRs and {asked.lds_bytes} bytes of LDS"
        return None, [
            f"no occupancy: a workgroup of {asked_text} does not fit {limits.arch}, though it ran; {TELLS}",
            *caveats,
        ]
    return found, caveats


def _choose_wave_size(limits: ArchLimits, agent_wave: int | None) -> tuple[int, list[str]]:
    """Returns (wave size to calculate occupancy with, caveats). If the architecture has several sizes, takes the
    device's, else the default, and one caveat says which."""
    own = limits.wave_sizes[0]
    if len(limits.wave_sizes) == 1:
        return own, []
    wave = agent_wave if agent_wave in limits.wave_sizes else own
    why = "of the device" if agent_wave == wave else f"the default of {limits.arch}"
    return wave, [
        f"the occupancy is for wave{wave} ({why}) in WGP mode: the profile does not say what the kernel was compiled "
        f"for; {TELLS}"
    ]


def _reason_registers_unusable(shape: KernelShape, limits: ArchLimits) -> str:
    """Returns why the profile's register counts give no occupancy; '' if they do. Checks only architectures that
    allocate VGPRs and AccVGPRs from one register file."""
    if limits.agpr_rule is not AgprRule.UNIFIED:
        return ""
    if shape.accum_vgprs is None:
        return (
            f"VGPRs {shape.vgprs} without AccVGPRs: waves of {limits.arch} take both from one file, and the sum is not "
            "known"
        )
    if limits.arch == UNTOLD_ARCH and shape.accum_vgprs == 0:
        return (
            f"VGPRs {shape.vgprs} with AccVGPRs 0 on {limits.arch}: before rocm-systems#5862 (2026-05) that is half of "
            "what is allocated, and the file does not say which version wrote it"
        )
    total = (shape.vgprs or 0) + shape.accum_vgprs
    if total % limits.vgpr_granule:
        return (
            f"VGPRs {shape.vgprs} and AccVGPRs {shape.accum_vgprs} add up to {total}, but {limits.arch} allocates "
            f"multiples of {limits.vgpr_granule}"
        )
    return ""


def _list_register_caveats(shape: KernelShape, limits: ArchLimits, wave: int) -> list[str]:
    vgprs, accum = shape.vgprs or 0, shape.accum_vgprs or 0
    unified, separate = limits.agpr_rule is AgprRule.UNIFIED, limits.agpr_rule is AgprRule.SEPARATE
    granule = RDNA_GRANULES[wave] if limits.wgp else limits.vgpr_granule
    counted = f"VGPRs {vgprs} and AccVGPRs {accum}" if unified else f"VGPRs {vgprs}"
    caveats = [f"{counted} are allocated, in granules of {granule}: the code may use fewer"]
    if separate and shape.accum_vgprs:
        caveats.append(f"AccVGPRs {accum} repeat the VGPRs on {limits.arch}, whatever the kernel uses")
    total = vgprs + accum if unified else vgprs
    if 0 < total <= granule and not (limits.arch == UNTOLD_ARCH and not accum):
        caveats.append(
            f"VGPRs {total} are one granule, the least that a kernel can have: check in its code object that the work "
            "was not compiled out"
        )
    return caveats


def _list_sgpr_caveats(shape: KernelShape, limits: ArchLimits) -> list[str]:
    if limits.sgprs_per_simd:
        return [] if shape.sgprs is not None else ["SGPRs are not in the file, and their limit is not counted"]
    return [f"SGPRs {shape.sgprs} are a constant from gfx10 on and limit nothing"] if shape.sgprs else []


def _list_lds_caveats(shape: KernelShape, form: str) -> list[str]:
    if shape.lds_bytes is None:
        return ["LDS is not in the file, and not counted: fewer workgroups may fit"]
    if form.startswith(LAUNCH_LDS_FORMS) or shape.lds_bytes % STATIC_LDS_GRANULE:
        return []
    return [
        f"LDS {shape.lds_bytes} bytes is the static LDS rounded up to {STATIC_LDS_GRANULE} if rocprofv3 wrote it as "
        "CSV: dynamic LDS (all LDS of a Triton kernel) is missing, and fewer workgroups may fit; rocpd convert "
        "writes it"
    ]


def _list_grid_caveats(fill: GridFill) -> list[str]:
    if fill.idle_units:
        return [f"{fill.workgroups} workgroups on {fill.units} compute units: {fill.idle_units} of them have no work"]
    if fill.capacity is None or fill.rounds is None or fill.used_share is None or fill.used_share >= FULL_ROUNDS:
        return []
    return [
        f"{fill.workgroups} workgroups where {fill.capacity} run at once: {fill.rounds:.2f} rounds, which leave "
        f"{1 - fill.used_share:.0%} of the places empty"
    ]
