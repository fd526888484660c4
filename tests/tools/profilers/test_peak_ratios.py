from __future__ import annotations

import math
from dataclasses import replace

import pytest

from pytest_attnperf.environment.device_specs import DeviceSpec, all_specs
from pytest_attnperf.errors import UsageError
from pytest_attnperf.records.profile_changes import PeakRatio
from pytest_attnperf.tools.profilers.peak_ratios import (
    Peaks,
    check_peaks,
    describe_advantage,
    describe_mixed_kinds,
    peak_ratios,
    spec_peaks,
)

RADEON = {"mem_gb_s": 212.0, "f16_tflops": 36.9, "speed": 2333.0}
TITAN = {"mem_gb_s": 672.0, "f16_tflops": 130.5, "speed": 4000.0}


def spec(name: str) -> DeviceSpec:
    """A row of the device table."""
    return next(one for one in all_specs() if name in one.name)


def test_ratios_of_a_published_comparison() -> None:
    """A report's own figures: 1.71 x as fast with 3.17 x the bandwidth and 3.54 x the fp16 rate."""
    ratios = peak_ratios(RADEON, TITAN, own_kind="measured", speed_unit="nps")
    assert [(ratio.what, round(ratio.ratio, 2), ratio.unit) for ratio in ratios] == [
        ("DRAM bandwidth", 3.17, "GB/s"),
        ("f16 matrix rate", 3.54, "TFLOP/s"),
        ("speed", 1.71, "nps"),
    ]
    assert describe_advantage(ratios) == (
        "1.71 x as fast with 3.17 x the DRAM bandwidth and 3.54 x the f16 matrix rate: 54% of the ratio in DRAM "
        "bandwidth and 48% of the ratio in f16 matrix rate"
    )


def test_mixed_kinds_are_said() -> None:
    """A measured figure beside one of a data sheet is said for each, but not of the speed, which both measured."""
    ratios = peak_ratios(RADEON, TITAN, own_kind="measured")
    assert describe_mixed_kinds(ratios) == (
        "DRAM bandwidth: 212 GB/s is measured and 672 GB/s from a data sheet: the ratio 3.17 compares different kinds",
        "f16 matrix rate: 36.9 TFLOP/s is measured and 130.5 TFLOP/s from a data sheet: the ratio 3.54 compares "
        "different kinds",
    )
    assert describe_mixed_kinds(peak_ratios(RADEON, TITAN)) == ()


def test_figures_of_one_side_only_give_no_ratio() -> None:
    """A ratio needs both; without a speed or without a peak no advantage is told."""
    (only,) = peak_ratios({"mem_gb_s": 256}, {"mem_gb_s": 512, "f16_tflops": 100})
    assert only == PeakRatio("DRAM bandwidth", 256, 512, "GB/s", "data sheet", "data sheet")
    assert describe_advantage((only,)) == ""
    assert describe_advantage(peak_ratios({"speed": 1}, {"speed": 2})) == ""
    assert peak_ratios({}, TITAN) == ()


def test_equal_ratios_are_told_once() -> None:
    """Twice the device in everything, and 1.5 x as fast: three quarters of each."""
    twice = {"mem_gb_s": 424.0, "f16_tflops": 73.8, "speed": 2333.0 * 1.5}
    assert describe_advantage(peak_ratios(RADEON, twice)).endswith(": 75% of each of these ratios")


@pytest.mark.parametrize(
    ("peaks", "message"),
    [
        ({"bandwidth": 672}, "peak 'bandwidth' is not known; known: mem_gb_s, cache_gb_s, f16_tflops"),
        ({"mem_gb_s": 0}, "peak mem_gb_s is 0, must be finite"),
        ({"mem_gb_s": -1}, "peak mem_gb_s is -1, must be finite"),
        ({"speed": math.inf}, "peak speed is inf, must be finite"),
        ({"f16_tflops": math.nan}, "peak f16_tflops is nan, must be finite"),
        ({"mem_gb_s": 672e9}, r"no device has more DRAM bandwidth than 100000 GB/s; is the value\s+in another unit"),
    ],
)
def test_impossible_peaks_are_refused(peaks: dict[str, float], message: str) -> None:
    """A figure that no device can have is named on either side."""
    with pytest.raises(UsageError, match=message):
        peak_ratios(peaks, TITAN)
    with pytest.raises(UsageError, match=message):
        peak_ratios(TITAN, peaks)


def test_nothing_is_measured_above_its_data_sheet() -> None:
    """A measured figure above the device's own peak is refused; one below, or rounded, or of an unsure row is not."""
    radeon = spec("8060S")
    with pytest.raises(UsageError, match=r"mem_gb_s 300: Radeon 8060S .* has at most 256"):
        check_peaks({"mem_gb_s": 300}, "measured", radeon)
    check_peaks({"mem_gb_s": 212, "speed": 2333}, "measured", radeon)
    check_peaks({"mem_gb_s": 257}, "measured", radeon)
    check_peaks({"mem_gb_s": 300}, "measured", replace(radeon, confidence="C"))
    with pytest.raises(UsageError, match=r"f16_tflops 1400: MI300X has at most 1307"):
        check_peaks({"f16_tflops": 1400}, "measured", spec("MI300X"))


def test_kind_must_be_known() -> None:
    """A kind that is neither a data sheet's nor measured is refused with those that are."""
    with pytest.raises(UsageError, match="a peak's kind is 'guess'; known: data sheet, measured"):
        check_peaks({}, "guess")


def test_spec_peaks_are_those_of_the_table() -> None:
    """Bandwidth and f16 rate are the data sheet's; a row that is not relied on gives none."""
    radeon = spec("8060S")
    peaks = spec_peaks(radeon).figures
    assert peaks == {"mem_gb_s": 256, "f16_tflops": 59.4}
    assert spec_peaks(replace(radeon, f16_tflops=None)).figures == {"mem_gb_s": 256}
    assert spec_peaks(replace(radeon, confidence="C")).figures == {}


def test_peaks_are_written_in_one_text() -> None:
    """A user writes figures with their units in the names, and says where they were measured."""
    assert Peaks.parse("mem_gb_s=212, f16_tflops=36.9,measured") == Peaks(
        {"mem_gb_s": 212.0, "f16_tflops": 36.9}, "measured"
    )
    assert Peaks.parse("").figures == {}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("mem_gb_s", "'mem_gb_s' is no peak; give e.g. mem_gb_s=212"),
        ("mem_gb_s=fast", "'mem_gb_s=fast' is no peak"),
        ("bandwidth=212", "peak 'bandwidth' is not known; known: mem_gb_s"),
        ("mem_gb_s=-1", "must be finite and above 0"),
        ("mem_gb_s=212e9", "is the value in another unit"),
    ],
)
def test_texts_that_are_no_peaks_are_refused(text: str, expected: str) -> None:
    """A typing error, an unknown name and a wrong unit each say what is wanted."""
    with pytest.raises(UsageError, match=expected):
        Peaks.parse(text)
