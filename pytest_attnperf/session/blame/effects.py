"""Effects of swapping components between two environments, as ratios of times with intervals, for one case.

An environment is named by the set of components that have their new version: none of them is the old environment, all
of them the new one. Its effect against another one is measured by interleaved pairs, or follows from measured effects:
from old to X and from X to new give old to new, exactly, because logarithms of ratios add along a path. No assumption
that components act independently is needed for that.
"""

from __future__ import annotations

import enum
import math
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

from pytest_attnperf.records.pairs import PairSummary
from pytest_attnperf.session.bisect.evidence import LOG_RATIO_MAX, RevisionSample, Scatter, plan_looks

Mixture = frozenset[str]
"""Components of an environment that have their new version; all others have the old one."""

OLD: Mixture = frozenset()


class EffectSize(str, enum.Enum):
    """Whether an effect is certainly small, certainly not, or neither."""

    ABSENT = "absent"
    PRESENT = "present"
    UNCLEAR = "unclear"


@dataclass(frozen=True)
class Effect:
    """Time of one environment over that of another, as a natural log, with half of its interval.

    pairs   measured for it; 0 if it follows from others
    """

    log_ratio: float
    half_width: float
    pairs: int = 0

    @property
    def ratio(self) -> float:
        """The ratio of times: above 1 is slower."""
        return math.exp(min(self.log_ratio, LOG_RATIO_MAX))

    @property
    def interval(self) -> tuple[float, float]:
        """(lower, upper) end of the interval, as ratios of times."""
        low, high = self.log_ratio - self.half_width, self.log_ratio + self.half_width
        return math.exp(min(low, LOG_RATIO_MAX)), math.exp(min(high, LOG_RATIO_MAX))

    def has_sign_of(self, other: Effect) -> bool:
        """Returns whether both make the case slower, or both faster."""
        return (self.log_ratio > 0) == (other.log_ratio > 0)

    def is_below(self, limit: float) -> bool:
        """Returns whether the effect is certainly below `limit`, a log ratio, either way."""
        return abs(self.log_ratio) + self.half_width < limit

    def measure_against(self, limit: float) -> EffectSize:
        """Returns ABSENT if the effect is certainly below `limit` (a log ratio, either way), PRESENT if it is certainly
        above half of it.

        Both lines may hold for an effect between them, and either answer is true then: an effect of exactly the limit
        is decided by finitely many pairs.
        """
        least = abs(self.log_ratio) - self.half_width
        if least > limit / 2:
            return EffectSize.PRESENT
        return EffectSize.ABSENT if self.is_below(limit) else EffectSize.UNCLEAR


NO_EFFECT = Effect(0.0, 0.0)
"""Of an environment against itself."""


class Ledger:
    """Everything measured of one case, and what follows from it.

    error       probability that any interval of the case misses the truth
    expected    number of measurements that a usual search needs: each new one gets this share of the error left
    first       pairs of the first look at each measurement; `most` is the number at the last look
    """

    def __init__(self, error: float, expected: int, first: int, most: int) -> None:
        self._error_left, self._expected = error, expected
        self._first, self._most = first, most
        self._pool = Scatter()
        self._samples: dict[tuple[Mixture, Mixture], RevisionSample] = {}

    @property
    def count(self) -> int:
        """Number of measurements so far: different pairs of environments."""
        return len(self._samples)

    @property
    def pair_count(self) -> int:
        """Number of pairs of all measurements."""
        return sum(sample.pair_count for sample in self._samples.values())

    def open_sample(self, base: Mixture, candidate: Mixture, first: int | None = None) -> RevisionSample:
        """Returns the pairs of this measurement so far; begins it with its share of the error if it is new."""
        key = (base, candidate)
        if key not in self._samples:
            sizes = plan_looks(first or self._first, self._most)
            share = self._error_left / self._expected
            self._error_left -= share
            self._samples[key] = RevisionSample(sizes, share / (2 * len(sizes)), self._pool)
        return self._samples[key]

    def add_pairs(self, base: Mixture, candidate: Mixture, pairs: Sequence[PairSummary]) -> None:
        """Adds pairs to a measurement that was begun. Raises CannotMeasureError for none, or an invalid ratio."""
        sample = self._samples[base, candidate]
        is_first = not sample.pair_count
        sample.add_pairs(pairs)
        if is_first:
            self._pool = sample.pool_first_batch()

    def find_effect(self, base: Mixture, candidate: Mixture) -> Effect | None:
        """Returns the effect between two environments along the fewest measurements; None if none lead there.

        The half widths add: all intervals of a case hold at once, so that their sum does, too.
        """
        if base == candidate:
            return NO_EFFECT
        reached: dict[Mixture, Effect] = {base: NO_EFFECT}
        ways = deque([base])
        while ways and candidate not in reached:
            here = ways.popleft()
            for there, effect in self._list_from(here):
                if there not in reached:
                    before = reached[here]
                    total, width = before.log_ratio + effect.log_ratio, before.half_width + effect.half_width
                    reached[there] = Effect(total, width, effect.pairs if here == base else 0)
                    ways.append(there)
        return reached.get(candidate)

    def _list_from(self, mixture: Mixture) -> list[tuple[Mixture, Effect]]:
        found = []
        for (base, candidate), sample in self._samples.items():
            if not sample.pair_count or mixture not in (base, candidate):
                continue
            forward, estimate = mixture == base, sample.found
            log_ratio = estimate.log_ratio if forward else -estimate.log_ratio
            found.append((candidate if forward else base, Effect(log_ratio, estimate.half_width, sample.pair_count)))
        return found
