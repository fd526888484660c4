"""Telling how far a run is, not more often than somebody reads."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field

from pytest_attnperf.tools.tuner.bench import Bench
from pytest_attnperf.tuning_records import Candidate, Trial

SAY_EVERY_S = 10.0


@dataclass
class Paced:
    """Says `text`, filled with the numbers that it is called with, at most every SAY_EVERY_S seconds."""

    say: Callable[[str], None]
    clock: Callable[[], float]
    text: str
    _last_s: float = float("-inf")

    def __call__(self, *numbers: int) -> None:
        """Say it, unless it was said a moment ago."""
        if self.clock() - self._last_s >= SAY_EVERY_S:
            self._last_s = self.clock()
            self.say(self.text.format(*numbers))


@dataclass
class WatchedBench:
    """A Bench that tells how many trials have been made. `count` begins with those of earlier sessions."""

    bench: Bench
    told: Paced
    count: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def lanes(self) -> int:
        """Of the bench."""
        return self.bench.lanes

    def time(self, lane: int, process: int, candidate: Candidate, workload: str) -> Trial:
        """As the bench."""
        trial = self.bench.time(lane, process, candidate, workload)
        with self._lock:
            self.count += 1
            self.told(self.count)
        return trial
