"""Pairs of two in-memory sides: scripted subjects, no processes."""

from __future__ import annotations

import contextlib
import itertools
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from pytest_attnperf.errors import CaseFailedError, WorkerError
from pytest_attnperf.records import (
    CaseKey,
    CheckReport,
    DeviceInfo,
    Fingerprint,
    NotProvenRightError,
    ProcessSummary,
    Role,
)
from pytest_attnperf.records.final_report import FinalReport
from pytest_attnperf.records.pairs import Turn, TurnPlan
from pytest_attnperf.testing.fake.device import FakeSubject
from pytest_attnperf.workers.controller import Ready, WrongAsTimedError
from pytest_attnperf.workers.conversation import Closed, Conversation, Opened, OpenRequest
from pytest_attnperf.workers.interleave import InterleavePlan, PairLook, PairSide, SideFailedError, take_pair
from pytest_attnperf.workers.local import LocalCase
from pytest_attnperf.workers.look import Ending
from pytest_attnperf.workloads.prefill import Prefill

WORKLOAD = Prefill(batch=1, seq_q=64, heads=1, head_dim=16)
REQUEST = OpenRequest(CaseKey("prefill", "fake.a", WORKLOAD.id), None, 1, 2)
DEVICE = DeviceInfo("cpu", "fake", "fake1", device_id="fake-0")
SIDES = ("base side main", "this side")
WRONG = CheckReport(problems=("replay: 'out' is off by 0.5",))


@dataclass
class Served(LocalCase):
    """A case that notes its turns, raises where the script says so, and remembers that it was closed."""

    pool: FakePool = field(kw_only=True)

    def open(self) -> Opened:
        """As scripted."""
        self.pool.fault_at("open")
        return super().open()

    def check(self, *, profiled: bool = False) -> CheckReport:
        """As scripted."""
        self.pool.busy = True
        self.pool.during_check()
        self.pool.busy = False
        self.pool.fault_at("check")
        self.pool.profiled = profiled
        return super().check(profiled=profiled)

    def prepare_turns(self, block_us: float, timer: str) -> TurnPlan:
        """As scripted."""
        self.pool.asked_timer = timer
        self.pool.during_turns()
        self.pool.fault_at("turns")
        plan = super().prepare_turns(block_us, timer)
        return replace(plan, cache_state=self.pool.script.get("cache_state", "hot"))

    def measure_turn(self, place: int) -> Turn:
        """As scripted."""
        self.pool.turns.append((self.pool.letter, place))
        self.pool.fault_at("turn")
        return super().measure_turn(place)

    def finish(self) -> FinalReport:
        """As scripted."""
        self.pool.fault_at("finish")
        return super().finish()

    def close(self) -> Closed:
        """As scripted."""
        self.pool.closed = True
        return super().close()


@dataclass
class FakePool:
    """A Pool of one process. `script` is FakeSubject's, and `raises` {operation: error} what is raised there."""

    letter: str
    turns: list[tuple[str, int]]
    script: dict[str, Any]
    raises: dict[str, Exception] = field(default_factory=dict)
    workload: Prefill = WORKLOAD
    device: DeviceInfo = DEVICE
    method: int = 1
    arch: str = "fake"
    closed: bool = False
    during_check: Callable[[], object] = lambda: None
    during_turns: Callable[[], object] = lambda: None
    busy: bool = False
    busy_when_left: bool | None = None
    profiled: bool | None = None
    asked_timer: str = ""
    opened: list[OpenRequest] = field(default_factory=list)

    def fault_at(self, operation: str) -> None:
        """Raise what is scripted for this operation."""
        if operation in self.raises:
            raise self.raises[operation]

    @contextlib.contextmanager
    def case_at(self, place: int, request: OpenRequest) -> Iterator[Conversation]:
        """The scripted case."""
        self.opened.append(request)
        subject = FakeSubject(self.script, 1.0 if self.letter == "A" else 1.0001, (1, 2))
        try:
            yield Served(subject, self.workload, pool=self)
        finally:
            self.busy_when_left = self.busy

    def wait_until_ready(self, place: int) -> Ready:
        """One process per side and place."""
        pid = 1000 * (1 + (self.letter == "B")) + place
        machine = Fingerprint({"arch": self.arch}, {"rocm": {"A": "6.4", "B": "7.0"}[self.letter]})
        return Ready(pid, Role.INTERPRET, self.device, machine, (REQUEST.key,), method=self.method)

    def measure_canary(self, place: int) -> dict[str, ProcessSummary]:
        """A pair needs none."""
        raise AssertionError("a canary was measured beside a pair")

    def start(self, places: Sequence[int]) -> None:
        """Nothing to start."""

    def last_ready(self) -> Ready | None:
        """Place 0."""
        return self.wait_until_ready(0)

    def shutdown(self) -> None:
        """Nothing runs."""


class Bench:
    """Both sides, `a` the base and `b` the candidate, 10 % slower; `turns` holds (side, place) of every turn."""

    def __init__(self) -> None:
        self.turns: list[tuple[str, int]] = []
        self.a = FakePool("A", self.turns, {"time_us": 100.0})
        self.b = FakePool("B", self.turns, {"time_us": 110.0})

    def side(self, name: str) -> FakePool:
        """The pool of a side's name."""
        return self.a if name == SIDES[0] else self.b

    def take(self, **plan: Any) -> PairLook:
        """One pair, by a clock that shows 1 s, then 3.5 s."""
        clock = itertools.count(1.0, 2.5)
        sides = PairSide(self.a, SIDES[0]), PairSide(self.b, SIDES[1])
        return take_pair(*sides, 5, REQUEST, InterleavePlan(**plan), clock=lambda: next(clock))

    @property
    def quads(self) -> list[tuple[str, set[int]]]:
        """The order of every quad and the places it was measured at."""
        groups = [self.turns[begin : begin + 4] for begin in range(0, len(self.turns), 4)]
        return [("".join(letter for letter, _ in group), {place for _, place in group}) for group in groups]


@pytest.fixture
def bench() -> Bench:
    """Two healthy sides."""
    return Bench()


def test_a_pair_is_measured_and_proven(bench: Bench) -> None:
    """A pair holds the ratio, times, processes, what its turns took and the releases; each side has its proof."""
    look = bench.take(quads=30)
    assert look.pair is not None
    assert look.pair.ratio == pytest.approx(1.10, rel=1e-3)
    assert (look.pair.base_us, look.pair.new_us) == (pytest.approx(100, rel=1e-3), pytest.approx(110, rel=1e-3))
    assert (look.pair.base_process, look.pair.new_process) == ("pid 1005", "pid 2005")
    assert (look.pair.timer, look.pair.device_id, look.pair.quads, look.pair.seconds) == ("host", "fake-0", 30, 2.5)
    assert look.toolchain == ("rocm: 6.4 -> 7.0",)
    for side in (look.base, look.new):
        assert side.ending is Ending.RIGHT
        assert [figures.check for figures in side.report.figures] == ["check", "final"]
        assert side.fingerprint is not None
        assert side.fingerprint.must_match == {"arch": "fake", "timer": "host", "method": "1", "cache_state": "hot"}
    assert bench.a.closed
    assert bench.b.closed
    assert (bench.a.profiled, bench.b.profiled) == (False, False)


def test_sides_may_open_different_requests(bench: Bench) -> None:
    """The base side opens its own request where it has one, e.g. the same case with another configuration."""
    other = replace(REQUEST, pin={"BLOCK_M": "128"})
    sides = PairSide(bench.a, SIDES[0]), PairSide(bench.b, SIDES[1])
    assert take_pair(*sides, 5, REQUEST, InterleavePlan(), base_request=other).pair is not None
    assert (bench.a.opened, bench.b.opened) == ([other], [REQUEST])
    bench.take()
    assert (bench.a.opened[-1], bench.b.opened[-1]) == (REQUEST, REQUEST)


@pytest.mark.parametrize("places", [1, 2, 3, 4])
def test_orders_and_places_are_balanced(bench: Bench, places: int) -> None:
    """Quads are A B B A or B A A B at one place each, and every place has as many of one order as of the other."""
    for pool in (bench.a, bench.b):
        pool.script["places"] = places
    bench.take(quads=4 * places if places > 1 else 8)
    assert [at for _, at in bench.quads] == [{index % places} for index in range(len(bench.quads))]
    assert bench.quads[0][0] == "ABBA"
    for place in range(places):
        orders = [order for order, at in bench.quads if at == {place}]
        assert set(orders) == {"ABBA", "BAAB"}
        assert orders.count("ABBA") == orders.count("BAAB")
        assert all(first != second for first, second in itertools.pairwise(orders))


def test_only_places_of_both_sides_are_measured(bench: Bench) -> None:
    """Where one side's inputs lie at fewer places, the other's further ones are left out."""
    bench.a.script["places"], bench.b.script["places"] = 3, 2
    bench.take(quads=8)
    assert {place for _, place in bench.turns} == {0, 1}


def turn_plan(call_us: float, calls: int) -> TurnPlan:
    """A side whose block takes `calls` calls of this length."""
    return TurnPlan("host", "hot", 2, call_us, calls)


@pytest.mark.parametrize(
    ("budget_us", "quads"),
    [(1e9, 30), (400_000, 20), (390_000, 20), (420_000, 22), (1000, 8), (0, 8)],
)
def test_quads_fit_the_budget(budget_us: float, quads: int) -> None:
    """A quad is two turns a side, each an unmeasured and a measured block; the count is even, 8 to 30."""
    # 4 x (2000 + 3000) us = 20,000 us a quad
    plan = InterleavePlan(quads=30, budget_us=budget_us)
    assert plan.count_quads(turn_plan(100, 20), turn_plan(150, 20)) == quads


def test_an_odd_number_of_quads_is_made_even() -> None:
    """Both orders come equally often, however many quads are asked for."""
    assert InterleavePlan(quads=11).count_quads(turn_plan(1, 1), turn_plan(1, 1)) == 12


@pytest.mark.parametrize(("side", "other"), [SIDES, SIDES[::-1]])
@pytest.mark.parametrize(
    ("script", "ending"),
    [
        ({"supported": ["no such dtype"]}, Ending.UNSUPPORTED),
        ({"fault": "wrong"}, Ending.INCORRECT),
        ({"not_timed": "interpreted"}, Ending.RIGHT),
    ],
)
def test_one_side_that_is_not_timed(
    bench: Bench, side: str, other: str, script: dict[str, Any], ending: Ending
) -> None:
    """Where one side is unsupported, wrong or must not be timed there is no turn and no ratio; the other is right."""
    bench.side(side).script |= script
    look = bench.take()
    this, that = (look.base, look.new) if side == SIDES[0] else (look.new, look.base)
    assert (this.ending, that.ending) == (ending, Ending.RIGHT)
    assert (look.pair, look.problems, bench.turns) == (None, (), [])
    assert this.note == script.get("not_timed", "")
    assert bench.a.closed
    assert bench.b.closed
    assert [figures.check for figures in that.report.figures] == ["check", "final"]


@pytest.mark.parametrize("side", SIDES)
def test_wrong_when_replayed_is_incorrect(bench: Bench, side: str) -> None:
    """A side that is right when called and wrong as it is timed is INCORRECT, without a turn."""
    bench.side(side).raises["turns"] = WrongAsTimedError("eager right, replay wrong", WRONG)
    look = bench.take()
    wrong = look.base if side == SIDES[0] else look.new
    assert (wrong.ending, wrong.reasons) == (Ending.INCORRECT, WRONG.problems)
    assert (look.pair, bench.turns) == (None, [])
    assert bench.a.closed
    assert bench.b.closed


@pytest.mark.parametrize("side", SIDES)
def test_wrong_behind_the_turns_is_incorrect(bench: Bench, side: str) -> None:
    """A side whose last run is wrong is INCORRECT, although it was measured."""
    bench.side(side).script["fault"] = "late"
    look = bench.take()
    endings = (Ending.INCORRECT, Ending.RIGHT)
    assert (look.base.ending, look.new.ending) == (endings if side == SIDES[0] else endings[::-1])
    assert bench.a.closed
    assert bench.b.closed


@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize("operation", ["open", "check", "turns", "turn", "finish"])
def test_a_case_that_raises_names_its_side(bench: Bench, side: str, operation: str) -> None:
    """Whatever a case raises, wherever, becomes an error that begins with the side and keeps the traceback."""
    bench.side(side).raises[operation] = CaseFailedError("CUDA error: misaligned", traceback="kernel.py, line 7")
    with pytest.raises(SideFailedError) as caught:
        bench.take()
    assert caught.value.side == side
    assert caught.value.summary == f"{side}: CUDA error: misaligned"
    assert "kernel.py, line 7" in str(caught.value)
    assert bench.a.busy_when_left is False
    assert bench.b.busy_when_left is False


@pytest.mark.parametrize("side", SIDES)
def test_a_time_without_proof_names_its_side(bench: Bench, side: str) -> None:
    """A side that is asked for a time before its check is named, too."""
    bench.side(side).raises["turn"] = NotProvenRightError("turns were asked for before a passing check")
    with pytest.raises(SideFailedError, match=f"^{side}: turns were asked for before a passing check"):
        bench.take()


@pytest.mark.parametrize("operation", ["check", "turn"])
def test_a_process_that_dies_names_its_side(bench: Bench, operation: str) -> None:
    """A process that ends is a WorkerError that begins with the side and keeps its log."""
    bench.a.raises[operation] = WorkerError("killed by SIGABRT", "kernel aborted")
    with pytest.raises(WorkerError) as caught:
        bench.take()
    assert (caught.value.summary, caught.value.log_tail) == ("base side main: killed by SIGABRT", "kernel aborted")


def test_where_both_raise_this_side_is_named(bench: Bench) -> None:
    """What is wrong here is what the author can mend."""
    for pool in (bench.a, bench.b):
        pool.raises["check"] = CaseFailedError("off")
    with pytest.raises(SideFailedError) as caught:
        bench.take()
    assert caught.value.side == "this side"


@pytest.mark.parametrize("slow", SIDES)
def test_no_case_is_left_while_it_is_being_asked(bench: Bench, slow: str) -> None:
    """A side that raises waits for the other's answer: closing a case over a channel that is read would lose both."""
    other = next(name for name in SIDES if name != slow)
    bench.side(slow).during_check = lambda: time.sleep(0.2)
    bench.side(other).raises["open"] = CaseFailedError("off")
    with pytest.raises(SideFailedError, match=other):
        bench.take()
    assert bench.side(slow).busy_when_left is False
    assert bench.side(slow).profiled is False


def test_both_sides_are_proven_at_once(bench: Bench) -> None:
    """Nothing is timed before the turns, so that both sides may compile and check at the same time."""
    both = threading.Barrier(2)
    for pool in (bench.a, bench.b):
        pool.during_check = lambda: both.wait(30)
    assert bench.take(quads=2).pair is not None


def test_sides_are_made_ready_one_after_the_other(bench: Bench) -> None:
    """Each side learns there how long its call takes, which the other at work beside it would lengthen."""
    events: list[str] = []

    def slowly() -> None:
        events.append("begin")
        time.sleep(0.05)
        events.append("end")

    bench.a.during_turns = bench.b.during_turns = slowly
    bench.take(quads=2)
    assert events == ["begin", "end", "begin", "end"]


CAUSAL = replace(WORKLOAD, causal=True)


@pytest.mark.parametrize(
    ("script", "attributes", "problem"),
    [
        ({"timer": "event"}, {}, "timer: event on the base side, host here"),
        ({"cache_state": "cold"}, {}, "cache state: cold on the base side, hot here"),
        ({}, {"device": replace(DEVICE, device_id="fake-1")}, "device: fake-1 on the base side, fake-0 here"),
        ({}, {"method": 2}, "method: 2 on the base side, 1 here"),
        ({}, {"arch": "gfx950"}, "arch: gfx950 on the base side, fake here"),
        ({}, {"workload": CAUSAL}, "workload causal: True on the base side, False here"),
    ],
)
def test_what_is_not_alike_is_not_compared(
    bench: Bench, script: dict[str, Any], attributes: dict[str, Any], problem: str
) -> None:
    """Another timer, cache state, device, machine, method or workload is named with both values; no turn is taken."""
    bench.a.script |= script
    for name, value in attributes.items():
        setattr(bench.a, name, value)
    look = bench.take()
    assert problem in look.problems
    assert (look.pair, bench.turns) == (None, [])
    assert (look.base.ending, look.new.ending) == (Ending.RIGHT, Ending.RIGHT)
    assert bench.a.closed
    assert bench.b.closed


def test_the_timer_is_asked_for(bench: Bench) -> None:
    """Both sides are given the timer of the plan."""
    bench.take(timer="host")
    assert (bench.a.asked_timer, bench.b.asked_timer) == ("host", "host")
