"""What Kineto writes of some calls, as kernels by size of launch and self times; the events are those of an H200."""

from __future__ import annotations

from typing import Any

import pytest

from pytest_attnperf.measure.live_profile import (
    CALLS_LEAST,
    CALLS_MOST,
    calls_to_profile,
    find_disagreement,
    host_times,
    list_cpu_operators,
    list_gpu_kernels,
    self_times,
)
from pytest_attnperf.records.profiles import KernelShape, LiveKernel

FLASH = {
    "registers per thread": 168,
    "shared memory": 49152,
    "grid": [4, 8, 2],
    "block": [128, 1, 1],
    "device": 0,
    "stream": 7,
    "est. achieved occupancy %": 19,
}


def _event(category: str, name: str, ts: object, dur: object, **more: Any) -> dict[str, Any]:
    return {"ph": "X", "cat": category, "name": name, "ts": ts, "dur": dur, "pid": 1, "tid": 1, **more}


def test_kernels_by_size_of_launch() -> None:
    """Grids become work-items; durations stand in the order they began and keep their nanoseconds; longest first."""
    small = {**FLASH, "grid": [1, 1, 1]}
    found = list_gpu_kernels(
        [
            _event("kernel", "flash", "1790857026000020.001", "12.346", args=FLASH),
            _event("kernel", "flash", "1790857026000000.001", "12.345", args=FLASH),
            _event("kernel", "flash", "1790857026000040.001", "1.5", args=small),
            _event("gpu_memcpy", "Memcpy HtoD (Pageable -> Device)", "1790857026000060.001", 1, args={"bytes": 64}),
            _event("cuda_runtime", "cudaLaunchKernel", "1790857026000000.0", "3.25"),
        ]
    )
    shape = KernelShape("flash", "kernel", "0", (128, 1, 1), (512, 8, 2), 49152, vgprs=168)
    assert found[0] == LiveKernel(shape, (12345, 12346))
    assert [(kernel.shape.grid_items, kernel.durations_ns) for kernel in found[1:2]] == [((128, 1, 1), (1500,))]
    assert (found[2].shape.kind, found[2].shape.bytes, found[2].durations_ns) == ("copy", 64, (1000,))


def test_a_rocm_trace_may_lack_sizes() -> None:
    """What is not said is None, never 0."""
    (found,) = list_gpu_kernels([_event("kernel", "attn_fwd", "10.5", "2.25", args={"device": 3, "stream": 0})])
    assert found == LiveKernel(KernelShape("attn_fwd", agent="3"), (2250,))


def test_operators_have_their_self_time() -> None:
    """What an operator calls in turn counts once, under its own name; other threads are their own."""
    events = [
        _event("cpu_op", "aten::matmul", "100.000", "10.000"),
        _event("cpu_op", "aten::mm", "101.000", "7.500"),
        _event("cpu_op", "aten::mm", "101.000", "7.500", tid=2),
        _event("cpu_op", "aten::add", "110.000", "1.000"),
        _event("user_annotation", "somebody's", "99.000", "20.000"),
        {"ph": "i", "cat": "cpu_op", "name": "no length", "ts": "105.0"},
    ]
    assert [(kernel.shape.name, kernel.durations_ns) for kernel in list_cpu_operators(events)] == [
        ("aten::mm", (7500, 7500)),
        ("aten::matmul", (2500,)),
        ("aten::add", (1000,)),
    ]
    assert sum(timed.self_ns for timed in self_times(events)) == 27_500


def test_the_host_without_our_own_waiting() -> None:
    """Operators and the runtime's functions by self time; a wait for the whole device outside of a call is ours."""
    events = [
        _event("cpu_op", "aten::mm", "100.0", "10.0"),
        _event("cuda_runtime", "cudaLaunchKernel", "102.0", "6.0"),
        _event("cpu_op", "aten::item", "120.0", "9.0"),
        _event("cuda_runtime", "cudaDeviceSynchronize", "121.0", "7.0"),
        _event("cuda_runtime", "cudaDeviceSynchronize", "140.0", "500.0"),
    ]
    found = host_times(events)
    assert found == {"cudaDeviceSynchronize": 7000, "cudaLaunchKernel": 6000, "aten::mm": 4000, "aten::item": 2000}
    assert next(iter(found)) == "cudaDeviceSynchronize"


@pytest.mark.parametrize(
    ("call_us", "calls"), [(0.0, CALLS_MOST), (100.0, CALLS_MOST), (20_000.0, 15), (1e6, CALLS_LEAST)]
)
def test_as_many_calls_as_there_is_time_for(call_us: float, calls: int) -> None:
    """0.3 s of them, within bounds."""
    assert calls_to_profile(call_us) == calls


def test_a_total_of_its_own_that_differs_is_said() -> None:
    """Up to 1 % is rounding; events that were lost show."""
    kernels = [LiveKernel(KernelShape("flash"), (1000, 1000))]
    assert find_disagreement(kernels, 2020) == ()
    (said,) = find_disagreement(kernels, 3000)
    assert said == "durations add up to 2,000 ns, and the profiler's own total is 3,000 ns"
    assert find_disagreement(kernels, 0)
