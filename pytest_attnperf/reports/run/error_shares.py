"""Computes how much of its error budget a result has used: 1 is an error as large as the tolerance allows."""

from __future__ import annotations

import math

from pytest_attnperf.records import ErrorFigures
from pytest_attnperf.reports.text.figures import ABSENT, format_share
from pytest_attnperf.results import CaseResult

BEYOND = "beyond"
"""Text for a share that no number says: NaN or Inf where the reference has none, or an error where none is allowed."""


def compute_excess(figures: ErrorFigures) -> float:
    """Returns the largest error as a multiple of its budget; infinite for an unexpected NaN, Inf or finite value."""
    if figures.nan_count or figures.inf_count or figures.finite_count:
        return math.inf
    shares = [divide_by_budget(error, budget) for error, budget in figures.budgets]
    return math.inf if any(math.isnan(share) for share in shares) else max(shares)


def divide_by_budget(error: float, budget: float) -> float:
    """Returns error / budget; for a budget of 0 it is 0 without an error, else infinite."""
    if budget > 0:
        return error / budget
    return 0.0 if error == 0 else math.inf


def compute_error_share(case: CaseResult) -> float | None:
    """Returns the largest error of a case's checks as a share of its budget, over all outputs, inputs and rows; above 1
    the case is wrong. None where nothing was compared."""
    return max((compute_excess(figures) for check in case.checks for figures in check.figures), default=None)


def format_error_share(share: float | None) -> str:
    """Formats a share as '61 %', below 1 % as '0.04 %', infinity as 'beyond'; '-' for None."""
    if share is None:
        return ABSENT
    if math.isinf(share):
        return BEYOND
    return f"{share * 100:.1g} %" if 0 < share < 0.01 else format_share(share)
