"""Error budgets, and the messages about errors that exceed them. Pure Python.

The budget is measured, not guessed. The allowed error of an output is `multiplier` times the error of the plain
computation in the working dtype on the same inputs, plus one rounding step of the output type (flash-attention's tests
use the same rule with a multiplier of 2). Every comparison is written so that NaN fails it.

Figures are rounded before they are stored: only the digits that reports show and later checks need are kept.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from pytest_attnperf.records import ErrorFigures

TIMED, PLANTED = "timed inputs", "planted inputs"
"""Names of the two checks of every proof."""

UNPLANTED = "other inputs (not planted: "
"""Start of the second check's name where a workload gives a reason not to plant inputs."""

APART = "outputs under no_grad, each gradient asked for alone"
"""Name of the check of a function with gradients when it is called in other ways."""

LAST_REPLAY, LAST_CALL = "last replay", "last call"
"""Names of the check that follows timing."""


def compute_budget(plain_error: float, rounding_step: float, multiplier: float) -> float:
    """Returns the allowed error, multiplier * plain_error + rounding_step, in the units of the output.

    rounding_step   spacing of the output type at the magnitude in question: eps * |value|, with eps 2^-10 for f16, 2^-7
                    for bf16, 2^-23 for f32; 0 for integers
    multiplier      `Tolerance.for_output` of the output
    """
    return multiplier * plain_error + rounding_step


def list_problems(figures: Sequence[ErrorFigures]) -> tuple[str, ...]:
    """Returns, in words, each error beyond its budget, unexpected NaN or Inf, and empty output; () if all is right."""
    return tuple(text for figure in figures for text in _list_figure_problems(figure))


def format_in_budgets(error: float, allowed: float) -> str:
    """Formats error / allowed as '3.2 x the budget', or 'the budget is zero' if nothing is allowed."""
    return f"{error / allowed:.3g} x the budget" if allowed > 0 else "the budget is zero"


def _list_figure_problems(figure: ErrorFigures) -> list[str]:
    where = f"{figure.check}: {figure.output!r}"
    if not figure.elements > 0:
        return [f"{where} has no elements: nothing was compared; use inputs that give some"]
    if figure.nan_count or figure.inf_count or figure.finite_count:
        return [_describe_not_finite(figure, where)]
    found = []
    if not figure.max_error <= figure.max_budget:
        found.append(
            f"{where} is off by {figure.max_error:.3g} at {figure.worst_index}, allowed is {figure.max_budget:.3g} "
            f"({format_in_budgets(figure.max_error, figure.max_budget)}): "
            f"{_format_pair(figure.worst_got, figure.worst_expected)}{_format_neighbours(figure)}"
            f"{_format_extent(figure)}"
        )
    if not figure.rms_error <= figure.rms_budget:
        found.append(
            f"{where} is off by {figure.rms_error:.3g} in the root mean square over {figure.elements} elements, "
            f"allowed is {figure.rms_budget:.3g} ({format_in_budgets(figure.rms_error, figure.rms_budget)})"
        )
    if not figure.line_error <= figure.line_budget:
        found.append(
            f"{where} is off by {figure.line_error:.3g} in the root mean square of {figure.line}, allowed is "
            f"{figure.line_budget:.3g} ({format_in_budgets(figure.line_error, figure.line_budget)})"
        )
    return found


def _describe_not_finite(figure: ErrorFigures, where: str) -> str:
    counts = ((figure.nan_count, "NaN"), (figure.inf_count, "Inf"))
    held = " and ".join(f"{count} {kind}" for count, kind in counts if count)
    said = [f"holds {held} among {figure.elements} elements where the reference does not"] if held else []
    if figure.finite_count:
        said.append(
            f"is finite in {figure.finite_count} of {figure.elements} elements where the reference is NaN or Inf"
        )
    got, expected = (_format_worst(figure, values) for values in (figure.around_got, figure.around_expected))
    values = f"got {got}, expected {expected}" if got else f"expected {figure.worst_expected:.6g}"
    poisoned = "; outputs are filled with NaN before a checked call, so an element never written is NaN too"
    return (
        f"{where} {' and '.join(said)}, first at {figure.worst_index}: "
        f"{values}{_format_neighbours(figure)}{_format_extent(figure)}"
        f"{poisoned if figure.nan_count else ''}"
    )


def _format_pair(got: float, expected: float) -> str:
    """Formats 'got 0.5, expected 0.25', with as many digits as the two need to look different."""
    digits = next((digits for digits in (6, 9) if f"{got:.{digits}g}" != f"{expected:.{digits}g}"), 17)
    return f"got {got:.{digits}g}, expected {expected:.{digits}g}"


def _format_worst(figure: ErrorFigures, values: Sequence[float | str]) -> str:
    """Formats the worst element's value, the middle one of `values` (elements of its row); '' if `values` is empty."""
    return _format_value(values[_find_middle(figure)]) if values else ""


def _format_neighbours(figure: ErrorFigures) -> str:
    """Formats the elements around the worst one, itself between asterisks: '; around it: got 0.5 *7.25* 0.4, expected
    0.5 0.3 0.4'. Returns '' if fewer than two are stored."""
    if len(figure.around_got) < 2:
        return ""
    got, expected = ([_format_value(value) for value in row] for row in (figure.around_got, figure.around_expected))
    got[_find_middle(figure)] = f"*{got[_find_middle(figure)]}*"
    return f"; around it: got {' '.join(got)}, expected {' '.join(expected)}"


def _find_middle(figure: ErrorFigures) -> int:
    """Returns the position of the worst element among the stored elements of its row; 0 for a scalar output."""
    return figure.worst_index[-1] - figure.around_first if figure.worst_index else 0


def _format_extent(figure: ErrorFigures) -> str:
    """Formats how many elements exceed their budget, and the index ranges that hold all of them: '; 512 of 4096
    elements beyond, all in [0:2, 47, 0:4, 0:32]'. A range of one index is written as that index; '' if none exceeds
    it."""
    if not figure.beyond_count:
        return ""
    said = f"; {figure.beyond_count} of {figure.elements} elements beyond"
    if figure.beyond_count in (1, figure.elements):
        return said
    ends = zip(figure.beyond_first, figure.beyond_last, strict=True)
    box = ", ".join(str(first) if first == last else f"{first}:{last + 1}" for first, last in ends)
    return f"{said}, all in [{box}]"


def _format_value(value: float | str) -> str:
    return value if isinstance(value, str) else f"{value:.6g}"


DIGITS = 5
"""Significant digits kept of errors and budgets, and of the difference between the worst element and its expected
value: as many as are kept of times."""

SHOWN_DIGITS = 6
"""Significant digits kept of the values around a wrong element: as many as reports print."""


def shorten_figures(figures: ErrorFigures) -> ErrorFigures:
    """Returns the figures rounded to the stored digits; drops the elements around the worst one if the output is right.
    Rounding never changes whether an error is within its budget."""
    errors = [_round_pair(error, budget) for error, budget in figures.budgets]
    (max_error, max_budget), (rms_error, rms_budget), (line_error, line_budget) = errors
    got, expected = _round_apart(figures.worst_got, figures.worst_expected)
    shown = () if _is_right(figures) else (figures.around_got, figures.around_expected)
    around_got, around_expected = (tuple(map(_round_value, values)) for values in shown or ((), ()))
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


def _round_pair(error: float, budget: float) -> tuple[float, float]:
    short = _round_digits(error), _round_digits(budget)
    kept = all(map(math.isfinite, short)) and (short[0] <= short[1]) == (error <= budget)
    return short if kept else (error, budget)


def _round_apart(got: float, expected: float) -> tuple[float, float]:
    """Rounds two values so that their difference keeps DIGITS digits; equal and infinite ones stay unchanged."""
    gap, size = abs(got - expected), max(abs(got), abs(expected))
    if not 0 < gap < math.inf:
        return got, expected
    digits = DIGITS + max(0, math.ceil(math.log10(size / gap)))
    return _round_digits(got, digits), _round_digits(expected, digits)


def _round_value(value: float | str) -> float | str:
    return value if isinstance(value, str) else _round_digits(value, SHOWN_DIGITS)


def _round_digits(value: float, digits: int = DIGITS) -> float:
    return float(f"{value:.{digits}g}")
