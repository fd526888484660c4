from __future__ import annotations

import math
from dataclasses import replace

import pytest

from pytest_attnperf.environment.device_specs import DeviceSpec, all_specs
from pytest_attnperf.errors import UsageError
from pytest_attnperf.records.profile_changes import Change, PeakRatio, ProfileComparison
from pytest_attnperf.records.profiles import (
    Agent,
    ForwardPasses,
    KernelTime,
    ProfileSummary,
    Spread,
)
from pytest_attnperf.reports.text.wide_tables import render_terminal_tables
from pytest_attnperf.tools.profilers.peak_ratios import Peaks, spec_peaks
from pytest_attnperf.tools.profilers.profile_comparison import (
    WITHIN,
    compare_profiles,
    comparison_lines,
    comparison_tables,
    is_within_spread,
)


def steady(calls: int, ns: int, half_width: float = 0.0) -> Spread:
    """Calls of `ns` each on average, with quartiles as far from the median."""
    return Spread(calls, calls * ns, median_ns=ns, q1_ns=ns - half_width, q3_ns=ns + half_width)


def kernel(
    name: str, calls: int, ns: int, *, family: str = "GEMM", warm_ns: int = 0, half_width: float = 0.0
) -> KernelTime:
    """A kernel whose first call took `warm_ns` longer; all others `ns`. Without `calls` above 1 all is warm-up."""
    whole = Spread(calls, calls * ns + warm_ns)
    behind = steady(calls - 1, ns, half_width) if calls > 1 else None
    return KernelTime(name, family, "kernel", whole, share=0.0, steady=behind, first_ns=ns + warm_ns)


def unordered(one: KernelTime) -> KernelTime:
    """As a stats file gives it."""
    return replace(one, steady=None, first_ns=None)


def summary(name: str, *kernels: KernelTime, passes: int | None = None, device: str = "") -> ProfileSummary:
    """A profile of these kernels."""
    return ProfileSummary(
        name=name,
        sources=(),
        agents=(Agent("4", product=device), Agent("0", "cpu", product="CPU")) if device else (),
        total_ns=sum(one.spread.total_ns for one in kernels),
        calls=sum(one.spread.calls for one in kernels),
        kernels=kernels,
        families=(),
        passes=ForwardPasses(passes, "as given"),
    )


def spec(name: str) -> DeviceSpec:
    """A row of the device table."""
    return next(one for one in all_specs() if name in one.name)


def test_passes_of_different_number_are_compared_per_pass() -> None:
    """Five passes and ten: calls and times are of one pass, and the warm-up is in neither."""
    before = summary("old", kernel("a", 50, 1000, warm_ns=10**6), kernel("b", 5, 4000, family="norm"), passes=5)
    after = summary("new", kernel("a", 100, 700), kernel("b", 10, 4000, family="norm"), passes=10)
    found = compare_profiles(before, after)
    assert (found.before, found.after, found.per) == ("old", "new", "pass")
    assert (found.before_ns, found.after_ns) == (14_000, 11_000)
    assert found.speedup == pytest.approx(14 / 11)
    first, second = found.kernels
    assert (first.name, first.before_ns, first.after_ns, first.before_calls, first.after_calls) == (
        *("a", 10_000, 7_000),
        *(10, 10),
    )
    assert (first.share_of_change, second.share_of_change, second.name) == (1.0, 0.0, "b")
    assert [(one.name, one.before_ns, one.after_ns) for one in found.families] == [
        ("GEMM", 10_000, 7_000),
        ("norm", 4_000, 4_000),
    ]
    assert "warm-up is left out: every call counts as one of steady state" in found.notes


@pytest.mark.parametrize("passes", [(None, 5), (5, None), (None, None)])
def test_without_passes_whole_profiles_are_compared(passes: tuple[int | None, int | None]) -> None:
    """Where one does not know its passes, the times are of the whole profiles, and their calls are said."""
    before, after = summary("a", kernel("f", 50, 1000), passes=passes[0]), summary("b", kernel("f", 60, 1000))
    found = compare_profiles(before, replace(after, passes=ForwardPasses(passes[1], "")))
    assert (found.per, found.before_ns, found.after_ns) == ("profile", 50_000, 60_000)
    assert "whole profiles are compared, with 50 calls before and 60 after" in found.notes[0]


def test_statistics_alone_are_compared_with_their_warm_up() -> None:
    """A profile without order keeps its warm-up, and so does the other; nothing is called within the spread."""
    before = summary("a", unordered(kernel("f", 50, 1000, warm_ns=5000)))
    found = compare_profiles(before, summary("b", kernel("f", 50, 1000, warm_ns=7000)))
    assert (found.before_ns, found.after_ns) == (55_000, 57_000)
    assert found.kernels[0].note == ""
    assert any("all calls are compared, warm-up included" in note for note in found.notes)
    assert any("a change cannot be distinguished from noise" in note for note in found.notes)


def test_warm_up_only_kernels_are_left_out() -> None:
    """A kernel that has no steady state takes no time, and is named with what it took."""
    before = summary("old", kernel("f", 50, 1000), kernel("fill", 1, 6_880_000, family="fill"))
    found = compare_profiles(before, summary("new", kernel("f", 50, 1000)))
    assert found.before_ns == found.after_ns == 50_000
    assert "old: only in the warm-up, and left out: fill (6.880 ms)" in found.notes
    assert [(one.name, one.before_ns, one.before_calls, one.note) for one in found.kernels] == [
        ("f", 50_000, 50, WITHIN),
        ("fill", 0, 0, "gone"),
    ]
    assert {one.share_of_change for one in found.kernels} == {None}


def test_gone_new_and_renamed_kernels() -> None:
    """A tile of another size is matched and says so; kernels of one side only are gone or new; most change is first."""
    tile = "Cijk_Alik_Bljk_HB_MT{}_SN"
    before = summary("old", kernel(tile.format("64x64x16"), 10, 9000), kernel("bias", 10, 500, family="bias"))
    after = summary("new", kernel(tile.format("128x64x32"), 10, 5000), kernel("fused", 10, 700, family="fused"))
    found = compare_profiles(before, after)
    assert [(one.name, one.after_ns - one.before_ns, one.note) for one in found.kernels] == [
        (
            "Cijk_Alik_Bljk_HB",
            -40_000,
            "matched without tile sizes and numbers: Cijk_Alik_Bljk_HB_MT64x64x16_SN before, "
            "Cijk_Alik_Bljk_HB_MT128x64x32_SN after",
        ),
        ("fused", 7_000, "new"),
        ("bias", -5_000, "gone"),
    ]
    assert math.fsum(one.share_of_change or 0 for one in found.kernels) == pytest.approx(1)
    assert [(one.name, one.note) for one in found.families] == [("GEMM", ""), ("fused", "new"), ("bias", "gone")]


def test_one_name_of_two_kinds_is_added_up() -> None:
    """A copy that has the name of a kernel does not hide it."""
    both = (kernel("f", 10, 1000), replace(kernel("f", 10, 200), kind="copy"))
    assert compare_profiles(summary("a", *both), summary("b", *both)).before_ns == 12_000


@pytest.mark.parametrize(
    ("after", "expected"),
    [
        (steady(16, 1062, 40), True),
        (steady(16, 1063, 40), False),
        (steady(16, 938, 40), True),
        (steady(64, 1048, 40), False),
        (steady(64, 1047, 40), True),
        (steady(4, 1020, 400), None),
        (Spread(16, 16_000), None),
    ],
)
def test_rule_of_the_spread(after: Spread, expected: bool | None) -> None:
    """Quartiles 80 ns apart in 16 calls allow 31.4 ns on each side; few calls or no quartiles do not tell."""
    assert is_within_spread(steady(16, 1000, 40), after) is expected
    assert is_within_spread(after, steady(16, 1000, 40)) is expected


def test_a_difference_within_the_spread_is_no_change() -> None:
    """Kernels and families are called so where medians agree within their spread; a note states the rule."""
    before = summary("a", kernel("f", 17, 1000, half_width=40), kernel("g", 17, 1000, half_width=40, family="norm"))
    after = summary("b", kernel("f", 17, 1010, half_width=40), kernel("g", 17, 1100, half_width=40, family="norm"))
    found = compare_profiles(before, after)
    assert {one.name: one.note for one in found.kernels} == {"f": WITHIN, "g": ""}
    assert {one.name: one.note for one in found.families} == {"GEMM": WITHIN, "norm": ""}
    assert any("1.57 x interquartile range / sqrt(calls)" in note and "no gate" in note for note in found.notes)
    assert not any("show no difference" in note for note in found.notes)
    nothing = compare_profiles(before, before)
    assert "every kernel is within the spread: these profiles show no difference" in nothing.notes


def test_other_number_of_calls_is_a_change() -> None:
    """A kernel that runs twice as often changed, whatever its medians say."""
    found = compare_profiles(
        summary("a", kernel("f", 50, 1000, half_width=90), passes=5),
        summary("b", kernel("f", 100, 1000, half_width=90), passes=5),
    )
    assert (found.kernels[0].note, found.kernels[0].after_ns) == ("", 20_000)


def test_two_devices_are_held_to_their_peaks() -> None:
    """The speed of a pass beside bandwidth and f16 rate of both, and which share of each advantage it is."""
    before = summary("a", kernel("f", 50, 2000), passes=5, device="Radeon 8060S")
    after = summary("b", kernel("f", 50, 1000), passes=5, device="MI300X")
    found = compare_profiles(
        before, after, before_peaks=spec_peaks(spec("8060S")), after_peaks=spec_peaks(spec("MI300X"))
    )
    assert [(one.what, one.own, one.other, one.unit, one.own_kind) for one in found.peaks] == [
        ("DRAM bandwidth", 256, 5300, "GB/s", "data sheet"),
        ("f16 matrix rate", 59.4, 1307.4, "TFLOP/s", "data sheet"),
        ("speed", 1e9 / 20_000, 1e9 / 10_000, "passes/s", "measured"),
    ]
    assert found.notes[-1] == (
        "2.00 x as fast with 20.70 x the DRAM bandwidth and 22.01 x the f16 matrix rate: 10% of the ratio in DRAM "
        "bandwidth and 9% of the ratio in f16 matrix rate"
    )


def test_one_device_has_no_ratio_of_peaks() -> None:
    """Two runs of one device are not held to peaks; two devices with unknown peaks are said to be two."""
    one = summary("a", kernel("f", 50, 2000), device="MI300X")
    same = compare_profiles(one, one, before_peaks=spec_peaks(spec("MI300X")), after_peaks=spec_peaks(spec("MI300X")))
    assert same.peaks == ()
    assert not any("device" in note for note in same.notes)
    other = summary("b", kernel("f", 50, 2000), device="Titan RTX")
    unknown = compare_profiles(one, other, before_peaks=spec_peaks(spec("MI300X")))
    assert unknown.peaks == ()
    assert (
        "different devices (MI300X before, Titan RTX after), and the peaks of both are not known: no ratio of peaks"
        in (unknown.notes)
    )
    unsure = replace(spec("MI300X"), name="x", confidence="C")
    assert (
        compare_profiles(one, other, before_peaks=spec_peaks(spec("MI300X")), after_peaks=spec_peaks(unsure)).peaks
        == ()
    )


def test_empty_profiles_compare() -> None:
    """Profiles without any kernel give a comparison without a speed."""
    found = compare_profiles(summary("a"), summary("b", kernel("f", 50, 2000)))
    assert found.before_ns == 0
    assert found.kernels[0].note == "new"
    assert compare_profiles(summary("a"), summary("b")).speedup is None
    no_passes = compare_profiles(
        replace(summary("a"), passes=None),
        summary("b"),
        before_peaks=spec_peaks(spec("MI210")),
        after_peaks=spec_peaks(spec("MI300A")),
    )
    assert [one.what for one in no_passes.peaks] == ["DRAM bandwidth", "f16 matrix rate"]


def test_speeds_of_the_users_own_take_the_place_of_times() -> None:
    """Nodes per second of two machines are compared with their bandwidths, and one side alone is refused."""
    own = Peaks({"mem_gb_s": 212.0, "f16_tflops": 36.9, "speed": 2333.0}, "measured")
    titan = Peaks({"mem_gb_s": 672.0, "f16_tflops": 130.5, "speed": 4000.0})
    found = compare_profiles(summary("a"), summary("b"), before_peaks=own, after_peaks=titan)
    assert [round(ratio.ratio, 2) for ratio in found.peaks] == [3.17, 3.54, 1.71]
    assert any("1.71 x as fast with 3.17 x the DRAM bandwidth" in note for note in found.notes)
    with pytest.raises(UsageError, match="speed is given for one profile only"):
        compare_profiles(summary("a"), summary("b"), before_peaks=own, after_peaks=Peaks({"mem_gb_s": 672.0}))


FOUND = ProfileComparison(
    before="rocm-6.3",
    after="rocm-7.0",
    per="pass",
    before_ns=31_400_000,
    after_ns=20_000_000,
    families=(Change("GEMM", 24_000_000, 13_000_000, 130, 130, 0.965), Change("norm", 2e6, 2e6, 60, 60, 0.0)),
    kernels=(
        Change("Cijk_old", 24_000_000, 0, 130, 0, 2.1, "gone"),
        Change("Cijk_new", 0, 13_000_000, 0, 130, -1.14, "new"),
        Change("rms_norm", 2_000_000, 1_600_000, 60, 60, 0.035),
    ),
    peaks=(PeakRatio("memory bandwidth", 212, 672, "GB/s", "measured", "data sheet"),),
    notes=("warm-up left out of both",),
)


def rows(shown: int = 15) -> list[list[str]]:
    """Words of each line of the tables."""
    return [
        line.split() for line in render_terminal_tables((), comparison_tables(FOUND, shown=shown), 110).splitlines()
    ]


def test_the_whole_is_said_with_its_unit() -> None:
    """Both names, time per pass before and after, how many times as fast, and the notes."""
    assert comparison_lines(FOUND) == [
        "before: rocm-6.3",
        "after: rocm-7.0",
        "GPU time per pass: 31.40 ms -> 20.00 ms, 1.57x as fast",
        "note: warm-up left out of both",
    ]


def test_families_and_kernels_with_their_share_of_the_difference() -> None:
    """Each row has times, change and calls; a kernel of one profile only is new or gone, and has no change."""
    assert ["GEMM", "24.00", "13.00", "-45.8", "%", "96.5", "%", "130", "130"] in rows()
    assert ["Cijk_old", "24.00", "-", "-", "210.0", "%", "130", "0", "gone"] in rows()
    assert ["Cijk_new", "-", "13.00", "-", "-114.0", "%", "0", "130", "new"] in rows()
    assert ["2", "more", "(--all", "shows", "them)"] in rows(shown=1)


def test_peaks_of_two_devices() -> None:
    """What the other device has more of, as a factor."""
    assert ["memory", "bandwidth", "212", "measured", "672", "data", "sheet", "GB/s", "3.17x"] in rows()


def test_no_time_after_is_no_speedup() -> None:
    """A profile without time is not infinitely fast."""
    empty = ProfileComparison("a", "b", "profile", 5.0, 0.0, (), ())
    assert empty.speedup is None
    assert "GPU time per profile: 5.000 ns -> 0 ns, - as fast" in comparison_lines(empty)
