"""What the reference of a gated function gives for its timed inputs, now and when a time was stored: pure.

The name of a reference stays when its body is edited; what it gives does not. The timed inputs are the same in every
process, so that results are, too, but for rounding.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from pytest_attnperf.correctness.digest import INPUTS, Digest
from pytest_attnperf.records.notes import Note, NoteKind

APART = 0.005
"""How far the figures of one problem may be apart, in units of their root mean square. What another order of summation
moves is below 1e-5 of it, in fp32, too; another result of the same size moves the projection by about all of it."""


def other_truth(now: Mapping[str, Digest], then: Mapping[str, Digest], other: str = "stored") -> list[Note]:
    """Why results that were proven now and `then` are not those of one problem; empty where one side does not know.

    Where inputs() makes other inputs, nothing is said of the reference, whose results follow from them.

    other   what the side of `then` is called
    """
    differ = [name for name in now if name in then and _apart(now[name], then[name])]
    inputs = [name for name in differ if name.startswith(INPUTS)]
    return [Note(NoteKind.WORKLOAD, _said(name, now[name], then[name], other)) for name in inputs or differ]


def agreed(truths: Iterable[Mapping[str, Digest]]) -> dict[str, Digest]:
    """Those of the first that every other confirms: nobody can be held to what each process draws anew."""
    first, *others = truths
    return {
        name: figures
        for name, figures in first.items()
        if all(name in other and not _apart(figures, other[name]) for other in others)
    }


def _apart(ours: Digest, theirs: Digest) -> bool:
    size = max(ours[0], theirs[0])
    return any(not abs(one - two) <= APART * size for one, two in zip(ours, theirs, strict=True))


def _said(name: str, ours: Digest, theirs: Digest, other: str) -> str:
    pairs = zip(("rms", "projection"), ours, theirs, strict=True)
    figures = "; ".join(f"{what} {here:.6g} here, {there:.6g} {other}" for what, here, there in pairs)
    if name.startswith(INPUTS):
        what = f"inputs() makes another {name.removeprefix(INPUTS)!r}"
        why = "; it was changed, or draws other numbers with this torch or on this device"
    else:
        what, why = f"the reference gives another {name!r}", ""
    said = f"{what} than when the baseline was recorded, for the same seed ({figures}){why}"
    return f"{said}; if that is meant, record it again"
