"""One kernel's occupancy as rows: what it asks for, what each resource allows, and what would raise it."""

from __future__ import annotations

from dataclasses import dataclass

from pytest_attnperf.codeobject.arch import AgprRule, ArchLimits, limits_of
from pytest_attnperf.codeobject.headroom import Raise, compute_headroom
from pytest_attnperf.codeobject.occupancy import (
    Allocation,
    ComputeBlock,
    Resources,
    block_of,
    compute_allocation,
    occupancy_with,
)
from pytest_attnperf.records.code import Occupancy
from pytest_attnperf.tools.occupancy.occupancy_text import (
    LimitRow,
    OverviewRow,
    UseRow,
    format_count,
    format_sizes,
    render_savings,
)

NO_LIMIT = "no limit"


@dataclass(frozen=True)
class OccupancyPoint:
    """One kernel on one architecture.

    name   '' if the kernel is described by numbers
    """

    name: str
    arch: str
    asked: Resources
    occupancy: Occupancy


def make_overview_row(point: OccupancyPoint) -> OverviewRow:
    """Returns the line of a kernel in a table of several."""
    use = point.asked
    counts = (use.vgprs, use.agprs, use.sgprs, use.lds_bytes, use.threads)
    return OverviewRow(point.name, point.arch, *counts, point.occupancy)


def find_shown_vgprs(point: OccupancyPoint) -> int:
    """Returns the VGPRs at which the plot marks the kernel: its own number, or a larger one reserved for it."""
    limits = limits_of(point.arch)
    own, given = compute_allocation(limits, point.asked.unreserved), compute_allocation(limits, point.asked)
    return point.asked.vgprs if given.vgprs == own.vgprs else min(given.vgprs, limits.addressable_vgprs)


def use_rows(point: OccupancyPoint) -> list[UseRow]:
    """Returns a row per resource: what the kernel asks for, and what it gets in the hardware's allocation units."""
    limits, asked = limits_of(point.arch), point.asked
    block, given = block_of(limits, asked), compute_allocation(limits, asked)
    together = " with the AGPRs" if limits.agpr_rule is AgprRule.UNIFIED and asked.agprs else ""
    separate = ", and as many AGPRs" if limits.agpr_rule is AgprRule.SEPARATE else ""
    trap = f", {limits.trap_sgprs} of them for the trap handler" if limits.trap_sgprs else ", always"
    lds = f"{format_count(given.lds_bytes, 'byte')} (granule {limits.lds_hardware_granule_bytes:,})"
    vgprs = f"{given.vgprs} per lane{together}{separate} (granule {block.vgpr_granule})"
    rows = [
        UseRow("LDS", format_count(asked.lds_bytes, "byte"), lds),
        UseRow("VGPRs", f"{asked.vgprs} per lane", vgprs),
        UseRow("AGPRs", f"{asked.agprs} per lane", ""),
        UseRow("SGPRs", f"{asked.sgprs} per wave", f"{given.sgprs} per wave{trap}"),
        UseRow(
            "threads", f"{asked.threads:,}", f"{format_count(block.waves_per_workgroup, 'wave')} of {block.wave_size}"
        ),
    ]
    return [row for row in rows if row.resource != "AGPRs" or limits.agpr_rule is not AgprRule.NONE]


def limit_rows(point: OccupancyPoint) -> list[LimitRow]:
    """Returns a row per resource: how much the hardware has, what the kernel takes, and how many waves that allows."""
    limits, found = limits_of(point.arch), point.occupancy
    block, given = block_of(limits, point.asked), compute_allocation(limits, point.asked)
    rows = {
        "lds": ("LDS", *_format_lds_limit(limits, block, given, point.asked.lds_bytes)),
        "vgprs": (
            "VGPRs",
            f"{block.vgprs_per_simd:,} per SIMD lane",
            f"{given.vgprs} per lane",
            f"{format_count(block.vgprs_per_simd // given.vgprs, 'wave')} per SIMD",
        ),
        "sgprs": ("SGPRs", *_format_sgpr_limit(limits, given)),
        "workgroups": ("barriers", *_format_barrier_limit(block)),
        "slots": ("wave slots", *_format_slot_limit(limits, block)),
    }
    return [LimitRow(*texts, found.limits[name], name in found.limiters) for name, texts in rows.items()]


def _format_lds_limit(
    limits: ArchLimits, block: ComputeBlock, given: Allocation, asked_bytes: int
) -> tuple[str, str, str]:
    most = limits.lds_per_workgroup_bytes
    if asked_bytes > most:
        return f"{most:,} bytes per workgroup", format_count(asked_bytes, "byte"), "no workgroup"
    holds = format_count(block.lds_bytes, "byte")
    if not given.lds_bytes:
        return holds, "none", NO_LIMIT
    return holds, format_count(given.lds_bytes, "byte"), format_count(block.lds_bytes // given.lds_bytes, "workgroup")


def _format_sgpr_limit(limits: ArchLimits, given: Allocation) -> tuple[str, str, str]:
    if not limits.sgprs_per_simd:
        return f"{given.sgprs} for every wave", "", NO_LIMIT
    fit = format_count(limits.sgprs_per_simd // given.sgprs, "wave")
    return f"{limits.sgprs_per_simd} per SIMD", f"{given.sgprs} per wave", f"{fit} per SIMD"


def _format_barrier_limit(block: ComputeBlock) -> tuple[str, str, str]:
    holds = format_count(block.max_workgroups, "workgroup")
    return (holds, "none: one wave", NO_LIMIT) if block.waves_per_workgroup == 1 else (holds, "1 workgroup", holds)


def _format_slot_limit(limits: ArchLimits, block: ComputeBlock) -> tuple[str, str, str]:
    slots, waves = block.simds * limits.max_waves_per_simd, block.waves_per_workgroup
    return format_count(slots, "wave"), format_count(waves, "wave"), format_count(slots // waves, "workgroup")


def raise_lines(point: OccupancyPoint) -> list[str]:
    """Returns what one more wave per SIMD needs, and, if different, one more workgroup; or that all slots are used."""
    found, free = point.occupancy, occupancy_with(point.arch, point.asked.unreserved)
    if free.waves_per_simd > found.waves_per_simd:
        given = compute_allocation(limits_of(point.arch), point.asked)
        return [
            f"{format_count(free.waves_per_simd, 'wave')} per SIMD without the registers that the compiler reserves "
            f"beyond the kernel's needs: {given.vgprs} VGPRs and {given.sgprs} SGPRs in all, as an option tells it "
            "how many waves to aim for (waves_per_eu, launch bounds)"
        ]
    room = compute_headroom(point.arch, point.asked.unreserved)
    lines: list[str] = []
    if room.wave:
        after = room.wave.after
        idle = after is not None and after.workgroups == found.workgroups
        still = f", though still {format_count(found.workgroups, 'whole workgroup')} per {found.block}" if idle else ""
        lines += _list_savings(f"one more wave per SIMD{still}", room.wave)
    if room.workgroup and room.workgroup != room.wave:
        lines += _list_savings(f"one more whole workgroup per {found.block}", room.workgroup)
    return lines or ["nothing would raise it: every wave slot is used"]


def _list_savings(goal: str, needed: Raise) -> list[str]:
    if needed.ways:
        return render_savings(goal, needed.ways)
    if needed.threads and needed.after:
        waves = f"{needed.after.whole_waves_per_simd:g} waves per SIMD"
        return [f"{goal}: no saving is enough; {format_sizes(needed.threads)} make {waves}"]
    return [f"{goal}: no saving is enough, and no other size of the workgroup"]
