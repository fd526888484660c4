"""Shows where the time of a proven call goes: profiles every kernel, copy and memory set of some calls with torch.

The profiler slows the profiled calls and what follows in the process. So its durations are no measurement of the case,
and nothing may be timed in the process afterwards (see `trace`).
"""

from __future__ import annotations

import itertools
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from pytest_attnperf.errors import CaseFailedError
from pytest_attnperf.measure import trace
from pytest_attnperf.measure.call_costs import count_allocations
from pytest_attnperf.measure.cold_cache import cold_size
from pytest_attnperf.measure.copies import Copies, make_copies
from pytest_attnperf.measure.timers.timer import WARM_UP_CALLS
from pytest_attnperf.measure.warm_up import warm_device, warm_up
from pytest_attnperf.records.profiles import CaseProfile, KernelShape, LiveKernel, Size3

if TYPE_CHECKING:
    from pytest_attnperf.backends import Prepared
    from pytest_attnperf.measure.proving import Prover
    from pytest_attnperf.measure.timers.timer import Call

Event = dict[str, Any]

SECONDS = 0.3
"""Approximate duration of the profiled calls, as far as CALLS_LEAST and CALLS_MOST allow."""

CALLS_LEAST = 5
CALLS_MOST = 50
AGREES = 0.01
"""Rounding explains a smaller relative difference between the events' durations and the profiler's own total."""

OPERATOR = "cpu_op"
HOST = frozenset({OPERATOR, "cuda_runtime", "cuda_driver", "user_annotation"})
"""Categories of host events, on CUDA and ROCm alike; HIP's functions have the category of CUDA's."""

NOT_COUNTED = frozenset({"user_annotation"})
"""Named stretches of host time: what they contain has its own events."""


def profile_case(prover: Prover, prepared: Prepared) -> CaseProfile:
    """Profiles some calls of a proven case after its warm-up; `build_ms` and `first_call_ms` are left to the caller.

    Cold workloads rotate over copies of their inputs, as when they are timed. Raises CaseFailedError if the profiler
    sees nothing, or this torch has none.
    """
    torch_device = prover.device.torch_device
    copies, notes = _make_cold_copies(prover, prepared)
    turns = itertools.cycle((*copies.calls, prepared.run))
    warm_device(torch_device)
    warm_up(prepared.run, torch_device)
    # After a whole round the cache holds nothing of what the next call reads.
    call_us = _mean_us(turns, max(WARM_UP_CALLS, len(copies.others)), torch_device)
    count = calls_to_profile(call_us)

    def run_calls() -> None:
        for call in itertools.islice(turns, count):
            call()

    recording = trace.record_profile(run_calls, torch_device)
    kernels = list_gpu_kernels(recording.events) if torch_device == "cuda" else list_cpu_operators(recording.events)
    if not kernels:
        raise CaseFailedError(
            f"torch's profiler saw no {'operator' if torch_device == 'cpu' else 'kernel, copy or memory set'} in "
            f"{count} calls of {prover.case}: its work is hidden from the profiler, so the case has no profile"
        )
    taken = count_allocations(prepared.run, torch_device)
    return CaseProfile(
        calls=count,
        kernels=kernels,
        profiler_ns=recording.own_total_ns,
        device=prover.device.name or prover.device.product,
        host_ns=host_times(recording.events) if torch_device == "cuda" else {},
        allocations=None if taken is None else taken.count,
        allocated_bytes=None if taken is None else taken.allocated_bytes,
        cache_state="cold" if copies.others else "hot",
        notes=(*notes, *find_disagreement(kernels, recording.own_total_ns)),
    )


def calls_to_profile(call_us: float) -> int:
    """Returns how many calls of `call_us` microseconds take about 0.3 s, but at least 5 and at most 50."""
    return max(CALLS_LEAST, min(CALLS_MOST, int(SECONDS * 1e6 / max(call_us, 1e-3))))


def list_gpu_kernels(events: Iterable[Event]) -> tuple[LiveKernel, ...]:
    """Groups the profiler's kernels, copies and memory sets by name and launch size, those with the most time first."""
    work = sorted((event for event in events if event.get("cat") in trace.KINDS), key=_start_ns)
    return _by_shape((_read_shape(event), _duration_ns(event)) for event in work)


def list_cpu_operators(events: Iterable[Event]) -> tuple[LiveKernel, ...]:
    """Groups torch's operators by name with their self times, those with the most time first."""
    own = [timed for timed in self_times(events) if timed.category == OPERATOR]
    return _by_shape((KernelShape(timed.name, "operator"), timed.self_ns) for timed in own)


def host_times(events: Iterable[Event]) -> dict[str, int]:
    """Returns {name: nanoseconds of self time} of operators and runtime functions of the host, largest first.

    It omits waits for the whole device outside any operator: the profiler and this plugin cause them, not the call.
    """
    found: dict[str, int] = defaultdict(int)
    for timed in self_times(events):
        waits = timed.outermost and timed.name.endswith("DeviceSynchronize")
        if timed.category not in NOT_COUNTED and not waits:
            found[timed.name] += timed.self_ns
    return dict(sorted(found.items(), key=lambda item: -item[1]))


@dataclass
class HostEvent:
    """One event of the host; `self_ns` excludes the events within it."""

    name: str
    category: str
    end_ns: int
    self_ns: int
    outermost: bool


def self_times(events: Iterable[Event]) -> list[HostEvent]:
    """Lists the host's events in the order of their start; self times exclude nested events of the same thread."""
    threads: dict[tuple[object, object], list[HostEvent]] = defaultdict(list)
    found = []
    for event in sorted(_of_host(events), key=lambda event: (_start_ns(event), -_duration_ns(event))):
        open_ones = threads[event.get("pid"), event.get("tid")]
        start, duration = _start_ns(event), _duration_ns(event)
        while open_ones and open_ones[-1].end_ns <= start:
            open_ones.pop()
        if open_ones:
            open_ones[-1].self_ns -= duration
        made = HostEvent(str(event["name"]), str(event["cat"]), start + duration, duration, outermost=not open_ones)
        open_ones.append(made)
        found.append(made)
    return found


def find_disagreement(kernels: Iterable[LiveKernel], own_total_ns: int) -> tuple[str, ...]:
    """Returns one note if the kernels' durations differ by more than 1 % from the profiler's own total, else ()."""
    total_ns = sum(sum(kernel.durations_ns) for kernel in kernels)
    if own_total_ns > 0 and abs(total_ns / own_total_ns - 1) <= AGREES:
        return ()
    return (f"durations add up to {total_ns:,} ns, and the profiler's own total is {own_total_ns:,} ns",)


def _make_cold_copies(prover: Prover, prepared: Prepared) -> tuple[Copies, tuple[str, ...]]:
    """Returns (copies of the inputs that keep the cache cold, notes).
    There are none for a hot workload, or if the inputs are too small, which a note says."""
    if prover.workload.cache_state != "cold":
        return Copies(()), ()
    try:
        copies = make_copies(prepared, cold_size(prover.device), prover.case)
    except CaseFailedError as error:
        return Copies(()), (f"profiled with its inputs in the cache: {error.summary}",)
    return copies, ((copies.note,) if copies.note else ())


def _mean_us(turns: Iterator[Call], count: int, torch_device: str) -> float:
    """Makes the next `count` calls of `turns`; returns the mean microseconds per call, including the device's work."""
    wait = _choose_wait(torch_device)
    wait()
    begin = time.perf_counter()
    for call in itertools.islice(turns, count):
        call()
    wait()
    return (time.perf_counter() - begin) * 1e6 / count


def _choose_wait(torch_device: str) -> Callable[[], None]:
    if torch_device == "cpu":
        return lambda: None
    import torch

    return torch.cuda.synchronize


def _by_shape(work: Iterable[tuple[KernelShape, int]]) -> tuple[LiveKernel, ...]:
    found: dict[KernelShape, list[int]] = defaultdict(list)
    for shape, duration_ns in work:
        found[shape].append(duration_ns)
    kernels = [LiveKernel(shape, tuple(durations)) for shape, durations in found.items()]
    return tuple(sorted(kernels, key=lambda kernel: -sum(kernel.durations_ns)))


def _read_shape(event: Event) -> KernelShape:
    launch, args = trace.parse_launch(event), event.get("args", {})
    agent = str(args.get("device", ""))
    if launch.kind != "kernel":
        return KernelShape(launch.name, launch.kind, agent, bytes=launch.grid[0] if "bytes" in args else None)
    block = _as_size3(launch.block)
    grid = _as_size3(launch.grid)
    items = None if block is None or grid is None else (grid[0] * block[0], grid[1] * block[1], grid[2] * block[2])
    return KernelShape(
        launch.name,
        agent=agent,
        workgroup=block,
        grid_items=items,
        lds_bytes=launch.shared_bytes if "shared memory" in args else None,
        vgprs=int(args["registers per thread"]) if "registers per thread" in args else None,
    )


def _as_size3(sizes: tuple[int, ...]) -> Size3 | None:
    return (sizes[0], sizes[1], sizes[2]) if len(sizes) == 3 else None


def _of_host(events: Iterable[Event]) -> Iterator[Event]:
    return (event for event in events if event.get("cat") in HOST and event.get("ph") == "X")


def _start_ns(event: Event) -> int:
    return _parse_ns(event["ts"])


def _duration_ns(event: Event) -> int:
    return _parse_ns(event.get("dur", 0))


def _parse_ns(us: object) -> int:
    """Converts microseconds, a number or text as the profiler's trace has them, to whole nanoseconds."""
    return round(Decimal(str(us)) * 1000)
