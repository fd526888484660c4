from __future__ import annotations

import math

import torch
from hypothesis import given
from hypothesis import strategies as st

from pytest_attnperf.workloads.attention_bias import Added, alibi_slopes, alibi_sum


def test_slopes_of_a_power_of_two_are_geometric() -> None:
    """2^(-8 (h + 1) / H): for eight heads 1/2 down to 1/256, as the paper lists them."""
    assert alibi_slopes(8) == tuple(2.0**-power for power in range(1, 9))
    assert alibi_slopes(1) == (2.0**-8,)
    assert alibi_slopes(16)[:2] == (2.0**-0.5, 2.0**-1)


def test_slopes_of_another_number_of_heads_are_those_of_the_authors_code() -> None:
    """Twelve heads have the eight slopes of 8 and the first four of every other one of 16."""
    assert alibi_slopes(12) == (*alibi_slopes(8), *alibi_slopes(16)[0:8:2])
    assert alibi_slopes(3) == (2.0**-4, 2.0**-8, 2.0**-2)


@given(heads=st.integers(1, 200))
def test_slopes_are_positive_below_one_and_distinct(heads: int) -> None:
    """Every head has a slope of its own."""
    slopes = alibi_slopes(heads)
    assert len(slopes) == len(set(slopes)) == heads
    assert all(0 < slope < 1 for slope in slopes)


@given(slope=st.floats(1e-3, 1.0), first=st.integers(0, 40), count=st.integers(1, 60), back=st.integers(0, 90))
def test_a_sum_is_that_of_its_terms(slope: float, first: int, count: int, back: int) -> None:
    """The closed form is the sum written out, for positions before the keys, among them, and at the last one."""
    keys = range(first, first + count)
    position = keys.stop - 1 - back
    expected = math.fsum(math.exp(-slope * abs(position - key)) for key in keys)
    assert math.isclose(alibi_sum(slope, position, keys), expected, rel_tol=1e-6)


def test_what_is_added_by_rows() -> None:
    """ALiBi's distances are bottom-right, a bias is cut at the rows, and nothing stays nothing."""
    slopes = torch.tensor([0.5, 0.25])
    added = Added(slopes=slopes).of_rows(1, 2, 3, 5, torch.float16)
    assert added is not None
    assert added.dtype == torch.float32
    distances = torch.tensor([[3.0, 2.0, 1.0, 0.0, 1.0], [4.0, 3.0, 2.0, 1.0, 0.0]])
    assert torch.equal(added, -slopes[:, None, None] * distances)
    bias = torch.randn(2, 3, 5).half()
    cut = Added(bias=bias).of_rows(1, 2, 3, 5, torch.float64)
    assert cut is not None
    assert torch.equal(cut, bias[:, 1:3].double())
    assert Added().of_rows(1, 2, 3, 5, torch.float32) is None
