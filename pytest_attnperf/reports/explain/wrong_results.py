"""Describes a wrong result: by how much, where, and what the inputs of its check held."""

from __future__ import annotations

import math

from pytest_attnperf.records import ErrorFigures
from pytest_attnperf.reports.run.error_shares import compute_excess, divide_by_budget
from pytest_attnperf.reports.text.figures import one_line
from pytest_attnperf.results import CaseResult

PLANTED = ("replay", "planted inputs", "last call")
"""Parts of the names of checks whose inputs are planted, unless a check of the case says that they are not."""

UNPLANTED, FUNCTIONS = "not planted", "gate"
"""Part of the name of the second check where its inputs are not planted; the backend in the keys of functions."""


def find_worst_figures(case: CaseResult) -> ErrorFigures | None:
    """Returns the figures of the output that exceeds its budget most; None if every output is within budget."""
    beyond = [figures for check in case.checks for figures in check.figures if compute_excess(figures) > 1]
    return max(beyond, key=compute_excess, default=None)


def describe_worst_output(worst: ErrorFigures) -> list[str]:
    """Says by how much an output exceeds its budget, at which element, and in which box."""
    name = f"Output '{one_line(worst.output)}' of the check '{one_line(worst.check)}'"
    if math.isinf(compute_excess(worst)):
        counts = ((worst.nan_count, "NaN"), (worst.inf_count, "Inf"), (worst.finite_count, "finite values"))
        held = ", ".join(f"{count} {kind}" for count, kind in counts if count) or "an error that is not a number"
        sentences = [f"{name} holds {held} among {worst.elements} elements where the reference does not."]
        if worst.nan_count:
            sentences.append(
                "Outputs are filled with NaN before each checked call: one that is never written stays NaN."
            )
    else:
        sentences = [
            f"{name} has a maximum error of {worst.max_error:.3g}, allowed is {worst.max_budget:.3g}: "
            f"{divide_by_budget(worst.max_error, worst.max_budget):.3g} times its budget. The error is "
            f"{worst.rms_error:.3g} in the "
            f"root mean square ({divide_by_budget(worst.rms_error, worst.rms_budget):.3g} times)."
        ]
        if not worst.line_error <= worst.line_budget:
            sentences.append(
                f"On {one_line(worst.line)} alone the error is {worst.line_error:.3g} in the root mean square, "
                f"{divide_by_budget(worst.line_error, worst.line_budget):.3g} times the budget there."
            )
    if worst.worst_index:
        got, wanted = f"{worst.worst_got:.6g}", f"{worst.worst_expected:.6g}"
        sentences.append(f"The worst element is {list(worst.worst_index)}: got {got}, expected {wanted}.")
    return [*sentences, *_describe_box(worst)]


def _describe_box(worst: ErrorFigures) -> list[str]:
    if not worst.beyond_count or len(worst.beyond_first) != len(worst.beyond_last) or not worst.beyond_first:
        return []
    ends = zip(worst.beyond_first, worst.beyond_last, strict=True)
    box = ", ".join(str(first) if first == last else f"{first}:{last + 1}" for first, last in ends)
    return [
        f"{worst.beyond_count} of {worst.elements} elements exceed it, all in [{box}]. A box that ends at a multiple "
        "of a tile, or at the last rows, suggests a wrong mask or tail; one batch or head, a wrong offset."
    ]


def describe_garbage(case: CaseResult) -> list[str]:
    """Says which unused elements held NaN and Inf in a check that is right without them; [] without such a check."""
    held = {name: count for check in case.checks if check.reads_garbage for name, count in check.garbage.items()}
    if not held:
        return []
    where = ", ".join(f"{count} of {one_line(name)}" for name, count in held.items())
    return [
        f"It is right without the NaN and Inf that unused elements of its inputs hold ({where}): the kernel reads "
        "padding, or slots without a key. Mask the loads themselves; a weight of 0 hides no NaN."
    ]


def describe_planting(case: CaseResult, worst: ErrorFigures) -> list[str]:
    """Says what the planted elements of the failed check's inputs are; [] where none were planted."""
    checks = [figures.check for report in case.checks for figures in report.figures]
    if not any(name in worst.check for name in PLANTED) or any(UNPLANTED in check for check in checks):
        return []
    if case.key.backend == FUNCTIONS:
        return [
            "Where inputs allow it, this check makes single elements and rows of them large, at edges (first, last, "
            "powers of two, tile borders): a wrong result there alone means that such an element was lost."
        ]
    return [
        "The inputs of this check hold planted keys, each of which dominates one row at an edge (first, last, tile "
        "borders, mask, window): a completely wrong row means that its key was lost, counted twice or not masked."
    ]
