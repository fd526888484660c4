"""Counts the allocations of one call from torch's allocator, and measures the call's peak memory.

Peak memory is what the call allocates beyond what existed before, including its result.
"""

from __future__ import annotations

from dataclasses import dataclass

from pytest_attnperf.measure.timers.timer import Call


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
    import torch

    # Not torch.profiler: importing that loads Inductor, which takes 2 s.
    from torch.autograd.profiler import profile

    if not torch._C._autograd.kineto_available():
        return PeakMemory(None, "this torch is built without its profiler, which counts memory on a CPU")
    with profile(use_cpu=True, profile_memory=True, use_kineto=True) as profiler:
        result = call()
    del result
    recorded = profiler.kineto_results.events() if profiler.kineto_results is not None else []
    changes = sorted((event.start_ns(), event.nbytes()) for event in recorded if event.name() == "[memory]")
    allocated = peak = 0
    for _, change in changes:
        allocated += change
        peak = max(peak, allocated)
    return PeakMemory(peak)
