from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_attnperf.codeobject.arch import ARCHS, AgprRule, limits_of
from pytest_attnperf.codeobject.headroom import (
    OccupancyStair,
    Raise,
    ResourceSaving,
    apply_savings,
    compute_headroom,
    compute_size_stairs,
    compute_staircase,
)
from pytest_attnperf.codeobject.occupancy import Resources, occupancy_with
from pytest_attnperf.errors import CodeObjectError
from pytest_attnperf.records.code import Occupancy

MI300 = "gfx942"


def ways(needed: Raise | None) -> list[dict[str, int]]:
    """What each way saves: {'vgprs': 8} is 8 VGPRs fewer."""
    assert needed is not None
    return [{saving.resource: saving.fewer for saving in way} for way in needed.ways]


@pytest.mark.parametrize(
    ("arch", "asked", "expected"),
    [
        (MI300, Resources(96, 0, 40, 8192, 256), [{"vgprs": 16}]),
        (MI300, Resources(136, 0, 40, 0, 512), [{"vgprs": 8}]),
        (MI300, Resources(64, 0, 40, 34816, 256), [{"lds_bytes": 2048}]),
        (MI300, Resources(64, 0, 96, 0, 256), [{"sgprs": 16}]),
        (MI300, Resources(65, 64, 40, 0, 256), [{"vgprs": 1}, {"agprs": 4}]),
        (MI300, Resources(72, 0, 90, 0, 256), [{"vgprs": 8, "sgprs": 10}]),
        (MI300, Resources(64, 0, 90, 9000, 256), [{"sgprs": 10, "lds_bytes": 808}]),
        ("gfx908", Resources(100, 100, 40, 0, 256), [{"vgprs": 16, "agprs": 16}]),
        ("gfx1151", Resources(97, 0, 0, 0, 256), [{"vgprs": 1}]),
        (MI300, Resources(64, 0, 40, 65540, 256), [{"lds_bytes": 4}]),
    ],
)
def test_what_one_more_wave_takes(arch: str, asked: Resources, expected: list[dict[str, int]]) -> None:
    """Each way says how much less is needed: of one resource, of all that bind together, of VGPRs or of AGPRs."""
    assert ways(compute_headroom(arch, asked).wave) == expected


def test_nothing_is_left_at_full_occupancy() -> None:
    """Where every wave slot is taken, neither a wave nor a workgroup can be gained."""
    full = compute_headroom("gfx1151", Resources(8, 0, 128, 1536, 256))
    assert full.wave is None
    assert full.workgroup is None


def test_a_wave_is_not_always_a_workgroup() -> None:
    """Less LDS lets a compiler count a wave more, while the next workgroup of 8 waves needs fewer VGPRs as well."""
    room = compute_headroom(MI300, Resources(136, 0, 40, 65536, 512))
    assert ways(room.wave) == [{"lds_bytes": 32768}]
    assert room.wave is not None
    assert room.wave.after is not None
    assert room.wave.after.workgroups == 1
    assert ways(room.workgroup) == [{"vgprs": 8, "lds_bytes": 32768}]


@pytest.mark.parametrize(
    ("arch", "asked", "threads", "waves"),
    [
        (MI300, Resources(64, 0, 40, 0, 768), (512, 1024), 8.0),
        (MI300, Resources(64, 0, 40, 0, 192), (128, 256), 8.0),
        ("gfx906", Resources(24, 0, 40, 0, 128), (64, 256), 10.0),
    ],
)
def test_another_workgroup_where_no_saving_would_do(
    arch: str, asked: Resources, threads: tuple[int, ...], waves: float
) -> None:
    """Where slots or barriers bind, the nearest sizes with the most waves are named, and no saving."""
    room = compute_headroom(arch, asked).workgroup
    assert room is not None
    assert room.ways == ()
    assert room.threads == threads
    assert [occupancy_with(arch, replace(asked, threads=size)).whole_waves_per_simd for size in threads] == [waves] * 2


def test_nothing_helps_where_size_and_registers_bind() -> None:
    """2 x 14 waves leave no slots for a third workgroup, and with 72 VGPRs no size has more than these 28 waves."""
    assert compute_headroom(MI300, Resources(72, 0, 40, 0, 896)).workgroup == Raise((), (), None)


def test_a_workgroup_that_does_not_fit_is_told_what_would() -> None:
    """For 16 waves with every register and too much LDS, all that must go for the first workgroup is said."""
    asked = Resources(256, 256, 106, 165536, 1024)
    expected = {"vgprs": 128, "agprs": 256, "lds_bytes": 100000}
    room = compute_headroom(MI300, asked).workgroup
    assert ways(room) == [expected]
    assert room is not None
    assert room.after is not None
    assert (room.after.fits, room.after.workgroups) == (True, 1)


def test_apply() -> None:
    """Savings set what they name and leave the rest."""
    asked = Resources(72, 4, 90, 9000, 256)
    saved = apply_savings(
        asked, (ResourceSaving("sgprs", 10, 80), ResourceSaving("agprs", 4, 0), ResourceSaving("lds_bytes", 808, 8192))
    )
    assert saved == Resources(72, 0, 80, 8192, 256)


def test_an_impossible_kernel() -> None:
    """Nothing is said of a kernel that cannot be."""
    with pytest.raises(CodeObjectError, match="threads 0"):
        compute_headroom(MI300, Resources(64, 0, 40, 0, 0))


@st.composite
def kernels(draw: st.DrawFn) -> tuple[str, Resources]:
    """Kernels of any architecture, with LDS over the limit among them."""
    limits = draw(st.sampled_from(list(ARCHS.values())))
    agprs = 0 if limits.agpr_rule is AgprRule.NONE else limits.addressable_vgprs
    return limits.arch, Resources(
        vgprs=draw(st.integers(1, limits.addressable_vgprs)),
        agprs=draw(st.sampled_from([0, 0, agprs // 4, agprs])),
        sgprs=draw(st.integers(1, limits.max_sgprs)),
        lds_bytes=draw(st.one_of(st.just(0), st.integers(0, limits.lds_per_workgroup_bytes * 5 // 4))),
        threads=draw(st.integers(1, limits.max_threads)),
        wave_size=draw(st.sampled_from(limits.wave_sizes)),
        wgp_mode=draw(st.booleans()),
    )


def verify(arch: str, asked: Resources, needed: Raise, reaches: Callable[[Occupancy], bool]) -> None:
    """Recomputes at every value that is suggested, and at one unit short of it."""
    for way in needed.ways:
        assert way
        assert all(saving.fewer == getattr(asked, saving.resource) - saving.value > 0 for saving in way)
        saved = apply_savings(asked, way)
        assert reaches(occupancy_with(arch, saved))
        for saving in way:
            short = replace(saved, **{saving.resource: saving.value + 1})
            assert not reaches(occupancy_with(arch, short)), f"{saving} is more than it takes"
    if not needed.ways:
        nothing = replace(asked, vgprs=1, agprs=0, sgprs=0, lds_bytes=0)
        assert not reaches(occupancy_with(arch, nothing))
    for threads in needed.threads:
        assert reaches(occupancy_with(arch, replace(asked, threads=threads)))


@settings(max_examples=200, deadline=None)
@given(kernels())
def test_every_suggestion_holds_and_none_is_too_much(kernel: tuple[str, Resources]) -> None:
    """At the suggested value there is a wave or a workgroup more, and one unit short of it there is not."""
    arch, asked = kernel
    now, room = occupancy_with(arch, asked), compute_headroom(arch, asked)
    assert (room.wave is None) == (now.waves_per_simd == now.max_waves_per_simd)
    assert (room.workgroup is None) == (now.whole_waves_per_simd == now.max_waves_per_simd)
    if room.wave:
        verify(arch, asked, room.wave, lambda new: new.waves_per_simd > now.waves_per_simd)
    if room.workgroup:
        verify(arch, asked, room.workgroup, lambda new: new.whole_waves_per_simd > now.whole_waves_per_simd)


def test_a_wrong_suggestion_is_noticed() -> None:
    """The check above fails for a saving that is a unit too small, and for one that is a unit too large."""
    asked = Resources(96, 0, 40, 8192, 256)

    def reaches(new: Occupancy) -> bool:
        return new.waves_per_simd > 5

    verify(MI300, asked, Raise(((ResourceSaving("vgprs", 16, 80),),), (), None), reaches)
    for fewer in (15, 17):
        with pytest.raises(AssertionError):
            verify(MI300, asked, Raise(((ResourceSaving("vgprs", fewer, 96 - fewer),),), (), None), reaches)
    with pytest.raises(AssertionError):
        verify(MI300, asked, Raise((), (), None), reaches)


@pytest.mark.parametrize("resource", ["vgprs", "lds_bytes"])
@pytest.mark.parametrize("arch", [MI300, "gfx950", "gfx1030", "gfx1201"])
def test_stairs_are_the_occupancy(arch: str, resource: str) -> None:
    """Stairs cover the whole range without gap or repetition, and hold at both ends and in the middle of each."""
    asked = Resources(100, 0, 90, 10000, 512)
    stairs = compute_staircase(arch, asked, resource)
    limits = limits_of(arch)
    first, last = {"vgprs": (1, 256), "lds_bytes": (0, limits.lds_per_workgroup_bytes)}[resource]
    assert [stairs[0].first, *(stair.last + 1 for stair in stairs)] == [*(stair.first for stair in stairs), last + 1]
    assert stairs[0].first == first
    for stair in stairs:
        for value in (stair.first, (stair.first + stair.last) // 2, stair.last):
            found = occupancy_with(arch, replace(asked, **{resource: value}))
            assert (found.waves_per_simd, found.whole_waves_per_simd) == (
                stair.waves_per_simd,
                stair.whole_waves_per_simd,
            )
    for before, after in pairwise(stairs):
        assert (before.waves_per_simd, before.whole_waves_per_simd) > (after.waves_per_simd, after.whole_waves_per_simd)


def test_stairs_of_gfx942() -> None:
    """256 threads on gfx942: 8 waves up to 64 VGPRs, 5 up to 96, 2 from 169 on."""
    stairs = compute_staircase(MI300, Resources(96, 0, 40, 8192, 256), "vgprs")
    assert [(stair.last, stair.waves_per_simd) for stair in stairs] == [
        *((64, 8), (72, 7), (80, 6), (96, 5)),
        *((128, 4), (168, 3), (256, 2)),
    ]


def test_stairs_reach_to_the_kernel() -> None:
    """LDS over the limit is on the last stair, which runs nothing."""
    stairs = compute_staircase(MI300, Resources(64, 0, 40, 131072, 256), "lds_bytes")
    assert stairs[-1] == OccupancyStair(65537, 131072, 0, 0.0)


@pytest.mark.parametrize(("arch", "wave"), [("gfx942", 64), ("gfx1100", 32)])
def test_sizes_have_the_occupancy_of_their_whole_waves(arch: str, wave: int) -> None:
    """Steps over threads run from 1 to the most without a gap, and each has the occupancy of every size in it."""
    asked = Resources(96, 0, 40, 8192, 256)
    stairs = compute_size_stairs(arch, asked)
    assert (stairs[0].first, stairs[-1].last) == (1, 1024)
    assert all(one.last + 1 == other.first for one, other in pairwise(stairs))
    for stair in stairs:
        for size in {stair.first, stair.first + wave - 1, stair.last}:
            found = occupancy_with(arch, replace(asked, threads=size))
            assert (found.waves_per_simd, found.whole_waves_per_simd) == (
                stair.waves_per_simd,
                stair.whole_waves_per_simd,
            )
