from __future__ import annotations

import pytest

from pytest_attnperf.stats.proportions import binomial_at_most, rate_bound95, sign_test


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
