"""What this process and its workers do at the moment, as facts: read by whoever tells the user, at any time.

There is one board per process, as there is one run. Threads write to it while another one reads.
"""

from __future__ import annotations

import contextlib
import enum
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import TypeVar

from pytest_attnperf.records import Role

Place = TypeVar("Place")


class Unit(enum.Enum):
    """What a look at a case takes several of."""

    RECORDING = "process of a recording"
    SECOND_LOOK = "process of a second look"
    PAIR = "pair"


@dataclass(frozen=True)
class UnitStep:
    """Unit `number` of `of` is being taken; the first one began at `began_s` of the board's clock, seconds."""

    unit: Unit
    number: int
    of: int
    began_s: float

    def left_s(self, now_s: float) -> float | None:
        """Seconds until the last unit ends, by those that have ended; None where none has."""
        ended, taken = self.number - 1, now_s - self.began_s
        return max(0.0, self.of * taken / ended - taken) if ended else None


@dataclass(frozen=True)
class Waiting:
    """A worker has been asked for `operation` (see `protocol.ALLOWED`; 'start' and 'end' beside these)."""

    worker: str
    role: Role
    operation: str


@dataclass
class Doing:
    """The board. `workers` are the names of those that were started and have not been ended."""

    clock: Callable[[], float] = time.monotonic
    step: UnitStep | None = None
    _workers: dict[int, str] = field(default_factory=dict)
    _waits: dict[int, Waiting] = field(default_factory=dict)

    @property
    def workers(self) -> tuple[str, ...]:
        """Names of living workers."""
        return tuple(self._workers.values())

    @property
    def waits(self) -> tuple[Waiting, ...]:
        """What is waited for; of several threads, in the order in which they began."""
        return tuple(self._waits.values())

    def add_worker(self, worker: object, name: str) -> None:
        """There is one more worker."""
        self._workers[id(worker)] = name

    def remove_worker(self, worker: object) -> None:
        """It is there no more."""
        self._workers.pop(id(worker), None)

    @contextlib.contextmanager
    def record_wait(self, waiting: Waiting) -> Iterator[None]:
        """While an answer is waited for."""
        token = id(waiting)
        self._waits[token] = waiting
        try:
            yield
        finally:
            del self._waits[token]

    def track_steps(self, unit: Unit, places: Iterable[Place], of: int) -> Iterator[Place]:
        """The places, each with its number on the board while it is used."""
        began_s = self.clock()
        try:
            for number, place in enumerate(places, start=1):
                self.step = UnitStep(unit, number, of, began_s)
                yield place
        finally:
            self.step = None


DOING = Doing()
"""Of this process."""
