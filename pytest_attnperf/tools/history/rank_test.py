"""Mann and Whitney's rank test with its exact distribution, so that three points against thirty are judged rightly."""

from __future__ import annotations

import functools
from collections.abc import Sequence


def one_sided_p(lower: Sequence[float], higher: Sequence[float]) -> float:
    """The chance of ranks at least as much in favour of `higher` being higher, if both are alike.

    Ties count half; half a rank is then given away, so that p is rather too large. Raises ValueError for an empty side.
    """
    if not lower or not higher:
        raise ValueError(f"{len(lower)} and {len(higher)} values cannot be compared; both sides need one")
    against = sum((low > high) + 0.5 * (low == high) for low in lower for high in higher)
    counts = _counts(*sorted((len(lower), len(higher))))
    # `against` is U; a half is rounded up.
    return sum(counts[: int(against + 0.5) + 1]) / sum(counts)


def smallest_p(lower: int, higher: int) -> float:
    """What complete separation of so many values gives."""
    return 1 / sum(_counts(*sorted((lower, higher))))


@functools.lru_cache(maxsize=256)
def _counts(fewer: int, more: int) -> tuple[int, ...]:
    """How many orders of both samples have U = 0, 1, 2 ...: coefficients of the Gaussian binomial."""
    size = fewer * more + 1
    counts = [1] + [0] * (size - 1)
    for step in range(1, fewer + 1):
        # Times (1 - q^(more + step)), then divided by (1 - q^step).
        for index in range(size - 1, more + step - 1, -1):
            counts[index] -= counts[index - more - step]
        for index in range(step, size):
            counts[index] += counts[index - step]
    return tuple(counts)
