"""Collects what one call shows about its limit: shares of the ceilings, used part of the device, launches."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from pytest_attnperf.records import Launch, WorkloadFigures
from pytest_attnperf.records.code import KernelCode, Occupancy
from pytest_attnperf.records.rooflines import Ceiling
from pytest_attnperf.roofline.points import Roofs, Traffic, name_ceiling, positive_or_none, traffic_of

SIMDS = 4
"""SIMDs of a CDNA compute unit and of a WGP; sub-partitions of an NVIDIA multiprocessor."""

RDNA = ("gfx10", "gfx11", "gfx12")
RDNA_SIMDS = 2
"""SIMDs of one RDNA compute unit."""

WAVE_64 = ("gfx8", "gfx9")
"""Architectures whose waves have 64 lanes unless their code says otherwise."""

GIGA, MEGA, TERA = 1e9, 1e6, 1e12


@dataclass(frozen=True)
class Width:
    """How much of the device the largest grid of a call fills.

    workgroups   of that grid
    units        of the device on which workgroups run: compute units, multiprocessors, or WGPs
    waves        of that grid; None if its workgroup size is unknown
    simds        of the device
    """

    workgroups: int
    units: int
    waves: int | None
    simds: int

    @property
    def of_units(self) -> float:
        """Share of the device's compute units that have at least one workgroup: 0 to 1."""
        return min(1.0, self.workgroups / self.units)

    @property
    def of_simds(self) -> float:
        """Share of the device's SIMDs that have at least one wave and thus can compute: 0 to 1."""
        return self.of_units if self.waves is None else min(self.of_units, self.waves / self.simds)

    def __str__(self) -> str:
        if self.workgroups < self.units or self.waves is None:
            groups = "1 workgroup" if self.workgroups == 1 else f"{self.workgroups} workgroups"
            return f"{groups} on {self.units} compute units"
        return f"{self.waves} waves on {self.simds} SIMDs"


@dataclass(frozen=True)
class Evidence:
    """Everything that the rules use. A share is 1 if the ceiling is reached, None if it is unknown.

    compute     of the compute ceiling
    dram        of memory's, by the bytes that must cross the bus
    dram_most   of memory's, if every compulsory byte crossed the bus
    cache       of the cache's, if the bytes may be in it and it was measured
    launches    that the call makes; at least one if not `counted`
    on_gpu      False if only torch's operators on a CPU are known
    """

    figures: WorkloadFigures
    time_us: float
    roofs: Roofs
    traffic: Traffic | None
    compute: float | None
    dram: float | None
    dram_most: float | None
    cache: float | None
    width: Width | None
    launches: float
    counted: bool
    on_gpu: bool
    launch_us: float | None
    occupancy: Occupancy | None

    @property
    def rival(self) -> float:
        """The share that the compute share must reach: `cache`, or `dram_most` if that is None; 0 if both are.

        A cache is at least as fast as memory, so memory's ceiling stands for an unmeasured cache.
        """
        return (self.dram_most if self.cache is None else self.cache) or 0.0


def collect_evidence(
    figures: WorkloadFigures,
    time_us: float,
    roofs: Roofs,
    launches: Sequence[Launch] | None,
    code: Sequence[KernelCode],
    occupancy: Occupancy | None,
) -> Evidence:
    """Computes for one call with a positive time its shares of the ceilings, its launches and the used units."""
    traffic = traffic_of(figures, roofs)
    counted = sum(launch.calls for launch in launches or () if launch.kind != "operator" and launch.calls > 0)
    cached = traffic is not None and traffic.cached
    return Evidence(
        figures=figures,
        time_us=time_us,
        roofs=roofs,
        traffic=traffic,
        compute=compute_share(positive_or_none(figures.flops), roofs.compute, time_us),
        dram=compute_share(traffic.dram if traffic else None, roofs.dram, time_us),
        dram_most=compute_share(traffic.total if traffic else None, roofs.dram, time_us),
        cache=compute_share(traffic.total, roofs.cache, time_us) if traffic and cached else None,
        width=compute_width(launches, code, occupancy, roofs.units, roofs.arch),
        launches=counted or 1.0,
        counted=counted > 0,
        on_gpu=counted > 0 or not launches,
        launch_us=roofs.launch_us,
        occupancy=occupancy,
    )


def compute_share(work: float | None, ceiling: Ceiling | None, time_us: float) -> float | None:
    """Returns the share of a ceiling that this work in `time_us` microseconds reaches; None if either is unknown."""
    return None if work is None or ceiling is None else work / (time_us * ceiling.rate / MEGA)


def compute_width(
    launches: Sequence[Launch] | None,
    code: Sequence[KernelCode],
    occupancy: Occupancy | None,
    units: int | None,
    arch: str,
) -> Width | None:
    """Returns how much of the device the largest grid fills; None if no grid is known, or not the number of units."""
    kernels = [launch for launch in launches or () if launch.kind == "kernel" and launch.grid]
    if not kernels or not units:
        return None
    largest = max(kernels, key=lambda launch: math.prod(launch.grid))
    workgroups = math.prod(largest.grid)
    if workgroups <= 0:
        return None
    simds = units * (RDNA_SIMDS if arch.startswith(RDNA) else SIMDS)
    paired = any(kernel.wgp_mode for kernel in code) or (occupancy is not None and occupancy.block == "WGP")
    lanes = next((kernel.wave_size for kernel in code if kernel.wave_size), 64 if arch.startswith(WAVE_64) else 32)
    threads = math.prod(largest.block) if largest.block else 0
    waves = workgroups * -(-threads // lanes) if threads > 0 else None
    return Width(workgroups, max(1, units // 2) if paired else units, waves, simds)


def format_rate_with_unit(rate: float, unit: str) -> str:
    """Formats a rate, e.g. '7.613 TFLOP/s' or '803 GB/s'."""
    return f"{rate / TERA:.4g} T{unit}" if unit == "FLOP/s" else f"{rate / GIGA:.4g} G{unit}"


def format_share_of_ceiling(share: float) -> str:
    """Formats a share in percent, e.g. '0.4 %', '62 %', '314 %'."""
    percent = share * 100
    return f"{percent:.0f} %" if percent >= 10 else f"{percent:.2g} %"


def format_ceiling(ceiling: Ceiling) -> str:
    """Formats a ceiling, e.g. '989.4 TFLOP/s (f16 matrix, measured)'."""
    return f"{format_rate_with_unit(ceiling.rate, ceiling.unit)} ({name_ceiling(ceiling)})"


def format_launches(seen: Evidence) -> str:
    """Formats the number of launches, e.g. '11 launches', or 'at least one launch' if they were not counted."""
    if not seen.counted:
        return "at least one launch"
    return "1 launch" if seen.launches == 1 else f"{seen.launches:g} launches"
