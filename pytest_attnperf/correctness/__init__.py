"""Proving outputs right. `assert_within_budget` is usable alone, in any test."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_attnperf.correctness.budget import problems
from pytest_attnperf.correctness.metrics import MismatchError, compare, measure
from pytest_attnperf.records import Tolerance

if TYPE_CHECKING:
    import torch

__all__ = ["assert_within_budget"]


def assert_within_budget(
    got: torch.Tensor,
    reference: torch.Tensor,
    plain: torch.Tensor,
    *,
    tolerance: Tolerance | None = None,
    name: str = "out",
) -> None:
    """Raise AssertionError, saying where and by how much, unless `got` is within the measured budget.

    got         the output under judgement
    reference   the truth, same shape, in fp32 or fp64
    plain       the plain computation in the dtype of `got`, whose own error is the yardstick
    tolerance   2 x the plain computation's error unless given
    """
    try:
        yardstick = measure(name, reference, plain)
        figures = compare("assert_within_budget", name, got, reference, yardstick, tolerance or Tolerance())
    except MismatchError as error:
        raise AssertionError(str(error)) from error
    found = problems([figures])
    if found:
        raise AssertionError("\n".join(found))
