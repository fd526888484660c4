"""How much of a comparison is kept: what reports show and later checks need, and not the digits beyond it."""

from __future__ import annotations

import math
from dataclasses import replace

from pytest_attnperf.records import ErrorFigures

DIGITS = 5
"""Significant digits of errors and budgets, and of the difference between the worst element and what was expected
there: as many as times have."""

SHOWN_DIGITS = 6
"""Significant digits of the values around a wrong element: as many as reports print."""


def shortened(figures: ErrorFigures) -> ErrorFigures:
    """The figures in so many digits, and without neighbours of the worst element where nothing is wrong.

    An error within its budget stays within it, and one beyond it beyond.
    """
    errors = [_pair(error, budget) for error, budget in figures.budgets]
    (max_error, max_budget), (rms_error, rms_budget), (line_error, line_budget) = errors
    got, expected = _apart(figures.worst_got, figures.worst_expected)
    shown = () if _is_right(figures) else (figures.around_got, figures.around_expected)
    around_got, around_expected = (tuple(map(_word, values)) for values in shown or ((), ()))
    return replace(
        figures,
        max_error=max_error,
        max_budget=max_budget,
        rms_error=rms_error,
        rms_budget=rms_budget,
        line_error=line_error,
        line_budget=line_budget,
        worst_got=got,
        worst_expected=expected,
        around_first=figures.around_first if shown else 0,
        around_got=around_got,
        around_expected=around_expected,
    )


def _is_right(figures: ErrorFigures) -> bool:
    unexpected = figures.nan_count or figures.inf_count or figures.finite_count
    return not unexpected and all(error <= budget for error, budget in figures.budgets)


def _pair(error: float, budget: float) -> tuple[float, float]:
    short = _short(error), _short(budget)
    kept = all(map(math.isfinite, short)) and (short[0] <= short[1]) == (error <= budget)
    return short if kept else (error, budget)


def _apart(got: float, expected: float) -> tuple[float, float]:
    """Two values with as many digits as their difference needs: nearly equal ones need more."""
    gap, size = abs(got - expected), max(abs(got), abs(expected))
    if not 0 < gap < math.inf:
        return got, expected
    digits = DIGITS + max(0, math.ceil(math.log10(size / gap)))
    return _short(got, digits), _short(expected, digits)


def _word(value: float | str) -> float | str:
    return value if isinstance(value, str) else _short(value, SHOWN_DIGITS)


def _short(value: float, digits: int = DIGITS) -> float:
    return float(f"{value:.{digits}g}")
