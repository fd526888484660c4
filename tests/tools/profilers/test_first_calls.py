from __future__ import annotations

import pytest

from pytest_attnperf.records.profiles import FirstCalls, KernelShape, Spread, StatsRow
from pytest_attnperf.tools.profilers.dispatches import Dispatches, DispatchesBuilder
from pytest_attnperf.tools.profilers.first_calls import (
    APART,
    First,
    Traced,
    WarmUp,
    find_host_category,
    infer_warm_up,
    sum_first_calls,
    sum_host_times,
    use_given_warm_up,
)
from pytest_attnperf.tools.profilers.kernel_families import FamilyRules
from pytest_attnperf.tools.profilers.spreads import compute_spread

SMALL = KernelShape("attn_fwd", agent="Agent 4", grid_items=(64, 1, 1))
LARGE = KernelShape("attn_fwd", agent="Agent 4", grid_items=(640, 1, 1))
COPY = KernelShape("HOST_TO_DEVICE", kind="copy", agent="Agent 4", bytes=8)
BLIT = KernelShape("__amd_rocclr_copyBuffer", agent="Agent 4")
BLIT_ELSEWHERE = KernelShape("__amd_rocclr_copyBuffer", agent="Agent 5")
ELSEWHERE = KernelShape("attn_fwd", agent="Agent 5")


def _first(kernel: str, duration: int, *others: int) -> First:
    return First(kernel, duration, compute_spread(others))


def test_excess_is_over_the_median_of_the_others() -> None:
    """500 against a median of 110 is 390 too much; a fast first dispatch and a single one exceed by nothing."""
    firsts = [_first("slow", 500, 100, 110, 120), _first("fast", 90, 100, 110), _first("alone", 700)]
    assert [first.excess_ns for first in firsts] == [390, 0, 0]
    assert sum_first_calls(firsts, {"launch": 3}) == FirstCalls(390, 1, {"launch": 3})


@pytest.mark.parametrize(
    ("first", "outlier"),
    [
        (_first("k", 500, 100, 110, 120, 105), True),
        (_first("k", 500, 100, 110, 120), False),
        (_first("k", 160, 100, 100, 100, 100), True),
        (_first("k", 140, 100, 100, 100, 100), False),
        (_first("k", 500, 50, 300, 100, 400, 600), False),
        (_first("k", 50, 100, 100, 100, 100), False),
    ],
)
def test_outlier_needs_others_and_distance(first: First, outlier: bool) -> None:
    """Four others, 1.5 medians, and three interquartile ranges beyond the upper quartile: all of them."""
    assert first.is_outlier is outlier


def test_given_warm_up_counts_passes_where_they_are_known() -> None:
    """Two passes end where the third begins; without passes the number counts dispatches, as many as there are."""
    assert use_given_warm_up(2, (3, 13, 23), 33).before == 23
    assert use_given_warm_up(2, (3, 13, 23), 33).text == "2 of 3 passes, as given (23 dispatches)"
    assert use_given_warm_up(9, (3, 13, 23), 33).before == 33
    assert use_given_warm_up(2, (), 33).text == "the first 2 of 33 dispatches, as given"
    assert use_given_warm_up(99, (), 33).before == 33
    assert use_given_warm_up(0, (3, 13), 23) == WarmUp("none, as given")


def test_slow_first_passes_are_warm_up() -> None:
    """Passes of 200, 120, 100, 100, 105 ns: two are more than 10 % above the median, and the later ones stay."""
    durations = [7, 150, 50, 60, 60, 50, 50, 50, 50, 50, 55]
    found = infer_warm_up([], (1, 3, 5, 7, 9), durations)
    assert found.before == 5
    assert found.text == "the first 2 of 5 passes, against the median pass: +90%, +14% (5 dispatches)"


def test_a_slow_pass_in_the_middle_is_no_warm_up() -> None:
    """Only passes at the beginning count, and two passes have no median that the first does not decide."""
    found = infer_warm_up([], (0, 1, 2, 3), [100, 300, 100, 100])
    assert found == WarmUp("none; no first pass is slower than the median of 4 by 10%")
    assert infer_warm_up([], (0, 1), [900, 100]).before == 0
    assert infer_warm_up([], (0, 1, 2), [109, 100, 100]).before == 0


def test_first_dispatches_are_warm_up_where_no_pass_is() -> None:
    """Without a slow first pass, kernels whose first dispatch is an outlier lose that dispatch, and no other."""
    firsts = [_first("slow", 500, 100, 110, 120, 105), _first("fine", 100, 100, 100, 100, 100)]
    found = infer_warm_up(firsts, (), [])
    assert (found.before, found.first_of) == (0, frozenset({"slow"}))
    assert found.text.startswith("the first dispatch of 1 of 2 kernels, longer than 1.5 medians")
    assert infer_warm_up(firsts[1:], (), []) == WarmUp("none")


def test_what_precedes_the_first_pass_is_warm_up() -> None:
    """Loading a model is no steady state, even where every pass is as fast as the others."""
    found = infer_warm_up([], (2, 3, 4), [900, 900, 100, 100, 100])
    assert found.before == 2
    assert found.text.startswith("2 dispatches before the first pass; no first dispatch of a kernel is far from its")


@pytest.mark.parametrize(
    ("category", "names"),
    [
        ("allocation", "hipMalloc hipMallocAsync hipExtMallocWithFlags hipHostMalloc hipHostFree hipFree cudaMalloc "),
        ("allocation", "cudaHostAlloc cudaFreeAsync cuMemAlloc_v2 cuMemCreate hsa_amd_memory_pool_allocate"),
        ("loading and compiling", "hipModuleLoadData hiprtcCompileProgram cuModuleLoadDataEx cudaLibraryLoadData"),
        ("loading and compiling", "hipModuleGetFunction cuLibraryGetKernel __hipRegisterFatBinary nvrtcCompileProgram"),
        ("synchronisation", "hipDeviceSynchronize hipStreamSynchronize cudaStreamWaitEvent cuCtxSynchronize"),
        ("copies", "hipMemcpy hipMemcpyAsync hipMemset cudaMemcpy2DAsync cuMemcpyHtoD_v2 hsa_amd_memory_async_copy"),
        ("launch", "hipLaunchKernel hipModuleLaunchKernel cudaLaunchKernelExC cuLaunchKernel hipGraphLaunch"),
        ("launch", "__hipPushCallConfiguration"),
        ("set-up", "hipInit hipGetDeviceCount hipSetDevice hipStreamCreateWithFlags hipEventRecord cudaGetLastError"),
        ("other", "roctxMarkA HIP_API"),
    ],
)
def test_host_functions_by_what_they_spend_time_on(category: str, names: str) -> None:
    """Functions of HIP, CUDA and HSA are told apart by their names."""
    assert {name: find_host_category(name) for name in names.split()} == dict.fromkeys(names.split(), category)


def _row(name: str, total_ns: int, domain: str = "api") -> StatsRow:
    return StatsRow(domain, name, Spread(1, total_ns))


def test_host_time_is_summed_by_category() -> None:
    """The docs' sample of rocprofv3 adds up by category; rows of other domains and torch's operators stay out."""
    rows = [_row("hipHostMalloc", 6), _row("hipFree", 2), _row("hipStreamSynchronize", 9), _row("k", 99, "kernel")]
    rows += [_row("torch operator: aten::mm", 50), _row("Runtime Triggered Module Loading", 1)]
    assert sum_host_times(rows) == {"synchronisation": 9, "allocation": 8, "loading and compiling": 1}


def test_hsa_beneath_hip_is_not_counted_twice() -> None:
    """HSA functions run within HIP's: beside those they are left out, alone they count."""
    hsa = _row("hsa_amd_memory_pool_allocate", 5)
    assert sum_host_times([hsa, _row("hipMalloc", 6)]) == {"allocation": 6}
    assert sum_host_times([hsa]) == {"allocation": 5}


def _traced(*rows: tuple[KernelShape, int]) -> Traced:
    """Dispatches one behind the other with these durations."""
    builder, now = DispatchesBuilder(), 0
    for shape, duration in rows:
        builder.add(builder.number_of(shape), now, now + duration)
        now += duration
    return Traced.from_dispatches(builder.build(), FamilyRules.load_default())


def test_sizes_of_one_name_are_one_kernel() -> None:
    """Two sizes are one kernel, whose first dispatch is compared with later ones of its own size only."""
    traced = _traced((LARGE, 90), (SMALL, 10), (LARGE, 60), (SMALL, 11))
    (kernel,) = traced.kernels
    assert (kernel.name, kernel.family, len(kernel.shapes)) == ("attn_fwd", "attention", 2)
    (first,) = traced.firsts
    assert (first.duration_ns, first.others) == (90, Spread(1, 60, 60.0, 60.0, 60.0, 60, 60))


def test_calls_leave_copies_fills_and_other_devices_out() -> None:
    """Passes are looked for on the busiest device, with the places of everything else in the order marked."""
    traced = _traced((COPY, 1), (SMALL, 1), (BLIT, 1), (ELSEWHERE, 1), (LARGE, 1), (BLIT_ELSEWHERE, 1))
    calls = traced.count_calls()
    assert calls.counts == {"attn_fwd": 2}
    assert calls.apart == {"HOST_TO_DEVICE": 1, "__amd_rocclr_copyBuffer": 2}
    assert list(calls.order or ()) == [APART, 0, APART, APART, 0, APART]
    assert list(calls.attention) == ["attn_fwd"]


def test_what_a_trace_holds() -> None:
    """A trace of copies alone holds no kernels, and one of kernels no copies."""
    copies, kernels = _traced((COPY, 1)), _traced((SMALL, 1), (BLIT, 2))
    assert (copies.has_kernels, copies.has_copies, copies.kernel_calls) == (False, True, 0)
    assert (kernels.has_kernels, kernels.has_copies, kernels.kernel_calls) == (True, False, 2)


def test_shapes_without_a_dispatch_are_no_kernels() -> None:
    """A size that a reader numbered, but of which every row was unusable, does not appear."""
    assert Traced.from_dispatches(Dispatches(shapes=(SMALL,)), FamilyRules.load_default()).kernels == ()
