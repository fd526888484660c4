"""What pairs say of one revision of a bisection: an interval of its ratio, at looks whose sizes are fixed beforehand.

An interval is Student's t of the mean log ratio candidate / GOOD. The noise is pooled: squared deviations of all pairs
of the revision itself, and of the first batch of every revision begun before. Later pairs of those were taken
because the first ones scattered or lay near the line, and the variance of a sample whose size its own values decided is
biased: pooled whole, simulated intervals missed the truth up to 1.2 times as often as stated. The size of a first batch
is fixed, which keeps Student's t exact for normal log ratios of one standard deviation. Rare wild pairs only widen it.
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
"""Factor from look to look: few looks to share the error over, and at most half as many pairs more than needed."""

LOG_RATIO_MAX = 700.0
"""The exponential of more is no float."""


class CannotMeasureError(AttnperfError):
    """A revision gives no ratio: it does not build, lacks the case, or computes wrongly; the text says which."""


@dataclass(frozen=True)
class Scatter:
    """Sum of squared deviations of log ratios from the means of their samples, and its degrees of freedom."""

    squares: float = 0.0
    degrees: int = 0

    def with_sample(self, log_ratios: Sequence[float]) -> Scatter:
        """With one more sample. Raises ValueError for an empty one."""
        centre = statistics.fmean(log_ratios)
        squares = math.fsum((value - centre) ** 2 for value in log_ratios)
        return Scatter(self.squares + squares, self.degrees + len(log_ratios) - 1)


@dataclass(frozen=True)
class Estimate:
    """Mean log ratio of one revision, its standard error and that one's degrees of freedom, and half the interval."""

    log_ratio: float
    standard_error: float
    half_width: float
    degrees: int = 0

    @property
    def low(self) -> float:
        """Lower end of the interval, as a log ratio."""
        return self.log_ratio - self.half_width

    @property
    def high(self) -> float:
        """Upper end of the interval, as a log ratio."""
        return self.log_ratio + self.half_width

    @property
    def interval(self) -> tuple[float, float]:
        """Both ends as ratios."""
        return math.exp(self.low), math.exp(min(self.high, LOG_RATIO_MAX))

    def detectable_log_ratio(self, missed: float) -> float:
        """The log ratio that lies above 0 in all but this share of such estimates; infinite for an infinite interval.

        The half width c e scatters with the standard error e it is made from, by about c e / sqrt(2 x degrees): the
        normal approximation of the noncentral t distribution (Johnson and Welch, Biometrika 31, 1940).
        """
        if not math.isfinite(self.half_width):
            return math.inf
        scatter = math.hypot(self.standard_error, self.half_width / math.sqrt(2 * self.degrees))
        return self.half_width + upper_quantile(missed) * scatter


def estimate_ratio(log_ratios: Sequence[float], pool: Scatter, tail: float) -> Estimate:
    """The interval that the truth leaves with probability `tail` on each side.

    One pair and an empty pool show no scatter, and the interval is infinite. Raises ValueError without a log ratio.
    """
    scatter = pool.with_sample(log_ratios)
    centre = statistics.fmean(log_ratios)
    if scatter.degrees < 1:
        return Estimate(centre, math.inf, math.inf)
    sd = max(math.sqrt(scatter.squares / scatter.degrees), RELATIVE_SD_MIN)
    error = sd / math.sqrt(len(log_ratios))
    return Estimate(centre, error, upper_quantile(tail, scatter.degrees) * error, scatter.degrees)


class RevisionSample:
    """The pairs of one revision so far, and what they say.

    sizes   how many pairs there are at each look, fixed beforehand (`looks`)
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
        """How many there are."""
        return len(self._values)

    @property
    def is_exhausted(self) -> bool:
        """Whether there is no further look."""
        return self._looks == len(self._sizes)

    @property
    def missing_pairs(self) -> int:
        """Pairs still missing at the next look; 0 where more were taken than asked for."""
        return max(0, self._sizes[self._looks] - len(self._values))

    def add_pairs(self, pairs: Sequence[PairSummary]) -> None:
        """Take the next look, with these pairs beside those there are. Raises as `log_ratios` does."""
        if pairs or not self._values:
            self._values += log_ratios(pairs)
        self._looks += 1
        self.found = estimate_ratio(self._values, self._pool, self._tail)

    def pool_first_batch(self) -> Scatter:
        """The pool with this sample's first batch; asked for behind the first look."""
        return self._pool.with_sample(self._values)


def plan_looks(first: int, most: int) -> tuple[int, ...]:
    """How many pairs there are at each look at a revision: (4, 6, 9, 14, 21, 32) for 4 and 32."""
    sizes = [min(first, most)]
    while sizes[-1] < most:
        sizes.append(min(most, math.ceil(sizes[-1] * LOOK_GROWTH)))
    return tuple(sizes)


def share_of_slowdown(log_ratio: float, share: float) -> float:
    """The log ratio at this share of a slowdown, the share being taken of the ratio: half of 1.2 is 1.1."""
    return math.log1p(share * math.expm1(log_ratio))


def log_ratios(pairs: Sequence[PairSummary]) -> list[float]:
    """Natural logarithms of the pairs' ratios.

    Raises TypeError for anything but `PairSummary` (turns and quads of one pair share its bias and are no unit of an
    interval), and CannotMeasureError when there is no pair or a ratio is not a positive number.
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
