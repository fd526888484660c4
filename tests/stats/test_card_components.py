"""Components of variance between cards and processes: recovered from simulations, and what says nothing left alone.

How far another card may move a case: stored cards joined with the prior.
"""

from __future__ import annotations

import math
import random
import statistics

import pytest

from pytest_attnperf.records import ProcessSummary
from pytest_attnperf.stats.card_components import (
    PRIOR_DEGREES,
    PRIOR_SD,
    PRIOR_US,
    CardComponents,
    CardNoise,
    CardSpread,
    compute_card_shares,
    compute_components,
    is_on_several_cards,
)


def process(us: float, card: str) -> ProcessSummary:
    """One process on a card."""
    return ProcessSummary(us, us, us, (us,), 1, "graph", device_id=card)


def suite(draw: random.Random, cards: int, common: float, own: float, sd: float) -> dict[str, list[ProcessSummary]]:
    """Twenty cases of seven processes, dealt to cards in turn; standard deviations are relative."""
    shifts = [draw.gauss(0, common) for _ in range(cards)]
    cases = {}
    for case in range(20):
        here = [shift + draw.gauss(0, own) for shift in shifts]
        cases[str(case)] = [
            process((10 + case) * math.exp(here[n % cards] + draw.gauss(0, sd)), f"card {n % cards}") for n in range(7)
        ]
    return cases


def found(cases: dict[str, list[ProcessSummary]]) -> CardComponents:
    """Components that must be there."""
    made = compute_components(cases)
    assert made is not None
    return made


@pytest.mark.parametrize(("common", "own", "sd"), [(0.005, 0.0, 0.003), (0.003, 0.004, 0.005)])
def test_known_components_are_recovered(common: float, own: float, sd: float) -> None:
    """Averaged over 80 suites on four cards: each variance within a few parts in a hundred of the largest."""
    draw = random.Random(4)
    many = [found(suite(draw, 4, common, own, sd)) for _ in range(80)]
    for name, true in (("common", common), ("own", own), ("process", sd)):
        mean = statistics.fmean(getattr(one, name) for one in many)
        # What four cards shift alike is drawn 240 times in all: its variance is known to some 9 %.
        assert mean == pytest.approx(true**2, abs=0.2 * max(common, own, sd) ** 2), name


def test_degrees_are_those_of_cards_and_not_of_cases() -> None:
    """Twenty cases on two cards: one degree for what the cards shift alike, nineteen beside it."""
    draw = random.Random(5)
    alike, apart = found(suite(draw, 2, 0.02, 0.0, 0.001)), found(suite(draw, 2, 0.0, 0.02, 0.001))
    assert (alike.common_degrees, alike.own_degrees, alike.process_degrees) == (1, 19, 100)
    assert alike.degrees < 1.1
    assert apart.degrees > 5


def test_a_case_alone_cannot_tell_common_from_own() -> None:
    """All of what lies between its cards is then called common; processes of one card are told apart from it."""
    one = found({"a": [process(100.0, "x"), process(100.2, "x"), process(103.0, "y"), process(103.2, "y")]})
    assert one.own == 0
    assert one.common == pytest.approx(0.0296**2 / 2, rel=0.01)
    assert one.process == pytest.approx(0.002**2 / 2, rel=0.05)


@pytest.mark.parametrize("cards", [("x", "x", "x"), ("", "", "")])
def test_one_card_says_nothing_of_cards(cards: tuple[str, ...]) -> None:
    """However its processes scatter."""
    assert compute_components({"a": [process(100.0 + n, card) for n, card in enumerate(cards)]}) is None


def test_equal_cards_are_not_negative() -> None:
    """A moment below zero is 0: processes that scatter, on cards that do not differ at all."""
    values = [(99.0, "x"), (101.0, "x"), (99.0, "y"), (101.0, "y")]
    made = found({"a": [process(*one) for one in values], "b": [process(*one) for one in values]})
    assert (made.common, made.own, made.variance) == (0, 0, 0)
    assert made.degrees == 1


def test_cards_that_share_no_case_are_not_held_against_each_other() -> None:
    """Two pairs of cards, each alike within: that the pairs' cases differ tenfold is nothing between cards."""
    cases = {"a": [process(10.0, "x"), process(10.0, "y")], "b": [process(99.0, "z"), process(99.0, "w")]}
    made = found(cases)
    assert (made.common_degrees, made.common) == (2, 0)
    assert made.process_degrees == 0


def test_shares() -> None:
    """Of five processes three on one card."""
    assert compute_card_shares([process(1.0, card) for card in "xxyxy"]) == {"x": 0.6, "y": 0.4}


def processes(*values: tuple[float, str]) -> list[ProcessSummary]:
    """One per time and card."""
    return [ProcessSummary(us, us, us, (us,), 1, "graph", device_id=card) for us, card in values]


APART = processes((1000.0, "x"), (1000.0, "x"), (1030.0, "y"), (1030.0, "y"))
LEVEL = processes((1000.0, "x"), (1000.0, "x"), (1000.0, "y"), (1000.0, "y"))


def spread(model: CardNoise, us: float = 1000.0, duration: int = 3) -> CardSpread:
    """That must be known."""
    found = model.estimate_card_spread(us, "graph", duration)
    assert found is not None
    return found


def test_what_is_stored_and_what_is_known_elsewhere() -> None:
    """Two cards 3 % apart, weighted by their one degree of freedom beside the prior's twelve."""
    found = spread(CardNoise({("graph", 3): {"a": APART}}))
    stored = math.log(1.03) ** 2 / 2
    prior = PRIOR_SD**2 + (PRIOR_US / 1000) ** 2
    assert found.relative_sd**2 == pytest.approx((PRIOR_DEGREES * prior + stored) / (PRIOR_DEGREES + 1))
    assert found.degrees_of_freedom == PRIOR_DEGREES + 1
    assert found.how == "2.1 % between 2 cards in 1 case, and 0.7 % elsewhere"


def test_many_cases_widen_what_few_cards_say_and_never_narrow_it() -> None:
    """Thirty cases that two cards measure alike are no more than one degree of freedom; shifts of their own count."""
    quiet = spread(CardNoise({("graph", 3): {str(case): LEVEL for case in range(30)}}))
    swapped = processes((1000.0, "y"), (1000.0, "y"), (1030.0, "x"), (1030.0, "x"))
    loud = {str(case): APART if case % 2 else swapped for case in range(30)}
    assert quiet.relative_sd == pytest.approx(PRIOR_SD * math.sqrt(12 / 13), rel=1e-3)
    assert spread(CardNoise({("graph", 3): loud})).relative_sd > 0.017


def test_short_cases_move_by_more() -> None:
    """A tenth of a microsecond is 2 % of 5 us."""
    model = CardNoise({("graph", None): {"a": LEVEL}})
    assert spread(model, us=5.0, duration=0).relative_sd == pytest.approx(0.02, rel=0.02)


def test_classes() -> None:
    """A class of duration that no stored case is of takes those of the timer; another timer has nothing."""
    model = CardNoise({("graph", 3): {"a": APART}, ("graph", None): {"a": APART, "b": LEVEL}})
    assert spread(model, duration=1).how.startswith("1.5 % between 2 cards in 2 cases")
    assert model.estimate_card_spread(1000.0, "host", 3) is None


def test_one_card_is_not_several() -> None:
    """Nor are processes that do not say where they ran."""
    assert not is_on_several_cards(LEVEL[:2])
    assert not is_on_several_cards(processes((1.0, ""), (2.0, "")))
    assert is_on_several_cards(LEVEL)
