from __future__ import annotations

import itertools
import math

import pytest

from pytest_attnperf.tools.history.rank_test import one_sided_p, smallest_p


@pytest.mark.parametrize("sizes", [(1, 1), (2, 3), (3, 4), (4, 4)])
def test_probabilities_are_shares_of_all_orders(sizes: tuple[int, int]) -> None:
    """Against counting every order of so few ranks."""
    ranks = range(sum(sizes))
    orders = [
        (lower, [rank for rank in ranks if rank not in lower]) for lower in itertools.combinations(ranks, sizes[0])
    ]

    def inversions(lower: tuple[int, ...], higher: list[int]) -> int:
        return sum(low > high for low in lower for high in higher)

    for lower, higher in orders:
        seen = inversions(lower, higher)
        share = sum(inversions(*order) <= seen for order in orders) / len(orders)
        assert one_sided_p(lower, higher) == pytest.approx(share)


def test_complete_separation_is_the_smallest() -> None:
    """Of 20 and 20 values one of C(40, 20) orders."""
    assert smallest_p(20, 20) == pytest.approx(1 / math.comb(40, 20))
    assert one_sided_p(range(20), range(20, 40)) == smallest_p(20, 20)
    assert smallest_p(3, 17) == smallest_p(17, 3) == pytest.approx(1 / math.comb(20, 3))


def test_ties_make_no_difference_look_larger() -> None:
    """Equal values prove nothing."""
    assert one_sided_p([1.0] * 5, [1.0] * 5) > 0.5
    assert one_sided_p([1, 2, 3], [3, 4, 5]) >= one_sided_p([1, 2, 3], [4, 5, 6])


def test_an_empty_side_is_refused() -> None:
    """There is nothing to compare."""
    with pytest.raises(ValueError, match="0 and 2 values cannot be compared"):
        one_sided_p([], [1.0, 2.0])
