"""Compares new processes with base processes: a ratio, its interval, and how far chance alone would move it.

The unit is the process. Blocks of one process share its placement and its clock, so an interval over blocks is far too
narrow: within a pair of processes a ratio repeats to 0.03 %, between pairs it moves by 0.3 %. Nothing here uses blocks.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, replace

from pytest_attnperf.records import ProcessSummary
from pytest_attnperf.stats.card_components import compute_card_shares
from pytest_attnperf.stats.noise import NoiseEstimate
from pytest_attnperf.stats.quantiles import upper_quantile


@dataclass(frozen=True)
class Comparison:
    """Ratio = median of the new process medians / median of the base ones; above 1 is slower.

    interval95        95 % interval of `ratio`
    standard_error    relative standard deviation of `ratio`
    noise_threshold   how far above 1 chance may move unchanged code, as a fraction (0.014 = 1.4 %)
    card_error        the part of `standard_error` (their squares add) from different cards; 0 if both sides ran on the
                     same cards, or if the spread between cards is unknown

    Times are compared by their logarithms: twice as long and half as long are equally far from 1, and no interval of a
    noisy case reaches below zero.
    """

    ratio: float
    interval95: tuple[float, float]
    standard_error: float
    noise_threshold: float
    card_error: float = 0.0

    def slower_beyond(self, tolerated: float) -> float:
        """Returns the least ratio that counts as slower than `tolerated`, with this comparison's interval and noise.
        At it the whole interval is above `tolerated`, and chance alone does not reach it."""
        return max(tolerated * self.ratio / self.interval95[0], 1 + self.noise_threshold)


def slower_beyond(
    tolerated: float, error: float, z: float, degrees_of_freedom: int | None, beside: float = 0.0
) -> float:
    """Returns the least ratio that a comparison with this standard error (`error`) would call slower than `tolerated`.

    z        standard deviations that chance may move a ratio (see `z_for`)
    beside   further error of the ratio that more processes or pairs do not reduce (0.01 is 1 %); it raises the result
    """
    half_width = upper_quantile(0.025, degrees_of_freedom) * error
    return max(tolerated * compute_factor(half_width) / (1 - beside), compute_factor(z * error) + beside)


def compute_factor(logarithm: float) -> float:
    """Converts the logarithm of a ratio, limited to -100 ... 100, to a factor. Forged spreads then give undecided
    results, not an OverflowError."""
    return math.exp(max(-100.0, min(logarithm, 100.0)))


def compare_processes(
    base: Sequence[ProcessSummary],
    new: Sequence[ProcessSummary],
    relative_sd: float,
    z: float,
    degrees_of_freedom: int | None = None,
    card_sd: float = 0.0,
) -> Comparison:
    """Compares two groups of processes whose medians scatter with `relative_sd`; `z` comes from `z_for`.

    `degrees_of_freedom` are those of the spread and widen the interval; None means an exact spread (with cards, use
    those of `with_degrees_between`). `card_sd` is the relative spread of a case between cards, beside that within one.
    Raises TypeError for anything but `ProcessSummary`, ValueError for an empty side or a negative spread.
    """
    if not (math.isfinite(relative_sd) and relative_sd >= 0):
        raise ValueError(f"relative_sd is {relative_sd}, must be finite and not negative")
    ratio = ratio_of(base, new)
    of_cards = card_sd * math.sqrt(card_variance(base, new)) if card_sd else 0.0
    error = math.hypot(standard_error(relative_sd, len(base), len(new)), of_cards)
    half_width = upper_quantile(0.025, degrees_of_freedom) * error
    interval = (ratio * compute_factor(-half_width), ratio * compute_factor(half_width))
    return Comparison(ratio, interval, error, compute_factor(z * error) - 1, of_cards)


def card_variance(base: Sequence[ProcessSummary], new: Sequence[ProcessSummary]) -> float:
    """Returns the factor by which the variance between cards enters that of the ratio new / base of two medians.

    It is 0 if both sides ran on the same single card, and 2 if each ran on another one.

    A side is a median over its effective number of cards, 1 / sum of squared shares. The shares of cards that both
    sides ran on cancel. Processes whose card is unknown count as one further card.
    """
    sides = [compute_card_shares(side) for side in (base, new)]
    variances = [median_variance(1 / sum(share**2 for share in side.values())) for side in sides]
    shared = sum(share * sides[1].get(card, 0.0) for card, share in sides[0].items())
    return max(0.0, sum(variances) - 2 * shared)


def with_degrees_between(
    noise: NoiseEstimate, base: Sequence[ProcessSummary], new: Sequence[ProcessSummary]
) -> NoiseEstimate:
    """Returns the noise with degrees of freedom for these two sides: those of processes and of cards, weighted by their
    parts of the variance (Satterthwaite).
    """
    if not noise.card_sd:
        return noise
    of_cards = noise.card_sd**2 * card_variance(base, new)
    within = standard_error(noise.relative_sd, len(base), len(new)) ** 2
    squares = within**2 / noise.degrees_of_freedom + of_cards**2 / noise.card_degrees
    degrees = math.floor((within + of_cards) ** 2 / squares + 1e-9)
    return replace(noise, degrees_of_freedom=max(1, degrees))


def ratio_of(base: Sequence[ProcessSummary], new: Sequence[ProcessSummary]) -> float:
    """Returns the median of the new processes' medians divided by that of the base's; above 1 is slower.
    Raises ValueError for an empty side, TypeError for anything but `ProcessSummary`."""
    return _compute_centre("new", new) / _compute_centre("base", base)


def standard_error(relative_sd: float, base_processes: int, new_processes: int) -> float:
    """Returns the relative standard deviation of the ratio of two medians of process medians."""
    return relative_sd * math.sqrt(median_variance(base_processes) + median_variance(new_processes))


def median_variance(processes: float) -> float:
    """Returns the variance of the median of this many unit normal values: pi / (2 n + pi - 2).

    1 / n would be the mean's variance. The centre is a median, so that one bad process cannot move it. The threshold
    must include the cost of that: with 1 / n, a stated 1 % of red suites of 100 cases would really be about 7 % (seven
    against three processes). The form is exact for one value, tends to the asymptotic pi / (2 n), is within 2 % of the
    exact value for odd n, and above it for even n. Cards that measured unequal shares count as a fraction.
    """
    if processes < 1 - 1e-9:
        raise ValueError(f"a median needs at least one process, got {processes}")
    return math.pi / (2 * processes + math.pi - 2)


def z_for(suite_rate: float, cases: int, degrees_of_freedom: int | None = None) -> float:
    """Returns by how many standard deviations a case's ratio must exceed 1 to be called slower (one-sided).

    `suite_rate` is the accepted chance of any false alarm in a whole run over unchanged code. It is divided equally
    among the cases (Bonferroni), which holds for any correlation between them. Raises ValueError for a rate outside (0,
    0.5) and for fewer than one case.
    """
    if not 0 < suite_rate < 0.5:
        raise ValueError(f"suite_rate is {suite_rate}, must lie strictly between 0 and 0.5")
    if cases < 1:
        raise ValueError(f"a threshold needs at least one case, got {cases}")
    return upper_quantile(suite_rate / cases, degrees_of_freedom)


def _compute_centre(side: str, processes: Sequence[ProcessSummary]) -> float:
    if not processes:
        raise ValueError(f"the {side} side of a comparison has no processes")
    for process in processes:
        if not isinstance(process, ProcessSummary):
            raise TypeError(
                f"the {side} side of a comparison holds a {type(process).__name__}, not a ProcessSummary: "
                "intervals are computed over processes, never over blocks or plain numbers"
            )
    return statistics.median(process.median_us for process in processes)
