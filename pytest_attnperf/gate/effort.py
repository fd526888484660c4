"""What would decide a case that noise has left open: how many fresh processes or pairs, and their seconds. Pure.

The counts are those of the decision's own formula: as many units beside a ratio that stays as it was seen, at the same
noise and quantile, go beyond the limit, and one fewer does not. A true slowdown of just that size is found by every
other look only, since its ratio is drawn anew each time.
"""

from __future__ import annotations

import math
import statistics
from dataclasses import dataclass

from pytest_attnperf.results import CaseResult
from pytest_attnperf.stats.comparison import standard_error
from pytest_attnperf.stats.pairs import standard_error_of_pairs

PROCESSES_MAX = 200
"""More fresh processes than this are not a suggestion anybody could follow."""

PAIRS_MAX = 100
"""More pairs than this are not a suggestion anybody could follow."""


@dataclass(frozen=True)
class Processes:
    """Processes a side: `stored` is what is there already, or more, which then have to be recorded anew."""

    fresh: int
    stored: int


@dataclass(frozen=True)
class UnitCost:
    """Wall seconds of one more process, and of one more pair, of a case; None where they are not known.

    pairs_measured   the pair's are those of pairs that were taken, not of two processes
    """

    process_s: float | None
    pair_s: float | None
    pairs_measured: bool = False


def processes_needed(
    ratio: float, *, z: float, relative_sd: float, stored: int, card_error: float = 0.0
) -> Processes | None:
    """The fewest processes that put the noise limit below `ratio`: fresh ones, else as many on both sides.

    ratio         new / stored as it was seen, above 1
    z             quantile that the standard error is multiplied by
    relative_sd   of one process
    stored        processes behind the baseline
    card_error    the part of the standard error that no process on the same cards takes away

    None where not even PROCESSES_MAX a side would do. Raises ValueError for fewer than one stored process.
    """
    counts = range(1, PROCESSES_MAX + 1)
    for fresh in counts:
        if ratio > 1 + z * math.hypot(standard_error(relative_sd, stored, fresh), card_error):
            return Processes(fresh, stored)
    for both in counts:
        if ratio > 1 + z * math.hypot(standard_error(relative_sd, both, both), card_error):
            return Processes(both, both)
    return None


def pairs_needed(ratio: float, *, z: float, relative_sd: float, taken: int, asymmetry: float) -> int | None:
    """The fewest pairs, more than were `taken`, that put the noise limit below `ratio`; None beyond PAIRS_MAX.

    relative_sd   of one pair's ratio
    asymmetry     what pairs cannot average out, as a fraction
    """
    for count in range(taken + 1, PAIRS_MAX + 1):
        if ratio > 1 + (math.expm1(z * standard_error_of_pairs(relative_sd, count)) + asymmetry):
            return count
    return None


def unit_cost(case: CaseResult) -> UnitCost:
    """What one process and one pair of this case took, from its own seconds.

    All processes of a case are taken to cost the same; a pair is two of them and its turns. Starting workers is shared
    between the cases of a run and counted where it happened, so that a case alone may take some seconds more.
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
    return UnitCost(process_s, 2 * process_s + each, pairs_measured=True)
