"""How far another card may move a case: stored cards joined with the prior."""

from __future__ import annotations

import math

import pytest

from pytest_attnperf.records import ProcessSummary
from pytest_attnperf.stats.card_noise import PRIOR_DEGREES, PRIOR_SD, PRIOR_US, CardNoise, CardSpread, on_several


def processes(*values: tuple[float, str]) -> list[ProcessSummary]:
    """One per time and card."""
    return [ProcessSummary(us, us, us, (us,), 1, "graph", device_id=card) for us, card in values]


APART = processes((1000.0, "x"), (1000.0, "x"), (1030.0, "y"), (1030.0, "y"))
LEVEL = processes((1000.0, "x"), (1000.0, "x"), (1000.0, "y"), (1000.0, "y"))


def spread(model: CardNoise, us: float = 1000.0, duration: int = 3) -> CardSpread:
    """That must be known."""
    found = model.of(us, "graph", duration)
    assert found is not None
    return found


def test_what_is_stored_and_what_is_known_elsewhere() -> None:
    """Two cards 3 % apart, weighted by their one degree of freedom beside the prior's twelve."""
    found = spread(CardNoise({("graph", 3): {"a": APART}}))
    stored = math.log(1.03) ** 2 / 2
    prior = PRIOR_SD**2 + (PRIOR_US / 1000) ** 2
    assert found.relative_sd**2 == pytest.approx((PRIOR_DEGREES * prior + stored) / (PRIOR_DEGREES + 1))
    assert found.degrees_of_freedom == PRIOR_DEGREES + 1
    assert found.how == "2.1 % between 2 cards in 1 case, and 0.5 % elsewhere"


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
    assert model.of(1000.0, "host", 3) is None


def test_one_card_is_not_several() -> None:
    """Nor are processes that do not say where they ran."""
    assert not on_several(LEVEL[:2])
    assert not on_several(processes((1.0, ""), (2.0, "")))
    assert on_several(LEVEL)
