"""What a search measures with: one candidate on one workload in one process; and how far it is."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

from pytest_attnperf.tuning_records import Candidate, Trial

WRONG = "wrong"
"""A failure that begins with this word is a wrong result; the candidate is excluded as such."""

DIED = "died"
"""A failure that begins with this word took its worker along, so the process number is spent: the trial is
repeated once in another process. Other failures count at once."""

SAY_EVERY_S = 10.0


def is_wrong(failure: str) -> bool:
    """Whether the failure of a trial is a wrong result."""
    return failure.startswith(WRONG)


def is_death(failure: str) -> bool:
    """Whether the failure of a trial took its worker along."""
    return failure.startswith(DIED)


class TrialBench(Protocol):
    """Measures trials, on one GPU per lane."""

    @property
    def lanes(self) -> int:
        """How many trials can be measured at the same time; `time` is called from one thread per lane."""

    def time(self, lane: int, process: int, candidate: Candidate, workload: str) -> Trial:
        """Prove `candidate` right on `workload` and time it, in the lane's process of this number.

        A number not seen before means a fresh process; an older one of this lane is not asked for again. Never raises
        for a bad candidate: the trial then has no time and says why. Raises WorkerError only when nothing can be
        measured any more.
        """


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

    bench: TrialBench
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
