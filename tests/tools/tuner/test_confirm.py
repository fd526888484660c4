"""Pairs of the default and the winner over in-memory pools."""

from __future__ import annotations

import itertools
import statistics

import pytest

from pytest_attnperf.errors import UsageError, WorkerError
from pytest_attnperf.records.pairs import PairSummary
from pytest_attnperf.tools.tuner.confirm import PAIR_PLACES, Confirmation, confirm_winner
from pytest_attnperf.tuning_records import Candidate
from pytest_attnperf.workers.interleave import InterleavePlan, take_pair
from tests.tools.tuner.fake_tuning import FakeTuningPool, Surface, key_of

DEFAULT, WINNER = Candidate({"BLOCK_M": 128}), Candidate({"BLOCK_M": 32})
KEYS = {"short": key_of(64), "long": key_of(256)}
PLAN = InterleavePlan(pairs=4, quads=8)


def pin(candidate: Candidate) -> dict[str, str]:
    """Values as text."""
    return {name: str(value) for name, value in candidate.values.items()}


class Sides:
    """Two pools over one surface: the winner takes 90 % of the default's time."""

    def __init__(self) -> None:
        self.surface = Surface(
            {"BLOCK_M": (32, 128)}, {"BLOCK_M": 128}, us=lambda values, seq: 90.0 if values["BLOCK_M"] == 32 else 100.0
        )
        self.base = FakeTuningPool(self.surface, 0.002, "base")
        self.new = FakeTuningPool(self.surface, 0.002, "new")

    def confirm(self, **options: object) -> dict[str, list[PairSummary] | str]:
        """Four pairs of both workloads."""
        return confirm_winner(DEFAULT, WINNER, KEYS, self.base, self.new, pin, PLAN, **options)  # type: ignore[arg-type]


@pytest.fixture
def sides() -> Sides:
    """Nothing measured yet."""
    return Sides()


def test_pairs_of_every_workload(sides: Sides) -> None:
    """The default runs on the base side, the winner on the other, in fresh processes of every pair."""
    found = sides.confirm()
    for pairs in found.values():
        assert not isinstance(pairs, str)
        assert len(pairs) == 4
        assert statistics.median(pair.ratio for pair in pairs) == pytest.approx(0.9, rel=0.01)
    assert {str(pin) for _, _, pin in sides.base.opened} == {str({"BLOCK_M": "128"})}
    assert {str(pin) for _, _, pin in sides.new.opened} == {str({"BLOCK_M": "32"})}
    assert [place - PAIR_PLACES for place, _, _ in sides.new.opened] == [0, 0, 1, 1, 2, 2, 3, 3]
    assert (sides.base.ended, sides.new.ended) == (4, 4)


@pytest.mark.parametrize(
    ("fault", "said"),
    [
        ("wrong", "the winner: wrong: check: out: max error is 40.0x"),
        ("late", "the winner: wrong: final: out: max error"),
        ("oom", "the winner: out of memory"),
        ("died", "worker 0 died during 'check': killed by SIGSEGV"),
    ],
)
def test_a_winner_that_fails_has_a_text_in_place_of_pairs(sides: Sides, fault: str, said: str) -> None:
    """It is not asked for again, and the other workload is measured all the same."""
    sides.surface.fault = lambda values, seq: fault if (values["BLOCK_M"], seq) == (32, 256) else ""
    found = sides.confirm()
    assert str(found["long"]).startswith(said)
    assert len(found["short"]) == 4
    attempts = 2 if fault == "died" else 1
    assert sum(workload == KEYS["long"].workload for _, workload, _ in sides.new.opened) == attempts


def test_a_default_that_fails_is_named(sides: Sides) -> None:
    """Whose fault it is decides what to look at."""
    sides.surface.fault = lambda values, seq: "wrong" if values["BLOCK_M"] == 128 else ""
    assert str(sides.confirm()["short"]).startswith("the default: wrong: ")


def test_a_process_that_died_once_costs_nothing(sides: Sides) -> None:
    """The pair is measured again; only a second death is the workload's failure."""
    deaths = itertools.count()
    sides.surface.fault = lambda values, seq: "died" if values["BLOCK_M"] == 32 and next(deaths) == 0 else ""
    assert [len(pairs) for pairs in sides.confirm().values()] == [4, 4]


def test_no_process_that_starts_is_an_error(sides: Sides) -> None:
    """It says nothing of the winner."""
    sides.new.starts = False
    with pytest.raises(WorkerError, match="could not start"):
        sides.confirm()


def test_a_side_that_ignores_its_pin_is_found_out(sides: Sides) -> None:
    """Two sides that both run the default would be the same."""
    sides.surface.fault = lambda values, seq: "ignores"
    with pytest.raises(UsageError, match="does not run the pinned values: BLOCK_M=32 was requested"):
        sides.confirm()


def test_a_case_that_may_not_be_timed_has_no_pairs(sides: Sides) -> None:
    """An interpreter's time says nothing."""
    sides.new.script = sides.base.script = {"not_timed": "interpreted"}
    assert sides.confirm()["short"] == "not timed: interpreted"


def test_known_pairs_are_not_measured_again(sides: Sides) -> None:
    """What an interrupted run has measured is kept, and the rest is added and told."""
    known, told = Confirmation(), []
    known.done = lambda workload, number, found: told.append((workload, number))
    first = sides.confirm(known=known, stop=lambda: len(told) >= 4)
    assert [len(pairs) for pairs in first.values()] == [2, 2]
    whole = sides.confirm(known=known)
    assert [len(pairs) for pairs in whole.values()] == [4, 4]
    assert len(told) == len(set(told)) == 8
    assert [whole[name][:2] for name in whole] == list(first.values())


def test_large_workloads_are_proven_one_side_after_the_other(sides: Sides, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both at once would take twice the memory."""
    from pytest_attnperf.tools.tuner import confirm as module

    seen: dict[str, bool] = {}

    def watched(*args: object, at_once: bool, **options: object) -> object:
        seen[args[3].key.workload] = at_once  # type: ignore[attr-defined]
        return take_pair(*args, at_once=at_once, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(module, "take_pair", watched)
    sides.confirm(large={"long"})
    assert seen == {KEYS["short"].workload: True, KEYS["long"].workload: False}
