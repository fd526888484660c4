"""The board of what a process and its workers do."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from pytest_attnperf.records import CaseKey, Role, Samples
from pytest_attnperf.workers import conversation, interleave
from pytest_attnperf.workers.conversation import BlockPlan, RemoteCase
from pytest_attnperf.workers.doing import BlocksTimed, CaseAsked, CaseEvent, Doing, Unit, UnitStep, Waiting
from tests.workers.test_interleave import REQUEST, Bench

OPEN = Waiting("worker0-1", Role.DEVICE, "open")
CHECK = Waiting("base0-1", Role.DEVICE, "check")


def test_waits_and_workers() -> None:
    """What several threads wait for stands there in the order in which they began, and only until it is answered."""
    doing = Doing()
    worker = object()
    doing.add_worker(worker, "worker0-1")
    with doing.record_wait(OPEN):
        with pytest.raises(ValueError), doing.record_wait(CHECK):
            assert doing.waits == (OPEN, CHECK)
            raise ValueError
        assert doing.waits == (OPEN,)
    assert doing.waits == ()
    assert doing.workers == ("worker0-1",)
    for _ in range(2):
        doing.remove_worker(worker)
    assert doing.workers == ()


def test_steps_are_counted_until_the_look_ends() -> None:
    """Each place has its number while it is used; a look that is broken off leaves none behind."""
    doing = Doing(clock=lambda: 7.0)
    seen = []
    for place in doing.track_steps(Unit.PAIR, [1000, 1001, 1002], 3):
        seen.append((place, doing.step))
        if place == 1001:
            break
    assert seen == [(1000, UnitStep(Unit.PAIR, 1, 3, 7.0)), (1001, UnitStep(Unit.PAIR, 2, 3, 7.0))]
    assert doing.step is None


def test_what_is_left_of_the_steps() -> None:
    """By those that have ended: nothing is known in the first, and never less than 0 in the last."""
    assert UnitStep(Unit.RECORDING, 1, 7, 100.0).left_s(130.0) is None
    assert UnitStep(Unit.RECORDING, 3, 7, 100.0).left_s(120.0) == pytest.approx(50.0)
    assert UnitStep(Unit.RECORDING, 3, 3, 100.0).left_s(200.0) == pytest.approx(50.0)
    assert UnitStep(Unit.RECORDING, 2, 2, 100.0).left_s(100.0) == 0.0


def test_observers_are_told_until_they_are_removed() -> None:
    """Each of them, in order; one that was never added can be removed."""

    class Noting:
        def __init__(self) -> None:
            self.seen: list[CaseEvent] = []

        def observe(self, event: CaseEvent) -> None:
            self.seen.append(event)

    doing, first, second = Doing(), Noting(), Noting()
    key = CaseKey("prefill", "fake.a", "w")
    asked, timed = CaseAsked(key, "block"), BlocksTimed(key, (1.0, 2.0))
    doing.publish_event(asked)
    doing.add_observer(first)
    doing.add_observer(second)
    doing.publish_event(asked)
    doing.remove_observer(first)
    doing.remove_observer(Noting())
    doing.publish_event(timed)
    assert (first.seen, second.seen) == ([asked], [asked, timed])


def test_a_conversation_tells_what_it_asks_and_what_was_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a worker is asked for with the process that is counted, and the blocks of its answer; single turns are not
    told."""
    told: list[CaseEvent] = []
    step = UnitStep(Unit.RECORDING, 2, 7, 0.0)
    monkeypatch.setattr(conversation, "DOING", SimpleNamespace(publish_event=told.append, step=step))
    worker: Any = SimpleNamespace(
        request=lambda operation, limit_s, **fields: {},
        decode_answer=lambda operation, answer, kind: Samples((1.0, 2.0), 3, "host") if kind is Samples else None,
    )
    case = RemoteCase(worker, REQUEST, 1.0)
    case.check()
    case.measure_blocks(BlockPlan())
    case.measure_turn(0)
    case.close()
    asked = [CaseAsked(REQUEST.key, operation, step) for operation in ("check", "block", "close")]
    assert told == [asked[0], asked[1], BlocksTimed(REQUEST.key, (1.0, 2.0)), asked[2]]


def test_of_a_pair_the_candidate_s_times_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two turns a quad, whichever side was first; the base side's are not the case's."""
    told: list[BlocksTimed] = []
    monkeypatch.setattr(interleave, "DOING", SimpleNamespace(publish_event=told.append))
    look = Bench().take(quads=4)
    assert look.pair is not None
    assert {(event.key, len(event.block_us)) for event in told} == {(REQUEST.key, 2)}
    assert len(told) == look.pair.quads
    assert min(min(event.block_us) for event in told) > 105
