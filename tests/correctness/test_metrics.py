from __future__ import annotations

import json
import math
import re
from dataclasses import replace

import pytest
import torch

from pytest_attnperf.correctness.budget import list_problems
from pytest_attnperf.correctness.metrics import (
    MismatchError,
    Yardstick,
    compare_output,
    find_constant_value,
    measure_yardstick,
    rounding_step,
)
from pytest_attnperf.records import ErrorFigures, Tolerance

F16_EPS = 2.0**-10
FP8 = [torch.float8_e4m3fn, torch.float8_e5m2, torch.float8_e4m3fnuz, torch.float8_e5m2fnuz]
FLOATS = [torch.float64, torch.float32, torch.float16, torch.bfloat16, *FP8]


def figures(
    got: torch.Tensor,
    reference: torch.Tensor,
    max_error: float = 0.0,
    rms_error: float = 1.0,
    tolerance: Tolerance | None = None,
) -> ErrorFigures:
    """Compare under a yardstick of the given errors."""
    yardstick = Yardstick(got.dtype, max_error, rms_error)
    return compare_output("check", "out", got, reference, yardstick, tolerance or Tolerance())


def test_the_yardstick_is_the_plain_error() -> None:
    """Largest and root-mean-square error of the plain computation, and its dtype."""
    reference = torch.tensor([1.0, 2.0, 3.0, 4.0], dtype=torch.float64)
    plain = torch.tensor([1.0, 2.0, 3.0, 4.5], dtype=torch.float16)
    assert replace(measure_yardstick("out", reference, plain), lines={}) == Yardstick(torch.float16, 0.5, 0.25)
    joined = Yardstick(torch.float16, 0.5, 0.1).merge(Yardstick(torch.float16, 0.1, 0.3))
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
    assert len(list_problems([result])) == 1


def test_integers_are_compared_exactly() -> None:
    """An index off by one is wrong; equal ones are right."""
    reference = torch.arange(10)
    assert list_problems([figures(reference.clone(), reference, 0.0, 0.0)]) == ()
    assert len(list_problems([figures(reference + 1, reference, 0.0, 0.0)])) == 2


def test_booleans_are_compared_exactly() -> None:
    """One wrong boolean among many is found."""
    reference = torch.arange(12).reshape(3, 4) % 3 == 0
    assert list_problems([figures(reference.clone(), reference, 0.0, 0.0)]) == ()
    got = reference.clone()
    got[1, 2] ^= True
    result = figures(got, reference, 0.0, 0.0)
    assert (result.worst_index, result.worst_got, result.worst_expected) == ((1, 2), 0.0, 1.0)
    assert list_problems([result])


def test_quantised_integers_are_held_against_real_values() -> None:
    """Rounding to int8 is off by up to half a step, which is the yardstick; no rounding step is added to it."""
    reference = torch.linspace(-100, 100, 4001, dtype=torch.float64)
    plain = reference.round().to(torch.int8)
    yardstick = measure_yardstick("q", reference, plain)
    assert yardstick.max_error == pytest.approx(0.5)
    result = compare_output("check", "q", reference.floor().to(torch.int8), reference, yardstick, Tolerance())
    assert result.max_budget == 2 * yardstick.max_error
    assert result.rms_error <= result.rms_budget  # truncation is within twice the error of rounding
    for wrong in (plain + 2, torch.zeros_like(plain)):
        assert list_problems([compare_output("check", "q", wrong, reference, yardstick, Tolerance())])


@pytest.mark.parametrize("dtype", FLOATS)
def test_every_floating_type_is_judged(dtype: torch.dtype) -> None:
    """Rounding to a type is right in it; one element off by three of its steps, or NaN, is not."""
    reference = torch.linspace(1.0, 1.75, 64, dtype=torch.float64).reshape(4, 16)
    plain = reference.to(dtype)
    yardstick = measure_yardstick("out", reference, plain)
    assert list_problems([compare_output("check", "out", plain.clone(), reference, yardstick, Tolerance())]) == ()
    off = reference.clone()
    off[2, 5] += 3 * max(rounding_step(dtype), 1e-6) + 2 * yardstick.max_error
    result = compare_output("check", "out", off.to(dtype), reference, yardstick, Tolerance())
    assert (result.worst_index, result.beyond_count) == ((2, 5), 1)
    assert list_problems([result])
    off[2, 5] = math.nan
    result = compare_output("check", "out", off.to(dtype), reference, yardstick, Tolerance())
    assert (result.nan_count, result.worst_index) == (1, (2, 5))


@pytest.mark.parametrize(("dtype", "mantissa_bits"), list(zip(FLOATS, [52, 23, 10, 7, 3, 2, 3, 2], strict=True)))
def test_the_rounding_step_is_that_of_the_mantissa(dtype: torch.dtype, mantissa_bits: int) -> None:
    """The spacing at 1 is 2^-bits, also where `torch.finfo` says half of it."""
    assert rounding_step(dtype) == 2.0**-mantissa_bits


def test_integers_have_no_rounding_step() -> None:
    """Nothing is added to the budget of what is exact."""
    assert rounding_step(torch.int8) == rounding_step(torch.bool) == 0.0


LSE = torch.tensor([[1.0, 2.0, -math.inf], [math.nan, math.inf, 3.0]], dtype=torch.float64)


def test_the_same_pattern_of_nan_and_inf_is_right() -> None:
    """NaN for NaN and Inf for the same Inf are exactly right, and errors are those of the finite elements."""
    plain = LSE.float()
    plain[0, 1] += 0.5
    yardstick = measure_yardstick("lse", LSE, plain, non_finite=True)
    assert yardstick == Yardstick(torch.float32, 0.5, pytest.approx(0.5 / math.sqrt(3)))
    result = compare_output("check", "lse", plain, LSE, yardstick, Tolerance())
    assert (result.nan_count, result.inf_count, result.finite_count, result.beyond_count) == (0, 0, 0, 0)
    assert result.rms_error == pytest.approx(yardstick.rms_error)
    assert result.rms_budget == pytest.approx(2 * yardstick.rms_error + 2**-24 * math.sqrt(14 / 3))
    assert (result.worst_index, result.max_error) == ((0, 1), 0.5)
    assert list_problems([result]) == ()


@pytest.mark.parametrize(
    ("place", "value", "counts"),
    [
        ((0, 0), math.nan, (1, 0, 0)),
        ((0, 0), -math.inf, (0, 1, 0)),
        ((0, 2), math.nan, (1, 0, 0)),
        ((0, 2), math.inf, (0, 1, 0)),
        ((0, 2), -1e30, (0, 0, 1)),
        ((1, 0), math.inf, (0, 1, 0)),
        ((1, 0), 0.0, (0, 0, 1)),
        ((1, 1), torch.finfo(torch.float32).max, (0, 0, 1)),
    ],
)
def test_another_pattern_of_nan_and_inf_is_wrong(
    place: tuple[int, int], value: float, counts: tuple[int, int, int]
) -> None:
    """Each way to differ is counted as what the output holds, placed, and wrong, whatever the budget is."""
    got = LSE.float()
    got[place] = value
    result = figures(got, LSE, max_error=1e30, rms_error=1e30)
    assert (result.nan_count, result.inf_count, result.finite_count) == counts
    assert (result.worst_index, result.beyond_count, result.beyond_first) == (place, 1, place)
    assert result.max_error > result.max_budget
    assert len(list_problems([result])) == 1
    json.dumps(vars(result), allow_nan=False)


@pytest.mark.parametrize("place", [0, -1])
def test_an_output_that_is_exactly_right_has_no_error(place: int) -> None:
    """Where nothing is off, an Inf or NaN that belongs there is not the worst element."""
    for value in (float("-inf"), float("nan")):
        reference = torch.linspace(1, 2, 8)
        reference[place] = value
        yardstick = measure_yardstick("out", reference, reference.clone(), non_finite=True)
        figures = compare_output("check", "out", reference.clone(), reference, yardstick, Tolerance())
        assert (figures.max_error, figures.rms_error, figures.beyond_count) == (0.0, 0.0, 0)
        assert list_problems([figures]) == ()


def test_a_violation_comes_before_a_larger_error() -> None:
    """The worst element is the first violation, though others are off by more; the box holds both."""
    got = LSE.float()
    got[0, 0], got[1, 0], got[1, 1] = 100.0, 5.0, -math.inf
    result = figures(got, LSE, max_error=0.1)
    assert (result.worst_index, result.inf_count, result.finite_count) == ((1, 0), 1, 1)
    assert (result.beyond_count, result.beyond_first, result.beyond_last) == (3, (0, 0), (1, 1))
    assert (result.around_got, result.around_expected) == ((5.0, "-inf", 3.0), ("nan", "inf", 3.0))


def test_an_output_without_a_finite_element_has_no_small_error() -> None:
    """Where nothing can be compared, no figure is within its budget."""
    result = figures(torch.full((4,), math.nan), torch.arange(4.0, dtype=torch.float64), 1.0)
    assert result.max_error > result.max_budget
    assert result.rms_error > result.rms_budget
    json.dumps(vars(result), allow_nan=False)


def test_each_output_has_its_own_multiplier() -> None:
    """A tolerance that names an output widens its budgets and no other's."""
    ones = torch.ones(4, dtype=torch.float64)
    tolerance = Tolerance(2.0, source="a paper", outputs=(("dq", 4.0),))
    yardstick = Yardstick(torch.float16, 0.5, 0.25)
    for name, multiplier in (("dq", 4.0), ("dk", 2.0)):
        result = compare_output("check", name, ones.half(), ones, yardstick, tolerance)
        assert result.max_budget == multiplier * 0.5 + F16_EPS
        assert result.rms_budget == multiplier * 0.25 + F16_EPS / 2


@pytest.mark.parametrize(
    ("max_error", "rms_error", "multiplier"),
    [(0.5, 0.1, math.inf), (0.0, 0.0, math.inf), (math.inf, 0.1, 2.0), (0.1, math.nan, 2.0)],
)
def test_a_budget_that_allows_anything_is_refused(max_error: float, rms_error: float, multiplier: float) -> None:
    """No multiplier and no yardstick makes every result right."""
    tolerance = Tolerance(multiplier, source="nobody")
    with pytest.raises(MismatchError, match="the budget of 'out' is not finite"):
        figures(torch.ones(4), torch.ones(4, dtype=torch.float64), max_error, rms_error, tolerance)


def test_a_reference_beyond_fp64_is_refused() -> None:
    """A typical magnitude that overflows would allow any error."""
    reference = torch.full((4,), 1e200, dtype=torch.float64)
    with pytest.raises(MismatchError, match="too large to be judged: its squares overflow fp64"):
        compare_output("check", "out", reference * 2, reference, Yardstick(torch.float64, 0.1, 0.1), Tolerance())


def test_only_finite_elements_decide_whether_a_reference_is_constant() -> None:
    """Inf beside one value hides no constant; two values, or one element, are none."""
    inf = math.inf
    assert find_constant_value(torch.tensor([2.5, 2.5])) == 2.5
    assert find_constant_value(torch.tensor([-inf, 2.5, math.nan, 2.5])) == 2.5
    assert find_constant_value(torch.tensor([True, True])) == 1.0
    assert find_constant_value(torch.tensor([2**53, 2**53 + 1])) is None
    for values in ([1.0, 2.0], [-inf, 1.0, 2.0], [2.5], [-inf, 2.5]):
        assert find_constant_value(torch.tensor(values)) is None


ONES = torch.ones(2, 3)


@pytest.mark.parametrize(
    ("got", "message"),
    [
        (ONES.T, "has shape (3, 2), expected (2, 3); the layout looks transposed: permute(1, 0) gives the expected"),
        (ONES[:1], "has shape (1, 3), expected (2, 3); return every element of the result, in the expected layout"),
        (ONES.view(6), "has shape (6,), expected (2, 3); it has as many elements: reshape it if they are in the"),
        (ONES[:0], "has shape (0, 3), expected (2, 3); return every element"),
        (ONES.double(), "has dtype torch.float64, expected torch.float32; return the result in the type of the plain"),
        (ONES.to_sparse(), "has layout torch.sparse_coo, expected torch.strided; return a dense tensor"),
        (ONES.to("meta"), "has device meta, expected cpu; return the result where its inputs are"),
    ],
)
def test_another_kind_of_tensor_is_no_result(got: torch.Tensor, message: str) -> None:
    """Nothing is broadcast, cast or moved to make a comparison possible; what was seen, expected and to do is said."""
    with pytest.raises(MismatchError, match=re.escape(f"output 'out' {message}")):
        compare_output("check", "out", got, ONES.double(), Yardstick(torch.float32, 0.1, 0.1), Tolerance())


def test_the_order_of_transposed_dimensions_is_said() -> None:
    """(B, H, S, D) in place of (B, S, H, D) is named with the permutation that restores it."""
    reference = torch.ones(2, 48, 4, 32, dtype=torch.float64)
    with pytest.raises(MismatchError, match=re.escape("looks transposed: permute(0, 2, 1, 3) gives")):
        figures(torch.ones(2, 4, 48, 32), reference)


def test_nothing_is_no_result() -> None:
    """An output of no elements is refused even where its reference has none either."""
    with pytest.raises(MismatchError, match=re.escape("has no elements (shape (0, 3)): nothing can be compared")):
        figures(ONES[:0], ONES[:0].double())


COMPLEX = ONES.to(torch.complex64)


@pytest.mark.parametrize(
    ("reference", "plain", "message"),
    [
        (ONES, ONES[:1], "they must agree"),
        (ONES, ONES.to("meta"), "(2, 3) on cpu, the plain computation (2, 3) on meta: they must agree"),
        (ONES[:0], ONES[:0], "the reference of 'out' has no elements (shape (0, 3))"),
        (ONES * math.nan, ONES, "the reference of 'out' holds NaN or Inf"),
        (ONES, ONES * math.inf, "the plain computation of 'out' holds NaN or Inf"),
        (ONES.double() * 1e300, ONES.double(), "errors of the plain computation of 'out' overflow fp64"),
        (COMPLEX, COMPLEX, "has dtype torch.complex64; comparable are float64, float32"),
        (ONES.double(), COMPLEX, "bool: return its real view (torch.view_as_real)"),
        (ONES.to_sparse(), ONES, "the reference of 'out' has layout torch.sparse_coo, expected torch.strided"),
        (3.5, ONES, "the reference of 'out' is a float, not a torch.Tensor"),
        (ONES.half(), ONES, "is torch.float16, the plain computation torch.float32: compute it in fp32 or fp64"),
        (ONES.half(), ONES.half(), "its own rounding would pass for the truth"),
        (ONES, ONES.double(), "at least as precise as the output"),
        (ONES.double(), ONES.bool(), "is torch.float64, the plain computation torch.bool"),
        (ONES.int(), ONES, "return both as integers, both as booleans, or the reference in fp32 or fp64"),
        (ONES.bool(), ONES.int(), "return both as integers, both as booleans"),
        (ONES.int(), ONES.int() + 2, "compared exactly, but the plain computation differs from it, most at (0, 0): 3"),
    ],
)
def test_a_yardstick_that_allows_anything_is_refused(reference: object, plain: torch.Tensor, message: str) -> None:
    """A plain error that is infinite, missing or meaningless would make wrong results right."""
    with pytest.raises(MismatchError, match=re.escape(message)):
        measure_yardstick("out", reference, plain)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("reference", "plain", "message"),
    [
        (LSE, LSE.float().nan_to_num(), "3 of 6 elements differ, first at (0, 2): -3.40282e+38 against -inf"),
        (LSE, LSE.float().abs(), "1 of 6 elements differ, first at (0, 2): inf against -inf"),
        (LSE.nan_to_num(0.0, 0.0, 0.0), LSE.float(), "3 of 6 elements differ, first at (0, 2): -inf against 0"),
        (LSE[:, 2:][:1], LSE.float()[:, 2:][:1], "holds no finite element among 1"),
    ],
)
def test_a_pattern_the_plain_computation_does_not_share_is_refused(
    reference: torch.Tensor, plain: torch.Tensor, message: str
) -> None:
    """Where NaN and Inf are announced, both must hold the same ones, and leave something to measure."""
    with pytest.raises(MismatchError, match=re.escape(message)):
        measure_yardstick("lse", reference, plain, non_finite=True)
