"""Clock stamps around the pairs of blocks that a timer queues, and what they say of each pair."""

from __future__ import annotations

import math
import time
from typing import Protocol


class Stamps(Protocol):
    """Stamps of the compute clock, taken by kernels (see `clock_stamps.ClockStamps`)."""

    def take(self) -> None:
        """Queue a stamp on the current stream."""

    def read_clocks_mhz(self) -> list[float]:
        """After a synchronisation: the mean clock between consecutive stamps in MHz; then forget them."""

    def discard(self) -> None:
        """Forget all stamps."""


class PairClocks:
    """A stamp before each pair of blocks and one behind it, so that none lies between blocks and their events.

    Without `stamps` nothing is queued and nothing is known.

    host_us   microseconds the host needed to queue the last stamp
    """

    def __init__(self, stamps: Stamps | None) -> None:
        self.stamps = stamps
        self.host_us = 0.0

    def begin(self) -> None:
        """Forget what others, or a pair that failed, have left."""
        if self.stamps is not None:
            self.stamps.discard()

    def stamp(self) -> None:
        """Queue a stamp."""
        if self.stamps is None:
            return
        begin = time.perf_counter()
        self.stamps.take()
        self.host_us = (time.perf_counter() - begin) * 1e6

    def read_clocks(self, pairs: int) -> tuple[float, ...]:
        """Mean MHz over each of `pairs` pairs, after a synchronisation; () unless it is known of every one."""
        if self.stamps is None:
            return ()
        found = tuple(self.stamps.read_clocks_mhz())[::2]  # every other one is of what lies between two pairs
        known = len(found) == pairs and all(math.isfinite(mhz) and mhz > 0 for mhz in found)
        return found if known else ()
