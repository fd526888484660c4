"""Quantiles and tails of the normal, Student's t and chi-square distributions, and exact binomial tails and bounds.

They need only the standard library.
"""

from __future__ import annotations

import functools
import math
import statistics

NORMAL_FROM_DEGREES = 300
"""From here on t and normal quantiles differ by less than 2 % at a tail of 1e-5, and the normal one is used."""


@functools.lru_cache(maxsize=1024)
def upper_quantile(tail: float, degrees_of_freedom: int | None = None) -> float:
    """Returns the value that a standard normal or Student's t variable exceeds with probability `tail`.

    With `degrees_of_freedom` the standard deviation is itself an estimate, and Student's t is used; without, it is
    known. Raises ValueError unless 0 < tail < 0.5 and the degrees of freedom are at least 1.
    """
    if not 0 < tail < 0.5:
        raise ValueError(f"tail probability is {tail}, must lie strictly between 0 and 0.5")
    if degrees_of_freedom is None or degrees_of_freedom >= NORMAL_FROM_DEGREES:
        return -statistics.NormalDist().inv_cdf(tail)
    if degrees_of_freedom < 1:
        raise ValueError(f"degrees of freedom are {degrees_of_freedom}, must be at least 1")
    # Bisect the angle atan(t / sqrt(degrees)): it is bounded, and over its range the tail falls from 0.5 to 0.
    low, high = 0.0, math.pi / 2
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if _student_tail(middle, degrees_of_freedom) > tail else (low, middle)
    return math.tan(low) * math.sqrt(degrees_of_freedom)


def upper_tail(value: float, degrees_of_freedom: int | None = None) -> float:
    """Returns the probability that a standard normal, or with degrees Student's t, variable exceeds `value` (any sign).
    Raises ValueError for fewer than one degree of freedom."""
    if degrees_of_freedom is None or degrees_of_freedom >= NORMAL_FROM_DEGREES:
        return statistics.NormalDist().cdf(-value)
    if degrees_of_freedom < 1:
        raise ValueError(f"degrees of freedom are {degrees_of_freedom}, must be at least 1")
    tail = _student_tail(math.atan(abs(value) / math.sqrt(degrees_of_freedom)), degrees_of_freedom)
    # Far out, rounding may leave the finite sum slightly below zero.
    return max(tail, 0.0) if value >= 0 else 1 - tail


@functools.lru_cache(maxsize=256)
def chi_square_quantile(below: float, degrees_of_freedom: int) -> float:
    """Returns the value below which a chi-square variable lies with probability `below`.
    Raises ValueError unless 0 < below < 1 and the degrees of freedom are at least 1."""
    if not 0 < below < 1:
        raise ValueError(f"probability is {below}, must lie strictly between 0 and 1")
    if degrees_of_freedom < 1:
        raise ValueError(f"degrees of freedom are {degrees_of_freedom}, must be at least 1")
    low, high = 0.0, 1.0
    while _chi_square_below(high, degrees_of_freedom) < below:
        high *= 2
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if _chi_square_below(middle, degrees_of_freedom) < below else (low, middle)
    return low


def _chi_square_below(value: float, degrees: int) -> float:
    """Computes the incomplete gamma function P(degrees / 2, value / 2) by its series (Abramowitz and Stegun 6.5.29)."""
    shape, x = degrees / 2, value / 2
    term, total, steps = 1.0, 1.0, 0
    while term > 1e-16 * total:
        steps += 1
        term *= x / (shape + steps)
        total += term
    return total * math.exp(shape * math.log(x) - x - math.lgamma(shape + 1))


def _student_tail(angle: float, degrees: int) -> float:
    """Computes P(T > t) at angle = atan(t / sqrt(degrees)) by Abramowitz and Stegun's finite sums 26.7.3 and 26.7.4."""
    odd = degrees % 2 == 1
    term = math.cos(angle) if odd else 1.0
    total = 0.0
    for power in range(3 if odd else 2, degrees + 1, 2):
        total += term
        term *= math.cos(angle) ** 2 * (power - 1) / power
    inside = math.sin(angle) * total
    if odd:
        inside = 2 / math.pi * (angle + inside)
    return (1 - inside) / 2


def binomial_at_most(successes: int, trials: int, probability: float) -> float:
    """Returns the chance of at most `successes` in `trials` that each succeed with `probability` (between 0 and 1).
    Raises ValueError for another probability and unless 0 <= successes <= trials."""
    if not 0 <= successes <= trials:
        raise ValueError(f"{successes} of {trials} trials cannot have succeeded")
    if not 0 < probability < 1:
        raise ValueError(f"probability is {probability}, must lie strictly between 0 and 1")
    success, failure = math.log(probability), math.log1p(-probability)
    return math.fsum(
        math.exp(_log_choices(trials, k) + k * success + (trials - k) * failure) for k in range(successes + 1)
    )


def rate_bound95(events: int, trials: int) -> float:
    """Returns the rate that `events` in `trials` independent trials exclude at 95 %, one-sided (Clopper, Pearson 1934).

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
    """Returns the two-sided chance of a split at least as uneven as `ups` of `trials`, if both are equally likely."""
    fewer = min(ups, trials - ups)
    return min(1.0, 2 * binomial_at_most(fewer, trials, 0.5))


def _log_choices(trials: int, successes: int) -> float:
    """Returns the logarithm of the binomial coefficient, which overflows a float from about a thousand trials on."""
    return math.lgamma(trials + 1) - math.lgamma(successes + 1) - math.lgamma(trials - successes + 1)
