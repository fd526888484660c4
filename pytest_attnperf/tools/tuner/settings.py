"""How a search goes about it, and what it found."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, get_args

from pytest_attnperf.errors import UsageError
from pytest_attnperf.tuning_records import Candidate, Excluded, Trial

Strategy = Literal["auto", "race", "optuna", "exhaustive"]

INDIFFERENCE = 0.005
"""Candidates this close to the best, as a fraction, are not told apart: that would take more than it wins."""

PROCESS_SD = 0.0085
"""The loudest spread between fresh processes of unchanged code seen on an H200: the prior of every search."""


SHARE_OF_EXHAUSTIVE = 4
"""A search of a large space takes this part of the trials that timing every candidate on every workload once takes."""


def trials_allowed(candidates: int, workloads: int) -> int:
    """A quarter of the exhaustive number, and never too few to compare a handful with the default."""
    return max(candidates * workloads // SHARE_OF_EXHAUSTIVE, 4 * workloads)


@dataclass(frozen=True)
class SearchSettings:
    """How to search.

    strategy     'auto' races small spaces and takes Optuna for larger ones
    budget_s     seconds of this session; a search that is resumed gets them anew
    max_trials   trials in all, those of earlier sessions included; None leaves a race without a limit and gives Optuna
                 a quarter of what timing everything once takes
    processes    fresh processes that the last survivors are timed in
    seed         of every random order and draw
    process_sd   relative standard deviation of a process median, believed beforehand
    probe        workload that a large space is explored on; '' means the last
    preferred    ids of candidates that are tried before others; none means that all are alike
    """

    strategy: Strategy = "auto"
    budget_s: float = math.inf
    max_trials: int | None = None
    processes: int = 5
    seed: int = 0
    clock: Callable[[], float] = time.monotonic
    indifference: float = INDIFFERENCE
    process_sd: float = PROCESS_SD
    probe: str = ""
    preferred: frozenset[str] = frozenset()

    def __post_init__(self) -> None:
        if self.strategy not in get_args(Strategy):
            raise UsageError(f"search strategy {self.strategy!r} is unknown; known: {', '.join(get_args(Strategy))}")
        if not self.budget_s > 0:
            raise UsageError(f"the search's budget is {self.budget_s} s, must be above 0")
        if self.max_trials is not None and self.max_trials < 1:
            raise UsageError(f"the search may make {self.max_trials} trials, must be at least 1")
        if self.processes < 1:
            raise UsageError(f"survivors are to be timed in {self.processes} processes, must be at least 1")


@dataclass(frozen=True)
class SearchResult:
    """What a search found; nothing in it is fresh enough to call a winner better.

    strategy    what searched: 'race', 'optuna' or 'exhaustive'
    ranking     best first, with its cost: geometric mean over workloads of its time over the default's in the same
                process. Finalists come first; the default is among them or behind, with cost 1
    trials      every timed trial in recorded order, repeated timings of the default included
    excluded    candidates that failed, were wrong, or were dropped as clearly slower
    finalists   what was timed in the last processes, best first
    notes       why it ended, what was not timed
    """

    strategy: str
    ranking: tuple[tuple[Candidate, float], ...]
    trials: tuple[Trial, ...] = ()
    excluded: tuple[Excluded, ...] = ()
    finalists: tuple[Candidate, ...] = ()
    notes: tuple[str, ...] = ()
