"""Chooses how strong slowdowns must be, and measures what they really do, apart from every gate."""

from __future__ import annotations

import itertools
import os
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path

from figures_records import TrueSize

from benchmarks.quality.forks import Forked, forked
from benchmarks.quality.processes import Case, Variant, compiled, ratios
from benchmarks.slowdowns import EDITS, ROOT, make_tree

SIZE_PROCESSES = 2
REFINED = 1
"""How often the strengths that were chosen are tried and chosen again: what an edit costs can be hidden up to a point
behind waiting for memory, and is then all there at once."""

WEAKER, STRONGER = 0.25, 4.0
"""How far beyond its probes an edit is made stronger: one that shows nothing is not made so without end."""

Strengths = Mapping[str, int]
"""Name of an edit, or on a CPU of a case, -> strength; what is not named is as it is."""


class Trees:
    """Trees of edited kernels below a folder, each made once; on a CPU nothing is edited, and calls spin."""

    def __init__(self, folder: Path, device: str) -> None:
        self.folder, self.device = folder, device
        self._made: dict[tuple[tuple[str, int], ...], Path] = {}

    def variant(self, strengths: Strengths) -> Variant:
        """The code with these strengths; none is the code as it is."""
        edits = tuple(sorted((name, strength) for name, strength in strengths.items() if name in EDITS))
        if self.device == "gpu" and edits not in self._made:
            self._made[edits] = make_tree(self.folder / f"tree{len(self._made)}", dict(edits))
        spin_ns = {name: strength for name, strength in strengths.items() if name not in EDITS}
        return Variant(self._made.get(edits, ROOT), spin_ns)

    def compile(self, variants: Sequence[Variant], cases: Sequence[Case]) -> None:
        """Compile variants side by side, so that measuring finds them in the compiler's cache."""
        if self.device != "gpu":
            return
        at_once = max(1, (os.cpu_count() or 2) // 2)
        for start in range(0, len(variants), at_once):
            some = [_compiling(one, self.device, cases) for one in variants[start : start + at_once]]
            for child in some:
                child.result()

    def slowdowns(self, strengths: Sequence[Strengths], cases: Sequence[Case], count: int) -> list[list[Slowdowns]]:
        """What `count` fresh processes say: of each one of `strengths` case -> (slowdown, unchanged microseconds)."""
        base, variants = self.variant({}), [self.variant(one) for one in strengths]
        self.compile([base, *variants], cases)
        found = [forked(lambda: ratios(base, variants, self.device, cases)) for _ in range(count)]
        return [[{case: (ratio - 1, us) for case, (ratio, us) in one.items()} for one in process] for process in found]


Slowdowns = dict[str, tuple[float, float]]


def _compiling(variant: Variant, device: str, cases: Sequence[Case]) -> Forked:
    return Forked(lambda: compiled(variant, device, cases))


def choose_strengths(trees: Trees, cases: Sequence[Case], levels: Mapping[str, float]) -> dict[str, dict[str, int]]:
    """Label -> edit -> the strength that comes nearest to the label's level, on the first case that names the edit.

    On a CPU a case spins for the level's share of what an unchanged call takes.
    """
    if trees.device != "gpu":
        plain = trees.slowdowns([{}], cases, 3)
        us = {case.name: statistics.median(process[0][case.name][1] for process in plain) for case in cases}
        return {
            label: {case.name: max(1, round(1000 * level * us[case.name])) for case in cases}
            for label, level in levels.items()
        }
    owners = {case.edit: case for case in reversed(cases)}
    probes = {edit: EDITS[edit].strengths for edit in owners}
    rounds = itertools.zip_longest(*([(edit, each) for each in probes[edit]] for edit in owners))
    asked = [dict(filter(None, one)) for one in rounds]
    curves: dict[str, list[tuple[int, float]]] = {edit: [] for edit in owners}
    for _ in range(REFINED + 1):
        (found,) = trees.slowdowns(asked, cases, 1)
        for strengths, slowdowns in zip(asked, found, strict=True):
            for edit, strength in strengths.items():
                curves[edit].append((strength, slowdowns[owners[edit].name][0]))
        chosen = {
            label: {edit: strength_for(sorted(curve), level) for edit, curve in curves.items()}
            for label, level in levels.items()
        }
        asked = list(chosen.values())
    return chosen


def sized(
    trees: Trees, cases: Sequence[Case], strengths: Mapping[str, Strengths], levels: Mapping[str, float], run: str
) -> list[TrueSize]:
    """What each label's strengths really do to each case: mean and standard deviation over fresh processes.

    On a CPU that is what was asked for: the time that calls spin is exact, and an unchanged call's scatters.
    """
    found = trees.slowdowns(list(strengths.values()), cases, SIZE_PROCESSES) if trees.device == "gpu" else []
    sizes = []
    for (at, (label, by_knob)), case in itertools.product(enumerate(strengths.items()), cases):
        level = levels[label]
        knob = case.edit if case.edit in EDITS else case.name
        measured = [process[at][case.name][0] for process in found] or [level] * SIZE_PROCESSES
        size, sd = statistics.fmean(measured), statistics.stdev(measured)
        how = f"{case.edit} {by_knob[knob]}"
        sizes.append(TrueSize(run, case.name, label, level, round(size, 6), round(sd, 6), how))
    return sizes


def strengths_of(sizes: Sequence[TrueSize]) -> dict[str, dict[str, int]]:
    """Label -> edit, or case on a CPU, -> strength, as sizes say how they were made."""
    found: dict[str, dict[str, int]] = {}
    for size in sizes:
        edit, strength = size.how.rsplit(" ", 1)
        found.setdefault(size.label, {})[edit if edit in EDITS else size.case] = int(strength)
    return found


def strength_for(curve: Sequence[tuple[int, float]], level: float) -> int:
    """The strength that slows by `level`, between the probes (strength, slowdown) that lie around it; at least 1.

    The last place where the curve passes the level is taken: a weak edit may seem to slow by chance.
    """
    points = [(0, 0.0), *curve]
    for (low, below), (high, above) in reversed(list(itertools.pairwise(points))):
        if above >= level > below:
            return max(1, round(low + (level - below) / (above - below) * (high - low)))
    strongest, slowdown = points[-1]
    factor = level / slowdown if slowdown > 0 else STRONGER
    return max(1, round(strongest * min(STRONGER, max(WEAKER, factor))))
