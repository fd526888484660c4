"""A case on all cards: in-memory cards that notice each other, no processes."""

from __future__ import annotations

import contextlib
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from pytest_attnperf.errors import CaseFailedError, WorkerError
from pytest_attnperf.records import CaseKey, CheckReport, DeviceInfo, Fingerprint, ProcessSummary, Role
from pytest_attnperf.records.pairs import Turn
from pytest_attnperf.testing.fake.device import FakeSubject
from pytest_attnperf.workers.at_once import AtOnceLook, AtOncePlan, take_at_once, together_places
from pytest_attnperf.workers.controller import Ready
from pytest_attnperf.workers.conversation import Closed, Conversation, OpenRequest
from pytest_attnperf.workers.local import LocalCase
from pytest_attnperf.workers.look import Ending
from pytest_attnperf.workloads.prefill import Prefill

WORKLOAD = Prefill(batch=1, seq_q=64, heads=1, head_dim=16)
REQUEST = OpenRequest(CaseKey("prefill", "fake.a", WORKLOAD.id), None, 1, 2)
PLAN = AtOncePlan(seconds=0.02)
TURN_S = 0.001


@dataclass
class Served(LocalCase):
    """A card's case: a turn takes a while, and says whether another card is in one or has begun."""

    cards: Cards = field(kw_only=True)
    card: int = field(kw_only=True)

    def check(self, *, profiled: bool = False) -> CheckReport:
        """Takes a while, so that checks at the same time meet."""
        with self.cards.inside("checking"):
            time.sleep(20 * TURN_S)
        return super().check(profiled=profiled)

    def measure_turn(self, place: int) -> Turn:
        """100 us alone, 105 us beside another turn."""
        with self.cards.inside("measuring"):
            before = self.cards.busy["measuring"]
            self.cards.during_turn(self.card)
            time.sleep(TURN_S)
            beside = max(before, self.cards.busy["measuring"]) > 1
        return replace(super().measure_turn(place), us=105.0 if beside else 100.0)

    def close(self) -> Closed:
        """Remembered."""
        self.cards.closed.append(self.card)
        return super().close()


@dataclass
class Cards:
    """A Pool of cards: `scripts` holds each card's, `during_turn` is called with the card in every turn."""

    scripts: Sequence[dict[str, Any]] = ({}, {})
    during_turn: Callable[[int], None] = lambda card: None
    bytes_min: float = 1e6
    busy: dict[str, int] = field(default_factory=lambda: {"checking": 0, "measuring": 0})
    most: dict[str, int] = field(default_factory=lambda: {"checking": 0, "measuring": 0})
    opened: list[int] = field(default_factory=list)
    closed: list[int] = field(default_factory=list)
    left_by: list[type[BaseException] | None] = field(default_factory=list)

    @contextlib.contextmanager
    def inside(self, what: str) -> Iterator[None]:
        """Count who is doing it."""
        self.busy[what] += 1
        self.most[what] = max(self.most[what], self.busy[what])
        try:
            yield
        finally:
            self.busy[what] -= 1

    @contextlib.contextmanager
    def case_at(self, place: int, request: OpenRequest) -> Iterator[Conversation]:
        """The card of that place, as a pool of processes gives it."""
        card = place % len(self.scripts)
        script = {"time_us": 100.0, "bytes_min": self.bytes_min, **self.scripts[card]}
        subject = FakeSubject(script, 1.0, (request.check_seed, request.final_seed))
        workload = _Sized(batch=1, seq_q=64, heads=1, head_dim=16)
        workload.own_bytes = self.bytes_min
        self.opened.append(card)
        try:
            yield Served(subject, workload, cards=self, card=card)
        except BaseException as error:
            self.left_by.append(type(error))
            raise

    def wait_until_ready(self, place: int) -> Ready:
        """A process on its card."""
        card = place % len(self.scripts)
        device = DeviceInfo("cpu", "fake", "fake1", device_id=f"fake-{card}")
        return Ready(1000 + place, Role.INTERPRET, device, Fingerprint({"arch": "fake"}, {}), (REQUEST.key,))

    def measure_canary(self, place: int) -> dict[str, ProcessSummary]:
        """Never asked for."""
        raise NotImplementedError

    def start(self, places: Sequence[int]) -> None:
        """All of them run."""
        assert [place % len(self.scripts) for place in places] == list(range(len(self.scripts)))

    def last_ready(self) -> Ready | None:
        """Not asked for."""
        return None

    def shutdown(self) -> None:
        """Nothing runs."""


class _Sized(Prefill):
    """A workload of any number of bytes."""

    @property
    def bytes_min(self) -> float:
        """As given."""
        return float(self.__dict__["own_bytes"])

    def __setattr__(self, name: str, value: object) -> None:
        self.__dict__[name] = value


def taken(cards: Cards, plan: AtOncePlan = PLAN) -> AtOnceLook:
    """The case on these cards."""
    return take_at_once(cards, [f"GPU {index}" for index in range(len(cards.scripts))], REQUEST, plan)


def other_threads() -> int:
    """How many threads run beside this one."""
    return threading.active_count() - 1


def test_a_card_is_alone_before_and_after_and_with_all_others_between() -> None:
    """Each of three cards measures beside nobody, beside all, and beside nobody; all are proven again and closed."""
    cards, plan = Cards(({}, {}, {})), replace(PLAN, seconds=0.2)  # on a busy machine three threads need it to meet
    look = taken(cards, plan)
    assert [one.ending for one in look.looks] == [Ending.RIGHT] * 3
    assert cards.most["measuring"] == 3
    for times in look.times:
        assert set(times.before_us) == set(times.after_us) == {100.0}
        assert len(times.together_us) >= 3
        assert sum(us == 105.0 for us in times.together_us) > len(times.together_us) / 2
    assert [times.ready.device.device_id for times in look.times] == ["fake-0", "fake-1", "fake-2"]
    assert look.overlap_s >= plan.seconds
    assert sorted(cards.closed) == [0, 1, 2]


def test_only_turns_count_while_every_card_measures() -> None:
    """What one card measured before the other one had begun is left out."""
    main, ten_turns = threading.main_thread(), threading.Event()
    threads: list[threading.Thread] = []
    turns: list[int] = []

    def remembered(card: int) -> None:
        if threading.current_thread() is not main:
            turns.append(card)
        if len(turns) == 10:
            ten_turns.set()

    def clock() -> float:
        """The second thread to ask waits until the first one has taken ten turns."""
        me = threading.current_thread()
        if me is not main and me not in threads:
            threads.append(me)
            if len(threads) == 2:
                ten_turns.wait(10)
        return time.monotonic()

    look = take_at_once(Cards(during_turn=remembered), ["GPU 0", "GPU 1"], REQUEST, PLAN, clock=clock)
    first = turns[0]
    assert turns[:10] == [first] * 10
    assert 3 <= len(look.times[first].together_us) <= turns.count(first) - 9


def test_an_error_of_one_card_names_it_and_closes_the_others() -> None:
    """A card whose worker dies while all measure ends the case with its name, and no thread outlives the call."""

    def dying(card: int) -> None:
        if card == 1 and cards.busy["measuring"] == 2:
            raise WorkerError("worker died during 'turn': killed by SIGKILL", "the log")

    cards, before = Cards(during_turn=dying), other_threads()
    with pytest.raises(WorkerError, match="GPU 1: worker died") as raised:
        taken(cards, replace(PLAN, seconds=0.2))  # on a busy machine two threads do not meet within 20 ms
    assert raised.value.log_tail == "the log"
    assert other_threads() == before
    assert cards.left_by == [WorkerError, WorkerError]


def test_what_a_case_raises_names_its_card() -> None:
    """A case that raises on one card is an error of that card, and says so where memory was short."""
    with pytest.raises(CaseFailedError, match=r"^GPU 1: out of memory") as raised:
        taken(Cards(({}, {"fault": "oom"})))
    assert raised.value.out_of_memory


@pytest.mark.parametrize(
    ("script", "ending"), [({"fault": "wrong"}, "incorrect"), ({"supported": ["no"]}, "unsupported")]
)
def test_what_the_first_card_cannot_run_is_not_tried_on_the_others(script: dict[str, Any], ending: str) -> None:
    """A case that is wrong or unsupported on the first card is looked at once, and nothing is timed."""
    cards = Cards((script, {}))
    look = taken(cards)
    assert [one.ending.value for one in look.looks] == [ending]
    assert look.times == ()
    assert cards.most["measuring"] == 0


def test_a_card_that_computes_wrong_under_load_is_seen() -> None:
    """The last replay of every card is judged: one that is wrong there is wrong, whatever the others say."""
    look = taken(Cards(({}, {"fault": "late"})))
    assert [one.ending for one in look.looks] == [Ending.RIGHT, Ending.INCORRECT]


def test_a_card_whose_replay_is_wrong_is_not_timed() -> None:
    """A card on which the timer's replay differs from the call is incorrect, and no card is timed."""
    cards = Cards(({}, {"fault": "wrong"}))
    look = taken(cards)
    assert [one.ending for one in look.looks] == [Ending.RIGHT, Ending.INCORRECT]
    assert look.times == ()
    assert sorted(cards.closed) == [0, 1]


@pytest.mark.parametrize(("gib", "at_once"), [(0.5, 2), (1.0, 1)])
def test_large_cases_are_proven_on_one_card_after_the_other(gib: float, at_once: int) -> None:
    """Behind the first card the others are proven at once, from 1 GiB on one by one."""
    cards = Cards(({}, {}, {}), bytes_min=gib * 2**30)
    taken(cards)
    assert cards.most["checking"] == at_once


def test_a_turn_that_never_lies_within_the_common_time_is_an_error() -> None:
    """Where the limit comes before a card ends a turn beside the others, the error names it and says what to do."""

    def slow(card: int) -> None:
        if card == 1 and cards.busy["measuring"] == 2:
            time.sleep(0.05)

    cards = Cards(during_turn=slow)
    with pytest.raises(CaseFailedError, match=r"GPU [01]: none of its 1 timed blocks .* use a smaller workload"):
        taken(cards, AtOncePlan(seconds=0.0, limit_seconds=0.0))


def test_an_interrupt_reaches_whoever_holds_the_workers_and_ends_the_threads() -> None:
    """Ctrl-C while all cards measure leaves every case by KeyboardInterrupt, and no thread behind."""

    def interrupted(card: int) -> None:
        if card == 1 and cards.busy["measuring"] == 2 and not sent:
            sent.append(True)
            signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)

    sent: list[bool] = []
    cards, before = Cards(during_turn=interrupted), other_threads()
    with pytest.raises(KeyboardInterrupt):
        taken(cards, replace(PLAN, seconds=0.2))
    assert other_threads() == before
    assert cards.left_by == [KeyboardInterrupt, KeyboardInterrupt]


@pytest.mark.parametrize("cards", [2, 3, 4, 7, 8])
def test_places_deal_every_card_once_and_in_order(cards: int) -> None:
    """A pool that deals its cards to places in turn gives each of ours its own, the first one first."""
    assert [place % cards for place in together_places(cards)] == list(range(cards))
