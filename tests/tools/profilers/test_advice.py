"""Every recommendation with the evidence that it needs, and none without."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from pytest_attnperf.records.profiles import (
    Advice,
    Agent,
    FamilyTime,
    FirstCalls,
    KernelShape,
    KernelTime,
    ProfileSummary,
    ShapeTime,
    Spread,
)
from pytest_attnperf.records.time_units import format_time
from pytest_attnperf.tools.profilers.advice import collect_advice
from pytest_attnperf.tools.profilers.amdahl import overall_gain
from pytest_attnperf.tools.profilers.resources import shape_time

MS = 1_000_000
SEED = (
    ("GEMM", "compute", 650, 121.89),
    ("normalisation", "compute", 300, 11.44),
    ("bias add", "compute", 180, 8.12),
    ("fill", "fill", 4, 6.88),
    ("conversion", "conversion", 400, 4.19),
    ("memory copy", "copy", 304, 1.22),
    ("attention", "compute", 75, 2.35),
    ("elementwise", "compute", 40, 1.07),
)
"""Families of a published profile of an inference engine: calls and milliseconds."""

DEVICE = Agent("4", arch="gfx942", compute_units=304)


def profile(
    *families: tuple[str, str, int, float], kernels: tuple[KernelTime, ...] = (), **others: object
) -> ProfileSummary:
    """A profile of these families, of one kernel each where `kernels` does not say them."""
    total = sum(ms for *_, ms in families)
    return ProfileSummary(
        name="run",
        sources=(),
        agents=(),
        total_ns=round(total * MS),
        calls=sum(calls for _, _, calls, _ in families),
        kernels=kernels or tuple(kernel(f"{name}_kernel", name, calls, ms, total) for name, _, calls, ms in families),
        families=tuple(
            FamilyTime(name, nature, 1, calls, round(ms * MS), ms / total) for name, nature, calls, ms in families
        ),
        **others,  # type: ignore[arg-type]
    )


def kernel(name: str, family: str, calls: int, ms: float, total_ms: float, kind: str = "kernel") -> KernelTime:
    """A kernel with one warm-up call, and the same time in every call."""
    spread, behind = Spread(calls, round(ms * MS)), Spread(calls - 1, round(ms * MS * (calls - 1) / calls))
    return KernelTime(name, family, kind, spread, ms / total_ms, steady=behind, first_ns=round(ms * MS / calls))


def found(summary: ProfileSummary, words: str) -> list[Advice]:
    """Advice with these words."""
    return [advice for advice in collect_advice(summary) if words in advice.text]


def test_published_profile_is_told_what_its_figures_say() -> None:
    """GEMMs first and measured first; attention is left alone at 1.52 %; nothing promises what was not measured."""
    advice = collect_advice(profile(*SEED))
    texts = [one.text for one in advice]
    assert texts[0] == "The time is in GEMM: work on it first"
    assert advice[0].evidence == "77.6 % of GPU time: 121.9 ms in 650 calls of 1 kernel"
    assert advice[0].gain == pytest.approx(121.89 / (157.16 - 121.89))
    assert "Leave attention alone: infinitely fast it would gain at most 1.52 %" in texts
    gains = [-math.inf if one.gain is None else one.gain for one in advice]
    assert gains == sorted(gains, reverse=True)
    assert not any(word in text for text in texts for word in ("pgrade", "hipBLASLt", "uantiz"))
    assert all(one.evidence for one in advice)


def test_largest_names_its_largest_kernel() -> None:
    """Of a family of several kernels the longest is named with its share; without any time nothing is said."""
    kernels = (kernel("small", "GEMM", 10, 30, 100), kernel("void big<float, 2>(int)", "GEMM", 10, 70, 100))
    summary = profile(("GEMM", "compute", 20, 100), kernels=kernels)
    (only,) = found(summary, "The time is in GEMM")
    assert only.evidence.endswith("; most of it in big (70.0 %)")
    assert only.gain == math.inf
    (unknown,) = collect_advice(profile(("other", "other", 20, 100)))
    assert unknown.text.startswith("The time is in kernels of no known family: name them in a rules file")
    assert collect_advice(replace(summary, total_ns=0)) == ()
    assert collect_advice(replace(summary, families=(), kernels=())) == ()


@pytest.mark.parametrize(("family", "ms", "said"), [("GEMM", 50, True), ("GEMM", 49, False), ("norm", 90, False)])
def test_gemms_are_measured_where_they_dominate(family: str, ms: float, said: bool) -> None:
    """Half of the time in GEMMs asks for a calibrated ceiling; less, or another family, does not."""
    advice = found(
        profile((family, "compute", 10, ms), ("other", "compute", 10, 100 - ms)), "attnperf doctor --calibrate"
    )
    assert bool(advice) == said
    assert [one.gain for one in advice] == [pytest.approx(1.0)] * said


@pytest.mark.parametrize(
    ("nature", "ms", "said"),
    [("compute", 1.9, True), ("compute", 2.1, False), ("copy", 1.9, False), ("fill", 1.9, False), ("other", 1, True)],
)
def test_small_computing_families_are_left_alone(nature: str, ms: float, said: bool) -> None:
    """Below 2 % a computing family is left alone, with what it could give; larger ones and memory work are not."""
    advice = found(profile(("GEMM", "compute", 10, 100 - ms), ("rope", nature, 75, ms)), "Leave rope alone")
    assert [one.gain for one in advice] == [pytest.approx(ms / (100 - ms))] * said
    assert all("4 % faster gains 0.0" in one.evidence for one in advice)


def test_many_small_families_are_added_up() -> None:
    """Three are named one by one, the others together with their common bound."""
    small = [(f"f{number}", "compute", 5, 1.5 - number / 10) for number in range(5)]
    summary = profile(("GEMM", "compute", 10, 93.5), *small)
    assert [one.text.split(" alone")[0] for one in found(summary, "alone: infinitely")] == [
        "Leave f0",
        "Leave f1",
        "Leave f2",
    ]
    (rest,) = found(summary, "Leave 2 further families alone, each below 2%")
    assert rest.evidence == "together 2.30 % of GPU time: f3, f4"
    assert rest.gain == pytest.approx(0.023 / 0.977)


@pytest.mark.parametrize(
    ("nature", "ms", "said"), [("conversion", 4.19, True), ("conversion", 0.4, False), ("copy", 4.19, False)]
)
def test_conversions_are_fused(nature: str, ms: float, said: bool) -> None:
    """Conversion kernels that take time are named with calls and share; little ones and copies are not."""
    advice = found(profile(("GEMM", "compute", 10, 100 - ms), ("conversion", nature, 400, ms)), "Fuse the conversion")
    assert bool(advice) == said
    for one in advice:
        assert (
            one.evidence
            == "4.19 % of GPU time: 4.190 ms in 400 calls of 1 kernel: they only change how values are laid out or "
            "stored"
        )
        assert one.gain == pytest.approx(0.0419 / 0.9581)


@pytest.mark.parametrize(
    ("name", "kind", "calls", "ms", "said"),
    [
        ("HOST_TO_DEVICE", "copy", 10, 5, True),
        ("Memcpy DtoH (Device -> Pageable)", "copy", 10, 5, True),
        ("CopyHostToDevice", "copy", 10, 5, True),
        ("DEVICE_TO_DEVICE", "copy", 10, 5, False),
        ("HOST_TO_DEVICE", "kernel", 10, 5, False),
        ("HOST_TO_DEVICE", "copy", 10, 0.1, False),
    ],
)
def test_host_copies_in_steady_state_are_avoided(name: str, kind: str, calls: int, ms: float, said: bool) -> None:
    """Copies between host and device behind the warm-up are named; on the device, rare ones, and in warm-up are not."""
    copy = kernel(name, "memory copy", calls, ms, 100, kind)
    summary = profile(("GEMM", "compute", 10, 100 - ms), ("memory copy", "copy", calls, ms), kernels=(copy,))
    advice = found(summary, "Keep data on the device")
    assert bool(advice) == said
    for one in advice:
        assert one.evidence == "9 copies after the warm-up, 4.500 ms, 4.50 % of GPU time"
        assert one.gain == pytest.approx(0.045 / 0.955)
    assert found(replace(summary, kernels=(replace(copy, steady=None),)), "Keep data on the device") == []


def test_fills_are_avoided_or_left_out() -> None:
    """Fills in steady state are avoided; those of the warm-up only are kept out of comparisons, with no gain."""
    families = (("GEMM", "compute", 10, 95.6), ("fill", "fill", 4, 4.4))
    summary = profile(*families)
    (avoid,) = found(summary, "Avoid the fill kernels")
    assert avoid.evidence == "4.40 % of GPU time: 4.400 ms in 4 calls of 1 kernel"
    assert avoid.gain == pytest.approx(0.044 / 0.956)
    fill = replace(kernel("fill", "fill", 4, 4.4, 100), steady=None)
    (warm,) = found(profile(*families, kernels=(fill,)), "in the warm-up only")
    assert warm.gain is None
    of_statistics = replace(fill, first_ns=None)
    assert len(found(profile(*families, kernels=(of_statistics,)), "Avoid the fill kernels")) == 1
    small = profile(("GEMM", "compute", 10, 99.6), ("fill", "fill", 4, 0.4))
    assert found(small, "fill kernels") == []


@pytest.mark.parametrize(
    ("busy", "span", "calls", "text"),
    [
        (80, 100, 20_000, "between many short kernels: capture them in a graph"),
        (80, 100, 100, "look for synchronisation and host work"),
        (95, 100, 20_000, ""),
        (None, None, 20_000, ""),
        (0, 0, 20_000, ""),
    ],
)
def test_idle_device(busy: int | None, span: int | None, calls: int, text: str) -> None:
    """A GPU that waits is told of graphs where its kernels are short, and of its host where they are not."""
    ns = [None if ms is None else ms * MS for ms in (busy, span)]
    advice = found(profile(("GEMM", "compute", calls, 80), busy_ns=ns[0], span_ns=ns[1]), "The GPU waits")
    assert len(advice) == bool(text)
    for one in advice:
        assert text in one.text
        assert one.gain == pytest.approx(0.25)
        assert "idle for 20.0 % of 100.0 ms from the first dispatch to the last" in one.evidence
        assert f"{calls} dispatches of {format_time(80_000 / calls)} on average" in one.evidence


def test_first_calls() -> None:
    """What first calls cost is said with figures and no gain, above 5 % only."""
    summary = profile(("GEMM", "compute", 10, 100))
    costly = FirstCalls(6 * MS, 3, {"allocation": 4 * MS, "loading and compiling": 3 * MS, "synchronisation": 900 * MS})
    warm, once = (found(replace(summary, first_calls=costly), word)[0] for word in ("Warm up before", "Allocate and"))
    assert warm.evidence == "the first dispatches of 3 kernels exceed their later ones by 6.000 ms, 6.00 % of GPU time"
    assert once.evidence == "host time: allocation 4.000 ms, loading and compiling 3.000 ms; GPU time 100.0 ms"
    assert (warm.gain, once.gain) == (None, None)
    cheap = FirstCalls(4 * MS, 3, {"allocation": 4 * MS, "synchronisation": 900 * MS})
    for first in (cheap, None):
        assert found(replace(summary, first_calls=first), "Warm up before") == []
        assert found(replace(summary, first_calls=first), "Allocate and") == []


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


def kernel_found(profile: ProfileSummary, words: str) -> list[Advice]:
    """Advice with these words."""
    return [advice for advice in collect_advice(profile) if words in advice.text]


@pytest.mark.parametrize(
    ("scratch", "ms", "said"), [(500, 20, True), (0, 20, False), (None, 20, False), (500, 0, False)]
)
def test_scratch_memory_is_looked_at(scratch: int | None, ms: int, said: bool) -> None:
    """Scratch of a kernel that takes time is named with its bytes; where it is 0 or unknown it is not."""
    advice = kernel_found(summary(launch(ms, scratch_bytes=scratch)), "uses scratch memory")
    assert bool(advice) == said
    for one in advice:
        assert one.evidence == "500 bytes of scratch per work-item; 20.0 % of GPU time: 20.00 ms in 10 calls"
        assert one.gain == pytest.approx(0.25)


def test_a_kernel_is_named_once() -> None:
    """Two launches of one kernel that use scratch and fit badly are one piece of advice each."""
    profile = summary(launch(20, scratch_bytes=64, vgprs=256), launch(30, scratch_bytes=80, vgprs=256))
    (spills,), (low,) = kernel_found(profile, "uses scratch memory"), kernel_found(profile, "Occupancy of flash")
    assert spills.evidence == "80 bytes of scratch per work-item; 50.0 % of GPU time: 50.00 ms in 20 calls"
    assert low.evidence.endswith("30.0 % of GPU time: 30.00 ms in 10 calls")


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
    advice = kernel_found(summary(launch(ms, **fields)), "Occupancy of flash is low")
    assert len(advice) == (limiter is not None)
    for text in (item.text for item in advice):
        assert f"is low because of {limiter}. It is a diagnosis and no goal: matrix kernels run well" in text
    assert all("(calculated, no counter was read); 20.0 % of GPU time" in item.evidence for item in advice)
    assert all(item.gain == pytest.approx(0.25) for item in advice)


def test_occupancy_of_whole_workgroups() -> None:
    """Where whole workgroups keep waves out and no resource does, the workgroup is named."""
    one = launch(20)
    assert one.occupancy is not None
    whole = replace(one.occupancy, whole_waves_per_simd=2.0, waves_per_workgroup=16, limiters=())
    (advice,) = kernel_found(summary(replace(one, occupancy=whole)), "Occupancy of flash")
    assert "is low because of whole workgroups of 16 waves" in advice.text
    assert advice.evidence.startswith("2 of 8 waves per SIMD")


@pytest.mark.parametrize(
    ("groups", "ms", "said"), [(152, 20, True), (303, 2, True), (304, 20, False), (152, 1, False), (0, 20, False)]
)
def test_grid_smaller_than_the_device(groups: int, ms: int, said: bool) -> None:
    """Fewer workgroups than compute units are told with what using all could give; others are not."""
    advice = kernel_found(summary(launch(ms, grid_items=(groups * 256, 1, 1))), "grid is smaller than the device")
    assert len(advice) == said
    for one in advice:
        assert f"{groups} workgroups on 304 compute units leave {304 - groups} without work" in one.evidence
        assert one.gain == pytest.approx(overall_gain(ms / 100, 304 / groups - 1))


def test_grid_without_a_device_says_nothing() -> None:
    """Where the number of compute units is not known, no grid is too small."""
    profile = replace(summary(launch(grid_items=(256, 1, 1))), agents=())
    assert kernel_found(profile, "grid is smaller") == []


def test_small_grids_behind_full_ones_are_found() -> None:
    """Launches that fill the device do not hide a shorter one that does not; no more than three are named."""
    full, small = launch(10), [launch(5 + number, grid_items=(256, 1, 1)) for number in range(4)]
    advice = kernel_found(summary(full, full, full, full, *small), "grid is smaller")
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
    advice = kernel_found(summary(launch(ms), steady=steady), "again with fixed clocks")
    assert [one.gain for one in advice] == [None] * said
    for one in advice:
        assert one.evidence == (
            "standard deviation 18.5 % of the mean in 74 calls of steady state, 0.7000 ms to 2.000 ms; "
            "20.0 % of GPU time"
        )


def test_several_sizes_differ_by_themselves() -> None:
    """A kernel of two sizes of launch scatters without anything being wrong; without steady state nothing is known."""
    steady = Spread(74, 74 * MS, stddev_ns=500_000.0)
    assert kernel_found(summary(launch(), launch(10), steady=steady), "fixed clocks") == []
    assert kernel_found(summary(launch()), "fixed clocks") == []


def test_copies_have_no_resources() -> None:
    """A copy is never told of scratch, occupancy or grids."""
    copy = launch(20, vgprs=256, scratch_bytes=64, grid_items=(256, 1, 1))
    profile = summary(replace(copy, shape=replace(copy.shape, kind="copy")))
    assert [one.text for one in collect_advice(profile)] == []
    assert math.isfinite(max(one.gain or 0 for one in collect_advice(summary(copy))))


def test_what_may_compute_nothing_is_not_left_alone() -> None:
    """A page that doubts whether attention does its work does not advise to leave it alone."""
    shape = KernelShape("attn", "kernel", "4", (256, 1, 1), (65_536, 1, 1), 0, 0, 8)
    families = (("GEMM", "compute", 10, 99.0), ("attention", "compute", 75, 1.0))
    gemm = kernel("gemm_kernel", "GEMM", 10, 99.0, 100.0)
    for vgprs, left in ((8, 0), (128, 1)):
        launch = ShapeTime(replace(shape, vgprs=vgprs), Spread(75, MS))
        attention = replace(kernel("attn", "attention", 75, 1.0, 100.0), shapes=(launch,))
        assert len(found(profile(*families, kernels=(gemm, attention)), "Leave attention alone")) == left
