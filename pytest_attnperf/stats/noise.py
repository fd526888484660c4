"""How far apart fresh processes of unchanged code lie: a relative standard deviation per case, pooled and shrunk.

A case's own seven processes say little about its spread: the standard deviation of seven is off by 30 % as often as
not. So the variances of all cases of the same timer and a similar duration are pooled by degrees of freedom, and a
case's own variance moves the pool only by its weight (an inverse-chi-square prior, as in limma's moderated t; Smyth,
Stat. Appl. Genet. Mol. Biol. 3, 2004):

    sd_case^2 = (PRIOR_DEGREES x pool^2 + d_case x s_case^2) / (PRIOR_DEGREES + d_case)

PRIOR_DEGREES also says how much cases of one class are believed to differ, so a threshold takes its quantile from
Student's t with PRIOR_DEGREES + d_case degrees of freedom (never more than the pool has). With a normal quantile, a
simulated suite of cases at 0.33 and 0.85 % was red in 6 % of runs at a stated 1 % and a user threshold of zero.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pytest_attnperf.records import ProcessSummary

PRIOR_DEGREES = 12
"""Weight of the pool, in degrees of freedom: twice that of a case's own seven processes."""

DURATION_LIMITS_US = (15.0, 100.0, 1000.0)
"""Upper ends of the duration classes: launch-bound, short, medium; beyond is long and pulls the card to its cap."""

RELATIVE_SD_MIN = 1e-4
"""The step of the stored five significant digits: equal numbers must not give a threshold of zero."""


@dataclass(frozen=True)
class NoiseEstimate:
    """Standard deviation of a process median, relative to it; `how` says in words where it comes from.

    degrees_of_freedom   how well the standard deviation itself is known: of the prior and the case, at most the pool's
    """

    relative_sd: float
    degrees_of_freedom: int
    how: str


@dataclass(frozen=True)
class CaseSpread:
    """The spread of one case's process medians: their relative variance, with `degrees` = processes - 1."""

    timer: str
    median_us: float
    variance: float
    degrees: int


@dataclass(frozen=True)
class _Pool:
    """Relative variance averaged over cases by their degrees of freedom."""

    variance: float
    degrees: int
    cases: int


class NoiseModel:
    """Between-process noise by case. Build it from stored processes with `from_processes`."""

    def __init__(self, spreads: Mapping[str, CaseSpread]) -> None:
        self._spreads = dict(spreads)
        groups: dict[tuple[str, int | None], list[CaseSpread]] = {}
        for spread in self._spreads.values():
            for key in ((spread.timer, duration_class(spread.median_us)), (spread.timer, None)):
                groups.setdefault(key, []).append(spread)
        self._pools = {key: _pooled(group) for key, group in groups.items()}

    @classmethod
    def from_processes(cls, cases: Mapping[str, Sequence[ProcessSummary]]) -> NoiseModel:
        """Take the processes of each case; a case with fewer than two says nothing about spread and is left out.

        Raises ValueError when one case holds processes of different timers.
        """
        return cls({case: _spread(case, group) for case, group in cases.items() if len(group) > 1})

    def sd(self, case: str, median_us: float, timer: str) -> NoiseEstimate | None:
        """The noise of a case of this duration under this timer; None when no case of the timer has two processes.

        `case` need not be known: it then gets the pool of its class.
        """
        wanted = duration_class(median_us)
        durations = f"of {describe_class(wanted)}"
        pool = self._pools.get((timer, wanted))
        if pool is None:
            durations = f"of any duration (none {durations})"
            pool = self._pools.get((timer, None))
        if pool is None:
            return None
        how = f"pooled over {pool.cases} case{'s' * (pool.cases > 1)} {durations}, timer {timer}"
        own = self._spreads.get(case)
        variance, degrees = pool.variance, PRIOR_DEGREES
        if own is not None and own.timer == timer:
            degrees += own.degrees
            variance = (PRIOR_DEGREES * pool.variance + own.degrees * own.variance) / degrees
            how += f", moved by its own {own.degrees + 1} processes"
        return NoiseEstimate(max(math.sqrt(variance), RELATIVE_SD_MIN), min(degrees, pool.degrees), how)


def duration_class(median_us: float) -> int:
    """Index of the duration class a time in microseconds falls into, 0 being the shortest."""
    return sum(median_us >= limit for limit in DURATION_LIMITS_US)


def describe_class(index: int) -> str:
    """A duration class in words, e.g. '15 to 100 us'."""
    if index == 0:
        return f"less than {DURATION_LIMITS_US[0]:g} us"
    if index == len(DURATION_LIMITS_US):
        return f"{DURATION_LIMITS_US[-1]:g} us or more"
    return f"{DURATION_LIMITS_US[index - 1]:g} to {DURATION_LIMITS_US[index]:g} us"


def _spread(case: str, processes: Sequence[ProcessSummary]) -> CaseSpread:
    timers = sorted({process.timer for process in processes})
    if len(timers) > 1:
        raise ValueError(f"case {case!r} mixes processes of the timers {', '.join(timers)}; they cannot be pooled")
    medians = [process.median_us for process in processes]
    relative_sd = statistics.stdev(medians) / statistics.fmean(medians)
    return CaseSpread(timers[0], statistics.median(medians), relative_sd**2, len(medians) - 1)


def _pooled(spreads: Sequence[CaseSpread]) -> _Pool:
    degrees = sum(spread.degrees for spread in spreads)
    return _Pool(sum(spread.variance * spread.degrees for spread in spreads) / degrees, degrees, len(spreads))
