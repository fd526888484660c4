"""Divides cases into parts of about equal time, longest first. Pure, and equal on every machine: sums are of whole
milliseconds, and ties are broken by the canonical order.

Cases of one workload stay together, because a process computes their reference once and people compare their backends,
which should have run on one card. A group above 1 / GRAIN of a part is divided, so that no part is longer than
1 + 1 / GRAIN of the mean unless a single case is (Graham 1969, bounds on multiprocessing timing anomalies).
"""

from __future__ import annotations

import heapq
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

GRAIN = 8
"""Groups are at most 1 / GRAIN of a part's mean time."""

USUAL_SECONDS = 1.0
"""Of a case if none has stored seconds."""


@dataclass(frozen=True)
class WeighedCase:
    """A case or kernel to be placed: its name in the manifest, the group that should stay together, and its time."""

    name: str
    group: str
    milliseconds: int


def estimate_seconds(names: Sequence[str], stored: Mapping[str, float]) -> list[float]:
    """Returns seconds per case: the stored ones, else the median of those stored for its op family, else of all."""
    by_family: dict[str, list[float]] = {}
    for name, seconds in stored.items():
        by_family.setdefault(_find_family(name), []).append(seconds)
    medians = {family: statistics.median(found) for family, found in by_family.items()}
    usual = statistics.median(stored.values()) if stored else USUAL_SECONDS
    return [stored.get(name, medians.get(_find_family(name), usual)) for name in names]


def divide_cases(cases: Sequence[WeighedCase], count: int, speeds: Sequence[float] = ()) -> tuple[tuple[str, ...], ...]:
    """Returns the names of each of `count` parts, in the given order within each: the longest group first, always to
    the part that would end first with it. Raises ValueError for less than one part, or another number of speeds.

    speeds   relative speed of the node of each part; () where they are not known, or alike
    """
    if count < 1 or len(speeds) not in (0, count):
        raise ValueError(f"cases were to be divided into {count} parts by {len(speeds)} speeds, expected 1 or more "
                         "parts, and a speed of each or none")  # fmt: skip
    units = _list_units(cases, count)
    times = [_add_times(cases, unit) for unit in units]
    order = sorted(range(len(units)), key=lambda number: (-times[number], units[number][0]))
    place: dict[int, int] = {}
    for number, index in zip(order, _place_all([times[number] for number in order], count, speeds), strict=True):
        place.update(dict.fromkeys(units[number], index))
    parts: list[list[str]] = [[] for _ in range(count)]
    for number, case in enumerate(cases):
        parts[place[number]].append(case.name)
    return tuple(map(tuple, parts))


def _place_all(times: Sequence[int], count: int, speeds: Sequence[float]) -> list[int]:
    """Returns the part of each unit, placed in this order."""
    if not speeds:
        heap = [(0, index) for index in range(count)]
        found = []
        for time in times:
            load, index = heap[0]
            heapq.heapreplace(heap, (load + time, index))
            found.append(index)
        return found
    loads, placed = [0] * count, []
    for time in times:
        index = min(range(count), key=lambda index: ((loads[index] + time) / speeds[index], index))
        loads[index] += time
        placed.append(index)
    return placed


def _list_units(cases: Sequence[WeighedCase], count: int) -> list[list[int]]:
    """Returns the indices of the cases that are placed together."""
    groups: dict[str, list[int]] = {}
    for number, case in enumerate(cases):
        groups.setdefault(case.group, []).append(number)
    most = _add_times(cases, range(len(cases))) / count / GRAIN
    units: list[list[int]] = []
    for members in groups.values():
        units += [members] if _add_times(cases, members) <= most else [[one] for one in members]
    return units


def _add_times(cases: Sequence[WeighedCase], unit: Sequence[int]) -> int:
    return sum(max(1, cases[number].milliseconds) for number in unit)


def _find_family(name: str) -> str:
    """Returns the op family of a name 'suite/backend/family-...'; something that is no family for other names."""
    return "/".join(name.split("/", 2)[2:]).partition("-")[0]
