"""Takes clock stamps around the pairs of blocks that a timer queues, and gives the mean clock of each pair."""

from __future__ import annotations

import math
import time
from typing import Protocol


class Stamps(Protocol):
    """Stamps of the compute clock, taken by kernels (see `clock_stamps.ClockStamps`)."""

    def take(self) -> None:
        """Queues a kernel that stores the clock counters (a stamp) on the current stream."""

    def read_clocks_mhz(self) -> list[float]:
        """Returns the mean MHz between consecutive stamps, [] if any is unknown; call it after a synchronisation."""

    def discard(self) -> None:
        """Forgets all stamps taken so far without reading them."""


class PairClocks:
    """Takes a stamp before and after each pair of blocks, so that none lies between blocks and their events.

    Without `stamps` nothing is queued and no clock is known.

    host_us   microseconds the host needed to queue the last stamp
    """

    def __init__(self, stamps: Stamps | None) -> None:
        self.stamps = stamps
        self.host_us = 0.0

    def begin(self) -> None:
        """Forgets stamps that are left from other users of `stamps`, or from a pair that failed."""
        if self.stamps is not None:
            self.stamps.discard()

    def stamp(self) -> None:
        """Queues a stamp and stores the host's time for it in `host_us`; does nothing without stamps."""
        if self.stamps is None:
            return
        begin = time.perf_counter()
        self.stamps.take()
        self.host_us = (time.perf_counter() - begin) * 1e6

    def read_clocks(self, pairs: int) -> tuple[float, ...]:
        """Returns the mean MHz over each of `pairs` pairs, after a synchronisation; () if any is unknown."""
        if self.stamps is None:
            return ()
        found = tuple(self.stamps.read_clocks_mhz())[::2]  # every second one covers the time between two pairs
        known = len(found) == pairs and all(math.isfinite(mhz) and mhz > 0 for mhz in found)
        return found if known else ()
