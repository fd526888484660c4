"""Computes what would decide a case that noise left open: how many fresh processes or pairs, and their seconds. Pure.

The counts come from the decision's own formula: with so many units, an unchanged ratio and the same noise and quantile,
the ratio exceeds the limit; with one unit fewer it does not. A true slowdown of just that size is detected by only half
of such looks, because its ratio varies from look to look.
"""

from __future__ import annotations

import math
import statistics
from dataclasses import dataclass

from pytest_attnperf.results import CaseResult
from pytest_attnperf.stats.comparison import slower_beyond, standard_error
from pytest_attnperf.stats.pair_ratios import standard_error_of_pairs

PROCESSES_MAX = 200
"""Most fresh processes that are suggested: more are not practical."""

PAIRS_MAX = 100
"""Most pairs that are suggested: more are not practical."""


@dataclass(frozen=True)
class ProcessCounts:
    """Processes per side. `stored` is the present number, or more: these must then be recorded again."""

    fresh: int
    stored: int


@dataclass(frozen=True)
class UnitCost:
    """Wall seconds of one more process, and of one more pair, of a case; None where they are not known."""

    process_s: float | None
    pair_s: float | None


@dataclass(frozen=True)
class Aim:
    """A slowdown to be distinguished from noise.

    ratio                measured new / base, above `tolerated`, the ratio that the user allows
    z                    quantile that the standard error is multiplied by
    degrees_of_freedom   of the standard error
    """

    ratio: float
    tolerated: float
    z: float
    degrees_of_freedom: int | None

    def is_decided(self, error: float, beside: float = 0.0) -> bool:
        """Returns whether this ratio would be SLOWER if its standard error were `error`. `beside` is a further error,
        which more pairs do not reduce."""
        return self.ratio > slower_beyond(self.tolerated, error, self.z, self.degrees_of_freedom, beside)


def processes_needed(aim: Aim, *, relative_sd: float, stored: int, card_error: float = 0.0) -> ProcessCounts | None:
    """Returns the fewest processes that make the ratio SLOWER: fresh ones only, or else equally many stored and fresh.

    relative_sd   of one process
    stored        number of processes of the baseline
    card_error    the part of the standard error that more processes on the same cards do not reduce

    None where not even PROCESSES_MAX per side suffice. Raises ValueError for fewer than one stored process.
    """
    counts = range(1, PROCESSES_MAX + 1)
    for fresh in counts:
        if aim.is_decided(math.hypot(standard_error(relative_sd, stored, fresh), card_error)):
            return ProcessCounts(fresh, stored)
    for both in counts:
        if aim.is_decided(math.hypot(standard_error(relative_sd, both, both), card_error)):
            return ProcessCounts(both, both)
    return None


def pairs_needed(aim: Aim, *, relative_sd: float, taken: int, asymmetry: float) -> int | None:
    """Returns the fewest pairs, more than `taken`, that make the ratio SLOWER; None if PAIRS_MAX do not.

    relative_sd   of one pair's ratio
    asymmetry     bias between two sides that more pairs do not reduce, as a fraction
    """
    for count in range(taken + 1, PAIRS_MAX + 1):
        if aim.is_decided(standard_error_of_pairs(relative_sd, count), asymmetry):
            return count
    return None


def unit_cost(case: CaseResult) -> UnitCost:
    """Returns the wall seconds of one more process and one more pair of this case, from its own total; None where the
    case ran nothing or has no total.

    All processes of a case are assumed to cost the same; a pair costs two of them and its turns. The start of workers
    is shared between the cases of a run and counted where it happened, so a case alone may take some seconds more.
    """
    processes = len(case.first) + len(case.second)
    turns = sum(pair.seconds for pair in case.pairs)
    opened = processes + 2 * len(case.pairs)
    if not opened or not case.seconds > turns:
        return UnitCost(None, None)
    process_s = (case.seconds - turns) / opened
    if not case.pairs:
        return UnitCost(process_s, 2 * process_s)
    each = statistics.median(pair.seconds for pair in case.pairs)
    return UnitCost(process_s, 2 * process_s + each)
