from __future__ import annotations

import pytest

from pytest_attnperf.stats.quantiles import (
    NORMAL_FROM_DEGREES,
    binomial_at_most,
    chi_square_quantile,
    rate_bound95,
    sign_test,
    upper_quantile,
    upper_tail,
)


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


@pytest.mark.parametrize("degrees", [1, 2, 7, 18, 299, None])
@pytest.mark.parametrize("tail", [0.4, 0.025, 0.0001])
def test_a_tail_is_the_inverse_of_its_quantile(tail: float, degrees: int | None) -> None:
    """The chance beyond a quantile is the tail it was made from, and below its mirror image the rest."""
    value = upper_quantile(tail, degrees)
    assert upper_tail(value, degrees) == pytest.approx(tail, rel=1e-6)
    assert upper_tail(-value, degrees) == pytest.approx(1 - tail)


def test_a_tail_ends_at_zero() -> None:
    """However far out, a chance is never negative."""
    assert 0 <= upper_tail(1e6, 20) < 1e-12


@pytest.mark.parametrize(
    ("below", "degrees", "expected"),
    [
        (0.025, 1, 0.000982),
        (0.975, 6, 14.4494),
        (0.025, 6, 1.2373),
        (0.95, 10, 18.3070),
        (0.975, 29, 45.7223),
        (0.025, 100, 74.2219),
    ],
)
def test_chi_square_quantiles_are_those_of_the_tables(below: float, degrees: int, expected: float) -> None:
    """Quantiles agree with printed tables, for odd, even and many degrees of freedom."""
    assert chi_square_quantile(below, degrees) == pytest.approx(expected, rel=1e-3, abs=1e-6)


def test_what_has_no_tail_or_quantile_is_refused() -> None:
    """No degrees of freedom and a probability that is none are errors that show the value."""
    with pytest.raises(ValueError, match="degrees of freedom are 0, must be at least 1"):
        upper_tail(1.0, 0)
    with pytest.raises(ValueError, match="degrees of freedom are 0, must be at least 1"):
        chi_square_quantile(0.5, 0)
    with pytest.raises(ValueError, match=r"probability is 1\.0, must lie strictly between 0 and 1"):
        chi_square_quantile(1.0, 3)


@pytest.mark.parametrize(
    ("successes", "trials", "probability", "expected"),
    [(0, 10, 0.5, 1 / 1024), (1, 3, 0.5, 0.5), (3, 3, 0.2, 1.0), (2, 20, 0.1, 0.676927), (1000, 2000, 0.5, 0.508920)],
)
def test_tails_are_those_of_the_tables(successes: int, trials: int, probability: float, expected: float) -> None:
    """Binomial tails agree with printed tables, also where single coefficients are too large for a float."""
    assert binomial_at_most(successes, trials, probability) == pytest.approx(expected, rel=1e-4)


@pytest.mark.parametrize(
    ("events", "trials", "bound"), [(0, 300, 0.00994), (0, 2000, 0.001497), (2, 2000, 0.003144), (1, 3, 0.8646)]
)
def test_bounds_are_those_of_clopper_and_pearson(events: int, trials: int, bound: float) -> None:
    """0 in 2,000 excludes 0.15 %, 2 in 2,000 exclude 0.31 %."""
    assert rate_bound95(events, trials) == pytest.approx(bound, rel=1e-3)


def test_what_always_happened_or_was_never_tried_excludes_nothing() -> None:
    """Every trial an event, or no trial at all, bounds the rate by 1."""
    assert (rate_bound95(0, 0), rate_bound95(3, 3)) == (1.0, 1.0)


def test_a_split_is_as_unlikely_either_way() -> None:
    """Eleven of eleven is a chance of one in 1,024, up or down; an even split is certain."""
    assert sign_test(11, 11) == sign_test(0, 11) == pytest.approx(1 / 1024)
    assert sign_test(5, 10) == 1.0


def test_impossible_counts_are_refused() -> None:
    """More successes than trials, and a probability that is none, are errors that show them."""
    with pytest.raises(ValueError, match="4 of 3 trials cannot have succeeded"):
        binomial_at_most(4, 3, 0.5)
    with pytest.raises(ValueError, match=r"probability is 1\.5"):
        binomial_at_most(1, 3, 1.5)
