"""How large an error may be, and what is said of one that is larger. Pure Python.

The budget is measured, not guessed: an output may be off by `multiplier` times what the plain computation in the
working dtype is off by on the same inputs, plus one rounding step of the output type (flash-attention's tests use the
same rule with a multiplier of 2). Every comparison is written so that NaN fails it.
"""

from __future__ import annotations

from collections.abc import Sequence

from pytest_attnperf.records import ErrorFigures, Tolerance


def budget(plain_error: float, rounding_step: float, tolerance: Tolerance) -> float:
    """The error allowed: tolerance.multiplier * plain_error + rounding_step, in the units of the output.

    rounding_step   spacing of the output type at the magnitude in question: eps * |value|, with eps 2^-10 for f16,
                    2^-7 for bf16, 2^-23 for f32
    """
    return tolerance.multiplier * plain_error + rounding_step


def problems(figures: Sequence[ErrorFigures]) -> tuple[str, ...]:
    """What is wrong, in words; empty when every figure is within its budget."""
    return tuple(text for figure in figures for text in _problems_of(figure))


def _problems_of(figure: ErrorFigures) -> list[str]:
    where = f"{figure.check}: {figure.output!r}"
    if not figure.elements > 0:
        return [f"{where} has no elements: nothing was compared"]
    if figure.nan_count or figure.inf_count:
        return [_not_finite(figure, where)]
    found = []
    if not figure.max_error <= figure.max_budget:
        found.append(
            f"{where} is off by {figure.max_error:.3g} at {figure.worst_index}, allowed is {figure.max_budget:.3g} "
            f"({in_budgets(figure.max_error, figure.max_budget)}): got {figure.worst_got:.6g}, "
            f"expected {figure.worst_expected:.6g}"
        )
    if not figure.rms_error <= figure.rms_budget:
        found.append(
            f"{where} is off by {figure.rms_error:.3g} in the root mean square over {figure.elements} elements, "
            f"allowed is {figure.rms_budget:.3g} ({in_budgets(figure.rms_error, figure.rms_budget)})"
        )
    return found


def _not_finite(figure: ErrorFigures, where: str) -> str:
    counts = ((figure.nan_count, "NaN"), (figure.inf_count, "Inf"))
    said = " and ".join(f"{count} {kind}" for count, kind in counts if count)
    return (
        f"{where} holds {said} among {figure.elements} elements where the reference is finite, first at "
        f"{figure.worst_index}, expected {figure.worst_expected:.6g}; outputs are filled with NaN before a checked "
        "call, so an element never written is NaN too"
    )


def in_budgets(error: float, allowed: float) -> str:
    """'3.20 x the budget', or in words where the budget is zero."""
    return f"{error / allowed:.3g} x the budget" if allowed > 0 else "the budget is zero"
