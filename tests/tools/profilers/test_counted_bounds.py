from __future__ import annotations

from dataclasses import replace

import pytest

from pytest_attnperf.records import WorkloadFigures
from pytest_attnperf.records.counters import KernelCounter, KernelReadings, readings
from pytest_attnperf.records.rooflines import BoundClass, BoundVerdict
from pytest_attnperf.tools.profilers.counted_bounds import with_counters
from pytest_attnperf.tools.profilers.devices import spec_named

FIGURES = WorkloadFigures(1e9, 1e6, "f16", "hot")
OPEN = BoundVerdict(BoundClass.UNDECIDED, "5 % of compute, 1 % of memory", "counters")
NONE = KernelReadings("flash", None, 20)
TRAFFIC = replace(NONE, traffic_bytes=100e6)
"""In 100 us 1,000 GB/s, 61 % of MI210's 1,638 and 19 % of MI300X's 5,300."""


def counted(reading: KernelReadings | None, device: str, verdict: BoundVerdict = OPEN) -> BoundVerdict:
    """The verdict of a dispatch of 100 us."""
    return with_counters(verdict, reading, 100.0, FIGURES, spec_named(device), None)


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
    assert readings(counters) == (
        KernelReadings("flash", 64, 20, 2.0**20, 0.75, None, 0.4),
        KernelReadings("copy", None, 3, None, 0.5),
        KernelReadings("idle", None, 1, occupancy=0.125),
    )
