"""The interface that measures one candidate on one workload in one process, and progress messages."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

from pytest_attnperf.tuning_records import Candidate, Trial

WRONG = "wrong"
"""First word of a failure that is a wrong result; the candidate is excluded for it."""

DIED = "died"
"""First word of a failure that ended its worker. The process number is used up, and the trial is repeated once in
another process. Other failures count at once."""

SAY_EVERY_S = 10.0


def is_wrong(failure: str) -> bool:
    """Returns whether a trial's failure text says that its result was wrong (begins with 'wrong')."""
    return failure.startswith(WRONG)


def is_death(failure: str) -> bool:
    """Returns whether a trial's failure text says that its worker process ended (begins with 'died')."""
    return failure.startswith(DIED)


class TrialBench(Protocol):
    """Measures trials, on one GPU per lane."""

    @property
    def lanes(self) -> int:
        """Number of trials that can be measured at the same time; `time` is called from one thread per lane."""

    def time(self, lane: int, process: int, candidate: Candidate, workload: str) -> Trial:
        """Returns one trial: checks `candidate` on `workload` and times it, in process number `process` of the lane.

        A new number starts a new process; an older number of this lane is not used again. Never raises for a bad
        candidate: the trial then has no time and gives the reason. Raises WorkerError only if nothing can be measured
        any more."""


@dataclass
class Paced:
    """Prints `text`, filled with the numbers that it is called with, at most every SAY_EVERY_S seconds."""

    say: Callable[[str], None]
    clock: Callable[[], float]
    text: str
    _last_s: float = float("-inf")

    def __call__(self, *numbers: int) -> None:
        """Prints `text` filled with these numbers, unless it was printed less than SAY_EVERY_S seconds ago."""
        if self.clock() - self._last_s >= SAY_EVERY_S:
            self._last_s = self.clock()
            self.say(self.text.format(*numbers))


@dataclass
class WatchedBench:
    """A bench that reports how many trials have been made. `count` starts with those of earlier sessions."""

    bench: TrialBench
    told: Paced
    count: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def lanes(self) -> int:
        """Number of trials that the wrapped bench can measure at the same time, one per GPU."""
        return self.bench.lanes

    def time(self, lane: int, process: int, candidate: Candidate, workload: str) -> Trial:
        """Returns the trial that the wrapped bench measures. Adds one to `count`, and prints it as progress."""
        trial = self.bench.time(lane, process, candidate, workload)
        with self._lock:
            self.count += 1
            self.told(self.count)
        return trial
