"""Occupancy from profiles: points from compilers' own figures, and what must be said beside them."""

from __future__ import annotations

import pytest

from pytest_attnperf.codeobject.occupancy import Resources, occupancy_with
from pytest_attnperf.records.profiles import Agent, KernelShape, ShapeTime, Spread
from pytest_attnperf.tools.profilers.resources import CALCULATED, GridFill, grid_fill, shape_time

SPREAD = Spread(calls=75, total_ns=2_350_000)


def agent(arch: str, compute_units: int | None = None, wave_size: int | None = None) -> Agent:
    """The GPU that shapes here name."""
    return Agent("Agent 4", arch=arch, compute_units=compute_units, wave_size=wave_size)


def shape(vgprs: int | None = 64, accum: int | None = 0, threads: int = 256, **others: object) -> KernelShape:
    """A launch of 64 workgroups."""
    given = {"sgprs": 32, "lds_bytes": 1000} | others
    return KernelShape(
        "flash",
        agent="Agent 4",
        workgroup=(threads, 1, 1),
        grid_items=(64 * threads, 1, 1),
        vgprs=vgprs,
        accum_vgprs=accum,
        **given,  # type: ignore[arg-type]
    )


def waves(found: ShapeTime) -> int:
    """Waves per SIMD in the compiler's form."""
    assert found.occupancy is not None, found.caveats
    return found.occupancy.waves_per_simd


def caveat(found: ShapeTime, word: str) -> str:
    """The one caveat with this word."""
    (text,) = [text for text in found.caveats if word in text]
    return text


@pytest.mark.parametrize(
    ("arch", "vgprs", "accum", "lds_bytes", "expected"),
    [
        ("gfx906", 64, 0, 1000, 4),
        ("gfx908", 64, 64, 1000, 4),
        ("gfx908", 68, 68, 1000, 3),
        ("gfx90a", 64, 64, 1000, 4),
        ("gfx942:sramecc+:xnack-", 64, 0, 1000, 8),
        ("gfx942", 68, 68, 1000, 3),
        ("gfx942", 100, 4, 1000, 4),
        ("gfx950", 64, 64, 1000, 4),
        ("gfx950", 4, 4, 33000, 4),
        ("gfx1030", 72, 0, 1000, 12),
        ("gfx1151", 104, 0, 1000, 12),
        ("gfx1151", 8, 0, 1536, 16),
        ("gfx1201", 256, 0, 1000, 5),
        ("sm_90", 168, None, 1000, 3),
    ],
)
def test_occupancy_is_the_compilers(arch: str, vgprs: int, accum: int | None, lds_bytes: int, expected: int) -> None:
    """Registers as profilers count them give the occupancy that compilers print for kernels that use as many."""
    found = shape_time(shape(vgprs, accum, lds_bytes=lds_bytes), SPREAD, agent(arch))
    assert waves(found) == expected
    assert found.caveats.count(CALCULATED) == 1
    assert (found.shape.name, found.spread) == ("flash", SPREAD)


@pytest.mark.parametrize(
    ("arch", "vgprs", "accum", "reason"),
    [
        ("gfx950", 64, 0, "VGPRs 64 with AccVGPRs 0 on gfx950: before rocm-systems#5862 (2026-05) that is half of"),
        ("gfx942", 64, None, "VGPRs 64 without AccVGPRs: waves of gfx942 take both from one file"),
        ("gfx942", 64, 2, "VGPRs 64 and AccVGPRs 2 add up to 66, but gfx942 allocates multiples of 8"),
        ("gfx1151", 300, 0, "vgprs 300: a kernel of gfx1151 can have 0 to 256"),
    ],
)
def test_registers_that_cannot_be_trusted_give_no_occupancy(
    arch: str, vgprs: int, accum: int | None, reason: str
) -> None:
    """A register count that is known to be wrong, or cannot be, gives the reason and the file that tells instead."""
    found = shape_time(shape(vgprs, accum), SPREAD, agent(arch))
    assert found.occupancy is None
    assert reason in found.caveats[0]
    assert "attnperf occupancy FILE" in found.caveats[0]
    assert CALCULATED not in found.caveats


@pytest.mark.parametrize(
    ("one", "device", "reason"),
    [
        (shape(None), agent("gfx942"), "the file does not say the registers"),
        (KernelShape("flash", vgprs=64), agent("gfx942"), "the file does not say the size of a workgroup"),
        (shape(), None, "architecture of agent 'Agent 4'; agent_info and rocpd do, or attnperf profile --device NAME"),
        (shape(), agent(""), "the profile does not say the architecture of agent 'Agent 4'"),
        (shape(), agent("gfx1250"), "the limits of 'gfx1250' are not known; known: gfx906, gfx908, "),
        (shape(), agent("sm_75"), "the limits of 'sm_75' are not known; known: "),
        (shape(lds_bytes=70_000), agent("gfx942"), "256 threads with 64 VGPRs and 70000 bytes of LDS does not fit"),
        (
            shape(255, threads=512),
            agent("sm_90"),
            "512 threads with 255 registers and 1000 bytes of shared memory does",
        ),
    ],
)
def test_what_is_not_known_gives_no_occupancy(one: KernelShape, device: Agent | None, reason: str) -> None:
    """Without registers, size, or architecture, and for what could not have run, there is a reason and no occupancy."""
    found = shape_time(one, SPREAD, device)
    assert found.occupancy is None
    assert reason in found.caveats[0]


def test_registers_are_allocated_granules() -> None:
    """The count is said to be an allocation; on gfx908 AccVGPRs are said to repeat the VGPRs, elsewhere not."""
    on_cdna = shape_time(shape(12, 4), SPREAD, agent("gfx90a"))
    assert "VGPRs 12 and AccVGPRs 4 are allocated, in granules of 8" in caveat(on_cdna, "are allocated")
    on_gfx908 = shape_time(shape(12, 12), SPREAD, agent("gfx908"))
    assert "VGPRs 12 are allocated, in granules of 4" in caveat(on_gfx908, "are allocated")
    assert caveat(on_gfx908, "repeat").startswith("AccVGPRs 12 repeat the VGPRs on gfx908")
    assert not any("repeat" in text for text in on_cdna.caveats)


@pytest.mark.parametrize(
    ("arch", "wave", "vgprs", "accum", "one"),
    [
        ("gfx1151", 32, 8, 0, True),
        ("gfx1151", 32, 16, 0, False),
        ("gfx1100", 64, 4, 0, True),
        ("gfx1100", 64, 8, 0, False),
        ("gfx906", 64, 4, 0, True),
        ("gfx906", 64, 8, 0, False),
        ("gfx942", 64, 4, 4, True),
        ("gfx942", 64, 8, 8, False),
        ("gfx950", 64, 4, 0, False),
    ],
)
def test_one_granule_of_registers_is_said(arch: str, wave: int, vgprs: int, accum: int, one: bool) -> None:
    """A kernel with the fewest registers that a kernel can have is pointed out; one with two granules is not."""
    found = shape_time(shape(vgprs, accum), SPREAD, agent(arch, wave_size=wave))
    said = [text for text in found.caveats if "one granule" in text]
    assert bool(said) == one
    assert all(f"VGPRs {vgprs + accum} are one granule" in text for text in said)


@pytest.mark.parametrize(
    ("form", "lds_bytes", "said"),
    [
        ("", 0, True),
        ("rocprofv3 kernel_trace", 1536, True),
        ("rocprofv3 kernel_trace", 1152, False),
        ("rocpd", 0, False),
        ("rocprof v1 results", 512, False),
        ("torch.profiler", 1024, False),
    ],
)
def test_lds_may_be_static_only(form: str, lds_bytes: int, said: bool) -> None:
    """LDS as rocprofv3's CSV writes it lacks what the launch adds; figures of other files, or not rounded, do not."""
    found = shape_time(shape(lds_bytes=lds_bytes), SPREAD, agent("gfx942"), form=form)
    texts = [text for text in found.caveats if text.startswith(f"LDS {lds_bytes} bytes is the static LDS rounded up")]
    assert bool(texts) == said


def test_missing_lds_and_sgprs_are_not_counted() -> None:
    """Columns that a file lacks limit nothing, which is said."""
    found = shape_time(shape(lds_bytes=None, sgprs=None), SPREAD, agent("gfx942"))
    assert waves(found) == 8
    assert caveat(found, "LDS") == "LDS is not in the file, and not counted: fewer workgroups may fit"
    assert caveat(found, "SGPRs") == "SGPRs are not in the file, and their limit is not counted"
    shared = shape_time(shape(32, None, lds_bytes=None), SPREAD, agent("sm_90"))
    assert "shared memory is not in the file, and not counted" in shared.caveats


def test_sgprs_are_a_constant_from_gfx10_on() -> None:
    """128 SGPRs limit nothing on RDNA, and do on gfx9, where they are counted."""
    rdna = shape_time(shape(64, sgprs=128), SPREAD, agent("gfx1151"))
    assert caveat(rdna, "SGPRs") == "SGPRs 128 are a constant from gfx10 on and limit nothing"
    cdna = shape_time(shape(32, sgprs=112), SPREAD, agent("gfx942"))
    assert waves(cdna) == 800 // (112 + 16)
    assert not any("SGPRs" in text for text in cdna.caveats)


@pytest.mark.parametrize(
    ("wave_size", "used", "why"),
    [(None, 32, "the default of gfx1100"), (64, 64, "of the device"), (16, 32, "the d")],
)
def test_wave_size_is_said_on_rdna(wave_size: int | None, used: int, why: str) -> None:
    """The occupancy names the wave size that it is for: the device's, or the architecture's default."""
    found = shape_time(shape(128), SPREAD, agent("gfx1100", wave_size=wave_size))
    assert f"for wave{used} ({why}" in caveat(found, "WGP mode")
    expected = occupancy_with("gfx1100", Resources(128, 0, 32, lds_bytes=1000, threads=256, wave_size=used))
    assert found.occupancy == expected
    assert not any("WGP mode" in text for text in shape_time(shape(), SPREAD, agent("gfx942")).caveats)


@pytest.mark.parametrize("kind", ["copy", "set", "operator"])
def test_other_kinds_have_no_resources(kind: str) -> None:
    """A copy, a memory set and an operator have neither occupancy nor caveats."""
    assert shape_time(KernelShape("x", kind, bytes=8), SPREAD, None) == ShapeTime(
        KernelShape("x", kind, bytes=8), SPREAD
    )


def test_grid_smaller_than_the_device_is_said() -> None:
    """64 workgroups leave 240 of 304 compute units without work, with or without an occupancy."""
    for vgprs in (64, None):
        found = shape_time(shape(vgprs), SPREAD, agent("gfx942", 304))
        assert caveat(found, "have no work") == "64 workgroups on 304 compute units: 240 of them have no work"


def test_tail_of_the_grid_is_said() -> None:
    """64 workgroups where 40 run at once take two rounds with empty places; full rounds are no matter."""
    found = shape_time(shape(256, 256), SPREAD, agent("gfx942", 40))
    assert found.occupancy is not None
    assert found.occupancy.workgroups == 1
    assert "64 workgroups where 40 run at once: 1.60 rounds, which leave 20%" in caveat(found, "rounds")
    full = shape_time(shape(256, 256), SPREAD, agent("gfx942", 32))
    assert not any("rounds" in text or "no work" in text for text in full.caveats)


def test_workgroups_of_a_wgp_run_on_two_compute_units() -> None:
    """8 workgroups fit a WGP, and 40 compute units are 20 of them: the grid of 6144 takes 38.4 rounds."""
    one = KernelShape("flash", workgroup=(32, 8, 1), grid_items=(128, 192, 64), vgprs=8, sgprs=128, lds_bytes=1536)
    device = Agent("", arch="gfx1151", compute_units=40)
    fill = grid_fill(one, shape_time(one, SPREAD, device).occupancy, device)
    assert fill == GridFill(workgroups=6144 // 1, units=40, capacity=160)
    assert fill.rounds == pytest.approx(38.4)
    assert fill.used_share == pytest.approx(38.4 / 39)
    assert fill.idle_units == 0


def test_grid_fill_needs_launch_and_device() -> None:
    """Without a grid, or without compute units, nothing is said of the grid."""
    assert grid_fill(KernelShape("flash", workgroup=(64, 1, 1)), None, agent("gfx942", 304)) is None
    assert grid_fill(shape(), None, agent("gfx942")) is None
    assert grid_fill(shape(), None, None) is None
    assert grid_fill(shape(), None, agent("gfx942", 304)) == GridFill(64, 304, None)
    assert GridFill(64, 304, None).rounds is GridFill(64, 304, None).used_share is None
