"""Frozen data of hardware counters, and the launches that they belong to. Standard library only."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from pytest_attnperf.records import Launch

_SUFFIXES = (" [clone .kd]", ".kd")
_OPEN, _CLOSE = "(<[{", ")>]}"


@dataclass(frozen=True)
class KernelCounter:
    """One counter of one kernel and grid.

    grid_items    work-items of its dispatches; None where the file does not say
    median        of its values over `dispatches`
    """

    kernel: str
    grid_items: int | None
    counter: str
    median: float
    dispatches: int

    def was_read_of(self, launch: Launch) -> bool:
        """Returns whether the counter is of `launch`: the same kernel name and, if both are known, number of
        work-items."""
        if launch.kind != "kernel" or plain_name(launch.name) != self.kernel:
            return False
        items = count_work_items(launch)
        return self.grid_items is None or items is None or items == self.grid_items


@dataclass(frozen=True)
class KernelReadings:
    """Figures of one dispatch from the counters of one kernel and grid; None where those counters were not read.

    traffic_bytes   fetched and written behind L2 (FETCH_SIZE + WRITE_SIZE, which are KiB): DRAM's where nothing lies
                    between, else of DRAM and the memory-side cache (Infinity Cache) together
    l2_hit          hits over requests of L2 (L2CacheHit, or hits / (hits + misses))
    occupancy       mean number of resident waves over the wave slots (OccupancyPercent): measured
    matrix_busy     share of time in which matrix units were busy (MfmaUtil)
    """

    kernel: str
    grid_items: int | None
    dispatches: int
    traffic_bytes: float | None = None
    l2_hit: float | None = None
    occupancy: float | None = None
    matrix_busy: float | None = None


BYTES_PER_KIB = 1024
HIT_AND_MISS = (("TCC_HIT_sum", "TCC_MISS_sum"), ("GL2C_HIT_sum", "GL2C_MISS_sum"))


def make_readings(counters: Iterable[KernelCounter]) -> tuple[KernelReadings, ...]:
    """Computes figures such as the L2 hit rate from counters: one record per kernel and grid size, in their order."""
    found: dict[tuple[str, int | None], dict[str, KernelCounter]] = {}
    for counter in counters:
        found.setdefault((counter.kernel, counter.grid_items), {})[counter.counter] = counter
    return tuple(_make_reading(kernel, items, by_name) for (kernel, items), by_name in found.items())


def _make_reading(kernel: str, grid_items: int | None, by_name: dict[str, KernelCounter]) -> KernelReadings:
    value = {name: counter.median for name, counter in by_name.items()}
    both = "FETCH_SIZE" in value and "WRITE_SIZE" in value
    return KernelReadings(
        kernel,
        grid_items,
        dispatches=min(counter.dispatches for counter in by_name.values()),
        traffic_bytes=(value["FETCH_SIZE"] + value["WRITE_SIZE"]) * BYTES_PER_KIB if both else None,
        l2_hit=_hit_rate(value),
        occupancy=_percent_to_fraction(value.get("OccupancyPercent")),
        matrix_busy=_percent_to_fraction(value.get("MfmaUtil")),
    )


def _hit_rate(value: dict[str, float]) -> float | None:
    for hit, miss in HIT_AND_MISS:
        if hit in value and miss in value and value[hit] + value[miss] > 0:
            return value[hit] / (value[hit] + value[miss])
    return _percent_to_fraction(value.get("L2CacheHit"))


def _percent_to_fraction(value: float | None) -> float | None:
    return None if value is None else value / 100


def filter_by_launches(counters: Iterable[KernelCounter], launches: Iterable[Launch]) -> list[KernelCounter]:
    """Returns the counters that were read of any of these launches (same kernel and grid)."""
    every = tuple(launches)
    return [counter for counter in counters if any(counter.was_read_of(launch) for launch in every)]


def plain_name(kernel: str) -> str:
    """Returns a kernel's name without tools' additions: 'void flash<(T)2>(float*) [clone .kd]' -> 'flash<(T)2>'."""
    for suffix in _SUFFIXES:
        kernel = kernel.removesuffix(suffix)
    return without_parameters(kernel.strip().removeprefix("void ")).strip()


def without_parameters(name: str) -> str:
    """Returns a kernel's name without its parameter list: 'flash<(T)2>(float*)' -> 'flash<(T)2>'; '(anonymous
    namespace)' stays."""
    depth, cut = 0, 0
    for position, letter in enumerate(name):
        if letter in _OPEN:
            if letter == "(" and depth == 0 and position and not name.startswith("(anonymous", position):
                cut = position
            depth += 1
        elif letter in _CLOSE:
            depth = max(0, depth - 1)
    return name[:cut].rstrip() if cut else name


def count_work_items(launch: Launch) -> int | None:
    """Returns the number of threads of a whole launch, grid x block; None if either is not known."""
    if not launch.grid or not launch.block:
        return None
    count = 1
    for size in (*launch.grid, *launch.block):
        count *= size
    return count
