"""How far a case may move because another card measures it: what stored processes of several cards say, and a prior.

Two cards give one degree of freedom for what they shift alike, which by itself would make any threshold useless. So
what stored cases say is joined with what is known of other cards of one product, weighted like PRIOR_DEGREES degrees
of freedom. Where every case is stored from one card nothing is added at all: how far the next card lies is then not
known from that product, and a second look says when the cards differ.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pytest_attnperf.records import ProcessSummary
from pytest_attnperf.stats.cards import CardComponents, components

PRIOR_SD = 0.005
"""Relative standard deviation between cards, common and own parts together. Four H200s make 0.31 % over 13 cases of at
least 15 us, 9 to 11 processes each (benchmarks/figures/h200.jsonl; common 0.15 %, own 0.28 %), which bounds what four
cards shift alike below 0.5 % only; with 0.31 % a suite on a further card was red in 4 % of runs at a stated 1 %, where
cards truly lay 0.5 % apart and two were stored."""

PRIOR_US = 0.1
"""Microseconds by which cards differ in any case, however short: the two cases of the same runs at 5 and 7 us."""

PRIOR_DEGREES = 12
"""Weight of the prior, as that of a pool of processes has; the 13 cases would give it some forty."""

Key = tuple[str, int | None]
"""A timer, and a class of duration or None for all of them."""


@dataclass(frozen=True)
class CardSpread:
    """Relative standard deviation of one case between cards, how well it is known, and where it comes from."""

    relative_sd: float
    degrees_of_freedom: int
    how: str


class CardNoise:
    """Card-to-card spread by class of case. `cases` holds processes by class and by case, of one timer a class."""

    def __init__(self, cases: Mapping[Key, Mapping[str, Sequence[ProcessSummary]]]) -> None:
        self._wide = {
            key: {name: held for name, held in group.items() if on_several(held)} for key, group in cases.items()
        }
        self._found: dict[Key, CardComponents | None] = {}

    def of(self, median_us: float, timer: str, duration: int) -> CardSpread | None:
        """The spread of a case of this time; None where no case of the timer is stored from two cards."""
        key: Key = (timer, duration)
        if not self._wide.get(key):
            key = (timer, None)
        found = self._components(key)
        if found is None:
            return None
        prior = PRIOR_SD**2 + (PRIOR_US / median_us) ** 2
        # Many cases say much of what cards do to single ones, and that may only widen what two cards say of all.
        weights = (found.degrees, found.common_degrees)
        variance = max((PRIOR_DEGREES * prior + own * found.variance) / (PRIOR_DEGREES + own) for own in weights)
        said = f"between {found.cards} cards in {found.cases} case{'s' * (found.cases != 1)}"
        apart = "" if found.process_degrees else ", of processes that each ran on a card of its own"
        how = f"{100 * math.sqrt(found.variance):.2g} % {said}{apart}, and {100 * math.sqrt(prior):.2g} % elsewhere"
        return CardSpread(math.sqrt(variance), PRIOR_DEGREES + found.common_degrees, how)

    def _components(self, key: Key) -> CardComponents | None:
        if key not in self._found:
            self._found[key] = components(self._wide[key]) if self._wide.get(key) else None
        return self._found[key]


def on_several(processes: Sequence[ProcessSummary]) -> bool:
    """Whether they ran on more than one card."""
    return len({process.device_id for process in processes}) > 1
