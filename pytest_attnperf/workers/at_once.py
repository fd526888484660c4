"""One case on all cards, a process on each: on every card alone, one after the other, then on all at once, then alone.

The cost of the other cards is the ratio of a card's times at once to its times alone. Both are from one process and one
graph, so only the other cards differ. The second round alone shows how much the card drifted. A turn is an unmeasured
block followed by a measured one, so a card is idle only while its times are read.
"""

from __future__ import annotations

import bisect
import contextlib
import functools
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace

from pytest_attnperf.errors import CaseFailedError, WorkerError
from pytest_attnperf.records import NotProvenRightError
from pytest_attnperf.records.pairs import TurnPlan
from pytest_attnperf.workers.controller import Ready, WrongAsTimedError
from pytest_attnperf.workers.conversation import Conversation, OpenRequest
from pytest_attnperf.workers.look import (
    Ending,
    Look,
    case_fingerprint,
    close_wrong_as_timed,
    finish_and_close,
    open_and_check,
)
from pytest_attnperf.workers.pool import Pool

TOGETHER_PLACES = 200
"""Approximate first place of these processes (see `together_places`)."""

LARGE_BYTES = 2.0**30
"""Larger workloads are proven on one card after the other: their references may be in the host's memory."""

TURNS_LEAST = 3
"""Least number of turns: with fewer, one disturbed turn could move the centre of a card."""

ENDING_SECONDS = 2.0
"""Seconds that threads get to end, before workers are killed and again afterwards; a turn takes milliseconds."""


@dataclass(frozen=True)
class AtOncePlan:
    """How much to measure: `seconds` alone on each card, then as long on all at once, then as long alone again.

    limit_seconds   additional seconds after which the time on all cards ends, even with too few turns
    """

    seconds: float = 0.5
    block_us: float = 2000.0
    timer: str = "auto"
    limit_seconds: float = 60.0


@dataclass(frozen=True)
class CardTimes:
    """Turns of one card, in microseconds per call. `together_us` has only turns that lie entirely in the time in which
    every card was measuring."""

    ready: Ready
    plan: TurnPlan
    before_us: tuple[float, ...]
    together_us: tuple[float, ...]
    after_us: tuple[float, ...]


@dataclass(frozen=True)
class AtOnceLook:
    """The results of one case on all cards, in the order of the cards.

    looks       look of each card; only the first card's, if the case is not right there
    times       empty if the case was not right on a card, or is not timed
    overlap_s   seconds in which every card was measuring
    """

    looks: tuple[Look, ...]
    times: tuple[CardTimes, ...] = ()
    overlap_s: float = 0.0


@dataclass(frozen=True)
class _Span:
    """Start and end of a turn by the controller's clock, in seconds, and its time in microseconds per call."""

    began: float
    ended: float
    us: float


@dataclass
class _Card:
    """One card (GPU) while its worker process has the case open. `look` is the case's result so far, None before it is
    opened; `plan` is None if the case is not timed."""

    name: str
    case: Conversation
    ready: Ready
    look: Look | None = None
    plan: TurnPlan | None = None
    before: list[_Span] = field(default_factory=list)
    at_once: list[_Span] = field(default_factory=list)
    after: list[_Span] = field(default_factory=list)

    @property
    def is_right(self) -> bool:
        """Whether the case is proven right on this card and may be timed: no note of its result forbids that."""
        return self.look is not None and self.look.ending is Ending.RIGHT and not self.look.note

    def open_case(self) -> None:
        with name_card_in_errors(self.name):
            self.look = open_and_check(self.case, self.ready, profiled=False)

    def prepare_turns(self, plan: AtOncePlan) -> None:
        assert self.look is not None, "it was opened"
        with name_card_in_errors(self.name):
            try:
                self.plan = self.case.prepare_turns(plan.block_us, plan.timer)
            except WrongAsTimedError as error:
                self.look = close_wrong_as_timed(self.case, self.look, error)
                return
        self.look = replace(self.look, fingerprint=case_fingerprint(self.ready.fingerprint, self.plan))

    def measure_turns(self, spans: list[_Span], clock: Callable[[], float], enough: Callable[[], bool]) -> None:
        """Measures turns (a timed block of calls after an untimed one) with the inputs at memory placement 0 until
        `enough` returns true, at least one; appends each turn's begin, end and time to `spans`."""
        with name_card_in_errors(self.name):
            while True:
                began = clock()
                us = self.case.measure_turn(0).us
                spans.append(_Span(began, clock(), us))
                if enough():
                    return

    def measure_alone(self, spans: list[_Span], seconds: float, clock: Callable[[], float]) -> None:
        """Measures turns (timed blocks of calls) as `measure_turns` for `seconds`, at least TURNS_LEAST of them; the
        caller keeps the other cards idle."""
        until = clock() + seconds
        self.measure_turns(spans, clock, lambda: len(spans) >= TURNS_LEAST and clock() >= until)

    def close_case(self) -> Look:
        """Returns the card's result. First proves an open case's last timed call right and closes it."""
        assert self.look is not None, "it was opened"
        if self.look.ending is Ending.RIGHT:
            with name_card_in_errors(self.name):
                self.look = finish_and_close(self.case, self.look)
        return self.look


def together_places(cards: int) -> range:
    """Returns the numbers of processes to measure `cards` cards at once with, one per card in order of the cards: a
    pool starts process p on card p % `cards`."""
    first = TOGETHER_PLACES - TOGETHER_PLACES % cards
    return range(first, first + cards)


def take_at_once(
    pool: Pool,
    names: Sequence[str],
    request: OpenRequest,
    plan: AtOncePlan,
    *,
    clock: Callable[[], float] = time.monotonic,
) -> AtOnceLook:
    """Measures one case in a process on each card: each alone, all at once, and each alone again.

    Proves the case on every card before and after that. If it is not right, or may not be timed, on one of them,
    nothing is measured and `times` of the result is empty.

    names   name of each card in errors

    Raises WorkerError if a process died or hung, CaseFailedError if the case raised; both name the card.
    """
    places = together_places(len(names))
    pool.start(places)
    running = []
    for name, place in zip(names, places, strict=True):
        # Start here: a process that a thread starts is killed when that thread ends (PR_SET_PDEATHSIG).
        with name_card_in_errors(name):
            running.append(pool.wait_until_ready(place))
    threads = _Threads()
    try:
        with contextlib.ExitStack() as stack:
            cards = [
                _Card(name, stack.enter_context(pool.case_at(place, request)), ready)
                for name, place, ready in zip(names, places, running, strict=True)
            ]
            with threads:
                return _measure_all(cards, plan, threads, clock)
    finally:
        # After an interrupt the workers are already killed, which ends the threads that wait for them.
        threads.join()


def _measure_all(cards: Sequence[_Card], plan: AtOncePlan, threads: _Threads, clock: Callable[[], float]) -> AtOnceLook:
    _open_all(cards, threads)
    if all(card.is_right for card in cards):
        for card in cards:  # one after the other, because this times a call
            card.prepare_turns(plan)
    looks = [card.look for card in cards if card.look is not None]
    if not all(card.is_right and card.plan is not None for card in cards):
        return AtOnceLook(tuple(card.close_case() for card in cards[: len(looks)]))
    for card in cards:
        card.measure_alone(card.before, plan.seconds, clock)
    window = _Window(cards, plan, threads, clock)
    threads.run([functools.partial(card.measure_turns, card.at_once, clock, window.is_enough) for card in cards])
    for card in cards:
        card.measure_alone(card.after, plan.seconds, clock)
    began, ended = window.began_at, window.ended_at
    times = tuple(_make_card_times(card, began, ended) for card in cards)
    return AtOnceLook(tuple(card.close_case() for card in cards), times, max(0.0, ended - began))


def _open_all(cards: Sequence[_Card], threads: _Threads) -> None:
    """Opens and checks the case, first on one card: that compiles for all, and may show that no card can run it. Then
    on the other cards at the same time, or one by one if the workload has LARGE_BYTES or more."""
    first, *others = cards
    first.open_case()
    assert first.look is not None
    if not first.is_right:
        return
    figures = first.look.figures
    large = figures is not None and (figures.bytes_min or 0.0) >= LARGE_BYTES
    if large:
        for card in others:
            card.open_case()
    else:
        threads.run([card.open_case for card in others])


def _make_card_times(card: _Card, began: float, ended: float) -> CardTimes:
    """Returns a card's times in microseconds: those alone before and after, and those measured while all cards were
    measuring, from `began` to `ended`. Raises CaseFailedError if no timed block lies wholly in that time."""
    assert card.plan is not None, "only cards that were timed have times"
    inside = tuple(span.us for span in card.at_once if span.began >= began and span.ended <= ended)
    if not inside:
        raise CaseFailedError(
            f"{card.name}: none of its {len(card.at_once)} timed blocks lies wholly within the "
            f"{max(0.0, ended - began):.3g} s in which every card was measuring: a block takes too long; use a smaller "
            "workload"
        )
    before, after = (tuple(span.us for span in spans) for spans in (card.before, card.after))
    return CardTimes(card.ready, card.plan, before, inside, after)


class _Window:
    """The time in which every card is measuring. Each card's thread calls `is_enough` after every turn."""

    def __init__(self, cards: Sequence[_Card], plan: AtOncePlan, threads: _Threads, clock: Callable[[], float]) -> None:
        self._cards, self._plan, self._threads, self._clock = cards, plan, threads, clock
        self._limit = clock() + plan.seconds + plan.limit_seconds

    @property
    def began_at(self) -> float:
        """Time, in seconds of the clock, at which the last card began its first timed block; only valid when every card
        has ended one."""
        return max(card.at_once[0].began for card in self._cards)

    @property
    def ended_at(self) -> float:
        """Time, in seconds of the clock, up to which all cards measured: the earliest end of a card's last timed block
        so far."""
        return min(card.at_once[-1].ended for card in self._cards)

    def is_enough(self) -> bool:
        """Returns whether the calling thread may stop measuring. When the measurement is long enough or at its limit,
        asks all threads to end after their current block."""
        if not self._threads.is_stopping and (self._is_full() or self._clock() >= self._limit):
            self._threads.stop()
        return self._threads.is_stopping

    def _is_full(self) -> bool:
        if not all(card.at_once for card in self._cards):
            return False
        began = self.began_at
        # One more than needed: a card's last turn may end later than that of another card.
        counts = (len(card.at_once) - bisect.bisect_left(card.at_once, began, key=_span_start) for card in self._cards)
        return self._clock() - began >= self._plan.seconds and min(counts) > TURNS_LEAST


def _span_start(span: _Span) -> float:
    return span.began


class _Threads:
    """Threads that work on one card each; they end with the `with` block, at the latest when their worker is killed."""

    def __init__(self) -> None:
        self._threads: list[threading.Thread] = []
        self._errors: list[BaseException] = []
        self._stop = threading.Event()

    def __enter__(self) -> _Threads:
        return self

    def __exit__(self, *raised: object) -> None:
        """Asks the threads to end and waits for them; the caller then kills workers on which a thread still waits."""
        self.stop()
        self.join()

    @property
    def is_stopping(self) -> bool:
        """Whether the threads were asked to end."""
        return self._stop.is_set()

    def stop(self) -> None:
        """Asks every thread to end after its current turn."""
        self._stop.set()

    def join(self) -> None:
        """Waits for all threads, at most ENDING_SECONDS."""
        until = time.monotonic() + ENDING_SECONDS
        for thread in self._threads:
            thread.join(max(0.0, until - time.monotonic()))

    def run(self, works: Sequence[Callable[[], None]]) -> None:
        """Runs each of `works` in a thread at the same time and waits for all; then raises the first error, if any."""
        self._stop.clear()
        self._threads = [threading.Thread(target=self._run_guarded, args=(work,), daemon=True) for work in works]
        for thread in self._threads:
            thread.start()
        for thread in self._threads:
            thread.join()
        if self._errors:
            raise self._errors[0]

    def _run_guarded(self, work: Callable[[], None]) -> None:
        try:
            work()
        except BaseException as error:  # `run` raises it again
            self._errors.append(error)
            self.stop()


@contextlib.contextmanager
def name_card_in_errors(card: str) -> Iterator[None]:
    """Adds the card's name to errors of the `with` block: WorkerError keeps its type, CaseFailedError and
    NotProvenRightError become a CaseFailedError."""
    try:
        yield
    except WorkerError as error:
        raise error.with_side(card) from error
    except (CaseFailedError, NotProvenRightError) as error:
        text = error.summary if isinstance(error, CaseFailedError) else str(error)
        out_of_memory = isinstance(error, CaseFailedError) and error.out_of_memory
        raise CaseFailedError(f"{card}: {text}", traceback=str(error), out_of_memory=out_of_memory) from error
