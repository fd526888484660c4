"""What a reader must know of a function's inputs, because no check can see it: what never changes, and mixed widths."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from pytest_attnperf.workloads.float_widths import find_narrowest

if TYPE_CHECKING:
    import torch


def notes_on(
    names: Sequence[str], dtypes: Sequence[torch.dtype], constant: Sequence[str], one_signed: Sequence[str] = ()
) -> tuple[str, ...]:
    """In words, one for each kind of blindness.

    names, dtypes   of the inputs
    constant        names of those that are the same for every seed
    one_signed      names of those that vary, but hold no element of the other sign
    """
    return (*_notes_on_constant(constant), *_notes_on_signs(one_signed), *_notes_on_widths(names, dtypes))


def notes_on_unseen(unseen: Sequence[str]) -> tuple[str, ...]:
    """What is said of inputs by these names whose change is no more than rounding in the result."""
    if not unseen:
        return ()
    named = ", ".join(map(repr, unseen))
    return (
        f"changing {named} changes the result by less than what rounding may: a kernel that leaves "
        f"{'one' if len(unseen) > 1 else 'it'} out is right for these inputs; give larger values",
    )


def _notes_on_signs(one_signed: Sequence[str]) -> tuple[str, ...]:
    """torch.rand makes no negative number."""
    if not one_signed:
        return ()
    named, has = ", ".join(map(repr, one_signed)), "have" if len(one_signed) > 1 else "has"
    return (
        f"{named} {has} one sign: a kernel that leaves out relu or abs is right for these inputs; where that matters, "
        "make both signs",
    )


def _notes_on_constant(constant: Sequence[str]) -> tuple[str, ...]:
    """An integer that inputs never hold (a label of -100) is among what is not seen, as is a weight that is ignored."""
    if not constant:
        return ()
    named = ", ".join(map(repr, constant))
    return (
        f"inputs() makes the same {named} for every seed: a kernel that ignores it, or is right for no other, would "
        "not be told",
    )


def _notes_on_widths(names: Sequence[str], dtypes: Sequence[torch.dtype]) -> tuple[str, ...]:
    floats = {dtype for dtype in dtypes if dtype.is_floating_point}
    if len(floats) < 2 or not (found := find_narrowest(dtypes)):
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
