"""Instructions that became worse than the stored kernel's: matrix instructions lost, loads and stores narrowed.

Widths are compared by the mean of the bytes that one instruction of a kind moves per lane. Counts are static: how often
a loop runs is not known.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from pytest_attnperf.codeobject.instructions import width_bytes
from pytest_attnperf.gate.code.causes import counts_changed, kind_of
from pytest_attnperf.gate.code.compared import Compared
from pytest_attnperf.gate.code.rules import MATRIX, Said, counted, is_matrix

MOVING = (
    ("global_load", "global load", "global loads"),
    ("global_load_lds", "global load into LDS", "global loads into LDS"),
    ("global_store", "global store", "global stores"),
    ("lds_read", "LDS read", "LDS reads"),
    ("lds_write", "LDS write", "LDS writes"),
)
"""Kinds of instructions that move data of some width, and what a sentence calls one and several of them."""


def worse_instructions(pair: Compared, *, promised: bool) -> Iterator[Said]:
    """Matrix instructions that went (where no promise makes that a rule of its own) and loads that narrowed.

    Nothing of a candidate that was not decoded: that is a rule's note already.
    """
    if pair.old.undecoded or not pair.old.instructions:
        yield f"not compared: instructions (stored: {pair.old.undecoded or 'it was not disassembled'})"
    elif pair.new.instructions and not pair.new.undecoded:
        yield from _matrix(pair, promised)
        for kind, one, several in MOVING:
            yield from _widths(pair, kind, one, several)


def _matrix(pair: Compared, promised: bool) -> Iterator[Said]:
    before, after = (code.instructions.get(MATRIX, 0) for code in (pair.old, pair.new))
    looped, loops = (code.in_loops.get(MATRIX, 0) for code in (pair.old, pair.new))
    if before and not after and not promised:
        text = f"all {before} matrix instructions are gone"
        yield pair.finding("matrix", counted(before, "matrix instruction"), "0 matrix instructions", text, is_matrix)
    elif after and loops < looped:
        text = f"matrix instructions inside loops {looped} -> {loops} (in all {before} -> {after})"
        before_text, after_text = (f"{count} matrix instructions in loops" for count in (looped, loops))
        yield pair.finding("matrix", before_text, after_text, text, is_matrix, warns=True)


def _widths(pair: Compared, kind: str, one: str, several: str) -> Iterator[Said]:
    """Narrower anywhere is a finding; it only warns inside loops and of LDS.

    Code may have moved out of the loop, and widths in LDS follow from the tile's layout: another tile moves them in
    both directions.
    """
    tile = f"{kind}_tile"

    def concerns(name: str) -> bool:
        return kind_of(name) in (kind, tile)

    for scope, old, new in (
        ("", pair.old.instructions, pair.new.instructions),
        (" inside loops", pair.old.in_loops, pair.new.in_loops),
    ):
        before, after = _by_width(old, kind), _by_width(new, kind)
        if not _narrowed(before, after):
            continue
        changes = ", ".join(counts_changed(new, old, concerns))
        if any(new.get(name, 0) > old.get(name, 0) for name in (kind, tile)):
            yield f"not compared: widths of {several}{scope}, some of which have none ({changes})"
            return
        narrower = [f"{_mean(side):.3g} bytes per {one}" for side in (before, after)]
        text = f"{several}{scope} narrowed from {_mean(before):.3g} to {_mean(after):.3g} bytes per lane: {changes}"
        warns = bool(scope) or kind.startswith("lds_")
        yield pair.finding("wider_loads", narrower[0], narrower[1], text, concerns, warns=warns)
        return


def _by_width(counts: Mapping[str, int], kind: str) -> dict[int, int]:
    """Instructions of a kind by the bytes they move per lane."""
    sized = {width_bytes(name): count for name, count in counts.items() if kind_of(name) == kind and count}
    return {width: count for width, count in sized.items() if width is not None}


def _mean(counts: Mapping[int, int]) -> float:
    return sum(width * count for width, count in counts.items()) / sum(counts.values())


def _narrowed(before: Mapping[int, int], after: Mapping[int, int]) -> bool:
    """Whether instructions move less on average and some that move more than the narrowest left are fewer."""
    if not before or not after or _mean(after) >= _mean(before):
        return False
    return any(after.get(width, 0) < count for width, count in before.items() if width > min(after))
