from __future__ import annotations

import math
import re
from dataclasses import replace

import pytest

from pytest_attnperf.correctness.budget import budget, problems
from pytest_attnperf.records import ErrorFigures, Tolerance

RIGHT = ErrorFigures(
    "timed inputs", "out", 0.5, 1.0, 0.1, 0.2, worst_index=(0, 3), worst_got=2.5, worst_expected=2.0, elements=8
)


def test_the_budget_is_twice_the_plain_error_and_one_step() -> None:
    """multiplier * plain error + rounding step, with a multiplier of 2 unless a source says otherwise."""
    assert budget(0.25, 0.125, Tolerance()) == 0.625
    assert budget(0.25, 0.125, Tolerance(10.0, source="CK backward")) == 2.625


def test_figures_within_budget_have_no_problem() -> None:
    """An error equal to its budget is allowed."""
    assert problems([RIGHT, replace(RIGHT, max_error=1.0, rms_error=0.2)]) == ()


def test_an_error_beyond_its_budget_says_where_and_by_how_much() -> None:
    """The text holds error, place, budget, their ratio, what came and what should have come."""
    assert problems([replace(RIGHT, max_error=3.0)]) == (
        "timed inputs: 'out' is off by 3 at (0, 3), allowed is 1 (3 x the budget): got 2.5, expected 2",
    )


def test_the_root_mean_square_is_judged_beside_the_maximum() -> None:
    """Many small errors fail though no single one is beyond the maximum's budget."""
    assert problems([replace(RIGHT, rms_error=0.5)]) == (
        "timed inputs: 'out' is off by 0.5 in the root mean square over 8 elements, allowed is 0.2 (2.5 x the budget)",
    )


@pytest.mark.parametrize("field", ["max_error", "max_budget", "rms_error", "rms_budget"])
def test_nan_figures_never_pass(field: str) -> None:
    """A NaN anywhere in a comparison fails it."""
    assert len(problems([replace(RIGHT, **{field: math.nan})])) == 1


@pytest.mark.parametrize(
    ("nan_count", "inf_count", "said"), [(3, 0, "3 NaN among"), (0, 2, "2 Inf among"), (3, 2, "3 NaN and 2 Inf among")]
)
def test_nan_and_inf_have_their_own_message(nan_count: int, inf_count: int, said: str) -> None:
    """Non-finite elements are counted and placed instead of being called an error of some size."""
    (problem,) = problems([replace(RIGHT, nan_count=nan_count, inf_count=inf_count)])
    assert re.match(rf"timed inputs: 'out' holds {said} 8 elements where the reference is finite, first at", problem)
    assert "(0, 3), expected 2" in problem
    assert "never written is NaN too" in problem


def test_a_budget_of_zero_is_said() -> None:
    """An exact output that is off is not divided by its budget."""
    (problem,) = problems([replace(RIGHT, max_error=1.0, max_budget=0.0)])
    assert "allowed is 0 (the budget is zero)" in problem


def test_comparing_nothing_is_a_problem() -> None:
    """Figures over no elements prove nothing."""
    assert problems([replace(RIGHT, elements=0)]) == ("timed inputs: 'out' has no elements: nothing was compared",)
