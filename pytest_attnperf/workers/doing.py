"""The status board: what this process and its workers do now. The live line reads it at any time.

There is one board per process, because there is one run. Threads write to it while another thread reads. Who must not
miss anything observes it: what happens to a case is an event, sent by this process, never by the one that measures.
"""

from __future__ import annotations

import contextlib
import enum
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Protocol, TypeVar

from pytest_attnperf.records import CaseKey, Role

Place = TypeVar("Place")


class Unit(enum.Enum):
    """What is counted while one case is measured: a case needs several processes or pairs of processes."""

    RECORDING = "process of a recording"
    SECOND_LOOK = "process of a second look"
    PAIR = "pair"


@dataclass(frozen=True)
class UnitStep:
    """Unit `number` of `of` is being measured; the first one began at `began_s` (seconds of the board's clock)."""

    unit: Unit
    number: int
    of: int
    began_s: float

    def left_s(self, now_s: float) -> float | None:
        """Returns the estimated seconds until the last of these units (processes or pairs) is measured, from the time
        of those that have ended; None if none has."""
        ended, taken = self.number - 1, now_s - self.began_s
        return max(0.0, self.of * taken / ended - taken) if ended else None


@dataclass(frozen=True)
class Waiting:
    """The controller waits for a worker's answer to `operation` (of `protocol.ALLOWED`, or 'start' or 'end')."""

    worker: str
    role: Role
    operation: str


@dataclass(frozen=True)
class CaseAsked:
    """A worker is asked for `operation` on a case; `step` counts processes or pairs, if several are measured."""

    key: CaseKey
    operation: str
    step: UnitStep | None = None


@dataclass(frozen=True)
class BlocksTimed:
    """Blocks of a case were timed on the candidate side, in microseconds per call: all of one process, or of a quad."""

    key: CaseKey
    block_us: tuple[float, ...]


CaseEvent = CaseAsked | BlocksTimed
"""What a board tells its observers."""


class CaseObserver(Protocol):
    """Is told what happens to cases, in the thread that it happens in."""

    def observe(self, event: CaseEvent) -> None:
        """Takes note of an event. Must return at once and raise nothing: a worker waits."""


@dataclass
class Doing:
    """The status board: current step, living workers, operations that are waited for, and who observes cases."""

    clock: Callable[[], float] = time.monotonic
    step: UnitStep | None = None
    _observers: tuple[CaseObserver, ...] = ()
    _workers: dict[int, str] = field(default_factory=dict)
    _waits: dict[int, Waiting] = field(default_factory=dict)

    @property
    def workers(self) -> tuple[str, ...]:
        """Names of living workers."""
        return tuple(self._workers.values())

    @property
    def waits(self) -> tuple[Waiting, ...]:
        """Operations that are waited for, of all threads, in the order in which they began."""
        return tuple(self._waits.values())

    def add_worker(self, worker: object, name: str) -> None:
        """Adds a started worker's name to `workers`."""
        self._workers[id(worker)] = name

    def remove_worker(self, worker: object) -> None:
        """Removes an ended worker from `workers`; does nothing if it is not there."""
        self._workers.pop(id(worker), None)

    def add_observer(self, observer: CaseObserver) -> None:
        """Makes `publish_event` call the observer."""
        self._observers = (*self._observers, observer)

    def remove_observer(self, observer: CaseObserver) -> None:
        """Ends what `add_observer` began; does nothing if it has ended."""
        self._observers = tuple(other for other in self._observers if other is not observer)

    def publish_event(self, event: CaseEvent) -> None:
        """Passes an event to all observers."""
        for observer in self._observers:
            observer.observe(event)

    @contextlib.contextmanager
    def record_wait(self, waiting: Waiting) -> Iterator[None]:
        """Lists `waiting` in `waits` during the `with` block, in which a thread waits for a worker's answer."""
        token = id(waiting)
        self._waits[token] = waiting
        try:
            yield
        finally:
            del self._waits[token]

    def track_steps(self, unit: Unit, places: Iterable[Place], of: int) -> Iterator[Place]:
        """Yields the process numbers `places`. While each is used, `step` says for progress reports that it is
        the n-th of `of` units, n from 1. Afterwards `step` is None."""
        began_s = self.clock()
        try:
            for number, place in enumerate(places, start=1):
                self.step = UnitStep(unit, number, of, began_s)
                yield place
        finally:
            self.step = None


DOING = Doing()
"""The board of this process."""
