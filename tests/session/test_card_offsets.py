"""Which card is slow: a card that is, cards that are not, and one case that only looks like it."""

from __future__ import annotations

import random

import pytest

from pytest_attnperf.records import ProcessSummary
from pytest_attnperf.session.card_spread import CHANCE, CardOffset, offsets_of_ratios, offsets_of_shared

Shifts = dict[str, float]


def shared(draw: random.Random, shifts: Shifts, cases: int = 20, odd: float = 0.0) -> dict[str, list[ProcessSummary]]:
    """Cases of two processes a card, which scatter by 0.3 %; the first case is slower by `odd` on the last card."""
    made: dict[str, list[ProcessSummary]] = {}
    for case in range(cases):
        last = list(shifts)[-1]
        made[str(case)] = [
            ProcessSummary(us, us, us, (us,), 1, "graph", device_id=card)
            for card, shift in shifts.items()
            for us in (
                (10 + case) * (1 + shift + (odd if (case, card) == (0, last) else 0) + draw.gauss(0, 0.003))
                for _ in range(2)
            )
        ]
    return made


def slow(offsets: tuple[CardOffset, ...]) -> list[str]:
    """Names of the cards that are called slow."""
    return [offset.device_id for offset in offsets if offset.slow]


def test_one_slow_card_is_found() -> None:
    """3 % slower than three others: named, with an interval that holds the truth; the others are faster than the mean
    of theirs and not named."""
    offsets = offsets_of_shared(shared(random.Random(1), {"a": 0.0, "b": 0.03, "c": 0.001, "d": -0.001}))
    assert slow(offsets) == ["b"]
    assert offsets[0].interval95[0] < 0.03 < offsets[0].interval95[1]
    assert offsets[0].interval95[1] - offsets[0].interval95[0] < 0.01
    assert [offset.cases for offset in offsets] == [20] * 4


def test_equal_cards_are_not_called_slow() -> None:
    """Of 300 runs on four equal cards whose processes scatter by 3 % (so that no least size helps), few more than the
    stated 1 in 100 name one."""
    draw = random.Random(2)
    named = 0
    for _ in range(300):
        logs = {card: [1 + draw.gauss(0, 0.03) for _ in range(8)] for card in "abcd"}
        named += bool(slow(offsets_of_ratios(logs)))
    assert named / 300 <= 3 * CHANCE


@pytest.mark.parametrize("cases", [4, 20])
def test_one_slow_case_makes_no_slow_card(cases: int) -> None:
    """30 % slower in one of its cases alone."""
    assert slow(offsets_of_shared(shared(random.Random(3), {"a": 0.0, "b": 0.0}, cases, odd=0.3))) == []


def test_too_few_cases_say_nothing() -> None:
    """Two shared cases, or four gated ones on one side, however far apart; a card without a name is none."""
    assert offsets_of_shared(shared(random.Random(4), {"a": 0.0, "b": 0.2}, cases=2)) == ()
    assert offsets_of_ratios({"a": [1.0, 1.01, 0.99, 1.0, 1.01], "b": [1.2] * 4}) == ()
    assert offsets_of_shared(shared(random.Random(5), {"": 0.0, "b": 0.2})) == ()


def test_less_than_a_percent_is_what_cards_do() -> None:
    """0.8 % in all of forty cases is beyond chance, and still no slow card."""
    offsets = offsets_of_shared(shared(random.Random(6), {"a": 0.0, "b": 0.008}, cases=40))
    assert offsets[0].interval95[0] > 0.005
    assert slow(offsets) == []


def test_ratios_of_different_cases() -> None:
    """Cards that gated other cases each: one whose cases are all 3 % slower than stored."""
    draw = random.Random(7)
    ratios = {card: [1 + shift + draw.gauss(0, 0.004) for _ in range(12)] for card, shift in (("a", 0.0), ("b", 0.03))}
    offsets = offsets_of_ratios(ratios)
    assert slow(offsets) == ["b"]
    assert offsets[0].offset == pytest.approx(0.03, abs=0.004)


def test_stored_figures_that_repeat_exactly() -> None:
    """Equal times have an error all the same, and are not slow."""
    offsets = offsets_of_ratios({"a": [1.0] * 6, "b": [1.0] * 6})
    assert [offset.offset for offset in offsets] == [0, 0]
    assert slow(offsets) == []
