"""Notes about a function's inputs that limit what checks can detect: inputs that never change, and mixed widths."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from pytest_attnperf.workloads.float_widths import find_narrowest

if TYPE_CHECKING:
    import torch


def notes_on(
    names: Sequence[str], dtypes: Sequence[torch.dtype], constant: Sequence[str], one_signed: Sequence[str] = ()
) -> tuple[str, ...]:
    """Returns notes, in words, about errors that checks cannot detect for these inputs, one for each kind; () if there
    are none.

    names, dtypes   of the inputs
    constant        names of the inputs that are the same for every seed
    one_signed      names of the inputs that vary, but have one sign only
    """
    return (*_notes_on_constant(constant), *_notes_on_signs(one_signed), *_notes_on_widths(names, dtypes))


def notes_on_unseen(unseen: Sequence[str]) -> tuple[str, ...]:
    """Returns a note about inputs whose change alters the result by no more than rounding; () if `unseen` is empty."""
    if not unseen:
        return ()
    named = ", ".join(map(repr, unseen))
    return (
        f"changing {named} changes the result by less than rounding may: a kernel that leaves "
        f"{'one' if len(unseen) > 1 else 'it'} out is right for these inputs; give larger values",
    )


def note_left(left: Sequence[str]) -> tuple[str, ...]:
    """Returns a note about inputs without planted elements, where others have some; () if `left` is empty."""
    if not left:
        return ()
    named, has = ", ".join(map(repr, left)), "have" if len(left) > 1 else "has"
    return (
        f"{named} {has} no planted elements, as bounded or normalised numbers; inputs(seed, planted) may plant them",
    )


def notes_on_unsearched(reason: str) -> tuple[str, ...]:
    """Returns a note that no element of the inputs holds NaN, because of `reason`: a clause about the reference; () if
    that is empty."""
    if not reason:
        return ()
    return (
        f"no unused element of the inputs was filled with NaN: the reference {reason}, so what it does not read is not "
        "known; where a cache or padding is never read, let inputs(seed, planted) put NaN there",
    )


def _notes_on_signs(one_signed: Sequence[str]) -> tuple[str, ...]:
    """Returns a note, in words, about inputs of one sign, as torch.rand makes; () if there are none."""
    if not one_signed:
        return ()
    named, has = ", ".join(map(repr, one_signed)), "have" if len(one_signed) > 1 else "has"
    return (
        f"{named} {has} one sign: a kernel that leaves out relu or abs is right for these inputs; where that matters, "
        "make both signs",
    )


def _notes_on_constant(constant: Sequence[str]) -> tuple[str, ...]:
    """Returns a note about inputs that no seed changes, which a kernel may ignore; () if `constant` is empty."""
    if not constant:
        return ()
    named = ", ".join(map(repr, constant))
    return (
        f"inputs() makes the same {named} for every seed: a kernel that ignores it, or is wrong for other values, "
        "would not be detected",
    )


def _notes_on_widths(names: Sequence[str], dtypes: Sequence[torch.dtype]) -> tuple[str, ...]:
    floats = {dtype for dtype in dtypes if dtype.is_floating_point}
    if len(floats) < 2 or not (found := find_narrowest(dtypes)):
        return ()
    (narrow,) = found
    # strict=False: names also include incoming gradients, which have no width of their own
    because = ", ".join(repr(name) for name, dtype in zip(names, dtypes, strict=False) if dtype is narrow)
    wider = ", ".join(
        repr(name)
        for name, dtype in zip(names, dtypes, strict=False)
        if dtype.is_floating_point and dtype is not narrow
    )
    return (
        f"budgets are those of {str(narrow).removeprefix('torch.')} because of {because}: computing with {wider} in "
        "the same low precision would not be detected",
    )
