"""Classifies what limits kernels whose work the user names, because a trace has times but no FLOPs or bytes.

Hardware counters can decide a verdict that time, FLOPs and bytes leave open. Bytes behind L2 are DRAM traffic only on
devices without a memory-side cache (MI210, MI250X). With an Infinity Cache or MALL they are an upper bound of it: they
can exclude memory as the limit, not prove it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from pytest_attnperf.environment.device_specs import DeviceSpec
from pytest_attnperf.errors import UsageError
from pytest_attnperf.records import Launch, WorkloadFigures
from pytest_attnperf.records.counters import KernelReadings, make_readings, plain_name
from pytest_attnperf.records.profiles import KernelShape, KernelTime, ProfileSummary, ShapeTime
from pytest_attnperf.records.rooflines import BoundClass, BoundVerdict, DeviceCeilings, KernelBound
from pytest_attnperf.roofline.bound import classify_bound
from pytest_attnperf.roofline.bound_rules import memory_threshold
from pytest_attnperf.roofline.floors import US_PER_S
from pytest_attnperf.roofline.points import name_ceiling, roofs_of
from pytest_attnperf.tools.profilers.amdahl import format_percent
from pytest_attnperf.tools.profilers.name_matching import shorten_name

NS_PER_US = 1e3
SHOWN = 12
"""Most kernels that a message lists."""

MATRIX_BUSY = 0.6
"""Share of time with busy matrix units from which computing is the limit."""


@dataclass(frozen=True)
class KernelWork:
    """Work that kernels do together. `text` is a part of their names, `workload` its id, `figures` the FLOPs and bytes
    of a call."""

    text: str
    workload: str
    figures: WorkloadFigures


def kernel_bounds(
    summary: ProfileSummary,
    works: Sequence[KernelWork],
    spec: DeviceSpec | None,
    ceilings: DeviceCeilings | None = None,
) -> tuple[KernelBound, ...]:
    """Returns what limits (memory, compute, ...) each of the works that the user describes. Uses hardware counters if
    the profile has some and one kernel does the work.

    A call is one dispatch of the work's longest kernel. Raises UsageError if no kernel has such a name, the profile has
    no times of single dispatches, or that kernel runs at several sizes, which are different work."""
    return tuple(_find_bound(summary, work, spec, ceilings) for work in works)


def _find_bound(
    summary: ProfileSummary, work: KernelWork, spec: DeviceSpec | None, ceilings: DeviceCeilings | None
) -> KernelBound:
    kernels = _find_kernels(summary, work.text)
    main = kernels[0]
    size = _only_size(main, work.text)
    calls = main.spread.calls
    medians = [(kernel, (kernel.steady or kernel.spread).median_ns) for kernel in kernels]
    unknown = [kernel.name for kernel, median in medians if median is None]
    if unknown:
        raise UsageError(
            f"{shorten_name(unknown[0])}: only statistics, no median; give a kernel trace to find what limits it"
        )
    time_us = sum((median or 0.0) * kernel.spread.calls / calls for kernel, median in medians) / NS_PER_US
    launches = [_make_launch(kernel, calls) for kernel in kernels]
    verdict = classify_bound(
        work.figures, time_us, spec=spec, ceilings=ceilings, launches=launches, occupancy=size.occupancy
    )
    reading = None if len(kernels) > 1 else _find_reading(summary, main, size)
    verdict = with_counters(verdict, reading, time_us, work.figures, spec, ceilings)
    uneven = [kernel for kernel in kernels if kernel.spread.calls != calls]
    note = f"counted per call of {shorten_name(main.name)} ({calls:,} calls)" if uneven else ""
    names = " + ".join(shorten_name(kernel.name) for kernel in kernels)
    return KernelBound(f"{names} as {work.workload}", time_us, verdict, note)


def _find_reading(summary: ProfileSummary, kernel: KernelTime, size: ShapeTime) -> KernelReadings | None:
    """Returns the hardware counters of a kernel at one launch size; None if none were read."""
    items = size.shape.grid_items
    count = None if items is None else items[0] * items[1] * items[2]
    for reading in make_readings(summary.counters):
        if reading.kernel == plain_name(kernel.name) and (
            None in (reading.grid_items, count) or reading.grid_items == count
        ):
            return reading
    return None


def _find_kernels(summary: ProfileSummary, text: str) -> list[KernelTime]:
    """Returns kernels with `text` in their names, the longest first. Raises UsageError if there is none."""
    found = [kernel for kernel in summary.kernels if kernel.kind == "kernel" and text in kernel.name]
    if found:
        return found
    listed = ", ".join(shorten_name(kernel.name) for kernel in summary.kernels[:SHOWN] if kernel.kind == "kernel")
    raise UsageError(f"no kernel has {text!r} in its name; the longest of {summary.name} are: {listed or 'none'}")


def _only_size(kernel: KernelTime, text: str) -> ShapeTime:
    """Returns the only launch size of a kernel. Raises UsageError for several, because each is different work, and for
    none, because statistics have no sizes. `text` is what the user called the kernel."""
    sizes = {(one.shape.workgroup, one.shape.grid_items) for one in kernel.shapes}
    if len(sizes) > 1:
        grids = ", ".join(f"{one.shape.grid_items} ({one.spread.calls:,} calls)" for one in kernel.shapes[:SHOWN])
        raise UsageError(
            f"{shorten_name(kernel.name)} ({text!r}) runs at {len(sizes)} sizes, which are different work: grids in "
            f"work-items {grids}; profile one workload alone, e.g. with attnperf kernel run"
        )
    if not kernel.shapes:
        raise UsageError(f"{shorten_name(kernel.name)}: only statistics; give a kernel trace to find what limits it")
    return kernel.shapes[0]


def _make_launch(kernel: KernelTime, calls: int) -> Launch:
    shape = kernel.shapes[0].shape if kernel.shapes else KernelShape(kernel.name)
    return shape.as_launch(kernel.spread.calls / calls)


def with_counters(
    verdict: BoundVerdict,
    reading: KernelReadings | None,
    time_us: float,
    figures: WorkloadFigures,
    spec: DeviceSpec | None,
    ceilings: DeviceCeilings | None,
) -> BoundVerdict:
    """Returns the verdict on what limits a kernel with the counters of one dispatch added to its reason. An undecided
    verdict becomes memory or compute if they show it. Unchanged if `reading` is None or has no figure.

    time_us   of a dispatch without counters, because kernels run one at a time while counters are read
    """
    if reading is None:
        return verdict
    said, bound = [], verdict.bound
    is_open = bound is BoundClass.UNDECIDED and not verdict.impossible
    dram = roofs_of(figures, spec, ceilings).dram
    if reading.traffic_bytes is not None and time_us > 0:
        rate = reading.traffic_bytes / time_us * US_PER_S
        text = f"{reading.traffic_bytes / 1e6:,.4g} MB behind L2{_format_traffic_ratio(reading.traffic_bytes, figures)}"
        if dram is not None:
            share = rate / dram.rate
            text += (
                f", {rate / 1e9:,.4g} GB/s, {format_percent(share)} of {dram.rate / 1e9:,.4g} GB/s "
                f"({name_ceiling(dram)})"
            )
            if share >= memory_threshold(dram):
                behind = _memory_side_cache(spec)
                text += f", though the {behind} MiB memory-side cache may have served a part" if behind else ""
                bound = BoundClass.MEMORY if is_open and not behind else bound
        said.append(text)
    if reading.matrix_busy is not None:
        said.append(f"matrix units busy {format_percent(reading.matrix_busy)} of the time")
        if is_open and bound is BoundClass.UNDECIDED and reading.matrix_busy >= MATRIX_BUSY:
            bound = BoundClass.COMPUTE
    said += [f"L2 hits {format_percent(reading.l2_hit)}"] if reading.l2_hit is not None else []
    said += (
        [f"waves in flight {format_percent(reading.occupancy)} of the slots"] if reading.occupancy is not None else []
    )
    if not said:
        return verdict
    decided = bound is not verdict.bound
    reason = f"by counters: {'; '.join(said)}" if decided else f"{verdict.reason}; by counters: {'; '.join(said)}"
    return replace(verdict, bound=bound, reason=reason, decide="" if decided else verdict.decide)


def _format_traffic_ratio(traffic_bytes: float, figures: WorkloadFigures) -> str:
    if not figures.bytes_min:
        return ""
    return f", {traffic_bytes / figures.bytes_min:.3g} times the compulsory {figures.bytes_min / 1e6:,.4g} MB"


def _memory_side_cache(spec: DeviceSpec | None) -> float:
    """Returns the MiB of a cache between L2 and DRAM; 0 if there is none or the device is unknown."""
    return spec.llc_mb if spec is not None and spec.llc_mb > spec.l2_mb else 0
