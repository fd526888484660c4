"""Turns of a case that is measured interleaved with another process."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from pytest_attnperf.errors import CaseFailedError
from pytest_attnperf.measure import placements, timing, torch_settings, trace
from pytest_attnperf.measure.cold_cache import ColdSize
from pytest_attnperf.measure.proving import TimedWrongError
from pytest_attnperf.measure.rejection import CompileWatch
from pytest_attnperf.measure.subject import TorchSubject
from pytest_attnperf.records import DeviceInfo, NotProvenRightError
from pytest_attnperf.records.pairs import Turn, TurnPlan
from tests.measure.products import unchecked_product

if TYPE_CHECKING:
    from tests.measure.conftest import EagerGpu

GPU = DeviceInfo(kind="cuda", arch="sm_90", product="unlisted")


def checked(subject: TorchSubject) -> TorchSubject:
    """The same after a passing check."""
    assert subject.check().problems == ()
    return subject


@pytest.fixture(autouse=True)
def _unspent(monkeypatch: pytest.MonkeyPatch) -> None:
    """A profiler used by one test forbids no other to time."""
    monkeypatch.setattr(trace, "_used", [])


def test_a_cpu_takes_turns_at_one_place() -> None:
    """The plan says what was prepared, every turn is a time, and the last call is judged as ever."""
    subject = checked(unchecked_product())
    plan = subject.prepare_turns(500.0)
    assert (plan.timer, plan.cache_state, plan.places, plan.note) == ("host", "hot", 1, "")
    assert plan.calls_per_block >= 1
    assert plan.call_us > 0
    turns = [subject.measure_turn(0) for _ in range(3)]
    assert all(turn.us > 0 and turn.clock_mhz is None for turn in turns)
    assert subject.finish().check.right


def test_nothing_takes_turns_before_a_passing_check() -> None:
    """Neither the plan nor a turn is to be had of what may be wrong."""
    subject = unchecked_product()
    with pytest.raises(NotProvenRightError, match=r"may not be timed: no check of it has passed"):
        subject.prepare_turns(500.0)
    with pytest.raises(NotProvenRightError, match=r"may not be timed: no check of it has passed"):
        subject.measure_turn(0)


def test_turns_come_before_a_turn_and_make_its_place() -> None:
    """A turn without a plan, and at a place that the plan has not, say so; another block length needs a new plan."""
    subject = checked(unchecked_product())
    with pytest.raises(CaseFailedError, match=r"is not ready for measure_turn\(\): call prepare_turns\(\) first"):
        subject.measure_turn(0)
    subject.prepare_turns(200.0)
    for place in (1, -1):
        with pytest.raises(CaseFailedError, match=rf"has no place {place}: prepare_turns\(\) made 1, counted from 0"):
            subject.measure_turn(place)
    subject.measure_blocks(1, 900.0, 1e9)
    with pytest.raises(CaseFailedError, match=r"call prepare_turns\(\) first"):
        subject.measure_turn(0)


def test_a_replaying_case_takes_turns_at_several_places(eager_gpu: EagerGpu) -> None:
    """As many as one process is measured at, each proven, all alive until the end, each timed when it is named."""
    subject = checked(unchecked_product())
    plan = subject.prepare_turns(2000.0)
    assert plan == TurnPlan("graph", "hot", 40, 100.0, 1, settings=torch_settings.describe_torch_settings())
    assert [timer.measured for timer in eager_gpu.timers] == [0] * 40
    assert [subject.measure_turn(place).us for place in (3, 0, 9)] == [103.0, 100.0, 109.0]
    subject.measure_blocks(3, placements.SPLIT * 2000.0, 1e9)
    assert subject.measure_turn(9) == Turn(109.0, 1900.0)
    assert not any(timer.closed for timer in eager_gpu.timers[:40])
    assert subject.finish().check.right
    assert all(timer.closed for timer in eager_gpu.timers)


def test_a_long_call_takes_turns_at_fewer_places(eager_gpu: EagerGpu) -> None:
    """As many as time allows, and two at least."""
    eager_gpu.call_us = 2000.0
    assert checked(unchecked_product()).prepare_turns(2000.0).places == 12


def test_asking_for_turns_again_makes_new_places(eager_gpu: EagerGpu) -> None:
    """The earlier ones are freed, the case's own timer goes on."""
    subject = checked(unchecked_product())
    subject.prepare_turns(2000.0)
    subject.prepare_turns(2000.0)
    assert [timer.closed for timer in eager_gpu.timers] == [False] + [True] * 39 + [False] * 39
    assert subject.measure_turn(1) == Turn(140.0, 1900.0)


def test_a_place_that_replays_wrong_takes_no_turns(eager_gpu: EagerGpu) -> None:
    """One wrong place among forty: the case is no longer proven."""
    eager_gpu.spoil = lambda place, right: right * 1.01 if place == 7 else right
    subject = checked(unchecked_product())
    with pytest.raises(TimedWrongError, match=r"^eager right, replay wrong: "):
        subject.prepare_turns(2000.0)
    with pytest.raises(NotProvenRightError):
        subject.measure_turn(0)


def test_a_cold_case_takes_turns_at_one_place(eager_gpu: EagerGpu, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its block is a round over many places already."""
    monkeypatch.setattr(timing, "cold_size", lambda device: ColdSize(1 << 16))
    subject = checked(unchecked_product(cache_state="cold"))
    plan = subject.prepare_turns(2000.0)
    assert (plan.timer, plan.cache_state, plan.places, plan.calls_per_block) == ("graph_cold", "cold", 1, 8)
    assert subject.measure_turn(0) == Turn(100.0, 1900.0)
    assert subject.finish().check.right


class Compiling(CompileWatch):
    """Sees something compile in the first `batches` blocks after it was entered."""

    batches = 0

    @property
    def count(self) -> int:
        """Rises with every second question, which is the one after a block."""
        asked = self.__dict__["asked"] = self.__dict__.get("asked", 0) + 1
        return min(asked // 2, self.batches)


@pytest.mark.parametrize(("batches", "measured"), [(0, 1), (1, 2), (3, 4)])
def test_a_turn_that_compiles_is_measured_again(
    eager_gpu: EagerGpu, monkeypatch: pytest.MonkeyPatch, batches: int, measured: int
) -> None:
    """The time is that of the first block in which nothing compiled."""
    subject = checked(unchecked_product())
    subject.prepare_turns(2000.0)
    monkeypatch.setattr(Compiling, "batches", batches)
    monkeypatch.setattr(timing, "CompileWatch", Compiling)
    assert subject.measure_turn(2) == Turn(102.0, 1900.0)
    assert eager_gpu.timers[2].measured == measured


def test_a_turn_that_always_compiles_fails_the_case(eager_gpu: EagerGpu, monkeypatch: pytest.MonkeyPatch) -> None:
    """After four blocks in a row, with the reason that blocks give."""
    subject = checked(unchecked_product())
    subject.prepare_turns(2000.0)
    monkeypatch.setattr(Compiling, "batches", 1000)
    monkeypatch.setattr(timing, "CompileWatch", Compiling)
    with pytest.raises(CaseFailedError, match="recompiles in every sample: 4 blocks were measured"):
        subject.measure_turn(2)


@pytest.mark.gpu
def test_turns_on_a_gpu_replay_at_every_place() -> None:
    """Forty places for a short product, a plausible time and clock at each, and a last replay that is right."""
    subject = checked(unchecked_product(device=GPU, size=512))
    plan = subject.prepare_turns(600.0)
    assert (plan.timer, plan.places) == ("graph", 40)
    turns = [subject.measure_turn(place) for place in range(plan.places) for _ in range(2)]
    assert all(0.5 * plan.call_us < turn.us < 2 * plan.call_us for turn in turns)
    assert all(turn.clock_mhz is None or 100 < turn.clock_mhz < 5000 for turn in turns)
    final = subject.finish()
    assert final.check.problems == ()
    assert not final.spent


@pytest.mark.gpu
def test_a_cold_case_takes_turns_on_a_gpu() -> None:
    """One place, whole rounds, a last replay that is right."""
    subject = checked(unchecked_product(device=GPU, cache_state="cold", size=1024))
    plan = subject.prepare_turns(600.0)
    assert (plan.timer, plan.places) == ("graph_cold", 1)
    assert all(subject.measure_turn(0).us > 0 for _ in range(4))
    assert subject.finish().check.problems == ()
