from __future__ import annotations

from dataclasses import replace

import pytest

from pytest_attnperf.errors import UsageError
from pytest_attnperf.records import WorkloadFigures
from pytest_attnperf.records.counters import KernelCounter
from pytest_attnperf.records.profiles import Agent, KernelShape, ProfileSummary, Spread, StatsRow
from pytest_attnperf.records.rooflines import BoundClass
from pytest_attnperf.tools.profilers.devices import spec_named
from pytest_attnperf.tools.profilers.dispatches import DispatchesBuilder
from pytest_attnperf.tools.profilers.kernel_bounds import KernelWork, kernel_bounds
from pytest_attnperf.tools.profilers.profile import Profile
from pytest_attnperf.tools.profilers.summary import summarise

MI300X = Agent("Agent 4", "gpu", "gfx942", "AMD Instinct MI300X", 304)
GEMM = KernelWork("Cijk_", "gemm-m8192-n8192-k8192-f16", WorkloadFigures(2 * 8192**3, 3 * 2 * 8192**2, "f16", "hot"))


def profiled(*kernels: tuple[str, int, int, int]) -> ProfileSummary:
    """A trace of (name, calls, ns, workgroups of 256 threads), one kernel behind the other."""
    builder, now = DispatchesBuilder(), 0
    for name, calls, duration, groups in kernels:
        shape = KernelShape(name, agent="Agent 4", workgroup=(256, 1, 1), grid_items=(256 * groups, 1, 1))
        for _ in range(calls):
            builder.add(builder.number_of(shape), now, now + duration)
            now += duration + 1000
    return summarise(Profile("run", (), builder.dispatches(), agents=(MI300X,)), warm_up=0)


def test_a_gemm_of_a_trace_is_compute_bound() -> None:
    """A time from a trace and the work that the user names give the class: 1.1 PFLOP at half of MI300X's peak."""
    (found,) = kernel_bounds(profiled(("Cijk_HB_MT256", 20, 1_700_000, 1024)), (GEMM,), spec_named("MI300X"))
    assert found.verdict.bound is BoundClass.COMPUTE
    assert found.time_us == pytest.approx(1700)
    assert found.name == "Cijk_HB_MT256 as gemm-m8192-n8192-k8192-f16"
    assert found.note == ""


def test_kernels_of_one_work_are_added_per_call() -> None:
    """A GEMM and the two reductions behind each of its calls are one call."""
    summary = profiled(("Cijk_main", 10, 1_500_000, 1024), ("Cijk_post", 20, 100_000, 64), ("other", 5, 10, 1))
    (found,) = kernel_bounds(summary, (GEMM,), spec_named("MI300X"))
    assert found.time_us == pytest.approx(1700)
    assert found.note == "counted per call of Cijk_main (10 calls)"
    assert found.verdict.point is not None
    assert found.verdict.point.time_us == pytest.approx(1700)


def test_warm_up_is_no_part_of_the_time() -> None:
    """The median is that of steady state: of two slow first calls and two others, the others'."""
    shape = KernelShape("Cijk_main", agent="Agent 4", workgroup=(256, 1, 1), grid_items=(262144, 1, 1))
    builder = DispatchesBuilder()
    for start, duration in ((0, 9_000_000), (10_000_000, 9_000_000), (20_000_000, 1_700_000), (30_000_000, 1_700_000)):
        builder.add(builder.number_of(shape), start, start + duration)
    summary = summarise(Profile("run", (), builder.dispatches(), agents=(MI300X,)), warm_up=2)
    (found,) = kernel_bounds(summary, (GEMM,), spec_named("MI300X"))
    assert found.time_us == pytest.approx(1700)


def test_counters_of_the_kernel_and_size_are_used() -> None:
    """Counters of another size, or of one of several kernels, say nothing of this work."""
    summary = profiled(("Cijk_main", 10, 50_000_000, 1024))
    (alone,) = kernel_bounds(summary, (GEMM,), spec_named("MI300X"))
    assert alone.verdict.bound is BoundClass.UNDECIDED
    for items, expected in ((256 * 1024, BoundClass.COMPUTE), (None, BoundClass.COMPUTE), (64, BoundClass.UNDECIDED)):
        counted = replace(summary, counters=(KernelCounter("Cijk_main", items, "MfmaUtil", 75.0, 10),))
        (found,) = kernel_bounds(counted, (GEMM,), spec_named("MI300X"))
        assert found.verdict.bound is expected


def test_an_unknown_device_is_undecided() -> None:
    """Without peaks nothing is said but what is missing."""
    (found,) = kernel_bounds(profiled(("Cijk_main", 10, 1_500_000, 1024)), (GEMM,), None)
    assert found.verdict.bound is BoundClass.UNDECIDED


def test_several_sizes_are_several_works() -> None:
    """A kernel at two sizes cannot be one workload."""
    summary = profiled(("Cijk_main", 10, 1_500_000, 1024), ("Cijk_main", 10, 500_000, 512))
    with pytest.raises(UsageError, match="Cijk_main \\('Cijk_'\\) runs at 2 sizes, which are different work"):
        kernel_bounds(summary, (GEMM,), spec_named("MI300X"))


def test_a_name_that_no_kernel_has() -> None:
    """A typing error lists the kernels that there are."""
    with pytest.raises(UsageError, match="no kernel has 'Cijk_' in its name; the longest of run are: flash"):
        kernel_bounds(profiled(("flash", 1, 10, 1)), (GEMM,), spec_named("MI300X"))


def test_statistics_have_no_times_of_single_dispatches() -> None:
    """A mean over warm-up and all is no time to judge by."""
    stats = Profile("run", (), stats=(StatsRow("kernel", "Cijk_main", Spread(10, 15_000_000)),))
    with pytest.raises(UsageError, match="only statistics; a kernel trace is needed"):
        kernel_bounds(summarise(stats), (GEMM,), spec_named("MI300X"))
