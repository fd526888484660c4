from __future__ import annotations

from dataclasses import replace

import pytest

from pytest_attnperf.errors import UsageError
from pytest_attnperf.records import WorkloadFigures
from pytest_attnperf.records.counters import KernelCounter, KernelReadings, make_readings
from pytest_attnperf.records.profiles import Agent, KernelShape, ProfileSummary, Spread, StatsRow
from pytest_attnperf.records.rooflines import BoundClass, BoundVerdict
from pytest_attnperf.tools.profilers.devices import find_named_spec
from pytest_attnperf.tools.profilers.dispatches import DispatchesBuilder
from pytest_attnperf.tools.profilers.kernel_bounds import KernelWork, kernel_bounds, with_counters
from pytest_attnperf.tools.profilers.profile import Profile
from pytest_attnperf.tools.profilers.profile_summary import summarise_profile

MI300X = Agent("Agent 4", "gpu", "gfx942", "AMD Instinct MI300X", 304)
GEMM = KernelWork("Cijk_", "gemm-m8192-n8192-k8192-f16", WorkloadFigures(2 * 8192**3, 3 * 2 * 8192**2, "f16", "hot"))

FIGURES = WorkloadFigures(1e9, 1e6, "f16", "hot")
OPEN = BoundVerdict(BoundClass.UNDECIDED, "5 % of compute, 1 % of memory", "counters")
NONE = KernelReadings("flash", None, 20)
TRAFFIC = replace(NONE, traffic_bytes=100e6)
"""In 100 us 1,000 GB/s, 61 % of MI210's 1,638 and 19 % of MI300X's 5,300."""


def profiled(*kernels: tuple[str, int, int, int]) -> ProfileSummary:
    """A trace of (name, calls, ns, workgroups of 256 threads), one kernel behind the other."""
    builder, now = DispatchesBuilder(), 0
    for name, calls, duration, groups in kernels:
        shape = KernelShape(name, agent="Agent 4", workgroup=(256, 1, 1), grid_items=(256 * groups, 1, 1))
        for _ in range(calls):
            builder.add(builder.number_of(shape), now, now + duration)
            now += duration + 1000
    return summarise_profile(Profile("run", (), builder.build(), agents=(MI300X,)), warm_up=0)


def test_a_gemm_of_a_trace_is_compute_bound() -> None:
    """A time from a trace and the work that the user names give the class: 1.1 PFLOP at half of MI300X's peak."""
    (found,) = kernel_bounds(profiled(("Cijk_HB_MT256", 20, 1_700_000, 1024)), (GEMM,), find_named_spec("MI300X"))
    assert found.verdict.bound is BoundClass.COMPUTE
    assert found.time_us == pytest.approx(1700)
    assert found.name == "Cijk_HB_MT256 as gemm-m8192-n8192-k8192-f16"
    assert found.note == ""


def test_kernels_of_one_work_are_added_per_call() -> None:
    """A GEMM and the two reductions behind each of its calls are one call."""
    summary = profiled(("Cijk_main", 10, 1_500_000, 1024), ("Cijk_post", 20, 100_000, 64), ("other", 5, 10, 1))
    (found,) = kernel_bounds(summary, (GEMM,), find_named_spec("MI300X"))
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
    summary = summarise_profile(Profile("run", (), builder.build(), agents=(MI300X,)), warm_up=2)
    (found,) = kernel_bounds(summary, (GEMM,), find_named_spec("MI300X"))
    assert found.time_us == pytest.approx(1700)


def test_counters_of_the_kernel_and_size_are_used() -> None:
    """Counters of another size, or of one of several kernels, say nothing of this work."""
    summary = profiled(("Cijk_main", 10, 50_000_000, 1024))
    (alone,) = kernel_bounds(summary, (GEMM,), find_named_spec("MI300X"))
    assert alone.verdict.bound is BoundClass.UNDECIDED
    for items, expected in ((256 * 1024, BoundClass.COMPUTE), (None, BoundClass.COMPUTE), (64, BoundClass.UNDECIDED)):
        counted = replace(summary, counters=(KernelCounter("Cijk_main", items, "MfmaUtil", 75.0, 10),))
        (found,) = kernel_bounds(counted, (GEMM,), find_named_spec("MI300X"))
        assert found.verdict.bound is expected


def test_an_unknown_device_is_undecided() -> None:
    """Without peaks nothing is said but what is missing."""
    (found,) = kernel_bounds(profiled(("Cijk_main", 10, 1_500_000, 1024)), (GEMM,), None)
    assert found.verdict.bound is BoundClass.UNDECIDED


def test_several_sizes_are_several_works() -> None:
    """A kernel at two sizes cannot be one workload."""
    summary = profiled(("Cijk_main", 10, 1_500_000, 1024), ("Cijk_main", 10, 500_000, 512))
    with pytest.raises(UsageError, match="Cijk_main \\('Cijk_'\\) runs at 2 sizes, which are different work"):
        kernel_bounds(summary, (GEMM,), find_named_spec("MI300X"))


def test_a_name_that_no_kernel_has() -> None:
    """A typing error lists the kernels that there are."""
    with pytest.raises(UsageError, match="no kernel has 'Cijk_' in its name; the longest of run are: flash"):
        kernel_bounds(profiled(("flash", 1, 10, 1)), (GEMM,), find_named_spec("MI300X"))


def test_statistics_have_no_times_of_single_dispatches() -> None:
    """A mean over warm-up and all is no time to judge by."""
    stats = Profile("run", (), stats=(StatsRow("kernel", "Cijk_main", Spread(10, 15_000_000)),))
    with pytest.raises(UsageError, match="only statistics; give a kernel trace"):
        kernel_bounds(summarise_profile(stats), (GEMM,), find_named_spec("MI300X"))


def counted(reading: KernelReadings | None, device: str, verdict: BoundVerdict = OPEN) -> BoundVerdict:
    """The verdict of a dispatch of 100 us."""
    return with_counters(verdict, reading, 100.0, FIGURES, find_named_spec(device), None)


def test_traffic_at_the_rate_of_memory_decides_for_memory() -> None:
    """Bytes behind L2 are DRAM's where no cache lies between: at most of its rate they bind, however few are useful."""
    found = counted(TRAFFIC, "MI210")
    assert found.bound is BoundClass.MEMORY
    assert found.reason == (
        "by counters: 100 MB behind L2, 100 times the compulsory 1 MB, 1,000 GB/s, 61.1 % of 1,638 GB/s (DRAM, peak)"
    )
    assert found.decide == ""


def test_a_memory_side_cache_leaves_it_open() -> None:
    """Behind MI300X's L2 lies Infinity Cache: what it served is not known, so the figures are said and nothing more."""
    found = counted(replace(TRAFFIC, traffic_bytes=400e6), "MI300X")
    assert found.bound is BoundClass.UNDECIDED
    assert "though the 256 MiB memory-side cache may have served a part" in found.reason
    assert found.decide == OPEN.decide


def test_little_traffic_is_evidence_and_no_class() -> None:
    """A rate far below memory's excludes it; what binds instead is still open."""
    found = counted(replace(TRAFFIC, traffic_bytes=1e6, l2_hit=0.625, occupancy=0.31), "MI210")
    assert found.bound is BoundClass.UNDECIDED
    assert found.reason.startswith(f"{OPEN.reason}; by counters: 1 MB behind L2, 1 times the compulsory 1 MB, 10 GB/s")
    assert "L2 hits 62.5 %; waves in flight 31.0 % of the slots" in found.reason


@pytest.mark.parametrize(("busy", "expected"), [(0.6, BoundClass.COMPUTE), (0.59, BoundClass.UNDECIDED)])
def test_busy_matrix_units_decide_for_compute(busy: float, expected: BoundClass) -> None:
    """Matrix units that are busy for most of the time bind, whatever part of their work is useful."""
    assert counted(replace(NONE, matrix_busy=busy), "MI300X").bound is expected


def test_counters_decide_nothing_that_is_decided_or_impossible() -> None:
    """A class keeps standing with the counters beside it; a time that cannot be is not explained by counters."""
    latency = BoundVerdict(BoundClass.LATENCY, "launches")
    assert counted(TRAFFIC, "MI210", latency).bound is BoundClass.LATENCY
    beyond = BoundVerdict(BoundClass.UNDECIDED, "120 % of a peak", impossible=True)
    assert counted(replace(TRAFFIC, matrix_busy=0.9), "MI210", beyond).bound is BoundClass.UNDECIDED


def test_traffic_is_asked_before_matrix_units() -> None:
    """Memory at its rate binds whether or not the matrix units are busy beside it."""
    assert counted(replace(TRAFFIC, matrix_busy=0.9), "MI210").bound is BoundClass.MEMORY


def test_without_readings_nothing_changes() -> None:
    """Where no counter is known, or none was read, the verdict is the same."""
    assert counted(None, "MI210") is OPEN
    assert counted(NONE, "MI210") is OPEN


def test_readings_of_counters() -> None:
    """KiB become bytes, percent shares, hits and misses a rate; half of a sum is no sum."""
    values = {"FETCH_SIZE": 512.0, "WRITE_SIZE": 512.0, "TCC_HIT_sum": 3.0, "TCC_MISS_sum": 1.0, "MfmaUtil": 40.0}
    counters = [KernelCounter("flash", 64, name, value, 20) for name, value in values.items()]
    counters += [KernelCounter("copy", None, "FETCH_SIZE", 8.0, 3), KernelCounter("copy", None, "L2CacheHit", 50.0, 5)]
    counters += [KernelCounter("idle", None, "OccupancyPercent", 12.5, 1)]
    assert make_readings(counters) == (
        KernelReadings("flash", 64, 20, 2.0**20, 0.75, None, 0.4),
        KernelReadings("copy", None, 3, None, 0.5),
        KernelReadings("idle", None, 1, occupancy=0.125),
    )
