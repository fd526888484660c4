"""What counts of independent trials say of a probability: exact binomial tails and bounds."""

from __future__ import annotations

import math


def binomial_at_most(successes: int, trials: int, probability: float) -> float:
    """The chance of at most this many successes, for 0 < probability < 1.

    Raises ValueError for another probability and unless 0 <= successes <= trials.
    """
    if not 0 <= successes <= trials:
        raise ValueError(f"{successes} of {trials} trials cannot have succeeded")
    if not 0 < probability < 1:
        raise ValueError(f"probability is {probability}, must lie strictly between 0 and 1")
    success, failure = math.log(probability), math.log1p(-probability)
    return math.fsum(
        math.exp(_log_choices(trials, k) + k * success + (trials - k) * failure) for k in range(successes + 1)
    )


def rate_bound95(events: int, trials: int) -> float:
    """The rate that `events` in so many independent trials exclude at 95 %, one-sided (Clopper and Pearson, 1934).

    0 in 300 gives 1 %. Without trials nothing is excluded: 1. Raises ValueError unless 0 <= events <= trials.
    """
    if events == trials:
        return 1.0
    low, high = 0.0, 1.0
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if binomial_at_most(events, trials, middle) > 0.05 else (low, middle)
    return high


def sign_test(ups: int, trials: int) -> float:
    """Two-sided chance of a split at least as uneven as `ups` of `trials`, if either way is as likely."""
    fewer = min(ups, trials - ups)
    return min(1.0, 2 * binomial_at_most(fewer, trials, 0.5))


def _log_choices(trials: int, successes: int) -> float:
    """Logarithm of the binomial coefficient, which itself is too large for a float from about a thousand trials on."""
    return math.lgamma(trials + 1) - math.lgamma(successes + 1) - math.lgamma(trials - successes + 1)
