"""Measures what a call costs besides its time on the device: allocations, peak memory, time of the host.

Peak memory is what the call allocates beyond what existed before, including its result. Memory that a library
allocates without torch's allocator is not counted.
"""

from __future__ import annotations

import gc
import math
import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from pytest_attnperf.errors import CaseFailedError
from pytest_attnperf.measure.timers.timer import Call
from pytest_attnperf.records.costs import (
    ALLOCATIONS,
    COMPILE_MS,
    FIRST_CALL_MS,
    HOST_LOOP_US,
    HOST_US,
    KEPT_BYTES,
    OF_THE_HOST,
    GatedCosts,
)
from pytest_attnperf.records.raised import describe_raised

if TYPE_CHECKING:
    from pytest_attnperf.backends import Prepared

HOST_CALLS, KEEPING_CALLS, LATER_CALLS = 20, 16, 3
LOOPS, LOOP_ADDITIONS = 5, 20_000
T = TypeVar("T")


@dataclass(frozen=True)
class Allocations:
    """Of one call: the number of requests and the total of requested bytes, even if they were freed again."""

    count: int
    allocated_bytes: int


def count_allocations(call: Call, torch_device: str) -> Allocations | None:
    """Counts what one eager call on 'cuda' or 'cpu' allocates; None if this torch cannot report it.

    Memory that a library allocates without torch's allocator is not counted. On a CPU a Python number beside a tensor
    counts, because torch makes a tensor of it.
    """
    return _count_on_gpu(call) if torch_device == "cuda" else _count_on_cpu(call)


COUNTED = ("allocation.all.allocated", "requested_bytes.all.allocated")
"""Keys of torch.cuda.memory_stats. They count requested bytes, because what earlier cases left may enlarge blocks."""


def _count_on_gpu(call: Call) -> Allocations | None:
    import torch

    before = torch.cuda.memory_stats()
    call()
    after = torch.cuda.memory_stats()
    if any(name not in after for name in COUNTED):
        return None
    return Allocations(*(int(after[name]) - int(before.get(name, 0)) for name in COUNTED))


def _count_on_cpu(call: Call) -> Allocations | None:
    """Counts what one call allocates on a CPU, from torch's profiler; None if this torch was built without Kineto."""
    import torch

    # Not torch.profiler: importing that loads Inductor, which takes 2 s.
    from torch.autograd.profiler import profile

    if not torch._C._autograd.kineto_available():
        return None
    with profile(use_cpu=True, profile_memory=True, use_kineto=True) as profiler:
        call()
    recorded = profiler.kineto_results.events() if profiler.kineto_results is not None else []
    got = [size for event in recorded if event.name() == "[memory]" and (size := event.nbytes()) > 0]
    return Allocations(len(got), sum(got))


@dataclass(frozen=True)
class PeakMemory:
    """`allocated_bytes` is None if it is unknown; `unknown` then says why."""

    allocated_bytes: int | None
    unknown: str = ""


def measure_peak_memory(call: Call, torch_device: str) -> PeakMemory:
    """Returns the most bytes that one call holds at a time from torch's allocator of 'cuda' or 'cpu'.

    Memory that a library allocates without torch's allocator is not counted.
    """
    return _measure_peak_on_gpu(call) if torch_device == "cuda" else _measure_peak_on_cpu(call)


def _measure_peak_on_gpu(call: Call) -> PeakMemory:
    import torch

    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    result = call()
    torch.cuda.synchronize()
    peak = torch.cuda.max_memory_allocated() - before
    del result
    return PeakMemory(peak)


def _measure_peak_on_cpu(call: Call) -> PeakMemory:
    """Returns the largest running sum of the profiler's allocations (+) and releases (-); torch keeps no CPU peak."""
    changes = _record_memory(call)
    if changes is None:
        return PeakMemory(None, "this torch is built without its profiler, which counts memory on a CPU")
    allocated = peak = 0
    for _, change in changes:
        allocated += change
        peak = max(peak, allocated)
    return PeakMemory(peak)


def measure_kept_bytes(call: Call, torch_device: str) -> float | None:
    """Returns how many bytes of torch's allocator a call on 'cuda' or 'cpu' leaves allocated after its result is gone:
    the mean of KEEPING_CALLS calls, 0 where they free more than they take. None if this torch cannot report it.

    A cache that has filled during earlier calls, and cycles that Python's collector frees, keep nothing.
    """
    kept = _count_kept_on_gpu(call) if torch_device == "cuda" else _count_kept_on_cpu(call)
    return None if kept is None else max(0.0, kept / KEEPING_CALLS)


def _call_and_collect(call: Call) -> None:
    for _ in range(KEEPING_CALLS):
        call()
    gc.collect()


def _count_kept_on_gpu(call: Call) -> int:
    import torch

    torch.cuda.synchronize()
    gc.collect()
    before = torch.cuda.memory_allocated()
    _call_and_collect(call)
    torch.cuda.synchronize()
    return int(torch.cuda.memory_allocated()) - int(before)


def _count_kept_on_cpu(call: Call) -> int | None:
    gc.collect()
    changes = _record_memory(lambda: _call_and_collect(call))
    return None if changes is None else sum(change for _, change in changes)


def _record_memory(work: Callable[[], object]) -> list[tuple[int, int]] | None:
    """Returns (time in ns, bytes allocated, or freed if negative) of every change of torch's CPU memory that `work`
    makes, in order; None if this torch was built without Kineto. What `work` returns is freed after that."""
    import torch

    # Not torch.profiler: importing that loads Inductor, which takes 2 s.
    from torch.autograd.profiler import profile

    if not torch._C._autograd.kineto_available():
        return None
    with profile(use_cpu=True, profile_memory=True, use_kineto=True) as profiler:
        result = work()
    del result
    recorded = profiler.kineto_results.events() if profiler.kineto_results is not None else []
    return sorted((event.start_ns(), event.nbytes()) for event in recorded if event.name() == "[memory]")


def run_and_wait(work: Callable[[], T], torch_device: str) -> tuple[T, float]:
    """Returns what `work` returns, and the milliseconds until the device finished it."""
    started = time.perf_counter()
    result = work()
    _wait_for(torch_device)
    return result, (time.perf_counter() - started) * 1e3


def measure_costs(
    costs: GatedCosts, prepared: Prepared, torch_device: str, known: Mapping[str, float | None]
) -> dict[str, float]:
    """Returns cost -> value for every cost that is gated. `known` holds those that were measured before, and under
    COMPILE_MS the milliseconds of building alone; None is not known.

    Raises CaseFailedError if one is not known, and for a test's own function that raises or returns no number of 0 or
    more.
    """
    values: dict[str, float | None] = {name: value for name, value in known.items() if name in costs.limits}
    if HOST_US in costs.limits:
        values[HOST_US] = _measure_host_us(prepared, torch_device)
    if COMPILE_MS in costs.limits:
        values[COMPILE_MS] = _without_later_call(known, prepared, torch_device)
    if OF_THE_HOST & costs.limits.keys():
        values[HOST_LOOP_US] = _measure_host_loop_us()
    if KEPT_BYTES in costs.limits:
        values[KEPT_BYTES] = measure_kept_bytes(prepared.run, torch_device)
    if ALLOCATIONS in costs.limits:
        counted = count_allocations(prepared.run, torch_device)
        values[ALLOCATIONS] = None if counted is None else float(counted.count)
    if costs.metrics:
        result = prepared.run()
        _wait_for(torch_device)
        values |= {name: _compute_own(name, metric, result) for name, metric in costs.metrics.items()}
    return {name: _require_known(name, value) for name, value in values.items()}


def _without_later_call(known: Mapping[str, float | None], prepared: Prepared, torch_device: str) -> float | None:
    """Returns the milliseconds of building and of the first call, less those of a later call; None if they are not
    known."""
    build_ms, first_ms = known.get(COMPILE_MS), known.get(FIRST_CALL_MS)
    if build_ms is None or first_ms is None:
        return None
    later_ms = statistics.median(run_and_wait(prepared.run, torch_device)[1] for _ in range(LATER_CALLS))
    return build_ms + max(0.0, first_ms - later_ms)


def _measure_host_loop_us() -> float:
    """Returns the shortest time of a fixed loop of Python, by which another CPU is told from a slower call."""
    taken = []
    for _ in range(LOOPS):
        started, total = time.perf_counter(), 0
        for number in range(LOOP_ADDITIONS):
            total += number
        taken.append((time.perf_counter() - started) * 1e6)
    return min(taken)


def _measure_host_us(prepared: Prepared, torch_device: str) -> float:
    """Returns the median time in microseconds until a call returns on the host, the device being idle before it."""
    taken = []
    for _ in range(HOST_CALLS):
        arguments = prepared.prepare_arguments()
        _wait_for(torch_device)
        started = time.perf_counter()
        prepared.call(*arguments)
        taken.append((time.perf_counter() - started) * 1e6)
    _wait_for(torch_device)
    return statistics.median(taken)


def _compute_own(name: str, metric: Callable[[object], float], result: object) -> float:
    try:
        given: Any = metric(result)
    except Exception as error:
        raise CaseFailedError(f"the function of costs[{name!r}] raised: {describe_raised(error)}") from error
    try:
        value = float(given)
    except (TypeError, ValueError):
        value = math.nan
    if not math.isfinite(value) or value < 0:
        raise CaseFailedError(f"the function of costs[{name!r}] returned {given!r:.100}; expected a number, 0 or more")
    return value


def _require_known(name: str, value: float | None) -> float:
    if value is None:
        raise CaseFailedError(f"costs has {name!r}, which this torch cannot measure here; leave it out on this machine")
    return value


def _wait_for(torch_device: str) -> None:
    if torch_device == "cuda":
        import torch

        torch.cuda.synchronize()
