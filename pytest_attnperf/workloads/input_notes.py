"""What a reader must know of a function's inputs, because no check can see it: what never changes, and mixed widths."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from pytest_attnperf.workloads.float_widths import narrowest

if TYPE_CHECKING:
    import torch


def notes_on(names: Sequence[str], dtypes: Sequence[torch.dtype], constant: Sequence[str]) -> tuple[str, ...]:
    """In words, one for each kind of blindness.

    names, dtypes   of the inputs
    constant        names of those that are the same for every seed
    """
    return (*_on_constant(constant), *_on_widths(names, dtypes))


def _on_constant(constant: Sequence[str]) -> tuple[str, ...]:
    """An integer that inputs never hold (a label of -100) is among what is not seen, as is a weight that is ignored."""
    if not constant:
        return ()
    named = ", ".join(map(repr, constant))
    return (
        f"inputs() makes the same {named} for every seed: a kernel that ignores it, or is right for no other, would "
        "not be told",
    )


def _on_widths(names: Sequence[str], dtypes: Sequence[torch.dtype]) -> tuple[str, ...]:
    floats = {dtype for dtype in dtypes if dtype.is_floating_point}
    if len(floats) < 2 or not (found := narrowest(dtypes)):
        return ()
    (narrow,) = found
    # zip: names go on with those of incoming gradients, which have no width of their own
    because = ", ".join(repr(name) for name, dtype in zip(names, dtypes, strict=False) if dtype is narrow)
    wider = ", ".join(
        repr(name)
        for name, dtype in zip(names, dtypes, strict=False)
        if dtype.is_floating_point and dtype is not narrow
    )
    return (
        f"budgets are those of {str(narrow).removeprefix('torch.')} because of {because}: an arithmetic as narrow "
        f"would not be told of {wider}, either",
    )
