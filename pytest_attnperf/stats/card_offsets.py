"""Which card is slow: how each card's cases lie to the same cases, or to other cases, on the other cards.

Where cases have processes on several cards, each case says of each of its cards how far it lies from the mean of the
others. Where every case ran on one card only, its ratio to what is stored takes the place of that, and the cards' cases
are different ones. The unit is the case. The centre is a mean without the lowest and the highest fifth (Yuen,
Biometrika 61, 1974), so that one slow case makes no slow card; chances are one-sided and go through Holm's steps over
all cards (Scand. J. Statist. 6, 1979).
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pytest_attnperf.records import ProcessSummary
from pytest_attnperf.stats.cards import cells_of
from pytest_attnperf.stats.quantiles import upper_quantile, upper_tail

CASES_MIN = 3
"""Cases that a card must share with another before it is called slow."""

CASES_EACH_MIN = 5
"""Cases that either side must have where they are different ones."""

TRIMMED = 0.2
CHANCE = 0.01
"""Accepted chance, over all cards of a run, that one of like cards is called slow."""

SLOW_MIN = 0.01
"""A card that is slower by less than this, as a fraction, is within what cards of one product do: four H200s differ by
0.3 %."""

ERROR_LEAST = 1e-5
"""Stored times have five digits: equal ones must not make a chance of zero."""


@dataclass(frozen=True)
class CardOffset:
    """One card against the others: (its time / theirs) - 1.

    offset, interval95   as fractions
    cases                that it was held to the others by
    slow                 slower than SLOW_MIN, and beyond chance over all cards
    """

    device_id: str
    offset: float
    interval95: tuple[float, float]
    cases: int
    slow: bool = False


@dataclass(frozen=True)
class _Centre:
    """A trimmed mean of logs, its standard error, and how well that is known."""

    value: float
    error: float
    degrees: int
    cases: int


def offsets_of_shared(cases: Mapping[str, Sequence[ProcessSummary]]) -> tuple[CardOffset, ...]:
    """Of the cases that ran on several cards. Cards with fewer than CASES_MIN of these are left out; slowest first."""
    by_card: dict[str, list[float]] = {}
    for processes in cases.values():
        cells = {card: statistics.fmean(logs) for card, logs in cells_of(processes).items() if card}
        for card, value in cells.items() if len(cells) > 1 else ():
            others = statistics.fmean(cells[other] for other in cells if other != card)
            by_card.setdefault(card, []).append(value - others)
    return _judged({card: _centre(values) for card, values in by_card.items() if len(values) >= CASES_MIN})


def offsets_of_ratios(ratios: Mapping[str, Sequence[float]]) -> tuple[CardOffset, ...]:
    """Of ratios to what is stored, by card, each of another case. Cards are left out that have fewer than
    CASES_EACH_MIN of them, and those whose others have; slowest first."""
    logs = {card: [math.log(ratio) for ratio in values] for card, values in ratios.items() if card}
    found = {}
    for card, values in logs.items():
        others = [value for other, held in logs.items() if other != card for value in held]
        if min(len(values), len(others)) >= CASES_EACH_MIN:
            found[card] = _difference(_centre(values), _centre(others))
    return _judged(found)


def _centre(values: Sequence[float]) -> _Centre:
    """Trimmed mean with the winsorised variance."""
    cut = math.floor(TRIMMED * len(values))
    ordered = sorted(values)
    kept = ordered[cut : len(ordered) - cut]
    winsorised = [kept[0]] * cut + kept + [kept[-1]] * cut
    error = math.sqrt(statistics.variance(winsorised) * (len(values) - 1) / (len(kept) * (len(kept) - 1)))
    return _Centre(statistics.fmean(kept), max(error, ERROR_LEAST), len(kept) - 1, len(values))


def _difference(one: _Centre, other: _Centre) -> _Centre:
    squares = one.error**4 / one.degrees + other.error**4 / other.degrees
    error = math.hypot(one.error, other.error)
    return _Centre(one.value - other.value, error, max(1, math.floor(error**4 / squares + 1e-9)), one.cases)


def _judged(centres: Mapping[str, _Centre]) -> tuple[CardOffset, ...]:
    """The cards, slowest first, with Holm's steps over all of them."""
    chances = {card: upper_tail(centre.value / centre.error, centre.degrees) for card, centre in centres.items()}
    slow: set[str] = set()
    for step, card in enumerate(sorted(chances, key=lambda card: chances[card])):
        if chances[card] > CHANCE / (len(chances) - step):
            break
        slow.add(card)
    found = [_offset(card, centre, beyond=card in slow) for card, centre in centres.items()]
    return tuple(sorted(found, key=lambda offset: -offset.offset))


def _offset(card: str, centre: _Centre, *, beyond: bool) -> CardOffset:
    half = upper_quantile(0.025, centre.degrees) * centre.error
    low, middle, high = (math.expm1(centre.value + part) for part in (-half, 0.0, half))
    return CardOffset(card, middle, (low, high), centre.cases, beyond and middle >= SLOW_MIN)
