"""Divides a rectangle by weights into rectangles that are as square as possible.

The algorithm is that of Bruls, Huizing and van Wijk, "Squarified treemaps" (2000): rows along the shorter side, each as
long as its worst aspect ratio improves.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class TreemapArea:
    """A rectangle: its upper left corner, width and height."""

    x: float
    y: float
    width: float
    height: float


def squarify(weights: Sequence[float], within: TreemapArea) -> list[TreemapArea]:
    """Returns a part of `within` for each weight, in their order, whose size is its share. Weights must be above zero
    and in descending order for good shapes."""
    total = sum(weights)
    sizes = [weight * (within.width * within.height / total) for weight in weights]
    placed: list[TreemapArea] = []
    left = within
    while len(placed) < len(sizes):
        row = _take_row(sizes[len(placed) :], min(left.width, left.height))
        areas, left = _place_row(row, left)
        placed += areas
    return placed


def _take_row(sizes: Sequence[float], side: float) -> Sequence[float]:
    """Returns the first sizes, as many as make the row's worst aspect ratio along `side` no worse."""
    count, worst = 1, _find_worst_ratio(sizes[:1], side)
    while count < len(sizes):
        longer = _find_worst_ratio(sizes[: count + 1], side)
        if longer > worst:
            break
        count, worst = count + 1, longer
    return sizes[:count]


def _find_worst_ratio(row: Sequence[float], side: float) -> float:
    if not side:
        return 1.0
    thick = sum(row) / side
    return max(max(thick * thick / size, size / (thick * thick)) for size in row)


def _place_row(row: Sequence[float], left: TreemapArea) -> tuple[list[TreemapArea], TreemapArea]:
    """Returns the row's rectangles along the shorter side of `left`, and what remains of it."""
    areas, across = [], left.width < left.height
    side = left.width if across else left.height
    thick = sum(row) / side if side else 0.0
    at = left.x if across else left.y
    for size in row:
        length = size / thick if thick else 0.0
        areas.append(TreemapArea(at, left.y, length, thick) if across else TreemapArea(left.x, at, thick, length))
        at += length
    if across:
        return areas, TreemapArea(left.x, left.y + thick, left.width, max(left.height - thick, 0.0))
    return areas, TreemapArea(left.x + thick, left.y, max(left.width - thick, 0.0), left.height)
