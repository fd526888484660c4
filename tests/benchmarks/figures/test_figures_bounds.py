"""benchmarks/figures/figures_bounds.py: what a count of independent sets proves."""

from __future__ import annotations

import pytest
from figures_bounds import lower_bound, sets_needed, upper_bound


@pytest.mark.parametrize(
    ("hits", "sets", "bound"), [(0, 3, 0.6316), (0, 2000, 0.001497), (2, 2000, 0.003144), (3, 3, 1)]
)
def test_upper_bound_is_clopper_and_pearsons(hits: int, sets: int, bound: float) -> None:
    """1 - 0.05^(1/n) without a hit, and the tabulated value with two."""
    assert upper_bound(hits, sets) == pytest.approx(bound, rel=1e-3)


def test_nothing_counted_proves_nothing() -> None:
    """Without a set the rate may be anything."""
    assert upper_bound(0, 0) == 1
    assert lower_bound(0, 0) == 0


def test_lower_bound_mirrors_the_upper_one() -> None:
    """All of three caught proves 36.8 %."""
    assert lower_bound(3, 3) == pytest.approx(0.3684, rel=1e-3)


def test_one_per_cent_needs_299_sets() -> None:
    """The number without a hit whose bound first lies below the rate."""
    assert sets_needed(0.01) == 299
    assert upper_bound(0, 299) < 0.01 < upper_bound(0, 298)


def test_more_hits_than_sets_are_refused() -> None:
    """A count that cannot be is an error that shows it."""
    with pytest.raises(ValueError, match="4 hits of 3 sets cannot be"):
        upper_bound(4, 3)
