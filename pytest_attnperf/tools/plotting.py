"""Shared by all diagrams: matplotlib without the user's settings, reproducible files, and places for labels that cover
neither points nor each other (in pixels).

matplotlib (the extra `plots`) is imported only here and in modules that draw, when a plot is requested. The same points
give the same bytes under the same matplotlib: fixed ids, no date, none of the user's settings.
"""

from __future__ import annotations

import io
import math
import re
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_attnperf.errors import UsageError
from pytest_attnperf.reports.text.figures import one_line

if TYPE_CHECKING:
    from matplotlib.figure import Figure

FORMATS = {".svg": "svg", ".png": "png"}
DPI = 100
# Names are foreign text, so a `$` in them must not begin a formula.
_SETTINGS: dict[Any, Any] = {
    "font.family": "DejaVu Sans",
    "font.size": 9,
    "svg.fonttype": "none",
    "svg.hashsalt": "pytest-attnperf",
    "text.parse_math": False,
}
_NO_XML = re.compile("[\x00-\x1f\x7f-\x9f\ufffe\uffff\ud800-\udfff]")

CHARACTER, HEIGHT = 7.0, 11.0
"""Width of a character and height of a small label, in pixels."""

MARKER = 5.0
"""Half the width of a point's marker, in pixels."""

NEAR, STEP, RINGS, DIRECTIONS = 12.0, 9.0, 8, 12

FIRST_START, STARTS = 0.03, 12
"""First start of text along a line, as a part of the line, and the number of starts that are tried."""

Box = tuple[float, float, float, float]
Pixel = tuple[float, float]


def choose_plot_form(path: Path) -> str:
    """Returns 'svg' or 'png' by the suffix of a plot's file. Raises UsageError for any other suffix."""
    form = FORMATS.get(path.suffix.lower())
    if form is None:
        raise UsageError(f"a plot cannot be written as {path.name!r}; known are {' and '.join(FORMATS)}")
    return form


def render_figure(draw: Callable[[], Figure], form: str) -> bytes:
    """Returns the file of the figure that `draw` makes; `form` is 'svg' or 'png'. Raises UsageError without
    matplotlib."""
    with _lend_matplotlib():
        stream = io.BytesIO()
        # Without these keys matplotlib writes the time and its own version.
        nothing = {"Date": None, "Creator": None} if form == "svg" else {"Software": None}
        draw().savefig(stream, format=form, dpi=DPI, metadata=nothing)
    return stream.getvalue()


def foreign_text(text: str, limit: int) -> str:
    """Returns a name from a file or program on one line, cut to `limit` characters, without those that XML forbids."""
    return one_line(_NO_XML.sub(" ", text), limit)


@contextmanager
def _lend_matplotlib() -> Iterator[None]:
    """Gives matplotlib its own defaults and this module's settings for the code inside, whatever the user's
    matplotlibrc says; restores the settings afterwards. Raises UsageError if matplotlib is missing."""
    try:
        import matplotlib
    except ImportError as error:
        raise UsageError(f"a plot needs matplotlib ({error}): pip install 'pytest-attnperf[plots]'") from error
    with matplotlib.rc_context(), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph .* missing from")
        matplotlib.rcdefaults()
        matplotlib.rcParams.update(_SETTINGS)
        yield


@dataclass(frozen=True)
class LabelPlace:
    """Offset of a label's middle from its point in pixels. `far` means that a line joins them, `free` that it covers
    nothing."""

    dx: float
    dy: float
    far: bool
    free: bool


@dataclass(frozen=True)
class Slant:
    """A straight line from pixel (x, y), with text along it. `angle` is in radians, `length` in pixels."""

    x: float
    y: float
    angle: float
    length: float

    @classmethod
    def from_pixels(cls, first: Pixel, last: Pixel) -> Slant:
        """Makes the line from pixel `first` to pixel `last`."""
        across, up = last[0] - first[0], last[1] - first[1]
        return cls(*first, math.atan2(up, across), math.hypot(across, up))

    def pixel_at(self, part: float) -> Pixel:
        """Returns the pixel at a fraction `part` of the line: 0 is its start, 1 its end."""
        reach = part * self.length
        return self.x + reach * math.cos(self.angle), self.y + reach * math.sin(self.angle)

    def list_boxes(self, start: float, width: float, above: bool) -> list[Box]:
        """Returns squares (left, bottom, right, top in pixels) that cover a text along the line.

        `start` is the text's begin as a fraction of the line, `width` its pixels; `above` says on which side it is."""
        x, y = self.pixel_at(start)
        side = HEIGHT / 2 if above else -HEIGHT / 2
        x, y = x - side * math.sin(self.angle), y + side * math.cos(self.angle)
        half, steps = HEIGHT / 2, max(1, math.ceil(width / HEIGHT))
        middles = [
            (x + step * HEIGHT * math.cos(self.angle), y + step * HEIGHT * math.sin(self.angle))
            for step in range(steps + 1)
        ]
        return [(a - half, b - half, a + half, b + half) for a, b in middles]


def find_free_start(slant: Slant, width: float, above: bool, points: Sequence[Pixel]) -> float:
    """Returns where text of `width` pixels along a line can begin, as a fraction of the line, without covering a
    point; of 12 tried places the first one if the text covers a point at each."""
    markers = _list_markers(points)
    last = max(0.0, 1.0 - width / slant.length) if slant.length else 0.0
    for step in range(STARTS):
        start = min(FIRST_START + step / STARTS, last)
        if not any(_has_overlap(box, marker) for box in slant.list_boxes(start, width, above) for marker in markers):
            return start
    return min(FIRST_START, last)


def place_labels(
    points: Sequence[Pixel], labels: Sequence[str], inside: Box, covered: Sequence[Box] = ()
) -> list[LabelPlace]:
    """Returns a place for each label inside the box `inside`: the nearest to its point that covers no point, no other
    label and no box of `covered`. If there is none, `free` of the place is False. All are in pixels."""
    taken = [*_list_markers(points), *covered]
    places = []
    for point, label in zip(points, labels, strict=True):
        place, box = _place_label(point, label, inside, taken)
        places.append(place)
        taken.append(box)
    return places


def _place_label(point: Pixel, label: str, inside: Box, taken: Sequence[Box]) -> tuple[LabelPlace, Box]:
    wide, high = CHARACTER * len(label) / 2, HEIGHT / 2
    fallback: tuple[LabelPlace, Box] | None = None
    for ring in range(RINGS):
        for turn in range(DIRECTIONS):
            # Starts at the upper right, where a reader looks for a label first.
            angle = math.pi / 4 + 2 * math.pi * turn / DIRECTIONS
            radius = NEAR + ring * STEP
            dx, dy = radius * math.cos(angle), radius * math.sin(angle)
            x, y = point[0] + dx, point[1] + dy
            box = (x - wide, y - high, x + wide, y + high)
            within = box[0] >= inside[0] and box[1] >= inside[1] and box[2] <= inside[2] and box[3] <= inside[3]
            if within and not any(_has_overlap(box, other) for other in taken):
                return LabelPlace(dx, dy, far=ring > 0, free=True), box
            if fallback is None and within:
                fallback = LabelPlace(dx, dy, far=False, free=False), box
    return fallback or (LabelPlace(NEAR, NEAR, far=False, free=False), (*point, *point))


def _list_markers(points: Sequence[Pixel]) -> list[Box]:
    return [(x - MARKER, y - MARKER, x + MARKER, y + MARKER) for x, y in points]


def _has_overlap(one: Box, other: Box) -> bool:
    return one[0] < other[2] and other[0] < one[2] and one[1] < other[3] and other[1] < one[3]
