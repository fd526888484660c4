"""Estimates how much fresh processes (or pairs) of unchanged code differ: a standard deviation per case, pooled.

A case's own seven processes say little about its spread: their standard deviation is wrong by 30 % in half of the
cases. So the variances of all cases of the same timer, a similar duration and the same bound (compute or memory, if
known) are pooled by degrees of freedom. A case's own variance moves the pool only by its weight (an inverse-chi-square
prior, as in limma's moderated t; Smyth, Stat. Appl. Genet. Mol. Biol. 3, 2004):

    sd_case^2 = (PRIOR_DEGREES x pool^2 + d_case x s_case^2) / (PRIOR_DEGREES + d_case)

PRIOR_DEGREES also says how much cases of one class are assumed to differ. So a threshold takes its quantile from
Student's t with PRIOR_DEGREES + d_case degrees of freedom (never more than the pool has). With a normal quantile, a
simulated suite of cases at 0.33 and 0.85 % was red in 6 % of runs at a stated 1 % and a user threshold of zero.

Processes of one card differ less than those of several. If a case is stored from several cards, its variance is that
within cards. The cards' part is a separate estimate (`CardNoise`), which counts once per card and not once per process.
`stats.comparison` combines the two.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from pytest_attnperf.records import ProcessSummary
from pytest_attnperf.stats.card_components import (
    CardNoise,
    CardSpread,
    Key,
    group_by_card,
    is_on_several_cards,
    prior_spread,
)
from pytest_attnperf.stats.quantiles import chi_square_quantile

PRIOR_DEGREES = 12
"""Weight of the pool, in degrees of freedom: twice that of a case's own seven processes."""

DURATION_LIMITS_US = (15.0, 100.0, 1000.0)
"""Upper ends of the duration classes: launch-bound, short, medium; longer calls reach the card's power cap."""

RELATIVE_SD_MIN = 1e-4
"""The step of the stored five significant digits: equal numbers must not give a threshold of zero."""


LOUDER_RATE = 1e-4
"""Accepted chance that new processes of an unchanged machine are taken for those of a busier one."""

Unit = Literal["process", "pair"]
"""The unit of a spread: fresh processes, or fresh pairs of one base and one candidate process."""

_PLURAL: dict[Unit, str] = {"process": "processes", "pair": "pairs"}


@dataclass(frozen=True)
class NoiseEstimate:
    """Relative standard deviation of a process median or a pair's ratio; `how` gives its source in words.

    degrees_of_freedom   of the standard deviation: of the prior and the case, at most the pool's
    unit                 the standard deviation is between these; never use one unit's for the other
    card_sd              of one case between cards, in addition; 0 if nothing is stored from several cards
    card_degrees         degrees of freedom of `card_sd`, and `card_how` its source
    """

    relative_sd: float
    degrees_of_freedom: int
    how: str
    unit: Unit = "process"
    card_sd: float = 0.0
    card_degrees: int = 0
    card_how: str = ""


@dataclass(frozen=True)
class CaseSpread:
    """The spread of one case's process medians, or pair ratios: their relative variance, with `degrees` of freedom.

    bound   'compute', 'memory', or '' if neither is known
    units   number of processes or pairs; 0 means `degrees` + 1, the number if all ran on one card
    """

    timer: str
    median_us: float
    variance: float
    degrees: int
    bound: str = ""
    units: int = 0

    @property
    def unit_count(self) -> int:
        """Number of processes or pairs that the spread was computed from."""
        return self.units or self.degrees + 1


@dataclass(frozen=True)
class _Pool:
    """Relative variance averaged over cases by their degrees of freedom."""

    variance: float
    degrees: int
    cases: int


class NoiseModel:
    """Noise by case. `from_processes` builds it from stored processes, `pairs.pair_noise` from pairs.

    `prior` is a spread known from elsewhere (an earlier run, a calibration), between the same units. It joins a pool as
    one more case of at most PRIOR_DEGREES degrees of freedom, and is used alone if nothing can be pooled. Raises
    ValueError if `prior` is of another unit.
    """

    def __init__(
        self,
        spreads: Mapping[str, CaseSpread],
        unit: Unit = "process",
        prior: NoiseEstimate | None = None,
        cards: CardNoise | None = None,
    ) -> None:
        if prior is not None and prior.unit != unit:
            raise ValueError(f"the prior is a spread between {_PLURAL[prior.unit]}, this model is of {_PLURAL[unit]}")
        self._spreads, self._unit, self._prior, self._cards = dict(spreads), unit, prior, cards
        self._borrowed = False
        groups: dict[tuple[str, int | None, str | None], list[CaseSpread]] = {}
        for spread in self._spreads.values():
            duration = duration_class(spread.median_us)
            for key in ((duration, spread.bound), (duration, None), (None, None)):
                groups.setdefault((spread.timer, *key), []).append(spread)
        self._pools = {key: _pool_spreads(group) for key, group in groups.items()}

    @classmethod
    def from_processes(
        cls, cases: Mapping[str, Sequence[ProcessSummary]], *, bounds: Mapping[str, str] | None = None
    ) -> NoiseModel:
        """Builds the noise model of cases from their processes; a case with fewer than two is left out.

        `bounds` holds 'compute' or 'memory' by case; a case that it lacks is pooled by duration only. Raises ValueError
        if one case holds processes of different timers.
        """
        bounds = bounds or {}
        found = {
            case: _compute_spread(case, group, bounds.get(case, "")) for case, group in cases.items() if len(group) > 1
        }
        spreads = {case: spread for case, spread in found.items() if spread.degrees}
        return cls(spreads, cards=card_noise(cases))

    @property
    def has_cards(self) -> bool:
        """Whether the model holds a spread between cards, of its own cases or from `with_cards`."""
        return self._cards is not None

    def with_cards(self, cards: CardNoise | None) -> NoiseModel:
        """Returns a model with the same cases and prior, but with `cards`, the card spread of other cases (or None)."""
        model = NoiseModel(self._spreads, self._unit, self._prior, cards)
        model._borrowed = True
        return model

    def estimate_noise(self, case: str, median_us: float, timer: str, bound: str = "") -> NoiseEstimate | None:
        """Returns the spread between processes (or pairs) of a case: its own and that of similar cases, by weight.

        `bound` is 'compute', 'memory' or ''. An unknown `case` gets the pooled spread of its class alone. A class with
        a bound is used if its cases have PRIOR_DEGREES degrees of freedom together. With fewer, and without a bound,
        the pool is that of the duration class, or that of the timer if this is empty. Returns None if no case of the
        timer has two units and there is no prior.
        """
        own = self._spreads.get(case)
        if own is not None and own.timer != timer:
            own = None
        pool, how = self._find_pool(duration_class(median_us), timer, bound)
        if own is not None and pool == _pool_spreads([own]):
            how = f"its own {own.unit_count} {_PLURAL[self._unit]} alone, timer {timer}"
        elif own is not None:
            how += f", moved by its own {own.unit_count} {_PLURAL[self._unit]}"
        if self._prior is not None:
            pool, how = _with_prior(pool, self._prior, how)
        cards = (
            self._cards.estimate_card_spread(median_us, timer, duration_class(median_us))
            if self._cards is not None
            else None
        )
        if pool is None:
            return None if cards is None or self._borrowed else _estimate_from_cards(cards)
        variance, degrees = _shrink_variance(pool, own)
        estimate = NoiseEstimate(max(math.sqrt(variance), RELATIVE_SD_MIN), degrees, how, self._unit)
        return estimate if cards is None else _with_cards(estimate, cards)

    def _find_pool(self, duration: int, timer: str, bound: str) -> tuple[_Pool | None, str]:
        """Returns (pool for a duration class, timer and bound or '', its description); (None, '') if there is none.
        It prefers the bound's pool if that has 12 degrees of freedom, then the duration's, then the timer's."""
        durations, lacking = f"of {describe_class(duration)}", ""
        if bound:
            pool = self._pools.get((timer, duration, bound))
            if pool is not None and pool.degrees >= PRIOR_DEGREES:
                return pool, _describe_pool(pool, f"{bound}-bound ", durations, timer)
            lacking = f" (too few {bound}-bound)" if pool is not None else f" (none {bound}-bound)"
        pool = self._pools.get((timer, duration, None))
        if pool is not None:
            return pool, _describe_pool(pool, "", durations + lacking, timer)
        pool = self._pools.get((timer, None, None))
        if pool is not None:
            return pool, _describe_pool(pool, "", f"of any duration (none {durations})", timer)
        return None, ""


def widen_to_own_spread(new: Sequence[ProcessSummary], noise: NoiseEstimate) -> NoiseEstimate:
    """Returns `noise`, but with the new processes' own spread if that is significantly larger.

    A machine may be busier now than when a baseline was recorded; stored processes cannot show that.
    """
    if len(new) < 2:
        return noise
    degrees = len(new) - 1
    relative_sd = statistics.stdev(math.log(process.median_us) for process in new)
    expected_sd = math.hypot(noise.relative_sd, noise.card_sd)
    if relative_sd**2 * degrees <= expected_sd**2 * chi_square_quantile(1 - LOUDER_RATE, degrees):
        return noise
    how = f"that of the {len(new)} new processes, which is wider than the {100 * expected_sd:.2g} % expected"
    return replace(noise, relative_sd=relative_sd, degrees_of_freedom=degrees, how=how)


def card_noise(cases: Mapping[str, Sequence[ProcessSummary]]) -> CardNoise | None:
    """Builds the spread of times between cards from the cases that ran on several; None if no case did.
    Raises ValueError if one of these cases holds processes of different timers."""
    classes: dict[Key, dict[str, Sequence[ProcessSummary]]] = {}
    for case, group in cases.items():
        if not is_on_several_cards(group):
            continue
        spread = _compute_spread(case, group, "")
        for duration in (duration_class(spread.median_us), None):
            classes.setdefault((spread.timer, duration), {})[case] = group
    return CardNoise(classes) if classes else None


def widen_for_cards(
    noise: NoiseEstimate, base: Sequence[ProcessSummary], new: Sequence[ProcessSummary]
) -> NoiseEstimate:
    """Adds `prior_spread` to the noise if a new process ran on a card without a stored process and `card_sd` is 0.

    The noise stays unchanged if any card is unknown.
    """
    stored, ours = ({process.device_id for process in side} for side in (base, new))
    if noise.card_sd or "" in stored | ours or ours <= stored:
        return noise
    return _with_cards(noise, prior_spread(statistics.median(process.median_us for process in base)))


def duration_class(median_us: float) -> int:
    """Returns the index of the duration class of a time in microseconds, 0 for the shortest."""
    return sum(median_us >= limit for limit in DURATION_LIMITS_US)


def describe_class(index: int) -> str:
    """Describes a duration class in words, e.g. '15 to 100 us'."""
    if index == 0:
        return f"less than {DURATION_LIMITS_US[0]:g} us"
    if index == len(DURATION_LIMITS_US):
        return f"{DURATION_LIMITS_US[-1]:g} us or more"
    return f"{DURATION_LIMITS_US[index - 1]:g} to {DURATION_LIMITS_US[index]:g} us"


def _compute_spread(case: str, processes: Sequence[ProcessSummary], bound: str) -> CaseSpread:
    timer = require_one_timer(case, [process.timer for process in processes], "process")
    medians = [process.median_us for process in processes]
    centre = statistics.median(medians)
    if is_on_several_cards(processes):
        groups = group_by_card(processes).values()
        degrees = len(medians) - len(groups)
        squares = sum((len(logs) - 1) * statistics.variance(logs) for logs in groups if len(logs) > 1)
        return CaseSpread(timer, centre, squares / degrees if degrees else 0.0, degrees, bound, len(medians))
    variance = statistics.variance(math.log(us) for us in medians)
    return CaseSpread(timer, centre, variance, len(medians) - 1, bound)


def _with_cards(estimate: NoiseEstimate, cards: CardSpread) -> NoiseEstimate:
    return replace(estimate, card_sd=cards.relative_sd, card_degrees=cards.degrees_of_freedom, card_how=cards.how)


def _estimate_from_cards(cards: CardSpread) -> NoiseEstimate:
    """Returns the noise for stored processes that each ran on another card: `card_sd` holds all of their spread."""
    how = "no two stored processes share a card: all of their spread is counted as that of cards"
    return _with_cards(NoiseEstimate(RELATIVE_SD_MIN, cards.degrees_of_freedom, how), cards)


def require_one_timer(case: str, timers: Sequence[str], unit: Unit) -> str:
    """Returns the timer that a case's processes or pairs have in common. Raises ValueError if there are several."""
    names = sorted(set(timers))
    if len(names) > 1:
        raise ValueError(f"case {case!r} mixes {_PLURAL[unit]} of the timers {', '.join(names)}; they cannot be pooled")
    return names[0]


def _pool_spreads(spreads: Sequence[CaseSpread]) -> _Pool:
    degrees = sum(spread.degrees for spread in spreads)
    return _Pool(sum(spread.variance * spread.degrees for spread in spreads) / degrees, degrees, len(spreads))


def _shrink_variance(pool: _Pool, own: CaseSpread | None) -> tuple[float, int]:
    """Returns (mean of the pool's and the case's own variance by their weights, its degrees of freedom).

    Without `own` it is the pool's. The degrees are the weights' PRIOR_DEGREES + d_case if the pool is much larger than
    the case. In a small pool the case's own variance counts twice: in the pool, and by itself. The degrees of the
    weighted sum (Satterthwaite, Biometrics Bulletin 2, 1946) are then fewer.
    """
    if own is None:
        return pool.variance, min(PRIOR_DEGREES, pool.degrees)
    degrees = PRIOR_DEGREES + own.degrees
    variance = (PRIOR_DEGREES * pool.variance + own.degrees * own.variance) / degrees
    others = max(pool.degrees - own.degrees, 0)
    weight_of_others = PRIOR_DEGREES * others / (max(pool.degrees, own.degrees) * degrees)
    squares = (1 - weight_of_others) ** 2 / own.degrees + (weight_of_others**2 / others if others else 0.0)
    # If the case is alone, rounding may leave the sum slightly below a whole number.
    return variance, min(degrees, math.floor(1 / squares + 1e-9))


def _describe_pool(pool: _Pool, bound: str, durations: str, timer: str) -> str:
    return f"pooled over {pool.cases} {bound}case{'s' * (pool.cases > 1)} {durations}, timer {timer}"


def _with_prior(pool: _Pool | None, prior: NoiseEstimate, how: str) -> tuple[_Pool, str]:
    """Returns (the pool with the prior as one more case, its description); the prior alone if `pool` is None."""
    weight = min(prior.degrees_of_freedom, PRIOR_DEGREES)
    stored = _Pool(prior.relative_sd**2, weight, 1)
    if pool is None:
        return stored, prior.how
    degrees = pool.degrees + weight
    variance = (pool.variance * pool.degrees + stored.variance * weight) / degrees
    return _Pool(variance, degrees, pool.cases + 1), f"{how}, and {prior.how}"
