"""Checks claims about a device: its peak rates, and the limits of a CU, a WGP, a SIMD or a wave."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from pytest_attnperf.codeobject.arch import AgprRule, ArchLimits
from pytest_attnperf.records.profiles import ProfileFinding
from pytest_attnperf.tools.profilers.claims.claim_rules import (
    Known,
    datasheet_flops,
    make_agreement,
    make_contradiction,
    make_open_finding,
)
from pytest_attnperf.tools.profilers.claims.claimed_figures import exact_interval, format_kib, format_percent, format_si
from pytest_attnperf.tools.profilers.claims.records import Limit, Peak

PEAK_TOLERANCE = 0.02
"""Most relative difference of a printed peak from the data sheet's, because clocks are rounded."""


@dataclass(frozen=True)
class _Sheet:
    """Peak rates of a device's data sheet, highest first: one per clock. `how` is the arithmetic in words."""

    rates: tuple[float, ...]
    unit: str
    how: str

    def __str__(self) -> str:
        return f"{format_si(self.rates[0], self.unit)} by the data sheet ({self.how})"


@dataclass(frozen=True)
class _Holds:
    """How much a CU, WGP, SIMD or wave holds. `also` is another count that is right too."""

    count: int
    remark: str = ""
    also: int | None = None


def assess_claims(known: Known) -> Iterator[ProfileFinding]:
    """Yields a finding for each claimed peak and limit of the device, and for a wave size that it does not have."""
    device = known.claims.device
    if device is None:
        return
    if device.wave_size and known.limits and device.wave_size not in known.limits.wave_sizes:
        sizes = " or ".join(map(str, known.limits.wave_sizes))
        yield make_contradiction(
            "wave size", f"waves of {device.wave_size}", f"{known.limits.arch} has waves of {sizes}"
        )
    for peak in device.peaks:
        yield _assess_peak(peak, known)
    for limit in device.limits:
        yield _assess_limit(limit, known)


def _assess_peak(peak: Peak, known: Known) -> ProfileFinding:
    rule, said = f"peak {peak.of}", peak.rate.interval
    sheet = _find_sheet(peak, known)
    if sheet is None:
        return make_open_finding(rule, peak.said, f"{peak.said}: no peak of this device is known to compare it with")
    if (sheet.unit == "B/s") != peak.rate.unit.endswith("B/s"):
        return make_contradiction(rule, peak.said, f"a rate of {peak.of} is in {sheet.unit}: {sheet}")
    highest = sheet.rates[0]
    part = f"{peak.rate.text} is {format_percent(said.middle / highest)} of {sheet}"
    if said.low > highest * (1 + PEAK_TOLERANCE):
        return make_contradiction(rule, peak.said, f"above the device's peak: {part}; with structured sparsity?")
    near = any(
        said.low <= rate * (1 + PEAK_TOLERANCE) and said.high >= rate * (1 - PEAK_TOLERANCE) for rate in sheet.rates
    )
    if near or peak.word == "measured":
        return make_agreement(rule, peak.said, f"{peak.said}: {part}")
    if peak.of == "f32":
        return make_open_finding(
            rule, peak.said, f"{peak.said}: {part}, which counts {known.spec.f32_path if known.spec else ''}"
        )
    return make_contradiction(rule, peak.said, f"a measured ceiling, not the peak: {part}")


def _find_sheet(peak: Peak, known: Known) -> _Sheet | None:
    if known.spec is None:
        return None
    if peak.of == "DRAM":
        return _Sheet((known.spec.peak_bytes_per_s,), "B/s", known.spec.name)
    found = datasheet_flops(known.spec, peak.of)
    return None if found is None else _Sheet(found[0], "FLOP/s", found[1])


def _assess_limit(limit: Limit, known: Known) -> ProfileFinding:
    kind = limit.most.unit if limit.most.unit in ("waves", "VGPRs") else "LDS"
    rule = f"limit {kind} per {limit.per}"
    if known.limits is None:
        return make_open_finding(rule, limit.said, f"{limit.said}: the limits of this architecture are not known")
    holders = {"waves": _list_wave_limits, "VGPRs": _list_vgpr_limits, "LDS": _list_lds_limits}[kind](
        known.limits, known.wave_size or 0
    )
    words = ", ".join(
        f"{format_kib(held.count) if kind == 'LDS' else f'{held.count:,} {kind}'} per {per}{held.remark}"
        for per, held in holders.items()
    )
    held = holders.get(limit.per)
    if held is None:
        return make_contradiction(rule, limit.said, f"not counted per {limit.per}: {words}")
    if any(
        limit.most.interval.can_equal(exact_interval(count)) for count in (held.count, held.also) if count is not None
    ):
        return make_agreement(rule, limit.said, f"{limit.said}: {words}")
    return make_contradiction(rule, limit.said, words)


def _list_vgpr_limits(limits: ArchLimits, wave_size: int) -> dict[str, _Holds]:
    own = limits.wave_sizes[0]
    scale = own / (wave_size or own)
    unified = limits.agpr_rule is AgprRule.UNIFIED
    wave = _Holds(
        limits.addressable_vgprs,
        " addressable" + (", and as many AccVGPRs" if unified else ""),
        also=2 * limits.addressable_vgprs if unified else None,
    )
    file = f" lane, handed out in granules of {limits.vgpr_granule * scale:.0f}"
    return {"wave": wave, "SIMD": _Holds(int(limits.vgprs_per_simd * scale), file), "lane": wave}


def _list_wave_limits(limits: ArchLimits, _wave_size: int) -> dict[str, _Holds]:
    per_cu = limits.simds // (2 if limits.wgp else 1) * limits.max_waves_per_simd
    holders = {"SIMD": _Holds(limits.max_waves_per_simd), "CU": _Holds(per_cu)}
    return holders | ({"WGP": _Holds(2 * per_cu)} if limits.wgp else {})


def _list_lds_limits(limits: ArchLimits, _wave_size: int) -> dict[str, _Holds]:
    per_cu = limits.lds_bytes // (2 if limits.wgp else 1)
    holders = {"CU": _Holds(per_cu), "workgroup": _Holds(limits.lds_per_workgroup_bytes)}
    return ({"WGP": _Holds(limits.lds_bytes)} if limits.wgp else {}) | holders
