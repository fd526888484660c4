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
from pytest_attnperf.stats.comparison import slower_beyond, standard_error
from pytest_attnperf.stats.pairs import standard_error_of_pairs

PROCESSES_MAX = 200
"""More fresh processes than this are not a suggestion anybody could follow."""

PAIRS_MAX = 100
"""More pairs than this are not a suggestion anybody could follow."""


@dataclass(frozen=True)
class ProcessCounts:
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


@dataclass(frozen=True)
class Aim:
    """A slowdown that is to be told from noise.

    ratio                new / base as it was seen, above `tolerated`, the ratio that the user allows
    z                    quantile that the standard error is multiplied by
    degrees_of_freedom   how well the standard error is known
    """

    ratio: float
    tolerated: float
    z: float
    degrees_of_freedom: int | None

    def is_decided(self, error: float, beside: float = 0.0) -> bool:
        """Whether a ratio of this standard error is SLOWER; `beside` as of `slower_beyond`."""
        return self.ratio > slower_beyond(self.tolerated, error, self.z, self.degrees_of_freedom, beside)


def processes_needed(aim: Aim, *, relative_sd: float, stored: int, card_error: float = 0.0) -> ProcessCounts | None:
    """The fewest processes that decide: fresh ones, else as many on both sides.

    relative_sd   of one process
    stored        processes behind the baseline
    card_error    the part of the standard error that no process on the same cards takes away

    None where not even PROCESSES_MAX a side would do. Raises ValueError for fewer than one stored process.
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
    """The fewest pairs, more than were `taken`, that decide; None beyond PAIRS_MAX.

    relative_sd   of one pair's ratio
    asymmetry     what pairs cannot average out, as a fraction
    """
    for count in range(taken + 1, PAIRS_MAX + 1):
        if aim.is_decided(standard_error_of_pairs(relative_sd, count), asymmetry):
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
