"""The cards of whole runs: recorded ones that share cases, gated ones that do not, several files, and one card."""

from __future__ import annotations

import random
from dataclasses import replace

from pytest_attnperf.records import ProcessSummary, Verdict
from pytest_attnperf.records.gpus import DeviceState, GpuRecord
from pytest_attnperf.results import RunResult
from pytest_attnperf.session.card_spread import RATIOS, SHARED, card_spreads, render_legend, slow_card_lines
from pytest_attnperf.testing.sample_runs import sample_run

BIAS = {"": 0.0, "fake-0": 0.0, "fake-1": 0.03}


def recorded(cards: tuple[str, ...] = ("fake-0", "fake-1"), seed: int = 1, each: int = 4) -> RunResult:
    """Twelve cases of so many processes a card; fake-1 is 3 % slower."""
    draw, run = random.Random(seed), sample_run(12, verdicts=[Verdict.SAME])
    made = []
    for index, case in enumerate(run.cases):
        times = [(20 + index) * (1 + BIAS[card] + draw.gauss(0, 0.003)) for card in cards for _ in range(each)]
        held = zip(times, [card for card in cards for _ in range(each)], strict=True)
        processes = tuple(
            ProcessSummary(us, us, us, (us,), 1, "graph", device_id=card, clock_mhz=1900.0) for us, card in held
        )
        made.append(replace(case, first=processes))
    gpus = tuple(GpuRecord(card, power_cap_w="700", memory_partition="NPS1") for card in cards)
    return replace(run, mode="update", cases=tuple(made), gpus=gpus, run_id=f"{seed}")


def gated(odd_is_slow: bool) -> RunResult:
    """A run whose cases two cards took in turns, one process each; ratios to stored times scatter by 0.3 %."""
    draw, run = random.Random(2), sample_run(24, verdicts=[Verdict.SAME])
    made = []
    for index, case in enumerate(run.cases):
        card = f"fake-{index % 2}"
        us = 50 * (1 + BIAS[card] * odd_is_slow + draw.gauss(0, 0.003))
        process = ProcessSummary(us, us, us, (us,), 1, "graph", device_id=card)
        made.append(replace(case, first=(process,), stored_us=(50.0,) * 7))
    return replace(run, cases=tuple(made))


def test_a_slow_card_of_a_recording_is_named() -> None:
    """By the cases that both cards ran, with what was set on it; one line at the end of the run."""
    found = card_spreads([recorded()])
    assert [(card.device_id, card.slow, card.cases) for card in found.cards] == [
        ("fake-1", True, 12),
        ("fake-0", False, 12),
    ]
    slow = found.cards[0]
    assert (slow.power_cap_w, slow.partition, slow.clock_mhz) == ("700", "NPS1", 1900.0)
    assert found.by == SHARED
    assert found.components is not None
    assert found.components.cards == 2
    [line] = slow_card_lines(recorded())
    assert line.startswith("card fake-1 is slow: +2.8 % (95 %: ")
    assert "in 12 cases, compared with the same cases on the other cards" in line
    assert any("between cards in all cases alike" in text for text in render_legend(found))


def test_a_slow_card_of_a_gate_is_named() -> None:
    """By its cases' ratios to what is stored; equal cards are not."""
    [line] = slow_card_lines(gated(odd_is_slow=True))
    assert line.startswith("card fake-1 is slow: +")
    assert RATIOS in line
    assert slow_card_lines(gated(odd_is_slow=False)) == []


def test_cards_of_several_machines() -> None:
    """Two files of one card each are compared by the cases of both; the same file twice is one card's, once."""
    one, other = recorded(("fake-0",)), recorded(("fake-1",), seed=2)
    state = DeviceState(after={"temperature_c": "61"})
    found = card_spreads([one, replace(other, device_state=state)])
    assert [card.device_id for card in found.cards if card.slow] == ["fake-1"]
    assert [card.temperature_c for card in found.cards] == ["61", ""]
    assert card_spreads([other, other]).cards[0].cases == 12


def test_what_says_nothing() -> None:
    """One card, no card, and too few cases on two: nothing is called slow, and the reason is said."""
    alone = recorded(("fake-1",))
    assert slow_card_lines(alone) == []
    assert card_spreads([alone]).why_not == "one card measured all cases: there is no other to compare it with"
    few = recorded()
    few = replace(few, cases=few.cases[:2])
    assert slow_card_lines(few) == []
    assert "too few cases to compare these cards: it needs 3 cases" in render_legend(card_spreads([few]))[0]
    unnamed = recorded(("",))
    assert card_spreads([unnamed]).why_not == "no process says which card it ran on"


def test_times_that_nothing_can_take_are_left_out() -> None:
    """Of a strange file: what is left is held to each other, and what is not there is said."""
    run = recorded()
    held = tuple(replace(process, median_us=0.0) for process in run.cases[0].first)
    strange = replace(run.cases[0], first=held, stored_us=(0.0,))
    assert card_spreads([replace(run, cases=(strange, *run.cases[1:]))]).cards[0].cases == 11
    assert card_spreads([replace(run, cases=(strange,))]).cards == ()
    stored = replace(gated(odd_is_slow=False).cases[0], stored_us=(0.0,))
    assert card_spreads([replace(run, cases=(stored,))]).by == ""
