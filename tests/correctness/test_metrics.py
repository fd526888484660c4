from __future__ import annotations

import json
import math
import re

import pytest
import torch

from pytest_attnperf.correctness import assert_within_budget
from pytest_attnperf.correctness.budget import problems
from pytest_attnperf.correctness.metrics import MismatchError, Yardstick, compare, measure
from pytest_attnperf.records import ErrorFigures, Tolerance

F16_EPS = 2.0**-10


def figures(
    got: torch.Tensor,
    reference: torch.Tensor,
    max_error: float = 0.0,
    rms_error: float = 1.0,
    tolerance: Tolerance | None = None,
) -> ErrorFigures:
    """Compare under a yardstick of the given errors."""
    yardstick = Yardstick(got.dtype, max_error, rms_error)
    return compare("check", "out", got, reference, yardstick, tolerance or Tolerance())


def test_the_yardstick_is_the_plain_error() -> None:
    """Largest and root-mean-square error of the plain computation, and its dtype."""
    reference = torch.tensor([1.0, 2.0, 3.0, 4.0], dtype=torch.float64)
    plain = torch.tensor([1.0, 2.0, 3.0, 4.5], dtype=torch.float16)
    assert measure("out", reference, plain) == Yardstick(torch.float16, 0.5, 0.25)
    joined = Yardstick(torch.float16, 0.5, 0.1).joined(Yardstick(torch.float16, 0.1, 0.3))
    assert joined == Yardstick(torch.float16, 0.5, 0.3)


def test_errors_are_those_of_the_worst_element() -> None:
    """Error, index, got and expected are of the element furthest beyond its budget."""
    reference = torch.ones(2, 3, dtype=torch.float64)
    got = torch.ones(2, 3, dtype=torch.float16)
    got[1, 2], got[0, 1] = 1.5, 0.75
    result = figures(got, reference, max_error=0.125)
    assert (result.max_error, result.worst_index, result.worst_got, result.worst_expected) == (0.5, (1, 2), 1.5, 1.0)
    assert result.max_budget == 2 * 0.125 + F16_EPS
    assert result.rms_error == pytest.approx(math.sqrt((0.5**2 + 0.25**2) / 6))
    assert result.rms_budget == 2 * 1.0 + F16_EPS / 2
    assert result.elements == 6


def test_a_tolerance_multiplies_the_yardstick_alone() -> None:
    """A sourced multiplier widens both budgets by the yardstick, not by the rounding step."""
    ones = torch.ones(4, dtype=torch.float64)
    result = figures(ones.half(), ones, 0.5, 0.25, Tolerance(4.0, source="a report"))
    assert (result.max_budget, result.rms_budget) == (2.0 + F16_EPS, 1.0 + F16_EPS / 2)


def test_a_huge_element_does_not_excuse_a_small_one() -> None:
    """One rounding step of 1000 elsewhere does not allow that error on an element of size 1."""
    reference = torch.ones(100_000, dtype=torch.float64)
    reference[0] = 1000.0
    got = reference.half()
    got[0] += 1000 * F16_EPS / 2  # within its own rounding step
    assert figures(got, reference).max_error <= figures(got, reference).max_budget
    got[1] += 1000 * F16_EPS / 2
    result = figures(got, reference)
    assert result.worst_index == (1,)
    assert result.max_error > 50 * result.max_budget


def test_many_small_errors_show_in_the_root_mean_square() -> None:
    """Half the elements off by 0.9 of the maximum's budget pass the maximum and fail the root mean square."""
    reference = torch.ones(1000, dtype=torch.float64)
    got = reference.float()
    got[::2] += 0.18
    result = figures(got, reference, max_error=0.1, rms_error=0.01)
    assert result.max_error < result.max_budget
    assert result.rms_error > result.rms_budget


@pytest.mark.parametrize(("value", "nan_count", "inf_count"), [(math.nan, 1, 0), (math.inf, 0, 1), (-math.inf, 0, 1)])
def test_what_is_not_finite_is_counted_and_placed(value: float, nan_count: int, inf_count: int) -> None:
    """A NaN or Inf is found wherever a larger ordinary error is, and the figures can still be stored as JSON."""
    reference = torch.ones(3, 4, dtype=torch.float64)
    got = torch.full((3, 4), 9.0, dtype=torch.float16)
    got[2, 1] = value
    result = figures(got, reference)
    assert (result.nan_count, result.inf_count, result.worst_index) == (nan_count, inf_count, (2, 1))
    json.dumps(vars(result), allow_nan=False)
    assert len(problems([result])) == 1


def test_integers_are_compared_exactly() -> None:
    """An index off by one is wrong; equal ones are right."""
    reference = torch.arange(10)
    assert problems([figures(reference.clone(), reference, 0.0, 0.0)]) == ()
    assert len(problems([figures(reference + 1, reference, 0.0, 0.0)])) == 2


ONES = torch.ones(2, 3)


@pytest.mark.parametrize(
    ("got", "message"),
    [
        (ONES.T, "output 'out' has shape (3, 2), expected (2, 3)"),
        (ONES[:1], "output 'out' has shape (1, 3), expected (2, 3)"),
        (ONES.double(), "output 'out' has dtype torch.float64, expected torch.float32"),
        (ONES.to_sparse(), "output 'out' has layout torch.sparse_coo, expected torch.strided"),
        (ONES.to("meta"), "output 'out' has device meta, expected cpu"),
    ],
)
def test_another_kind_of_tensor_is_no_result(got: torch.Tensor, message: str) -> None:
    """Nothing is broadcast, cast or moved to make a comparison possible."""
    with pytest.raises(MismatchError, match=re.escape(message)):
        compare("check", "out", got, ONES.double(), Yardstick(torch.float32, 0.1, 0.1), Tolerance())


@pytest.mark.parametrize(
    ("reference", "plain", "message"),
    [
        (ONES, ONES[:1], "they must agree"),
        (ONES[:0], ONES[:0], "the reference of 'out' has no elements (shape (0, 3))"),
        (ONES * math.nan, ONES, "the reference of 'out' holds NaN or Inf"),
        (ONES, ONES * math.inf, "the plain computation of 'out' holds NaN or Inf"),
    ],
)
def test_a_yardstick_that_allows_anything_is_refused(
    reference: torch.Tensor, plain: torch.Tensor, message: str
) -> None:
    """An infinite or missing plain error would make every result right."""
    with pytest.raises(MismatchError, match=re.escape(message)):
        measure("out", reference, plain)


def test_assert_within_budget_is_usable_alone() -> None:
    """It is silent within the budget, and raises with the full text beyond it or for another shape."""
    reference = torch.linspace(1, 2, 100, dtype=torch.float64)
    plain = reference.half()
    assert_within_budget(plain, reference, plain)
    with pytest.raises(AssertionError, match=r"'weights' is off by 0\.25 at \(7,\).* x the budget\): got 1\.3"):
        wrong = plain.clone()
        wrong[7] += 0.25
        assert_within_budget(wrong, reference, plain, name="weights")
    with pytest.raises(AssertionError, match="has shape"):
        assert_within_budget(plain[:5], reference, plain)
    assert_within_budget(plain * 1.004, reference, plain, tolerance=Tolerance(20.0, source="a test"))
