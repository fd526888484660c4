from __future__ import annotations

import pytest

from pytest_attnperf.stats.quantiles import NORMAL_FROM_DEGREES, upper_quantile


@pytest.mark.parametrize(
    ("tail", "degrees", "expected"),
    [
        (0.025, 1, 12.7062),
        (0.025, 5, 2.5706),
        (0.05, 7, 1.8946),
        (0.01, 6, 3.1427),
        (0.001, 10, 4.1437),
        (0.025, 30, 2.0423),
        (0.025, None, 1.9600),
        (0.001, None, 3.0902),
    ],
)
def test_quantiles_are_those_of_the_tables(tail: float, degrees: int | None, expected: float) -> None:
    """Normal and Student quantiles agree with printed tables, for odd and even degrees of freedom."""
    assert upper_quantile(tail, degrees) == pytest.approx(expected, abs=1e-4)


def test_student_meets_normal_without_a_visible_step() -> None:
    """Where the normal quantile takes over, the two differ by less than 2 % even far out."""
    student, normal = upper_quantile(1e-5, NORMAL_FROM_DEGREES - 1), upper_quantile(1e-5, NORMAL_FROM_DEGREES)
    assert normal < student < 1.02 * normal


@pytest.mark.parametrize("tail", [0.0, 0.5, -1.0, float("nan")])
def test_a_tail_outside_its_range_is_refused(tail: float) -> None:
    """A tail that is no upper tail is an error that shows it."""
    with pytest.raises(ValueError, match="tail probability is"):
        upper_quantile(tail)


def test_no_degrees_of_freedom_are_refused() -> None:
    """A spread estimated from nothing has no quantile."""
    with pytest.raises(ValueError, match="degrees of freedom are 0, must be at least 1"):
        upper_quantile(0.01, 0)
