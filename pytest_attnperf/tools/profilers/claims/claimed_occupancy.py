"""Checks claims of what fits a CU or WGP: waves of a workgroup, registers, and workgroups by resource."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from pytest_attnperf.codeobject.arch import ArchLimits
from pytest_attnperf.codeobject.occupancy import ComputeBlock, Resources, compute_allocation, occupancy_with
from pytest_attnperf.errors import CodeObjectError
from pytest_attnperf.records.profiles import ProfileFinding
from pytest_attnperf.tools.profilers.claims.claim_rules import (
    ENCODED_VGPRS,
    Known,
    format_count,
    make_agreement,
    make_contradiction,
    make_open_finding,
)
from pytest_attnperf.tools.profilers.claims.claimed_figures import exact_interval, format_kib, format_percent
from pytest_attnperf.tools.profilers.claims.records import OccupancyBound

WHAT_TO_DO = "Compare its outputs with a reference, prefilled with NaN, and look for stores in the disassembly"


@dataclass(frozen=True)
class _Allowed:
    """Workgroups that one resource allows per CU or WGP; `how` is the arithmetic in words.

    workgroups   without rounding of a workgroup's request
    waves        number of waves, if the resource limits waves; they need not fill workgroups
    rounded      other numbers of workgroups that are right too, with rounding
    """

    workgroups: int
    how: str
    waves: int | None = None
    rounded: tuple[int, ...] = ()


def assess_claims(known: Known) -> Iterator[ProfileFinding]:
    """Yields the findings on a report's threads, waves, registers, what each resource allows, and occupancy."""
    yield from _assess_threads(known)
    yield from _assess_waves(known)
    yield from _assess_sgprs(known)
    yield from _assess_vgprs(known)
    for bound in known.claims.bounds:
        yield _assess_occupancy_bound(bound, known)
    yield from _assess_measurement(known)
    yield from _assess_occupancy(known)


def _assess_threads(known: Known) -> Iterator[ProfileFinding]:
    kernel = known.claims.kernel
    if kernel.threads is None or kernel.workgroup is None:
        return
    threads, sizes = math.prod(kernel.workgroup), " x ".join(map(str, kernel.workgroup))
    text = f"{sizes} are {format_count(threads, 'thread')}"
    if threads == kernel.threads.count:
        yield make_agreement("threads", kernel.threads.said, f"{kernel.threads.said}: {text}")
    else:
        yield make_contradiction("threads", kernel.threads.said, text)


def _assess_waves(known: Known) -> Iterator[ProfileFinding]:
    said, threads = known.claims.kernel.waves, known.threads
    if said is None:
        return
    if known.waves is None or threads is None:
        yield make_open_finding("waves", said.said, f"{said.said}: the wave size or the workgroup is not known")
        return
    text = f"{threads} threads are {format_count(known.waves, 'wave')} of {known.wave_size}"
    if said.count == known.waves:
        yield make_agreement("waves", said.said, f"{said.said}: {text}")
        return
    sizes = known.limits.wave_sizes if known.limits else ()
    others = [size for size in sizes if -(-threads // size) == said.count]
    yield make_contradiction("waves", said.said, text + (f" ({said.count} only in wave{others[0]})" if others else ""))


def _assess_sgprs(known: Known) -> Iterator[ProfileFinding]:
    said, limits = known.claims.kernel.sgprs, known.limits
    if said is None or limits is None:
        return
    shared = "the waves of a SIMD share them"
    if not limits.sgprs_per_simd:
        shared = f"always {limits.max_sgprs} for each on {limits.arch}, which is never a limit"
    text = f"SGPRs are counted per wave, {shared}"
    if said.per in ("", "wave"):
        yield make_agreement("sgprs", said.said, f"{said.said}: {text}")
    else:
        yield make_contradiction("sgprs", said.said, f"{text}, not per {said.per}")


def _assess_vgprs(known: Known) -> Iterator[ProfileFinding]:
    """Yields a finding if a report's matrix kernel has at most 8 VGPRs, the least that can be allocated, as an empty
    kernel has. It is undecided, but accepted if the report says that outputs were compared with a reference."""
    kernel = known.claims.kernel
    if kernel.vgprs is None or not known.has_one_granule:
        return
    said = kernel.vgprs.said
    text = (
        f"{said}: {ENCODED_VGPRS} VGPRs are one granule, the least that a kernel descriptor can encode, but "
        f"{kernel.family} of {known.threads or '?'} threads keeps sums of products in them. A kernel whose body was "
        "compiled out has this number"
    )
    if kernel.outputs_checked:
        yield make_agreement("registers", said, f"{text}; but its outputs were compared with a reference")
    else:
        yield make_open_finding("registers", said, f"{text}. {WHAT_TO_DO}", "one granule: is anything computed?")


def _assess_occupancy_bound(bound: OccupancyBound, known: Known) -> ProfileFinding:
    rule, allow = f"bound {bound.by}", _ALLOW[bound.by]
    limits, block = known.limits, known.find_block(bound.per)
    if limits is None or block is None:
        text = f"{bound.said}: the limits of a {bound.per}, or the workgroup, are not known"
        return make_open_finding(rule, bound.said, text)
    allowed = allow(limits, block, known)
    if allowed is None:
        return make_open_finding(rule, bound.said, f"{bound.said}: the amount per workgroup is not given")
    text = _describe_bound(bound, allowed, block, known)
    waves = block.waves_per_workgroup
    counts = {allowed.workgroups, *allowed.rounded}
    right = any(bound.workgroups in (None, count) and bound.waves in (None, count * waves) for count in counts)
    right |= bound.waves is not None and bound.waves == allowed.waves and bound.workgroups in (None, allowed.workgroups)
    return (
        make_agreement(rule, bound.said, f"{bound.said}: {text}")
        if right
        else make_contradiction(rule, bound.said, text)
    )


def _describe_bound(bound: OccupancyBound, allowed: _Allowed, block: ComputeBlock, known: Known) -> str:
    waves, limits = block.waves_per_workgroup, known.limits
    text = (
        f"{allowed.how}: {format_count(allowed.workgroups, 'workgroup')} of {format_count(waves, 'wave')} "
        f"per {block.name}"
    )
    text += f" ({allowed.workgroups * waves} waves)"
    other = known.find_block("CU" if bound.per == "WGP" else "WGP")
    beside = _ALLOW[bound.by](limits, other, known) if limits and other else None
    if beside and other:
        text += f", {beside.workgroups} per {other.name}"
    if allowed.rounded and min(allowed.rounded) != allowed.workgroups:
        text += f"; {min(allowed.rounded)} as the hardware rounds LDS up"
    slots = _by_slots(limits, block, known).workgroups if limits else 0
    if bound.by != "slots" and slots < allowed.workgroups:
        text += f"; wave slots bind first, at {slots}"
    return text


def _by_slots(limits: ArchLimits, block: ComputeBlock, _known: Known) -> _Allowed:
    slots = block.simds * limits.max_waves_per_simd
    return _Allowed(slots // block.waves_per_workgroup, f"{slots} wave slots / {block.waves_per_workgroup}", slots)


def _by_lds(limits: ArchLimits, block: ComputeBlock, known: Known) -> _Allowed | None:
    size = known.lds_bytes
    if not size:
        return None
    if size > limits.lds_per_workgroup_bytes:
        return _Allowed(0, f"{format_kib(limits.lds_per_workgroup_bytes)} is the most of one workgroup")
    granules = (limits.lds_granule_bytes, limits.lds_hardware_granule_bytes)
    rounded = tuple(block.lds_bytes // (-(-size // granule) * granule) for granule in granules)
    return _Allowed(block.lds_bytes // size, f"{format_kib(block.lds_bytes)} of LDS / {size:,} bytes", rounded=rounded)


def _by_vgprs(limits: ArchLimits, block: ComputeBlock, known: Known) -> _Allowed | None:
    asked = known.find_resources(wgp_mode=block.name == "WGP")
    if known.claims.kernel.vgprs is None or asked is None:
        return None
    given = compute_allocation(limits, asked).vgprs
    fitting, most = block.vgprs_per_simd // given, limits.max_waves_per_simd
    how = f"{block.vgprs_per_simd:,} VGPRs per SIMD lane in granules of {block.vgpr_granule}, "
    how += f"{block.vgprs_per_simd:,} / {given} = {fitting}"
    if fitting > most:
        how += f", capped at {most} waves per SIMD"
    waves = min(fitting, most) * block.simds
    return _Allowed(waves // block.waves_per_workgroup, how, waves)


_ALLOW: Mapping[str, Callable[[ArchLimits, ComputeBlock, Known], _Allowed | None]] = {
    "slots": _by_slots,
    "lds": _by_lds,
    "vgprs": _by_vgprs,
}


def _assess_measurement(known: Known) -> Iterator[ProfileFinding]:
    said = known.claims.occupancy
    if said is None or said.word != "measured":
        return
    if said.counters:
        names = ", ".join(said.counters)
        yield make_open_finding(
            "occupancy measured", said.said, f"{said.said}: based on {names}, whose values are not given"
        )
    else:
        text = "calculated, an upper bound: no hardware counter was read, so nothing was measured"
        yield make_contradiction("occupancy measured", said.said, text)


def _assess_occupancy(known: Known) -> Iterator[ProfileFinding]:
    said, limits, kernel = known.claims.occupancy, known.limits, known.claims.kernel
    if said is None:
        return
    asked = [known.find_resources(wgp_mode=mode) for mode in (True, False)]
    if limits is None or kernel.vgprs is None:
        text = f"{said.said}: the architecture's limits, the workgroup or the registers are not known"
        yield make_open_finding("occupancy", said.said, text)
        return
    try:
        shares = [_compute_share(limits, one) for one in asked if one is not None]
    except CodeObjectError as error:
        yield make_contradiction("occupancy", said.said, f"no kernel can have these resources: {error}")
        return
    if not shares:
        yield make_open_finding("occupancy", said.said, f"{said.said}: the workgroup is not known")
        return
    text = f"calculated, {format_percent(shares[0])} of the wave slots at most"
    if any(said.percent.interval.can_equal(exact_interval(share)) for share in shares):
        yield make_agreement("occupancy", said.said, f"{said.said}: {text}")
    else:
        yield make_contradiction("occupancy", said.said, text)


def _compute_share(limits: ArchLimits, asked: Resources) -> float:
    found = occupancy_with(limits.arch, asked)
    return found.whole_waves_per_simd / found.max_waves_per_simd
