from __future__ import annotations

from pytest_attnperf.records.profiles import Change, PeakRatio, ProfileComparison
from pytest_attnperf.reports.text.wide_tables import terminal
from pytest_attnperf.tools.profilers.comparison_text import comparison_lines, comparison_tables

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
    return [line.split() for line in terminal((), comparison_tables(FOUND, shown=shown), 110).splitlines()]


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
    assert "GPU time per profile: 0.000005000 ms -> 0 ms, - as fast" in comparison_lines(empty)
