from __future__ import annotations

import math
from dataclasses import replace

import pytest

from pytest_attnperf.correctness.budget import compute_budget, list_problems
from pytest_attnperf.records import ErrorFigures, Tolerance

RIGHT = ErrorFigures(
    "timed inputs", "out", 0.5, 1.0, 0.1, 0.2, worst_index=(0, 3), worst_got=2.5, worst_expected=2.0, elements=8
)


def test_the_budget_is_twice_the_plain_error_and_one_step() -> None:
    """multiplier * plain error + rounding step, with a multiplier of 2 unless a source says otherwise."""
    assert compute_budget(0.25, 0.125, Tolerance().multiplier) == 0.625
    assert compute_budget(0.25, 0.125, Tolerance(10.0, source="CK backward").for_output("dq")) == 2.625


def test_figures_within_budget_have_no_problem() -> None:
    """An error equal to its budget is allowed."""
    assert list_problems([RIGHT, replace(RIGHT, max_error=1.0, rms_error=0.2)]) == ()


def test_an_error_beyond_its_budget_says_where_and_by_how_much() -> None:
    """The text holds error, place, budget, their ratio, what came and what should have come."""
    assert list_problems([replace(RIGHT, max_error=3.0)]) == (
        "timed inputs: 'out' is off by 3 at (0, 3), allowed is 1 (3 x the budget): got 2.5, expected 2",
    )


def test_values_that_differ_look_different() -> None:
    """Of two that agree in six digits more are shown."""
    (text,) = list_problems([replace(RIGHT, max_error=4.0, worst_got=25.7965126, worst_expected=25.7965490)])
    assert "got 25.7965126, expected 25.796549" in text


def test_the_root_mean_square_is_judged_beside_the_maximum() -> None:
    """Many small errors fail though no single one is beyond the maximum's budget."""
    assert list_problems([replace(RIGHT, rms_error=0.5)]) == (
        "timed inputs: 'out' is off by 0.5 in the root mean square over 8 elements, allowed is 0.2 (2.5 x the budget)",
    )


@pytest.mark.parametrize("field", ["max_error", "max_budget", "rms_error", "rms_budget"])
def test_nan_figures_never_pass(field: str) -> None:
    """A NaN anywhere in a comparison fails it."""
    assert len(list_problems([replace(RIGHT, **{field: math.nan})])) == 1


ROW = replace(
    RIGHT,
    max_error=3.0,
    worst_index=(0, 3),
    around_first=1,
    around_got=(0.5, 1.25, 7.25, 0.4),
    around_expected=(0.5, 1.25, 0.3, 0.4),
)


def test_the_neighbours_of_the_worst_element_are_shown() -> None:
    """What stands around the worst element tells one bad element from a bad row; an element alone has no neighbours."""
    (problem,) = list_problems([ROW])
    assert problem.endswith("; around it: got 0.5 1.25 *7.25* 0.4, expected 0.5 1.25 0.3 0.4")
    (alone,) = list_problems([replace(ROW, worst_index=(), around_first=0, around_got=(7.25,), around_expected=(0.3,))])
    assert "around it" not in alone


@pytest.mark.parametrize(
    ("count", "first", "last", "said"),
    [
        (512, (0, 32, 0, 0), (1, 47, 3, 31), "512 of 4096 elements beyond, all in [0:2, 32:48, 0:4, 0:32]"),
        (256, (0, 47, 0, 0), (1, 47, 3, 31), "256 of 4096 elements beyond, all in [0:2, 47, 0:4, 0:32]"),
        (2, (0, 47, 2, 0), (0, 48, 2, 0), "2 of 4096 elements beyond, all in [0, 47:49, 2, 0]"),
        (1, (0, 47, 2, 0), (0, 47, 2, 0), "1 of 4096 elements beyond"),
        (4096, (0, 0, 0, 0), (1, 1, 31, 31), "4096 of 4096 elements beyond"),
    ],
)
def test_how_many_elements_are_beyond_and_where(
    count: int, first: tuple[int, ...], last: tuple[int, ...], said: str
) -> None:
    """The box of all wrong elements is said where it says more than their number; one index is written alone."""
    figures = replace(RIGHT, max_error=3.0, elements=4096, beyond_count=count, beyond_first=first, beyond_last=last)
    (problem,) = list_problems([figures])
    assert problem.endswith(f"expected 2; {said}")


@pytest.mark.parametrize(
    ("nan_count", "inf_count", "said"), [(3, 0, "3 NaN among"), (0, 2, "2 Inf among"), (3, 2, "3 NaN and 2 Inf among")]
)
def test_nan_and_inf_have_their_own_message(nan_count: int, inf_count: int, said: str) -> None:
    """Non-finite elements are counted and placed instead of being called an error of some size; NaN has a reason."""
    figures = replace(RIGHT, nan_count=nan_count, inf_count=inf_count, beyond_count=8)
    (problem,) = list_problems([figures])
    assert problem.startswith(
        f"timed inputs: 'out' holds {said} 8 elements where the reference does not, first at (0, 3): expected 2; "
        "8 of 8 elements beyond"
    )
    assert ("never written is NaN too" in problem) == (nan_count > 0)


def test_a_finite_element_in_place_of_inf_has_its_own_message() -> None:
    """A row that sees no key must give -inf: a number there is no error of some size, and values are said as words."""
    values = {"around_first": 2, "around_got": (1.0, 0.5), "around_expected": (1.0, "-inf")}
    (problem,) = list_problems([replace(RIGHT, finite_count=1, beyond_count=1, **values)])
    assert problem == (
        "timed inputs: 'out' is finite in 1 of 8 elements where the reference is NaN or Inf, first at (0, 3): "
        "got 0.5, expected -inf; around it: got 1 *0.5*, expected 1 -inf; 1 of 8 elements beyond"
    )
    (both,) = list_problems([replace(RIGHT, finite_count=2, inf_count=1)])
    assert "holds 1 Inf among 8 elements where the reference does not and is finite in 2 of 8 elements" in both


def test_a_budget_of_zero_is_said() -> None:
    """An exact output that is off is not divided by its budget."""
    (problem,) = list_problems([replace(RIGHT, max_error=1.0, max_budget=0.0)])
    assert "allowed is 0 (the budget is zero)" in problem


def test_comparing_nothing_is_a_problem() -> None:
    """Figures over no elements prove nothing."""
    assert list_problems([replace(RIGHT, elements=0)]) == (
        "timed inputs: 'out' has no elements: nothing was compared; use inputs that give some",
    )
