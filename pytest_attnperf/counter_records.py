"""Frozen data of hardware counters, and which launches they were read of. Standard library only."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from pytest_attnperf.records import Launch

_SUFFIXES = (" [clone .kd]", ".kd")


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

    def counts(self, launch: Launch) -> bool:
        """Whether it was read of such a launch: the same name, and as many work-items where both are known."""
        if launch.kind != "kernel" or plain_name(launch.name) != self.kernel:
            return False
        items = work_items(launch)
        return self.grid_items is None or items is None or items == self.grid_items


def of_launches(counters: Iterable[KernelCounter], launches: Iterable[Launch]) -> list[KernelCounter]:
    """Those that were read of one of these launches."""
    every = tuple(launches)
    return [counter for counter in counters if any(counter.counts(launch) for launch in every)]


def plain_name(kernel: str) -> str:
    """A kernel's name without what tools put around it: 'void flash(float*) [clone .kd]' -> 'flash'."""
    for suffix in _SUFFIXES:
        kernel = kernel.removesuffix(suffix)
    return kernel.partition("(")[0].removeprefix("void ").strip()


def work_items(launch: Launch) -> int | None:
    """Threads of a whole launch; None where its grid or block is not known."""
    if not launch.grid or not launch.block:
        return None
    count = 1
    for size in (*launch.grid, *launch.block):
        count *= size
    return count
