"""Where labels of points and lines go so that they cover neither points nor each other. In pixels; nothing is drawn."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

CHARACTER, HEIGHT = 7.0, 11.0
"""Of a small label's text."""

MARKER = 5.0
"""Half the width of a point's marker."""

NEAR, STEP, RINGS, DIRECTIONS = 12.0, 9.0, 8, 12

FIRST_START, STARTS = 0.03, 12
"""Where text along a line begins, as a part of the line, and how many places are tried."""

Box = tuple[float, float, float, float]
Pixel = tuple[float, float]


@dataclass(frozen=True)
class Place:
    """Of a label's middle, from its point. far: it needs a line to its point. free: it covers nothing."""

    dx: float
    dy: float
    far: bool
    free: bool


@dataclass(frozen=True)
class Slant:
    """A straight line that rises to the right, with text along it. angle in radians."""

    x: float
    y: float
    angle: float
    length: float

    @classmethod
    def between(cls, first: Pixel, last: Pixel) -> Slant:
        """The line from one pixel to another."""
        across, up = last[0] - first[0], last[1] - first[1]
        return cls(*first, math.atan2(up, across), math.hypot(across, up))

    def at(self, part: float) -> Pixel:
        """The pixel at this part of the line."""
        reach = part * self.length
        return self.x + reach * math.cos(self.angle), self.y + reach * math.sin(self.angle)

    def boxes(self, start: float, width: float, above: bool) -> list[Box]:
        """What text of that width covers which begins at a part of the line, as squares one beside the other."""
        x, y = self.at(start)
        side = HEIGHT / 2 if above else -HEIGHT / 2
        x, y = x - side * math.sin(self.angle), y + side * math.cos(self.angle)
        half, steps = HEIGHT / 2, max(1, math.ceil(width / HEIGHT))
        middles = [
            (x + step * HEIGHT * math.cos(self.angle), y + step * HEIGHT * math.sin(self.angle))
            for step in range(steps + 1)
        ]
        return [(a - half, b - half, a + half, b + half) for a, b in middles]


def free_start(slant: Slant, width: float, above: bool, points: Sequence[Pixel]) -> float:
    """The first part of the line where text of that width covers no point; the first of all where every one does."""
    markers = _markers(points)
    last = max(0.0, 1.0 - width / slant.length) if slant.length else 0.0
    for step in range(STARTS):
        start = min(FIRST_START + step / STARTS, last)
        if not any(_meet(box, marker) for box in slant.boxes(start, width, above) for marker in markers):
            return start
    return min(FIRST_START, last)


def label_places(
    points: Sequence[Pixel], labels: Sequence[str], inside: Box, covered: Sequence[Box] = ()
) -> list[Place]:
    """A place for each label, nearest first, in rings around its point and off what is covered already; where none is
    free, the first inside."""
    taken = [*_markers(points), *covered]
    places = []
    for point, label in zip(points, labels, strict=True):
        place, box = _place(point, label, inside, taken)
        places.append(place)
        taken.append(box)
    return places


def _place(point: Pixel, label: str, inside: Box, taken: Sequence[Box]) -> tuple[Place, Box]:
    wide, high = CHARACTER * len(label) / 2, HEIGHT / 2
    fallback: tuple[Place, Box] | None = None
    for ring in range(RINGS):
        for turn in range(DIRECTIONS):
            # From the upper right on, where a reader looks for a label first.
            angle = math.pi / 4 + 2 * math.pi * turn / DIRECTIONS
            radius = NEAR + ring * STEP
            dx, dy = radius * math.cos(angle), radius * math.sin(angle)
            x, y = point[0] + dx, point[1] + dy
            box = (x - wide, y - high, x + wide, y + high)
            within = box[0] >= inside[0] and box[1] >= inside[1] and box[2] <= inside[2] and box[3] <= inside[3]
            if within and not any(_meet(box, other) for other in taken):
                return Place(dx, dy, far=ring > 0, free=True), box
            if fallback is None and within:
                fallback = Place(dx, dy, far=False, free=False), box
    return fallback or (Place(NEAR, NEAR, far=False, free=False), (*point, *point))


def _markers(points: Sequence[Pixel]) -> list[Box]:
    return [(x - MARKER, y - MARKER, x + MARKER, y + MARKER) for x, y in points]


def _meet(one: Box, other: Box) -> bool:
    return one[0] < other[2] and other[0] < one[2] and one[1] < other[3] and other[1] < one[3]
