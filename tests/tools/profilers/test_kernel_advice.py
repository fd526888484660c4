from __future__ import annotations

import math
from dataclasses import replace

import pytest

from pytest_attnperf.records.profiles import Advice, Agent, KernelShape, KernelTime, ProfileSummary, ShapeTime, Spread
from pytest_attnperf.tools.profilers.advice import advise
from pytest_attnperf.tools.profilers.amdahl import overall_gain
from pytest_attnperf.tools.profilers.resources import shape_time

MS = 1_000_000
DEVICE = Agent("4", arch="gfx942", compute_units=304)


def launch(ms: int = 20, **fields: object) -> ShapeTime:
    """A launch of 256 threads that takes this much of 100 ms."""
    given = {"grid_items": (256 * 6080, 1, 1), "vgprs": 64, "accum_vgprs": 0, "sgprs": 16, "lds_bytes": 0} | fields
    shape = KernelShape("flash", agent="4", workgroup=(256, 1, 1), **given)  # type: ignore[arg-type]
    return shape_time(shape, Spread(10, ms * MS), DEVICE)


def summary(*launches: ShapeTime, steady: Spread | None = None) -> ProfileSummary:
    """A profile of 100 ms with one kernel of these launches."""
    spread = Spread(10, sum(one.spread.total_ns for one in launches))
    kind = launches[0].shape.kind
    kernel = KernelTime("void flash<2>(int)", "x", kind, spread, spread.total_ns / 100 / MS, steady, shapes=launches)
    return ProfileSummary("run", (), (DEVICE,), 100 * MS, 10, (kernel,), ())


def found(profile: ProfileSummary, words: str) -> list[Advice]:
    """Advice with these words."""
    return [advice for advice in advise(profile) if words in advice.text]


@pytest.mark.parametrize(
    ("scratch", "ms", "said"), [(500, 20, True), (0, 20, False), (None, 20, False), (500, 0, False)]
)
def test_scratch_memory_is_looked_at(scratch: int | None, ms: int, said: bool) -> None:
    """Scratch of a kernel that takes time is named with its bytes; where it is 0 or unknown it is not."""
    advice = found(summary(launch(ms, scratch_bytes=scratch)), "uses scratch memory")
    assert bool(advice) == said
    for one in advice:
        assert one.evidence == "500 bytes of scratch per work-item; 20.0 % of GPU time: 20 ms in 10 calls"
        assert one.gain == pytest.approx(0.25)


def test_a_kernel_is_named_once() -> None:
    """Two launches of one kernel that use scratch and fit badly are one piece of advice each."""
    profile = summary(launch(20, scratch_bytes=64, vgprs=256), launch(30, scratch_bytes=80, vgprs=256))
    (spills,), (low,) = found(profile, "uses scratch memory"), found(profile, "Occupancy of flash")
    assert spills.evidence == "80 bytes of scratch per work-item; 50.0 % of GPU time: 50 ms in 20 calls"
    assert low.evidence.endswith("30.0 % of GPU time: 30 ms in 10 calls")


@pytest.mark.parametrize(
    ("fields", "ms", "limiter"),
    [
        ({"vgprs": 256}, 20, "registers"),
        ({"lds_bytes": 33_000}, 20, "LDS"),
        ({"vgprs": 256}, 9, None),
        ({"vgprs": 128}, 20, None),
        ({"vgprs": None}, 20, None),
    ],
)
def test_low_occupancy_is_a_diagnosis(fields: dict[str, object], ms: int, limiter: str | None) -> None:
    """Few waves in a kernel that takes time are told with the limiter, as no goal; else nothing is said of it."""
    advice = found(summary(launch(ms, **fields)), "Occupancy of flash is low")
    assert len(advice) == (limiter is not None)
    for text in (item.text for item in advice):
        assert f"is low by {limiter}. It is a diagnosis and no goal: matrix kernels run well at 1 or 2 waves" in text
    assert all("(calculated, no counter was read); 20.0 % of GPU time" in item.evidence for item in advice)
    assert all(item.gain == pytest.approx(0.25) for item in advice)


def test_occupancy_of_whole_workgroups() -> None:
    """Where whole workgroups keep waves out and no resource does, the workgroup is named."""
    one = launch(20)
    assert one.occupancy is not None
    whole = replace(one.occupancy, whole_waves_per_simd=2.0, waves_per_workgroup=16, limiters=())
    (advice,) = found(summary(replace(one, occupancy=whole)), "Occupancy of flash")
    assert "is low by whole workgroups of 16 waves" in advice.text
    assert advice.evidence.startswith("2 of 8 waves per SIMD")


@pytest.mark.parametrize(
    ("groups", "ms", "said"), [(152, 20, True), (303, 2, True), (304, 20, False), (152, 1, False), (0, 20, False)]
)
def test_grid_smaller_than_the_device(groups: int, ms: int, said: bool) -> None:
    """Fewer workgroups than compute units are told with what using all could give; others are not."""
    advice = found(summary(launch(ms, grid_items=(groups * 256, 1, 1))), "grid is smaller than the device")
    assert len(advice) == said
    for one in advice:
        assert f"{groups} workgroups on 304 compute units leave {304 - groups} without work" in one.evidence
        assert one.gain == pytest.approx(overall_gain(ms / 100, 304 / groups - 1))


def test_grid_without_a_device_says_nothing() -> None:
    """Where the number of compute units is not known, no grid is too small."""
    profile = replace(summary(launch(grid_items=(256, 1, 1))), agents=())
    assert found(profile, "grid is smaller") == []


def test_small_grids_behind_full_ones_are_found() -> None:
    """Launches that fill the device do not hide a shorter one that does not; no more than three are named."""
    full, small = launch(10), [launch(5 + number, grid_items=(256, 1, 1)) for number in range(4)]
    advice = found(summary(full, full, full, full, *small), "grid is smaller")
    assert sorted(one.evidence.split("; ")[1].split(" of")[0] for one in advice) == ["6.00 %", "7.00 %", "8.00 %"]


@pytest.mark.parametrize(
    ("calls", "stddev", "ms", "said"),
    [
        (74, 185_000.0, 20, True),
        (74, 90_000.0, 20, False),
        (9, 185_000.0, 20, False),
        (74, None, 20, False),
        (74, 185_000.0, 1, False),
    ],
)
def test_scattered_times_are_traced_again(calls: int, stddev: float | None, ms: int, said: bool) -> None:
    """A mean that scatters by 10 % or more over enough calls is traced again, and no gain is promised."""
    steady = Spread(calls, calls * MS, min_ns=700_000, max_ns=2 * MS, stddev_ns=stddev)
    advice = found(summary(launch(ms), steady=steady), "again with fixed clocks")
    assert [one.gain for one in advice] == [None] * said
    for one in advice:
        assert one.evidence == (
            "standard deviation 18.5 % of the mean in 74 calls of steady state, 700 to 2000 us; 20.0 % of GPU time"
        )


def test_several_sizes_differ_by_themselves() -> None:
    """A kernel of two sizes of launch scatters without anything being wrong; without steady state nothing is known."""
    steady = Spread(74, 74 * MS, stddev_ns=500_000.0)
    assert found(summary(launch(), launch(10), steady=steady), "fixed clocks") == []
    assert found(summary(launch()), "fixed clocks") == []


def test_copies_have_no_resources() -> None:
    """A copy is never told of scratch, occupancy or grids."""
    copy = launch(20, vgprs=256, scratch_bytes=64, grid_items=(256, 1, 1))
    profile = summary(replace(copy, shape=replace(copy.shape, kind="copy")))
    assert [one.text for one in advise(profile)] == []
    assert math.isfinite(max(one.gain or 0 for one in advise(summary(copy))))
