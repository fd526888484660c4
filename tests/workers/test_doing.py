"""The board of what a process and its workers do."""

from __future__ import annotations

import pytest

from pytest_attnperf.records import Role
from pytest_attnperf.workers.doing import Doing, Unit, UnitStep, Waiting

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
