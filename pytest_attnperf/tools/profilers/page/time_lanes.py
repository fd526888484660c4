"""The time line of a profile as bars: a lane per stream and device, each dispatch a bar of its family.

What is shorter than a pixel is merged with its neighbours, so that a page holds at most MOST_BARS.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from pytest_attnperf.tools.profilers.analysed_profile import AnalysedProfile, PassSpan, format_lane
from pytest_attnperf.tools.profilers.dispatches import Dispatches

PIXELS = 1200
"""Pixels of the widest plot: what is shorter than one of them is merged."""

MOST_BARS = 3000
MOST_LANES = 12
SHOWN_PASSES = 3
GAP_SHARE = 0.2
"""Share of a profile's span from which a time without work divides it."""

COARSER = 1.5


@dataclass
class LaneBar:
    """One dispatch, or several within one pixel: when, how many, and the ns of each shape."""

    start_ns: int
    end_ns: int
    times_ns: dict[int, int]
    calls: int = 1

    def add(self, end_ns: int, shape: int, ns: int) -> None:
        """Adds a dispatch that begins later."""
        self.end_ns = max(self.end_ns, end_ns)
        self.calls += 1
        self.times_ns[shape] = self.times_ns.get(shape, 0) + ns

    @property
    def shape(self) -> int:
        """Index of the shape with the most time, the first of equal ones."""
        return max(self.times_ns, key=lambda one: (self.times_ns[one], -one))


@dataclass(frozen=True)
class TimeLane:
    """A row of the time line: its bars, and the dispatches and their summed time within the window."""

    name: str
    bars: tuple[LaneBar, ...]
    calls: int
    total_ns: int


@dataclass(frozen=True)
class TimeWindow:
    """A stretch of a profile.

    passes     those within it, at most SHOWN_PASSES; () if they are not known
    of_passes  number of all passes
    of_calls   number of all dispatches of the profile
    lanes      the busiest, at most MOST_LANES, in the order of their first dispatch; `left_out` counts the others
    cell_ns    dispatches within so many ns are one bar
    """

    start_ns: int
    end_ns: int
    passes: tuple[PassSpan, ...]
    of_passes: int
    of_calls: int
    lanes: tuple[TimeLane, ...]
    left_out: int
    cell_ns: float


_Row = tuple[int, int, int]
"""(start_ns, end_ns, index of the shape)."""


def cut_window(analysed: AnalysedProfile) -> TimeWindow | None:
    """Returns the first passes of a profile; without passes all of it or, if it has gaps as long as GAP_SHARE of it,
    what lies between two of these and has the most work; None if it has no dispatches."""
    dispatches, every = analysed.profile.dispatches, analysed.list_passes()
    if not len(dispatches):
        return None
    passes = every[:SHOWN_PASSES]
    begin, end = (passes[0].begin, passes[-1].end) if passes else _find_densest(dispatches)
    rows = _split_lanes(analysed, begin, end)
    start = dispatches.start_ns[begin]
    last = max(dispatches.end_ns[begin:end])
    busiest = sorted(rows, key=lambda name: (-sum(row[1] - row[0] for row in rows[name]), name))[:MOST_LANES]
    kept = {name: lane for name, lane in rows.items() if name in busiest}
    lanes, cell_ns = _merge_lanes(kept, max(last - start, 1) / PIXELS)
    return TimeWindow(start, last, passes, len(every), len(dispatches), lanes, len(rows) - len(kept), cell_ns)


def _find_densest(dispatches: Dispatches) -> tuple[int, int]:
    """Returns the range of dispatches between two long gaps that has the most work."""
    long_ns = (max(dispatches.end_ns) - dispatches.start_ns[0]) * GAP_SHARE
    cuts, reached = [0], dispatches.end_ns[0]
    for index, (start, end) in enumerate(zip(dispatches.start_ns, dispatches.end_ns, strict=True)):
        if start - reached > long_ns:
            cuts.append(index)
        reached = max(reached, end)
    ranges = zip(cuts, [*cuts[1:], len(dispatches)], strict=True)
    return max(ranges, key=lambda one: dispatches.select_range(*one).total_ns)


def _split_lanes(analysed: AnalysedProfile, begin: int, end: int) -> dict[str, list[_Row]]:
    dispatches = analysed.profile.dispatches
    several = len({shape.agent for shape in dispatches.shapes}) > 1
    names: dict[tuple[int, int], str] = {}
    rows: dict[str, list[_Row]] = {}
    columns = (dispatches.shape, dispatches.queue, dispatches.start_ns, dispatches.end_ns)
    for shape, queue, start, stop in zip(*(column[begin:end] for column in columns), strict=True):
        name = names.get((shape, queue))
        if name is None:
            known = dispatches.shapes[shape]
            name = names[shape, queue] = format_lane(known, dispatches.queues[queue], with_device=several)
        rows.setdefault(name, []).append((start, stop, shape))
    return rows


def _merge_lanes(rows: dict[str, list[_Row]], cell_ns: float) -> tuple[tuple[TimeLane, ...], float]:
    """Returns the lanes with at most MOST_BARS bars together, and the ns within which dispatches were merged."""
    while True:
        merged = {name: tuple(merge_rows(lane, cell_ns)) for name, lane in rows.items()}
        count = sum(map(len, merged.values()))
        if count <= MOST_BARS:
            lanes = (
                TimeLane(name, bars, len(rows[name]), sum(stop - start for start, stop, _ in rows[name]))
                for name, bars in merged.items()
            )
            return tuple(lanes), cell_ns
        cell_ns *= max(COARSER, count / MOST_BARS)


def merge_rows(rows: Sequence[_Row], cell_ns: float) -> Iterator[LaneBar]:
    """Yields bars of dispatches ordered by start; those that begin and end within `cell_ns` of each other are one."""
    bar: LaneBar | None = None
    for start, end, shape in rows:
        if bar is not None and max(end, bar.end_ns) - bar.start_ns <= cell_ns:
            bar.add(end, shape, end - start)
            continue
        if bar is not None:
            yield bar
        bar = LaneBar(start, end, {shape: end - start})
    if bar is not None:
        yield bar
