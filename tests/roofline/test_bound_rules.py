from __future__ import annotations

import pytest

from pytest_attnperf.environment.device_specs import all_specs
from pytest_attnperf.records import Launch, WorkloadFigures
from pytest_attnperf.records.rooflines import BoundClass, DeviceCeilings
from pytest_attnperf.roofline.bound import classify_bound

H200 = next(spec for spec in all_specs() if spec.name == "H200 SXM")
MEASURED = DeviceCeilings("sm_90", "h200", 132, {"f16": 760e12}, 4.2e12, 4.4e12, cache_bytes_per_s=7e12, launch_us=1.0)


def one(groups: int) -> list[Launch]:
    """A call of one kernel."""
    return [Launch("kernel", grid=(groups,), block=(128, 1, 1))]


@pytest.mark.parametrize(("grid", "bound"), [(64, BoundClass.OCCUPANCY), (128, BoundClass.UNDECIDED)])
def test_an_almost_full_device_is_not_bound_by_occupancy(grid: int, bound: BoundClass) -> None:
    """At 55 % of their part of memory 128 of 132 multiprocessors lack more than 4 could add; 64 do not."""
    call = WorkloadFigures(1e9, 0.55 * 4.4e12 * grid / 132 * 44e-6, "f16", "cold")
    assert classify_bound(call, 44.0, spec=H200, ceilings=MEASURED, launches=one(grid)).bound is bound


def test_short_calls_within_the_cache_are_held_against_the_cache() -> None:
    """258 kB in 3.1 us by 8 workgroups: a third of their part of memory, which is no roof of bytes in the cache."""
    call = WorkloadFigures(4.1e6, 258e3, "f16", "hot")
    found = classify_bound(call, 3.1, spec=H200, ceilings=MEASURED, launches=one(8))
    assert found.bound is BoundClass.LATENCY
    assert "8 workgroups on 132 compute units reach 20 % of that part of the nearest roof" in found.reason


@pytest.mark.parametrize("time_us", [1500.0, 3000.0, 20000.0])
def test_few_workgroups_cannot_do_the_work_of_all(time_us: float) -> None:
    """4 of 132 multiprocessors reach 3 % of the peak at most: 8192^3 of them is work that is not done."""
    found = classify_bound(WorkloadFigures(2 * 8192**3, 4e8, "f16", "hot"), time_us, spec=H200, launches=one(4))
    assert found.bound is BoundClass.UNDECIDED
    assert "4 workgroups on 132 compute units, which would do" in found.reason
    assert "impossible" in found.reason
    assert "correctness check" in found.decide


def test_few_workgroups_may_draw_more_than_their_part_of_memory() -> None:
    """A multiprocessor is not held to a 132nd of the memory's rate: 44 at half of all of it are no contradiction."""
    call = WorkloadFigures(1e9, 0.5 * 4.4e12 * 100e-6, "f16", "cold")
    found = classify_bound(call, 100.0, spec=H200, ceilings=MEASURED, launches=one(44))
    assert found.bound is BoundClass.OCCUPANCY
    assert "take more than their even part of 4400 GB/s (DRAM, measured); the whole call reaches 50 %" in found.reason
