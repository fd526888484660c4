"""Rules for what limits a call; each is a function of the evidence that returns a reason in figures, or None.

`bound` has their order and its reasons. Every threshold is a share of a ceiling above which the time went into this,
not a mark of quality.
"""

from __future__ import annotations

from collections.abc import Callable

from pytest_attnperf.records.rooflines import BoundClass, Ceiling
from pytest_attnperf.records.time_units import format_time
from pytest_attnperf.roofline.bound_evidence import (
    RDNA,
    Evidence,
    Width,
    format_ceiling,
    format_launches,
    format_rate_with_unit,
    format_share_of_ceiling,
)
from pytest_attnperf.roofline.floors import US_PER_S
from pytest_attnperf.roofline.points import MEASURED, PEAK, VECTOR, name_ceiling

COMPUTE_MEASURED, COMPUTE_PEAK = 0.50, 0.40
"""From here on arithmetic takes more time than all else; the best GEMM of an MI300X reaches 51 % of its peak."""

MEMORY_MEASURED, MEMORY_PEAK = 0.60, 0.50
"""Higher than for compute: a kernel that merely reads its inputs well reaches half, and copies reach 80 to 92 %."""

CACHE_MEASURED = 0.50
"""Of the fastest copy within the last-level cache; the table has no peak for caches."""

LAUNCH_PART = 0.50
"""Launches that take this share of the time limit the call."""

FEW_LAUNCH_TIMES = 10
"""A kernel of at most this many launch times is short: its start and end are then a large part of it."""

ASSUMED_LAUNCH_US = 2.0
"""For devices without calibration: an empty kernel takes 1.5 to 2.5 us in a graph on an H200."""

FAR = 0.25
"""Below this share of their part of the roof, the units in use wait for something else."""

USED_PART = 0.50
"""From this share of their part of the roof, the units in use are busy, so more of them would help."""

BEYOND_PEAK = 1.03
"""Data sheets round and timers have a resolution; a larger share contradicts itself."""

BEYOND_MEASURED = 1.50
"""A better kernel may exceed a calibration, but not by half of it."""

NEAR = 0.90
"""Two shares are close if the smaller one is at least this part of the larger."""


def beyond_reason(seen: Evidence) -> str | None:
    """Returns why a rate is higher than the hardware allows, so that time, work or ceiling must be wrong; else None."""
    for share, ceiling in ((seen.compute, seen.roofs.compute), (seen.dram, seen.roofs.dram)):
        text = _describe_excess(share, ceiling, seen.roofs.every) if share is not None and ceiling is not None else None
        if text is not None:
            return text
    return _beyond_width(seen)


def _beyond_width(seen: Evidence) -> str | None:
    """Returns why a call of one kernel has more FLOP/s than the units with a workgroup can reach; else None."""
    width, peak = seen.width, next((one for one in seen.roofs.every if one.kind == PEAK and one.unit == "FLOP/s"), None)
    if width is None or peak is None or seen.roofs.vector or seen.figures.flops is None or seen.launches != 1:
        return None
    # Whether a workgroup of RDNA runs on one compute unit or on both of a WGP is often not known.
    part = min(1.0, width.of_units * (2 if seen.roofs.arch.startswith(RDNA) else 1))
    reached = seen.figures.flops / (seen.time_us / US_PER_S) / (peak.rate * part)
    if part == 1.0 or reached <= BEYOND_PEAK:
        return None
    return (
        f"{width}, which would do {format_share_of_ceiling(reached)} of their part of {format_ceiling(peak)}: "
        f"impossible, so the "
        "time, the work or the grid is not as given"
    )


def _describe_excess(share: float, ceiling: Ceiling, every: tuple[Ceiling, ...]) -> str | None:
    rate = share * ceiling.rate
    peak = next((other for other in every if (other.kind, other.what) == (PEAK, ceiling.what)), None)
    if peak is not None and rate > peak.rate * BEYOND_PEAK:
        said = (
            f"{format_rate_with_unit(rate, peak.unit)} is {format_share_of_ceiling(rate / peak.rate)} of "
            f"{format_ceiling(peak)}"
        )
        if peak.what == VECTOR:
            return f"{said}: impossible for plain f32 arithmetic; packed or dual-issued instructions reach twice of it"
        return f"{said}: impossible, so the time or the work is not as given"
    if peak is None and ceiling.kind == MEASURED and share > BEYOND_MEASURED:
        said = (
            f"{format_rate_with_unit(rate, ceiling.unit)} is {format_share_of_ceiling(share)} of "
            f"{format_ceiling(ceiling)}"
        )
        return f"{said}: impossible unless the calibration is wrong"
    return None


def compute_reason(seen: Evidence) -> str | None:
    """Returns the reason for COMPUTE, else None: the compute share is large and not below memory's or the cache's."""
    share, ceiling = seen.compute, seen.roofs.compute
    if share is None or ceiling is None or share < compute_threshold(ceiling) or share < seen.rival:
        return None
    return f"{format_roof(seen, ceiling, share)}; {format_rival(seen)}"


def memory_reason(seen: Evidence) -> str | None:
    """Returns the reason for MEMORY, else None: bytes that must cross the bus reach a large share of its rate."""
    share, ceiling = seen.dram, seen.roofs.dram
    if share is None or ceiling is None or share < memory_threshold(ceiling) or share <= (seen.compute or 0.0):
        return None
    return f"{format_roof(seen, ceiling, share)}; {format_compute(seen)}"


def cache_reason(seen: Evidence) -> str | None:
    """Returns the reason for CACHE, else None: a hot call's bytes fit the cache and move faster than memory's rate
    allows, or at half the cache's measured rate or more.
    """
    traffic, dram = seen.traffic, seen.roofs.dram
    if traffic is None or not traffic.cached or seen.roofs.cache_bytes is None:
        return None
    rate = traffic.total / seen.time_us * US_PER_S
    fits = f"its {traffic.total / 1e6:.4g} MB fit the {seen.roofs.cache_bytes / 2**20:.0f} MiB last-level cache"
    if seen.cache is not None and seen.roofs.cache is not None and seen.cache >= CACHE_MEASURED:
        return f"{format_roof(seen, seen.roofs.cache, seen.cache)}; {fits}; {format_compute(seen)}"
    if dram is not None and rate > dram.rate:
        beyond = f"{format_rate_with_unit(rate, 'B/s')} exceed memory's {format_ceiling(dram)}"
        return f"{beyond}, so they come from a cache: {fits}; {format_compute(seen)}"
    return None


def latency_reason(seen: Evidence) -> str | None:
    """Returns the reason for LATENCY, else None: launches take half of the time, or the work is tiny for the device."""
    if not seen.on_gpu:
        return None
    if seen.launch_us is not None and seen.launches * seen.launch_us >= LAUNCH_PART * seen.time_us:
        total = seen.launches * seen.launch_us
        return (
            f"{format_launches(seen)} of {format_time(seen.launch_us)} (calibrated): {format_time(total)} of "
            f"{format_time(seen.time_us)}, {format_share_of_ceiling(total / seen.time_us)}"
        )
    return _tiny_reason(seen)


def _tiny_reason(seen: Evidence) -> str | None:
    single = seen.launch_us or ASSUMED_LAUNCH_US
    units = seen.width.units if seen.width else seen.roofs.units
    moved = seen.dram_most if seen.cache is None else seen.cache
    shares = [share for share in (seen.compute, moved) if share is not None]
    given = sum(bool(work) for work in (seen.figures.flops, seen.figures.bytes_min))
    short = seen.time_us <= FEW_LAUNCH_TIMES * single * seen.launches
    if not short or not units or not shares or len(shares) < given:
        return None
    # Work that one compute unit would do in a quarter of the time is small, whatever the grid is.
    used = seen.width.of_units if seen.width else 1 / units
    if (used == 1.0 and units > 1) or max(shares) >= FAR * used:
        return None
    known = "calibrated" if seen.launch_us else f"not calibrated, {ASSUMED_LAUNCH_US:g} us assumed"
    launches = seen.time_us / single / seen.launches
    reach = f"{seen.width} reach" if seen.width else f"even one of {units} compute units would reach"
    return (
        f"{format_time(seen.time_us)} are {launches:.2g} launch times ({known}) per launch, and "
        f"the work is small: {reach} {format_share_of_ceiling(max(shares) / used)} of that part of the nearest roof"
    )


def occupancy_reason(seen: Evidence) -> str | None:
    """Returns the reason for OCCUPANCY, else None: units are idle, those in use reach half of their part of a
    ceiling, and idle units cost more than what these lack. With 128 of 132 units in use, the other 4 are not the limit.
    """
    width = seen.width
    if width is None:
        return None
    parts = [
        (seen.compute, width.of_simds, seen.roofs.compute),
        (seen.dram, width.of_units, seen.roofs.dram),
        (seen.cache, width.of_units, seen.roofs.cache),
    ]
    busy = [
        (share / used, used, ceiling)
        for share, used, ceiling in parts
        if share is not None and ceiling is not None and used < 1.0 and share / used >= max(USED_PART, used)
    ]
    if not busy:
        return None
    reached, used, ceiling = max(busy, key=lambda part: part[0])
    # One compute unit can use more than an equal part of memory's rate if not all others use it.
    reach = (
        f"reach {format_share_of_ceiling(reached)} of their part" if reached <= 1 else "take more than their even part"
    )
    return (
        f"{width} use {format_share_of_ceiling(used)} of the device, and these {reach} of "
        f"{format_ceiling(ceiling)}; the whole call "
        f"reaches {format_share_of_ceiling(reached * used)}"
    )


DECIDING: tuple[tuple[BoundClass, Callable[[Evidence], str | None]], ...] = (
    (BoundClass.COMPUTE, compute_reason),
    (BoundClass.MEMORY, memory_reason),
    (BoundClass.CACHE, cache_reason),
    (BoundClass.LATENCY, latency_reason),
    (BoundClass.OCCUPANCY, occupancy_reason),
)
"""In the order of the decision; the first rule with a reason gives the class."""


def compute_threshold(ceiling: Ceiling) -> float:
    """Returns the smallest share of a compute ceiling that means COMPUTE: 0.5 of a measured one, 0.4 of a peak."""
    return COMPUTE_MEASURED if ceiling.kind == MEASURED else COMPUTE_PEAK


def memory_threshold(ceiling: Ceiling) -> float:
    """Returns the smallest share of memory's ceiling that means MEMORY: 0.6 of a measured one, 0.5 of a peak."""
    return MEMORY_MEASURED if ceiling.kind == MEASURED else MEMORY_PEAK


def is_near_ridge(seen: Evidence) -> bool:
    """Tells whether the compute share and memory's share both reach their thresholds; False if either is unknown."""
    compute, dram = seen.roofs.compute, seen.roofs.dram
    if compute is None or dram is None or seen.compute is None or seen.dram is None:
        return False
    return seen.compute >= compute_threshold(compute) and seen.dram >= memory_threshold(dram)


def has_idle_width(width: Width | None) -> bool:
    """Tells whether a call's largest grid leaves some SIMDs of the device without a wave; False if unknown (None)."""
    return width is not None and width.of_simds < 1.0


def format_roof(seen: Evidence, ceiling: Ceiling, share: float) -> str:
    """Formats a share, e.g. '620 TFLOP/s, 63 % of 989 TFLOP/s (f16 matrix, measured)'.
    If the ceiling was measured, the share of the data sheet's peak follows."""
    rate = ceiling.rate * share
    text = f"{format_rate_with_unit(rate, ceiling.unit)}, {format_share_of_ceiling(share)} of {format_ceiling(ceiling)}"
    beside = [other for other in seen.roofs.every if other.kind == PEAK and other.what == ceiling.what]
    if ceiling.kind == MEASURED and beside:
        text += f" and {format_share_of_ceiling(rate / beside[0].rate)} of {format_ceiling(beside[0])}"
    return text


def format_rival(seen: Evidence) -> str:
    """Formats memory's or the cache's share, e.g. '5.8 % of memory's'; 'at most' if some bytes may be cached."""
    if seen.cache is not None:
        return f"{format_share_of_ceiling(seen.cache)} of the cache's"
    if seen.traffic is None or seen.dram_most is None:
        return "no known share of memory's"
    most = "at most " if seen.traffic.dram < seen.traffic.total else ""
    return f"{most}{format_share_of_ceiling(seen.dram_most)} of memory's"


def format_compute(seen: Evidence) -> str:
    """Formats the compute share, e.g. '4.1 % of compute's (f16 matrix, peak)', or that it is unknown."""
    if seen.compute is None or seen.roofs.compute is None:
        return "no known share of compute's"
    return f"{format_share_of_ceiling(seen.compute)} of compute's ({name_ceiling(seen.roofs.compute)})"
