"""Choices of points -> regions: neighbouring sizes of one shape with one choice, and what lies between and beyond them.

Between two measured sizes that choose the same backend, it is taken to hold. Where they choose differently, the first
holds up to the last size at which it was shown to win, and what lies between is unmeasured: a table says so, and a
function returns the incumbent there. A size at which a single backend was measured shows that it works, not that it
wins, so it stands by itself.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from pytest_attnperf.errors import UsageError
from pytest_attnperf.tools.dispatch.decisions import ALONE, CLEAR, TIE, Choice, Judge
from pytest_attnperf.tools.dispatch.features import Shape, Value
from pytest_attnperf.tools.dispatch.points import LeftOut, Point

COMBINED = {"dtype": str, "head_dim": int, "batch": int}
"""Fields of which combinations that were never measured are named, with what they hold."""


@dataclass(frozen=True)
class Region:
    """Sizes of one shape that choose one backend, from the smallest to the largest measured one."""

    backend: str
    choices: tuple[Choice, ...]

    @property
    def first(self) -> int:
        """The smallest measured size, 0 where the shape has no axis."""
        return self.choices[0].point.size

    @property
    def last(self) -> int:
        """The largest measured size."""
        return self.choices[-1].point.size

    @property
    def sampled(self) -> bool:
        """Whether every choice could be judged by samples."""
        return all(choice.sampled for choice in self.choices)

    @property
    def confidence(self) -> str:
        """'clear', or 'clear, tie at 1024'; without samples this is by the margin alone."""
        tied = [choice.point.size for choice in self.choices if choice.confidence == TIE]
        if not tied or len(tied) == len(self.choices):
            return self.choices[0].confidence
        return f"{CLEAR}, {TIE} at {_sizes(tied)}"

    @property
    def backends(self) -> tuple[int, int]:
        """The smallest and the largest number of backends that were measured at one of its sizes."""
        counts = [len(choice.point.times) for choice in self.choices]
        return min(counts), max(counts)

    @property
    def margins(self) -> tuple[float, float] | None:
        """Smallest and largest margin over the fastest other backend; None where there is no other."""
        margins = [choice.margin for choice in self.choices if choice.margin is not None]
        return (min(margins), max(margins)) if margins else None

    @property
    def against(self) -> tuple[str, ...]:
        """The fastest other backends, in order of size."""
        return tuple(dict.fromkeys(choice.against for choice in self.choices if choice.against))


@dataclass(frozen=True)
class Group:
    """One shape with its regions, by size."""

    shape: Shape
    regions: tuple[Region, ...]

    @property
    def gaps(self) -> list[tuple[int, int]]:
        """First and last size of each stretch between two regions, where nothing was measured."""
        pairs = itertools.pairwise(self.regions)
        return [(left.last + 1, right.first - 1) for left, right in pairs if left.last + 1 < right.first]

    @property
    def absent(self) -> dict[int, list[str]]:
        """By size, backends that were measured at another size of this shape, but not at this one."""
        points = [choice.point for region in self.regions for choice in region.choices]
        every = sorted({timed.backend for point in points for timed in point.times})
        absent = {point.size: [name for name in every if point.of(name) is None] for point in points}
        return {size: names for size, names in absent.items() if names}

    @property
    def decided(self) -> bool:
        """Whether there was anything to choose between."""
        return any(region.against for region in self.regions)


@dataclass(frozen=True)
class DispatchTable:
    """What was decided.

    incumbents   by family: takes ties, and everything unmeasured
    margin       as a fraction
    left_out     cases that nothing was decided from
    """

    groups: tuple[Group, ...]
    incumbents: Mapping[str, str]
    margin: float
    left_out: tuple[LeftOut, ...] = ()


def dispatch_table(
    points: Sequence[Point], left_out: Iterable[LeftOut] = (), *, margin: float, incumbent: str = "", family: str = ""
) -> DispatchTable:
    """Decide every point and form regions; noise is pooled over all families, also where only one is shown.

    Raises UsageError for no points, an unknown family or incumbent, and a margin that is none.
    """
    left_out = tuple(case for case in left_out if family in ("", case.workload.split("-")[0]))
    families = sorted({point.shape.family for point in points})
    if not points:
        raise UsageError(f"no case was proven right and timed, so nothing can be chosen.{_why(left_out)}")
    if family and family not in families:
        raise UsageError(f"--family {family!r} has no measured case; families with some: {', '.join(families)}")
    judge = Judge(points, margin, incumbent)
    shown = [point for point in points if family in ("", point.shape.family)]
    groups = tuple(
        Group(shape, _regions([judge.choice(point) for point in of_shape]))
        for shape, of_shape in itertools.groupby(shown, key=lambda point: point.shape)
    )
    incumbents = {name: backend for name, backend in judge.incumbents.items() if family in ("", name)}
    return DispatchTable(groups, incumbents, margin, left_out)


def never_combined(groups: Iterable[Group]) -> list[tuple[str, dict[str, Value]]]:
    """(family, fields) of each combination of dtypes, head dimensions and batches that occur in a family, but never
    together."""
    missing: list[tuple[str, dict[str, Value]]] = []
    for family, of_family in itertools.groupby(groups, key=lambda group: group.shape.family):
        shapes = [group.shape for group in of_family]
        names = [
            name for name, kind in COMBINED.items() if all(isinstance(shape.value(name), kind) for shape in shapes)
        ]
        seen = {tuple(shape.value(name) for name in names) for shape in shapes}
        values = [sorted({combination[index] for combination in seen}, key=_sort_key) for index in range(len(names))]
        for combination in itertools.product(*values):
            if combination not in seen:
                known = {name: value for name, value in zip(names, combination, strict=True) if value is not None}
                missing.append((family, known))
    return missing


def _regions(choices: Sequence[Choice]) -> tuple[Region, ...]:
    grouped = itertools.groupby(
        choices, key=lambda choice: (choice.backend, choice.confidence == ALONE and choice.point.size)
    )
    return tuple(Region(backend, tuple(of_backend)) for (backend, _), of_backend in grouped)


def _sizes(sizes: Sequence[int]) -> str:
    return ", ".join(map(str, sizes)) if len(sizes) <= 2 else f"{len(sizes)} sizes"


def _sort_key(value: Value | None) -> tuple[int, str]:
    return (value, "") if isinstance(value, int) else (0, str(value))


def _why(left_out: Sequence[LeftOut]) -> str:
    if not left_out:
        return " Measure some by pytest --attnperf on a GPU"
    first = left_out[0]
    return f" Left out were {len(left_out)}; the first: {first.backend} on {first.workload!r}, {first.why}"
