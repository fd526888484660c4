"""Checks with figures of a trace what the name of a kernel says: a kernel that prepares attention is none.

A name tells the family of most kernels. 'attention' in it may also say for which kernel another one works. So kernels
that are attention by a rule of this package are compared with what attention does: it keeps sums of products in
registers, takes longer per work-item than kernels that touch each element once, and is no step before another kernel of
attention. A word such as 'preprocess' before the family's word says so in the name.

A user's own rules are kept as they are.
"""

from __future__ import annotations

import re
import statistics
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from pytest_attnperf.records.profiles import Confidence, KernelShape
from pytest_attnperf.tools.profilers.claims.claim_rules import ENCODED_VGPRS
from pytest_attnperf.tools.profilers.dispatches import Dispatches
from pytest_attnperf.tools.profilers.kernel_families import ATTENTION, FamilyRules, KernelFamily
from pytest_attnperf.tools.profilers.name_matching import shorten_name

MOVED = KernelFamily("tensor copy", "copy")
"""Family of a kernel that only moves what attention reads or writes, if no other rule knows it."""

STEP_WORDS = re.compile(
    r"(?:^|[_:\s])((?:pre|post)_?process|prepare|prep|pack|unpack|pad|unpad|copy|layout|reorder|permute|transpose|"
    r"convert|cast|split|concat|gather|scatter)_(?=\w*(?:attn|attention|fmha|sdpa|flash))",
    re.IGNORECASE,
)
"""Words for moving data, before the word for attention."""

PART_WORDS = re.compile(r"reduce|combine|merge|stage|delta|dot_do|segments", re.IGNORECASE)
"""Words for parts of attention that need few registers."""

LIKE_COPIES = 2.0
"""Most time per work-item, relative to the median of kernels that touch each element once."""

LIGHT = frozenset({"conversion", "transpose", "tensor copy", "elementwise", "bias add", "normalisation", "activation"})
"""Families of such kernels."""

BEFORE_SHARE = 0.9
"""Least share of a kernel's dispatches that stand right before one other kernel of attention."""

SHORTER = 3.0
"""Least ratio of the other kernel's median time to its own."""


NEAR_ITEMS = 4
"""Most times the work-items of a kernel that another one is compared with."""


class _Pace(NamedTuple):
    """Work-items of a launch, and nanoseconds for each of them."""

    items: int
    item_ns: float


@dataclass(frozen=True)
class Classified:
    """What a kernel is.

    family       by its name, or another one if the evidence is against it
    confidence   SURE without evidence against the name; LIKELY if the evidence decides; DOUBTFUL if it does not suffice
    evidence     each a phrase
    """

    family: KernelFamily
    confidence: Confidence = Confidence.SURE
    evidence: tuple[str, ...] = ()


def classify_kernels(dispatches: Dispatches, rules: FamilyRules) -> dict[str, Classified]:
    """Returns the kernels whose name says attention and against which there is evidence, by name.

    Two pieces of evidence decide that a kernel only moves data, one leaves it doubtful."""
    attention = {
        shape.name
        for shape in dispatches.shapes
        if shape.kind == "kernel" and rules.find_family(shape.name).name == ATTENTION and not rules.is_own(shape.name)
    }
    if not attention:
        return {}
    durations = dispatches.durations_by_shape()
    times = _measure_items(dispatches.shapes, durations)
    light = [time for name, time in times.items() if rules.find_family(name).name in LIGHT]
    medians = {
        shape.name: statistics.median(each)
        for shape, each in zip(dispatches.shapes, durations, strict=True)
        if each and shape.name in attention
    }
    following = _count_following(dispatches, attention)
    found = {}
    for name in sorted(attention & medians.keys()):
        if PART_WORDS.search(name):
            continue
        shapes = [shape for shape in dispatches.shapes if shape.name == name]
        evidence = [
            *_read_words(name),
            *_compare_registers(shapes),
            *_compare_time(times.get(name), light),
            *_compare_neighbours(name, following.get(name, Counter()), medians),
        ]
        if len(evidence) >= 2:
            found[name] = Classified(rules.find_beside(name, ATTENTION) or MOVED, Confidence.LIKELY, tuple(evidence))
        elif evidence:
            found[name] = Classified(rules.find_family(name), Confidence.DOUBTFUL, tuple(evidence))
    return found


def _measure_items(shapes: Sequence[KernelShape], durations: Sequence[Sequence[int]]) -> dict[str, _Pace]:
    """Returns the pace of each kernel at the launch size that takes most time in all."""
    found: dict[str, tuple[int, _Pace]] = {}
    for shape, each in zip(shapes, durations, strict=True):
        items = shape.grid_items[0] * shape.grid_items[1] * shape.grid_items[2] if shape.grid_items else 0
        if each and items and shape.kind == "kernel":
            known = (sum(each), _Pace(items, statistics.median(each) / items))
            found[shape.name] = max(found.get(shape.name, known), known, key=lambda pair: pair[0])
    return {name: pace for name, (_, pace) in found.items()}


def _count_following(dispatches: Dispatches, attention: set[str]) -> Mapping[str, Counter[str]]:
    """Returns for each kernel of attention which kernels follow it, and how often."""
    names = [shape.name if shape.kind == "kernel" else "" for shape in dispatches.shapes]
    wanted = {number for number, name in enumerate(names) if name in attention}
    found: dict[str, Counter[str]] = {name: Counter() for name in attention}
    for one, other in zip(dispatches.shape, dispatches.shape[1:], strict=False):
        if one in wanted:
            found[names[one]][names[other]] += 1
    return found


def _read_words(name: str) -> list[str]:
    plain = name.partition("(")[0].partition("<")[0]
    word = STEP_WORDS.search(plain)
    return [f"its name has {word.group(1)!r} before 'attention'"] if word else []


def _compare_registers(shapes: Sequence[KernelShape]) -> list[str]:
    known = [shape for shape in shapes if shape.vgprs is not None]
    if not known or not all(has_one_granule(shape) and not shape.lds_bytes for shape in known):
        return []
    return [f"{max(shape.vgprs or 0 for shape in known)} VGPRs and no LDS hold no sums of products"]


def has_one_granule(shape: KernelShape) -> bool:
    """Returns whether a launch has at most 8 VGPRs and 8 AccVGPRs (one allocation granule); False if VGPRs are unknown.
    Both are checked, because architectures differ in which of the two figures holds the sum."""
    return shape.vgprs is not None and shape.vgprs <= ENCODED_VGPRS and (shape.accum_vgprs or 0) <= ENCODED_VGPRS


def _compare_time(own: _Pace | None, light: Sequence[_Pace]) -> list[str]:
    """Compares with kernels of as many work-items, give or take a factor: small ones take the time of their launch."""
    near = [pace.item_ns for pace in light if own and own.items <= NEAR_ITEMS * pace.items]
    if own is None or not near or own.item_ns > LIKE_COPIES * statistics.median(near):
        return []
    usual = statistics.median(near)
    return [f"{own.item_ns:.2g} ns per work-item, where kernels that touch each element once take {usual:.2g}"]


def _compare_neighbours(name: str, following: Counter[str], medians: Mapping[str, float]) -> list[str]:
    for other, calls in following.most_common(1):
        if other == name or other not in medians or medians[other] < SHORTER * medians[name]:
            continue
        if calls >= BEFORE_SHARE * following.total():
            return [f"{shorten_name(other)} follows in {calls:,} of {following.total():,} calls and takes longer"]
    return []
