"""What a search measures with: one candidate on one workload in one process."""

from __future__ import annotations

from typing import Protocol

from pytest_attnperf.tuning_records import Candidate, Trial

WRONG = "wrong"
"""A failure that begins with this word is a wrong result; the candidate is excluded as such."""

DIED = "died"
"""A failure that begins with this word took its worker along, so the process number is spent: the trial is
repeated once in another process. Other failures count at once."""


def is_wrong(failure: str) -> bool:
    """Whether the failure of a trial is a wrong result."""
    return failure.startswith(WRONG)


def is_death(failure: str) -> bool:
    """Whether the failure of a trial took its worker along."""
    return failure.startswith(DIED)


class Bench(Protocol):
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
