from __future__ import annotations

import math
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_attnperf.records.profiles import FamilyTime, Gain, KernelTime, Spread
from pytest_attnperf.tools.profilers.amdahl import compute_gains, format_percent, overall_gain


@pytest.mark.parametrize(
    ("share", "gain", "expected"),
    [
        (0.015, math.inf, 0.01522843),
        (0.015, 0.04, 0.00057726),
        (0.776, math.inf, 3.46428571),
        (0.5, 1.0, 1 / 3),
        (0.5, -0.5, -1 / 3),
        (1.0, 0.04, 0.04),
        (1.0, 1e17, 1e17),
        (1.0, math.inf, math.inf),
        (0.0, math.inf, 0.0),
        (0.3, 0.0, 0.0),
    ],
)
def test_overall_gain(share: float, gain: float, expected: float) -> None:
    """Known values of Amdahl's law, ends included."""
    assert overall_gain(share, gain) == pytest.approx(expected, rel=1e-5)


@given(st.integers(0, 10_000), st.integers(-9_999, 10**9))
def test_overall_gain_is_the_quotient_of_times(share: int, gain: int) -> None:
    """It is what the exact quotient of the times before and after says."""
    s, g = Fraction(share, 10_000), Fraction(gain, 10_000)
    exact = 1 / (1 - s + s / (1 + g)) - 1
    assert overall_gain(float(s), float(g)) == pytest.approx(float(exact), rel=1e-9, abs=1e-15)


@pytest.mark.parametrize(
    ("share", "gain", "message"),
    [
        (-0.1, 0.04, "share is -0.1, must be 0 to 1"),
        (1.1, 0.04, "share is 1.1"),
        (math.nan, 0.04, "share is nan"),
        (0.5, -1.0, "gain is -1.0, must be above -1"),
        (0.5, math.nan, "gain is nan"),
    ],
)
def test_what_cannot_be_is_refused(share: float, gain: float, message: str) -> None:
    """Shares outside 0 to 1 and gains of -1 or less are named."""
    with pytest.raises(ValueError, match=message):
        overall_gain(share, gain)


def test_gains_of_kernels_and_families() -> None:
    """Each has its own limit, and the gain of the whole for every partial gain."""
    kernel = KernelTime("flash", "attention", "kernel", Spread(75, 2_350_000), share=0.015)
    family = FamilyTime("GEMM", "compute", 3, 650, 121_890_000, share=1.0)
    assert compute_gains([kernel, family], (0.02, 0.04)) == (
        Gain(
            "flash",
            0.015,
            overall_gain(0.015, math.inf),
            ((0.02, overall_gain(0.015, 0.02)), (0.04, overall_gain(0.015, 0.04))),
        ),
        Gain("GEMM", 1.0, math.inf, ((0.02, overall_gain(1.0, 0.02)), (0.04, overall_gain(1.0, 0.04)))),
    )
    assert compute_gains([]) == ()


@pytest.mark.parametrize(
    ("fraction", "text"),
    [
        (0.776, "77.6 %"),
        (0.015228, "1.52 %"),
        (0.00057726, "0.06 %"),
        (3.464, "346 %"),
        (0.00004, "less than 0.01 %"),
        (0.0, "0.00 %"),
        (math.inf, "without limit"),
    ],
)
def test_percent(fraction: float, text: str) -> None:
    """As many digits as are told apart, and words where there is no figure."""
    assert format_percent(fraction) == text
