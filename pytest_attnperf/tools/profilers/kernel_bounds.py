"""What binds kernels of a profile whose work the user names: a trace has times, and no FLOPs and no bytes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pytest_attnperf.environment.device_specs import DeviceSpec
from pytest_attnperf.errors import UsageError
from pytest_attnperf.records import Launch, WorkloadFigures
from pytest_attnperf.records.counters import KernelReadings, plain_name, readings
from pytest_attnperf.records.profiles import KernelShape, KernelTime, ProfileSummary, ShapeTime
from pytest_attnperf.records.rooflines import DeviceCeilings, KernelBound
from pytest_attnperf.roofline.bound import classify
from pytest_attnperf.tools.profilers.counted_bounds import with_counters
from pytest_attnperf.tools.profilers.name_matching import short_name

NS_PER_US = 1e3
SHOWN = 12
"""Kernels that a message lists."""


@dataclass(frozen=True)
class KernelWork:
    """text: a part of the names of the kernels that do this work together; workload: its id; figures: of one call."""

    text: str
    workload: str
    figures: WorkloadFigures


def kernel_bounds(
    summary: ProfileSummary,
    works: Sequence[KernelWork],
    spec: DeviceSpec | None,
    ceilings: DeviceCeilings | None = None,
) -> tuple[KernelBound, ...]:
    """What binds each work, by counters too where the profile has some of a work of one kernel.

    A call is one dispatch of its kernel that takes longest; where that kernel runs at several sizes, its sizes are
    different work, and nothing can be said.

    Raises UsageError where no kernel has such a name, the profile holds no times of single dispatches, or the kernel
    runs at several sizes.
    """
    return tuple(_bound(summary, work, spec, ceilings) for work in works)


def _bound(
    summary: ProfileSummary, work: KernelWork, spec: DeviceSpec | None, ceilings: DeviceCeilings | None
) -> KernelBound:
    kernels = _named(summary, work.text)
    main = kernels[0]
    size = _only_size(main, work.text)
    calls = main.spread.calls
    medians = [(kernel, (kernel.steady or kernel.spread).median_ns) for kernel in kernels]
    unknown = [kernel.name for kernel, median in medians if median is None]
    if unknown:
        raise UsageError(
            f"{short_name(unknown[0])}: only statistics, no median; a kernel trace is needed to say what binds it"
        )
    time_us = sum((median or 0.0) * kernel.spread.calls / calls for kernel, median in medians) / NS_PER_US
    launches = [_launch(kernel, calls) for kernel in kernels]
    verdict = classify(work.figures, time_us, spec=spec, ceilings=ceilings, launches=launches, occupancy=size.occupancy)
    reading = None if len(kernels) > 1 else _reading(summary, main, size)
    verdict = with_counters(verdict, reading, time_us, work.figures, spec, ceilings)
    uneven = [kernel for kernel in kernels if kernel.spread.calls != calls]
    note = f"counted per call of {short_name(main.name)} ({calls:,} calls)" if uneven else ""
    names = " + ".join(short_name(kernel.name) for kernel in kernels)
    return KernelBound(f"{names} as {work.workload}", time_us, verdict, note)


def _reading(summary: ProfileSummary, kernel: KernelTime, size: ShapeTime) -> KernelReadings | None:
    """What counters said of this kernel at this size; None where none were read."""
    items = size.shape.grid_items
    count = None if items is None else items[0] * items[1] * items[2]
    for reading in readings(summary.counters):
        if reading.kernel == plain_name(kernel.name) and (
            None in (reading.grid_items, count) or reading.grid_items == count
        ):
            return reading
    return None


def _named(summary: ProfileSummary, text: str) -> list[KernelTime]:
    """Kernels with `text` in their names, the one that takes longest first."""
    found = [kernel for kernel in summary.kernels if kernel.kind == "kernel" and text in kernel.name]
    if found:
        return found
    listed = ", ".join(short_name(kernel.name) for kernel in summary.kernels[:SHOWN] if kernel.kind == "kernel")
    raise UsageError(f"no kernel has {text!r} in its name; the longest of {summary.name} are: {listed or 'none'}")


def _only_size(kernel: KernelTime, text: str) -> ShapeTime:
    """The one size of launch. Raises UsageError for several, each of which is other work."""
    sizes = {(one.shape.workgroup, one.shape.grid_items) for one in kernel.shapes}
    if len(sizes) > 1:
        grids = ", ".join(f"{one.shape.grid_items} ({one.spread.calls:,} calls)" for one in kernel.shapes[:SHOWN])
        raise UsageError(
            f"{short_name(kernel.name)} ({text!r}) runs at {len(sizes)} sizes, which are different work: grids in "
            f"work-items {grids}; profile one workload alone, e.g. with attnperf run-kernel"
        )
    if not kernel.shapes:
        raise UsageError(f"{short_name(kernel.name)}: only statistics; a kernel trace is needed to say what binds it")
    return kernel.shapes[0]


def _launch(kernel: KernelTime, calls: int) -> Launch:
    shape = kernel.shapes[0].shape if kernel.shapes else KernelShape(kernel.name)
    return shape.launch(kernel.spread.calls / calls)
