"""A case on all cards, as the session reports it: right with figures, or wrong on a card that is named."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import pytest

from pytest_attnperf.records import Verdict
from pytest_attnperf.records.gpus import Together, TogetherGpu
from pytest_attnperf.results import CaseResult
from pytest_attnperf.session.settings import RunMode
from pytest_attnperf.session.together import format_together
from pytest_attnperf.workers.at_once import together_places
from pytest_attnperf.workers.conversation import BlockPlan
from tests.session.conftest import DEVICE, Bench, FakePool

CARDS = ("0", "GPU-8f3a")
SETTINGS = {"plan": BlockPlan(budget_us=2000.0)}


@dataclass
class Cards(FakePool):
    """A pool of two cards."""

    gpus: tuple[str, ...] = CARDS


def judged(bench: Bench, *by_card: dict[str, Any], **common: Any) -> CaseResult:
    """The case on two cards, `by_card` scripting each."""
    bench.pool = Cards(by_place=dict(zip(together_places(2), by_card, strict=False)))
    return bench.judge(RunMode.TOGETHER, settings=SETTINGS, block_s=0.0005, **common)


def test_a_right_case_has_the_figures_of_every_card(bench: Bench) -> None:
    """Two cards that do not disturb each other: RIGHT, not gated, twice as fast as one, with each card's process."""
    result = judged(bench)
    assert result.verdict is Verdict.RIGHT
    assert not result.fails
    assert result.together is not None
    assert len(result.together.gpus) == 2
    assert result.together.scaling == pytest.approx(2.0, rel=0.01)
    assert result.summary.startswith("on 2 GPUs at once: 2.0")
    assert result.median_us == pytest.approx(100.0, rel=0.01)
    assert len(result.first) == 2
    assert bench.pool.visited == list(together_places(2)), "no process but these two is asked for anything"


def test_a_card_that_is_wrong_is_named(bench: Bench) -> None:
    """A card that computes wrong under load makes the case INCORRECT, and its token is in the reasons."""
    result = judged(bench, {}, {"fault": "late"})
    assert result.verdict is Verdict.INCORRECT
    assert result.fails
    assert result.reasons[0].startswith("GPU-8f3a: final: out: max error")
    assert result.together is None


def test_a_case_that_no_card_supports_is_skipped(bench: Bench) -> None:
    """What the first card cannot run is UNSUPPORTED with its reason, and does not fail."""
    result = judged(bench, supported=["needs gfx942"])
    assert (result.verdict, result.reasons, result.fails) == (Verdict.UNSUPPORTED, ("GPU 0: needs gfx942",), False)


def test_a_case_that_is_not_timed_has_no_figures(bench: Bench) -> None:
    """A time that would say nothing is not taken on several cards either; the case is right."""
    result = judged(bench, not_timed="on a CPU")
    assert (result.verdict, result.summary, result.together) == (Verdict.RIGHT, "on a CPU", None)


def test_cards_that_change_meanwhile_are_named(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """A card whose times alone differ by more than 3 % before and after has drifted, and a note says by how much."""
    monkeypatch.setattr("pytest_attnperf.session.together.DRIFT", 0.0)
    (note, *_) = judged(bench, block_sd=0.02).notes
    assert note.startswith("drifted while it was measured: GPU 0 ")
    assert note.endswith("% (alone, after against before)")


def test_two_workers_on_one_card_are_named(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where both workers say that they are on the same card, what is called interference is none: a note says so."""
    monkeypatch.setattr("tests.session.conftest.DEVICE", replace(DEVICE, device_id="GPU-8f3a"))
    assert "several workers are on one card: GPU-8f3a" in judged(bench).notes


def test_cards_with_other_timers_are_not_compared(bench: Bench) -> None:
    """A case that one card times by a graph and the other by events is an ERROR that says what to do."""
    result = judged(bench, {"timer": "graph"}, {"timer": "event"})
    assert result.verdict is Verdict.ERROR
    assert result.summary == "cards were timed by different timers, event, graph; name one: --attnperf-timer"


def test_one_card_is_too_few(bench: Bench) -> None:
    """On one card nothing can run at once, and the error says how many there are."""
    bench.pool = Cards(gpus=("0",))
    result = bench.judge(RunMode.TOGETHER)
    assert result.verdict is Verdict.ERROR
    assert "needs at least two GPUs, and this run has 1" in result.summary


def test_the_summary_says_scaling_and_the_worst_card() -> None:
    """Two cards at 100 us alone, and at 100 and 110 us at once, do 1.91 times what one does; one lost 10 %."""
    found = Together((TogetherGpu("a", 100.0, 100.0, 9), TogetherGpu("b", 100.0, 110.0, 9)), "graph", 0.5)
    assert format_together(found) == "on 2 GPUs at once: 1.91x of one, worst interference 10.0 %"
