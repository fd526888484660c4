from __future__ import annotations

import math
import re
from typing import Any

import pytest
import torch

from pytest_attnperf.correctness import assert_within_budget
from pytest_attnperf.records import Tolerance

REFERENCE = torch.linspace(1, 2, 100, dtype=torch.float64).reshape(10, 10)
PLAIN = REFERENCE.half()
LSE = torch.linspace(3, 4, 10, dtype=torch.float64)
BOTH, BOTH_PLAIN = {"out": REFERENCE, "lse": LSE}, {"out": PLAIN, "lse": LSE.float()}


def wrong(tensor: torch.Tensor = PLAIN, place: Any = (7, 3), by: float = 0.25) -> torch.Tensor:
    """The tensor with one element off."""
    changed = tensor.clone()
    changed[place] += by
    return changed


def refused(*arguments: Any, **options: Any) -> str:
    """The text of the AssertionError that must come."""
    with pytest.raises(AssertionError) as caught:
        assert_within_budget(*arguments, **options)
    return str(caught.value)


def test_a_right_result_is_silent() -> None:
    """Within the budget nothing happens: single, in a tuple, in a dict, and as a leaf that requires gradients."""
    assert_within_budget(PLAIN, REFERENCE, PLAIN)
    assert_within_budget((PLAIN, LSE.float()), (REFERENCE, LSE), [PLAIN, LSE.float()])
    assert_within_budget(dict(BOTH_PLAIN), BOTH, BOTH_PLAIN)
    assert_within_budget(PLAIN.clone().requires_grad_(), REFERENCE.clone().requires_grad_(), PLAIN)


def test_a_wrong_result_says_all_that_is_known() -> None:
    """Error, place, budget, values, neighbours and how many elements are beyond, under the name given."""
    text = refused(wrong(), REFERENCE, PLAIN, name="weights")
    assert re.match(
        r"assert_within_budget: 'weights' is off by 0\.25 at \(7, 3\), allowed is 0\.\d+ \([\d.]+ x the budget\): "
        r"got 1\.98\d*, expected 1\.73\d*; around it: got [\d. ]+ \*1\.98\d*\* [\d. ]+, expected [\d. ]+; "
        r"1 of 100 elements beyond",
        text,
    )


def test_every_output_is_judged() -> None:
    """All problems of all outputs are said at once, by the names of a dict or the numbers of a tuple."""
    both_wrong = {"out": wrong(), "lse": wrong(LSE.float(), 4, 1.0)}
    text = refused(both_wrong, BOTH, BOTH_PLAIN)
    assert "'out' is off by 0.25 at (7, 3)" in text
    assert "'lse' is off by 1 at (4,)" in text
    text = refused((PLAIN, both_wrong["lse"]), (REFERENCE, LSE), (PLAIN, LSE.float()), name="result")
    assert text.startswith("assert_within_budget: 'result1' is off by 1 at (4,)")


def test_other_names_are_said() -> None:
    """Missing and unexpected outputs fail, and those that can be compared are compared all the same."""
    text = refused({"out": wrong(), "dq": PLAIN, "dk": PLAIN}, BOTH, BOTH_PLAIN)
    first, second, *_ = text.splitlines()
    assert first == (
        "assert_within_budget: the result is missing 'lse' and holds 'dk', 'dq', which no reference is given for; "
        "expected are ['lse', 'out']: give all three as a tensor, or all as a list or dict"
    )
    assert "'out' is off by 0.25" in second
    assert "is missing 'out1'" in refused((PLAIN,), (REFERENCE, LSE), (PLAIN, LSE.float()))


@pytest.mark.parametrize(
    ("got", "message"),
    [
        (PLAIN[:5], "output 'out' has shape (5, 10), expected (10, 10)"),
        (PLAIN.float(), "output 'out' has dtype torch.float32, expected torch.float16"),
        (PLAIN.to("meta"), "output 'out' has device meta, expected cpu"),
        (PLAIN.tolist(), "is missing 'out'"),
        (3.5, "output 'out' is a float, not a torch.Tensor"),
        (PLAIN * math.nan, "'out' holds 100 NaN among 100 elements"),
    ],
)
def test_anything_but_the_result_is_an_assertion_error(got: Any, message: str) -> None:
    """A result of another shape, dtype, device or kind is wrong, not a crash."""
    assert message in refused(got, REFERENCE, PLAIN)


def test_a_tolerance_widens_the_budget() -> None:
    """A sourced multiplier allows more, of all outputs or of the one it names."""
    off = {"out": PLAIN * 1.004, "lse": LSE.float()}
    assert_within_budget(off, BOTH, BOTH_PLAIN, tolerance=Tolerance(20.0, source="a test"))
    assert_within_budget(off, BOTH, BOTH_PLAIN, tolerance=Tolerance(2.0, "a test", (("out", 20.0),)))
    assert "'out'" in refused(off, BOTH, BOTH_PLAIN, tolerance=Tolerance(2.0, "a test", (("lse", 20.0),)))


def test_announced_inf_is_matched_exactly() -> None:
    """With `non_finite` the same Inf is right, another one wrong; without it the reference is refused."""
    reference = LSE.clone()
    reference[3] = -math.inf
    plain = reference.float()
    assert_within_budget(plain.clone(), reference, plain, non_finite=True)
    assert "is finite in 1 of 10 elements" in refused(LSE.float(), reference, plain, non_finite=True)
    with pytest.raises(ValueError, match="the reference of 'out' holds NaN or Inf"):
        assert_within_budget(plain, reference, plain)


@pytest.mark.parametrize(
    ("reference", "plain", "message"),
    [
        (REFERENCE.half(), PLAIN.float(), "is torch.float16, the plain computation torch.float32: compute it in fp32"),
        (torch.full((10,), 2.5), torch.full((10,), 2.5), "the reference of 'out' is constant (2.5 everywhere)"),
        (REFERENCE, PLAIN[:5], "(10, 10) on cpu, the plain computation (5, 10) on cpu: they must agree"),
        (REFERENCE[:0], PLAIN[:0], "has no elements (shape (0, 10))"),
        (REFERENCE, PLAIN * math.inf, "the plain computation of 'out' holds NaN or Inf"),
        (BOTH, {"out": PLAIN}, "the reference holds ['lse', 'out'], the plain computation ['out']; both must hold"),
        ((), (), "the reference holds [], the plain computation []; both must hold the same outputs, at least one"),
    ],
)
def test_a_check_that_proves_nothing_is_wrong_use(reference: Any, plain: Any, message: str) -> None:
    """A reference or plain computation that nothing can be held against is the caller's error, whatever the result."""
    with pytest.raises(ValueError, match=re.escape(message)):
        assert_within_budget(plain, reference, plain)


def test_the_example_of_the_docstring_runs() -> None:
    """The lines under 'Example:' pass for the plain kernel and fail for one that drops the last key."""
    lines = (assert_within_budget.__doc__ or "").partition("Example:\n")[2].partition("\n\n")[0]
    example = "\n".join(line.removeprefix("        ") for line in lines.splitlines()).replace("cuda", "cpu")

    def short(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        return torch.softmax(q @ k[..., :-1, :].mT / 8, -1) @ v[..., :-1, :]

    torch.manual_seed(1)
    exec(example, {"torch": torch, "assert_within_budget": assert_within_budget, "my_kernel": math_attention})
    with pytest.raises(AssertionError, match="x the budget"):
        exec(example, {"torch": torch, "assert_within_budget": assert_within_budget, "my_kernel": short})


def math_attention(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    """Another way to compute the example's attention: in fp32, rounded once."""
    return torch.softmax(q.float() @ k.float().mT / 8, -1).matmul(v.float()).to(q.dtype)
