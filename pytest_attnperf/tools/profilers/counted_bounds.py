"""What hardware counters add to a verdict that time, FLOPs and bytes left open: the measurement that decides it.

Bytes behind L2 are DRAM's only on devices without a memory-side cache (MI210, MI250X); where an Infinity Cache or MALL
lies between, they are an upper bound of what DRAM moved, which can exclude memory and not prove it.
"""

from __future__ import annotations

from dataclasses import replace

from pytest_attnperf.environment.device_specs import DeviceSpec
from pytest_attnperf.records import WorkloadFigures
from pytest_attnperf.records.counters import KernelReadings
from pytest_attnperf.records.rooflines import BoundClass, BoundVerdict, DeviceCeilings
from pytest_attnperf.roofline.bound_rules import memory_threshold
from pytest_attnperf.roofline.floors import US_PER_S
from pytest_attnperf.roofline.points import named, roofs_of
from pytest_attnperf.tools.profilers.amdahl import percent

MATRIX_BUSY = 0.6
"""Share of time with matrix units busy from which on computing binds: less leaves much of it to something else."""


def with_counters(
    verdict: BoundVerdict,
    reading: KernelReadings | None,
    time_us: float,
    figures: WorkloadFigures,
    spec: DeviceSpec | None,
    ceilings: DeviceCeilings | None,
) -> BoundVerdict:
    """The verdict, decided where it was open and the counters of one dispatch decide it, else with what they say.

    time_us   of a dispatch without counters: with them kernels run one at a time
    """
    if reading is None:
        return verdict
    said, bound = [], verdict.bound
    is_open = bound is BoundClass.UNDECIDED and not verdict.impossible
    dram = roofs_of(figures, spec, ceilings).dram
    if reading.traffic_bytes is not None and time_us > 0:
        rate = reading.traffic_bytes / time_us * US_PER_S
        text = f"{reading.traffic_bytes / 1e6:,.4g} MB behind L2{_times(reading.traffic_bytes, figures)}"
        if dram is not None:
            share = rate / dram.rate
            text += f", {rate / 1e9:,.4g} GB/s, {percent(share)} of {dram.rate / 1e9:,.4g} GB/s ({named(dram)})"
            if share >= memory_threshold(dram):
                behind = _memory_side_cache(spec)
                text += f", though the {behind} MiB memory-side cache may have served a part" if behind else ""
                bound = BoundClass.MEMORY if is_open and not behind else bound
        said.append(text)
    if reading.matrix_busy is not None:
        said.append(f"matrix units busy {percent(reading.matrix_busy)} of the time")
        if is_open and bound is BoundClass.UNDECIDED and reading.matrix_busy >= MATRIX_BUSY:
            bound = BoundClass.COMPUTE
    said += [f"L2 hits {percent(reading.l2_hit)}"] if reading.l2_hit is not None else []
    said += [f"waves in flight {percent(reading.occupancy)} of the slots"] if reading.occupancy is not None else []
    if not said:
        return verdict
    decided = bound is not verdict.bound
    reason = f"by counters: {'; '.join(said)}" if decided else f"{verdict.reason}; by counters: {'; '.join(said)}"
    return replace(verdict, bound=bound, reason=reason, decide="" if decided else verdict.decide)


def _times(traffic_bytes: float, figures: WorkloadFigures) -> str:
    if not figures.bytes_min:
        return ""
    return f", {traffic_bytes / figures.bytes_min:.3g} times the compulsory {figures.bytes_min / 1e6:,.4g} MB"


def _memory_side_cache(spec: DeviceSpec | None) -> float:
    """MiB of a cache between L2 and DRAM; 0 where there is none. Of an unknown device nothing is assumed."""
    return spec.llc_mb if spec is not None and spec.llc_mb > spec.l2_mb else 0
