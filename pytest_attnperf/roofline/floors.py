"""Lower bounds of time from the device's peaks, and whether a measured time respects them.

The roofline model (Williams, Waterman, Patterson 2009): a call takes at least FLOPs / peak FLOP rate, and at least
bytes moved / peak bandwidth. A time below one of them is a wrong measurement, or a kernel that skips work.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from pytest_attnperf.environment.device_specs import DeviceSpec
from pytest_attnperf.records import WorkloadFigures
from pytest_attnperf.records.time_units import format_time

US_PER_S = 1e6
MARGIN = 0.03
"""How far below the floor a time is still accepted: data sheets round, and timers have a resolution."""

NEAR_FLOOR = 0.90
"""Above this share of the floor a result needs a second look: sustained rates are well below peak."""

UNRELIABLE = "C"
"""Confidence of a row that gives no floor."""

Bound = Literal["compute", "memory"]
Kind = Literal["plausible", "near_floor", "impossible"]


@dataclass(frozen=True)
class Floor:
    """The least time that one call can take, in microseconds, its cause, and the computation in words."""

    us: float
    bound: Bound
    how: str


@dataclass(frozen=True)
class Plausibility:
    """Whether a time is possible. `text` is complete on its own."""

    kind: Kind
    text: str


def compute_floor(figures: WorkloadFigures, spec: DeviceSpec) -> Floor | None:
    """Returns the least possible time of a call, by FLOPs or by bytes, the longer; None if neither is known.

    Compute: useful FLOPs at the fastest path for the dtype and the maximum clock (tf32 or xf32 for f32 and tf32, if
    they exist); none for a dtype without a rate in the table. Memory: unique bytes; a hot call may have as many of them
    in the last-level cache as fit, a cold one none.
    """
    if spec.confidence == UNRELIABLE:
        return None
    bounds = [
        bound
        for bound in (_compute_flops_floor(figures, spec), _compute_memory_floor(figures, spec))
        if bound is not None
    ]
    return max(bounds, key=lambda bound: bound.us, default=None)


def judge_time(median_us: float, floor: Floor, margin: float = MARGIN) -> Plausibility:
    """Judges whether a time is possible: not shorter than the least possible one (`floor`). The text gives both.

    Its kind is 'impossible' more than `margin` (3 %) below, 'near_floor' if the floor is over 90 % of the time, else
    'plausible'.
    """
    share = floor.us / median_us
    figures = (
        f"{format_time(median_us)} per call against a floor of {format_time(floor.us)} ({floor.bound}: {floor.how})"
    )
    if median_us < floor.us * (1 - margin):
        return Plausibility("impossible", f"faster than this device can be: {figures}; is the work really done?")
    if share > NEAR_FLOOR:
        return Plausibility("near_floor", f"{share:.0%} of the floor, which few kernels reach: {figures}")
    return Plausibility("plausible", f"{share:.0%} of the floor: {figures}")


def _compute_flops_floor(figures: WorkloadFigures, spec: DeviceSpec) -> Floor | None:
    peak = spec.peak_flops(figures.dtype)
    if not figures.flops or peak is None:
        return None
    path = spec.f32_path if figures.dtype in ("f32", "tf32") else f"{figures.dtype} matrix"
    how = f"{figures.flops:.4g} FLOP at {peak / 1e12:.4g} TFLOP/s, {path} at {spec.max_mhz:.0f} MHz on {spec.name}"
    return Floor(figures.flops / peak * US_PER_S, "compute", how)


def _compute_memory_floor(figures: WorkloadFigures, spec: DeviceSpec) -> Floor | None:
    if figures.bytes_min is None:
        return None
    cached = spec.last_level_cache_bytes if figures.cache_state == "hot" else 0.0
    moved = max(0.0, figures.bytes_min - cached)
    if moved == 0.0:
        return None
    beyond = f" beyond the {cached / 2**20:.0f} MiB cache" if cached else ""
    how = f"{moved / 1e6:.4g} MB{beyond} at {spec.mem_gb_s:.4g} GB/s on {spec.name}"
    return Floor(moved / spec.peak_bytes_per_s * US_PER_S, "memory", how)
