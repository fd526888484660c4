"""Estimates how much cards of one product differ: in all cases alike, in one case alone, and beside the process noise.

    log time of a process = case + card + card in this case + process

All cases use the same few cards. So the shift of a card in all cases has (cards - 1) degrees of freedom, for any number
of cases. Its shift in one case alone has (cards - 1) more for every further case. The components are the moments of an
unbalanced one-way layout without the means of cases and cards; a negative component becomes 0. A case whose processes
all ran on one card says nothing about cards.

A prior joins the stored processes of several cards to estimate how far a case may shift on another card. Two cards give
one degree of freedom for their common shift, which alone would make every threshold useless. So the estimate from
stored cases is combined with the spread known from other cards of one product, which has PRIOR_DEGREES degrees of
freedom. If no case is stored from several cards, a measurement on a further card uses the prior alone.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pytest_attnperf.records import ProcessSummary

SWEEPS = 50
"""Rounds of fitting cases and cards in turn; if every case ran on every card, the first round is exact."""

Cells = dict[str, dict[str, list[float]]]
"""Log times by case and card."""

PRIOR_SD = 0.007
"""Relative standard deviation between cards, common and own parts together. On four H200s of two machines its root mean
square is 0.77 % over 74 hot cases of 15 us and more, 0.61 % over 68 cold ones; the median is 0.36 %, because most comes
from few cases, such as products at the power cap (2 to 2.7 %). Where one of these cards recorded and another gated, 2
of 12 runs were red with 0.5 % in spite of the canary, and with this none; where two recorded, 2 and 1 of 12
(benchmarks/further_card.py).
"""

PRIOR_US = 0.1
"""Microseconds by which cards differ in any case, however short: from cases of 5 and 7 us on four H200s."""

PRIOR_DEGREES = 12
"""Weight of the prior, equal to the pool of processes'. More would let it hide what stored cards say."""

Key = tuple[str, int | None]
"""A timer, and a class of duration or None for all durations."""


@dataclass(frozen=True)
class CardComponents:
    """Relative variances with their degrees of freedom; 0 degrees mean that the variance is unknown.

    common    of a card's shift that all cases share
    own       of a card's shift in one case alone
    process   between processes of one card
    cards     that ran a case which another card ran, too
    cases     with processes on several cards
    """

    common: float
    common_degrees: int
    own: float
    own_degrees: int
    process: float
    process_degrees: int
    cards: int
    cases: int

    @property
    def variance(self) -> float:
        """Relative variance of one case's time between cards: `common` + `own`."""
        return self.common + self.own

    @property
    def degrees(self) -> float:
        """Degrees of freedom of `variance` (Satterthwaite), at most `common_degrees` + `own_degrees`."""
        if not self.variance > 0:
            return float(max(self.common_degrees, self.own_degrees))
        squares = self.common**2 / self.common_degrees
        squares += self.own**2 / self.own_degrees if self.own_degrees else 0.0
        return min(float(self.common_degrees + self.own_degrees), self.variance**2 / squares)


def compute_components(cases: Mapping[str, Sequence[ProcessSummary]]) -> CardComponents | None:
    """Estimates the variances of times between cards, and between processes of a card, from each case's processes.

    Returns None if no case has processes on two cards. With a single case `common` and `own` cannot be separated,
    and all counts as `common`. If no card has two processes of any case, `process_degrees` is 0, and the other
    components include the spread between processes.
    """
    cells = {case: group_by_card(processes) for case, processes in cases.items()}
    wide = {case: by_card for case, by_card in cells.items() if len(by_card) > 1}
    if not wide:
        return None
    process, process_degrees = _variance_within(cells)
    means = {case: {card: statistics.fmean(logs) for card, logs in by_card.items()} for case, by_card in wide.items()}
    fitted = _fit_shifts(means)
    groups = _group_connected_cards(means)
    common_degrees = sum(len(group) - 1 for group in groups)
    own_degrees = sum(len(by_card) - 1 for by_card in means.values()) - common_degrees
    per_cell = process * statistics.fmean(1 / len(logs) for by_card in wide.values() for logs in by_card.values())
    scatter = _sum_residual_squares(means, fitted) / own_degrees if own_degrees else per_cell
    shifts = sum(_sum_squares([fitted[card] for card in group]) for group in groups) / common_degrees
    of_cases = statistics.fmean(1 / sum(card in by_card for by_card in means.values()) for card in fitted)
    return CardComponents(
        common=max(0.0, shifts - scatter * of_cases),
        common_degrees=common_degrees,
        own=max(0.0, scatter - per_cell),
        own_degrees=own_degrees,
        process=process,
        process_degrees=process_degrees,
        cards=len(fitted),
        cases=len(wide),
    )


def group_by_card(processes: Sequence[ProcessSummary]) -> dict[str, list[float]]:
    """Returns card -> natural logs of its processes' median times; the key '' holds those whose card is unknown."""
    by_card: dict[str, list[float]] = {}
    for process in processes:
        by_card.setdefault(process.device_id, []).append(math.log(process.median_us))
    return by_card


def compute_card_shares(processes: Sequence[ProcessSummary]) -> dict[str, float]:
    """Returns for each card the share of these processes that ran on it."""
    return {card: len(logs) / len(processes) for card, logs in group_by_card(processes).items()}


def _variance_within(cells: Cells) -> tuple[float, int]:
    """Returns (pooled variance of log times between processes of one card and case, its degrees of freedom)."""
    groups = [logs for by_card in cells.values() for logs in by_card.values()]
    degrees = sum(len(logs) - 1 for logs in groups)
    return (sum(map(_sum_squares, groups)) / degrees if degrees else 0.0), degrees


def _fit_shifts(means: Mapping[str, Mapping[str, float]]) -> dict[str, float]:
    """Returns the shift of each card's log times in all its cases, by least squares with one mean per case.

    means   case -> card -> mean log time
    """
    shift = dict.fromkeys((card for by_card in means.values() for card in by_card), 0.0)
    for _ in range(SWEEPS):
        residuals: dict[str, list[float]] = {card: [] for card in shift}
        for by_card in means.values():
            centre = statistics.fmean(value - shift[card] for card, value in by_card.items())
            for card, value in by_card.items():
                residuals[card].append(value - centre)
        new = {card: statistics.fmean(values) for card, values in residuals.items()}
        moved, shift = max(abs(new[card] - shift[card]) for card in shift), new
        if moved < 1e-12:
            break
    return shift


def _sum_residual_squares(means: Mapping[str, Mapping[str, float]], shift: Mapping[str, float]) -> float:
    """Returns the sum of squared residuals of mean log times, after each case's mean and each card's `shift`."""
    return sum(_sum_squares([value - shift[card] for card, value in by_card.items()]) for by_card in means.values())


def _group_connected_cards(means: Mapping[str, Mapping[str, float]]) -> list[set[str]]:
    """Returns groups of cards linked by shared cases; no case links two groups, so their shifts cannot be compared."""
    groups: list[set[str]] = []
    for by_card in means.values():
        cards = set(by_card)
        touching = [group for group in groups if group & cards]
        groups = [group for group in groups if not group & cards]
        groups.append(cards.union(*touching))
    return groups


def _sum_squares(values: Sequence[float]) -> float:
    centre = statistics.fmean(values)
    return sum((value - centre) ** 2 for value in values)


@dataclass(frozen=True)
class CardSpread:
    """Relative standard deviation of one case between cards, its degrees of freedom, and its source in words."""

    relative_sd: float
    degrees_of_freedom: int
    how: str


def prior_spread(median_us: float) -> CardSpread:
    """Returns the spread between cards that is assumed, from four H200s, if no stored case of this time gives one."""
    relative_sd = math.sqrt(_prior_variance(median_us))
    how = f"{100 * relative_sd:.2g} % as between four H200s: no baseline here is stored from several cards"
    return CardSpread(relative_sd, PRIOR_DEGREES, how)


def _prior_variance(median_us: float) -> float:
    return PRIOR_SD**2 + (PRIOR_US / median_us) ** 2


class CardNoise:
    """Spread of times between cards. `cases` maps (timer, duration class or None for all) to the processes by case."""

    def __init__(self, cases: Mapping[Key, Mapping[str, Sequence[ProcessSummary]]]) -> None:
        self._wide = {
            key: {name: held for name, held in group.items() if is_on_several_cards(held)}
            for key, group in cases.items()
        }
        self._found: dict[Key, CardComponents | None] = {}

    def estimate_card_spread(self, median_us: float, timer: str, duration: int) -> CardSpread | None:
        """Returns the spread of such a case between cards: that of stored cases, averaged with the prior by weight.
        Returns None if no case of the timer is stored from two cards. `duration` is the class of `median_us`."""
        key: Key = (timer, duration)
        if not self._wide.get(key):
            key = (timer, None)
        found = self._find_components(key)
        if found is None:
            return None
        prior = _prior_variance(median_us)
        # Many cases give a precise own part, which may only widen the estimate of the common part from two cards.
        weights = (found.degrees, found.common_degrees)
        variance = max((PRIOR_DEGREES * prior + own * found.variance) / (PRIOR_DEGREES + own) for own in weights)
        said = f"between {found.cards} cards in {found.cases} case{'s' * (found.cases != 1)}"
        apart = "" if found.process_degrees else ", of processes that each ran on a card of its own"
        how = f"{100 * math.sqrt(found.variance):.2g} % {said}{apart}, and {100 * math.sqrt(prior):.2g} % elsewhere"
        return CardSpread(math.sqrt(variance), PRIOR_DEGREES + found.common_degrees, how)

    def _find_components(self, key: Key) -> CardComponents | None:
        if key not in self._found:
            self._found[key] = compute_components(self._wide[key]) if self._wide.get(key) else None
        return self._found[key]


def is_on_several_cards(processes: Sequence[ProcessSummary]) -> bool:
    """Tells whether the processes ran on more than one card."""
    return len({process.device_id for process in processes}) > 1
