"""Estimates the ratio of one bisected revision to GOOD from its pairs, with an interval, at looks of planned sizes.

An interval is Student's t of the mean log ratio candidate / GOOD. The noise is pooled: squared deviations of all pairs
of the revision itself, and of the first batch of every revision begun before. Later batches of those are left out. They
were taken because the first ones scattered or lay near the line, and the variance of a sample whose values decided its
size is biased: with them, simulated intervals missed the truth up to 1.2 times as often as stated. The size of a first
batch is fixed, so Student's t is exact for normal log ratios of one standard deviation. Rare outliers only widen it.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from pytest_attnperf.errors import AttnperfError
from pytest_attnperf.records.pairs import PairSummary
from pytest_attnperf.stats.noise import RELATIVE_SD_MIN
from pytest_attnperf.stats.quantiles import upper_quantile

LOOK_GROWTH = 1.5
"""Factor in pairs from look to look: the error is shared over few looks, and at most half as many pairs are wasted."""

LOG_RATIO_MAX = 700.0
"""Largest log ratio whose exponential is a finite float."""


class CannotMeasureError(AttnperfError):
    """A revision gives no ratio: it does not build, lacks the case, or computes wrongly. The text says which."""


@dataclass(frozen=True)
class Scatter:
    """Sum of squared deviations of log ratios from the means of their samples, and its degrees of freedom."""

    squares: float = 0.0
    degrees: int = 0

    def with_sample(self, log_ratios: Sequence[float]) -> Scatter:
        """Returns the scatter with the deviations of one more sample of log ratios. Raises ValueError for none."""
        centre = statistics.fmean(log_ratios)
        squares = math.fsum((value - centre) ** 2 for value in log_ratios)
        return Scatter(self.squares + squares, self.degrees + len(log_ratios) - 1)


@dataclass(frozen=True)
class Estimate:
    """Mean log ratio of one revision, its standard error with its degrees of freedom, and half of the interval."""

    log_ratio: float
    standard_error: float
    half_width: float
    degrees: int = 0

    @property
    def low(self) -> float:
        """Returns the lower end of the interval of the time ratio revision / GOOD, as a natural log."""
        return self.log_ratio - self.half_width

    @property
    def high(self) -> float:
        """Returns the upper end of the interval of the time ratio revision / GOOD, as a natural log."""
        return self.log_ratio + self.half_width

    @property
    def interval(self) -> tuple[float, float]:
        """Returns (lower, upper) end of the interval, as time ratios revision / GOOD."""
        return math.exp(self.low), math.exp(min(self.high, LOG_RATIO_MAX))

    def detectable_log_ratio(self, missed: float) -> float:
        """Returns the smallest slowdown, as a log ratio, that all but the share `missed` of estimates would detect:
        their interval is above 0.

        Infinite for an infinite interval. The half width c e scatters with the standard error e it is made from, by
        about c e / sqrt(2 x degrees): the normal approximation of the noncentral t distribution (Johnson and Welch,
        Biometrika 31, 1940).
        """
        if not math.isfinite(self.half_width):
            return math.inf
        scatter = math.hypot(self.standard_error, self.half_width / math.sqrt(2 * self.degrees))
        return self.half_width + upper_quantile(missed) * scatter


def estimate_ratio(log_ratios: Sequence[float], pool: Scatter, tail: float) -> Estimate:
    """Returns the mean of these log ratios with an interval that misses the truth with probability `tail` on each side.
    The noise is that of `pool` and these values.

    One pair with an empty pool shows no scatter: the interval is then infinite. Raises ValueError without a log ratio.
    """
    scatter = pool.with_sample(log_ratios)
    centre = statistics.fmean(log_ratios)
    if scatter.degrees < 1:
        return Estimate(centre, math.inf, math.inf)
    sd = max(math.sqrt(scatter.squares / scatter.degrees), RELATIVE_SD_MIN)
    error = sd / math.sqrt(len(log_ratios))
    return Estimate(centre, error, upper_quantile(tail, scatter.degrees) * error, scatter.degrees)


class RevisionSample:
    """The pairs of one revision so far, and the estimate from them.

    sizes   how many pairs there are at each look, fixed beforehand (`plan_looks`)
    tail    chance that the truth lies beyond one side of the interval of one look
    pool    scatter of the first batches of the revisions begun before
    """

    def __init__(self, sizes: Sequence[int], tail: float, pool: Scatter) -> None:
        self._sizes, self._tail, self._pool = sizes, tail, pool
        self._values: list[float] = []
        self._looks = 0
        self.found = Estimate(0.0, math.inf, math.inf)

    @property
    def pair_count(self) -> int:
        """Number of pairs taken so far."""
        return len(self._values)

    @property
    def is_exhausted(self) -> bool:
        """Whether all looks of `sizes` were taken (planned numbers of pairs), so that no more pairs are measured."""
        return self._looks == len(self._sizes)

    @property
    def missing_pairs(self) -> int:
        """Number of pairs to measure before the next evaluation; 0 if more were taken than planned."""
        return max(0, self._sizes[self._looks] - len(self._values))

    def add_pairs(self, pairs: Sequence[PairSummary]) -> None:
        """Adds pairs and sets `found`, the estimate from all pairs so far. Raises CannotMeasureError for no pairs or an
        invalid ratio, TypeError for anything but pairs."""
        if pairs or not self._values:
            self._values += log_ratios(pairs)
        self._looks += 1
        self.found = estimate_ratio(self._values, self._pool, self._tail)

    def pool_first_batch(self) -> Scatter:
        """Returns the pooled scatter of all revisions with these pairs added. Call it after the first look only."""
        return self._pool.with_sample(self._values)


def plan_looks(first: int, most: int) -> tuple[int, ...]:
    """Returns how many pairs a revision has in all when its ratio is evaluated: (4, 6, 9, 14, 21, 32) for 4 and 32."""
    sizes = [min(first, most)]
    while sizes[-1] < most:
        sizes.append(min(most, math.ceil(sizes[-1] * LOOK_GROWTH)))
    return tuple(sizes)


def share_of_slowdown(log_ratio: float, share: float) -> float:
    """Returns the log of the ratio that has this share of a slowdown: log 1.1 for log 1.2 and share 0.5."""
    return math.log1p(share * math.expm1(log_ratio))


def log_ratios(pairs: Sequence[PairSummary]) -> list[float]:
    """Returns the natural logarithms of the pairs' ratios.

    Raises TypeError for anything but `PairSummary`: turns and quads of one pair share its bias, so no interval may be
    computed over them. Raises CannotMeasureError when there is no pair, or a ratio is not a positive number.
    """
    if not pairs:
        raise CannotMeasureError("no pair was measured")
    for pair in pairs:
        if not isinstance(pair, PairSummary):
            raise TypeError(
                f"a bisection takes PairSummary objects, got a {type(pair).__name__}: "
                "intervals are computed over pairs, never over turns or plain numbers"
            )
        if not (math.isfinite(pair.ratio) and pair.ratio > 0):
            raise CannotMeasureError(f"a pair has the ratio {pair.ratio}; a ratio must be finite and positive")
    return [math.log(pair.ratio) for pair in pairs]
