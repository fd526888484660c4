"""A run's cards shared by several sessions that record at once: on each card one process measures at a time.

Under pytest-xdist every worker of it is such a session. Each records its own cases in processes on all cards, so that a
baseline knows how cards differ, and takes turns on them with the others. Turns are file locks, which die with their
process. A session holds one turn at most, so that no two can wait for each other.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from filelock import FileLock, Timeout

from pytest_attnperf.errors import WorkerError
from pytest_attnperf.records import ProcessSummary
from pytest_attnperf.workers.controller import Ready
from pytest_attnperf.workers.conversation import Conversation, OpenRequest
from pytest_attnperf.workers.pool import EXAMINED_PLACE, Pool, WorkerPool

POLL_S = 0.02


@dataclass
class SharedGpuPool(WorkerPool):
    """A WorkerPool whose processes measure only in their card's turn.

    turns      a lock for each of its GPUs, the same files in every session of the run
    limit_s    how long a turn is waited for
    """

    turns: Sequence[Path] = field(kw_only=True)
    limit_s: float = field(default=3600.0, kw_only=True)
    _locks: list[FileLock] = field(default_factory=list)
    _held: int | None = None
    _begun: bool = False
    _answers: dict[int, Ready] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Open nothing yet."""
        self._locks = [FileLock(path) for path in self.turns]

    def start(self, places: Sequence[int]) -> None:
        """Begin starting processes, once: what starts later would disturb other sessions, and does so in its turn."""
        if not self._begun:
            self._begun = True
            super().start(places)

    def wait_until_ready(self, place: int) -> Ready:
        """What the process in that place runs on; from memory where its card's turn is another session's."""
        if place not in self._answers or self._held == self._card_number(place):
            with self._take_turn(place):
                self._answers[place] = super().wait_until_ready(place)
        return self._answers[place]

    def measure_canary(self, place: int) -> dict[str, ProcessSummary]:
        """As of any pool, in its card's turn."""
        with self._take_turn(place):
            return super().measure_canary(place)

    @contextlib.contextmanager
    def case_at(self, place: int, request: OpenRequest) -> Iterator[Conversation]:
        """As of any pool, in its card's turn."""
        with self._take_turn(place), super().case_at(place, request) as case:
            yield case

    def examine(self, request: OpenRequest, environment: Mapping[str, str]) -> None:
        """As of any pool, in its card's turn."""
        with self._take_turn(EXAMINED_PLACE):
            super().examine(request, environment)

    def by_turns(self, places: Iterable[int]) -> Generator[int, None, None]:
        """These places, each in its card's turn, those first whose card is free; close it when leaving early.

        A card that was just given back comes last, or who waits for it would never get it. Raises WorkerError when no
        turn comes within the limit.
        """
        left, last = list(places), None
        while left:
            card_of = {place: self._card_number(place) for place in left}
            last = self._take_one(sorted(dict.fromkeys(card_of.values()), key=lambda card: card == last))
            try:
                place = next(place for place in left if card_of[place] == last)
                left.remove(place)
                yield place
            finally:
                self._give_back()

    def _card_number(self, place: int) -> int:
        """Which of the pool's GPUs that is. Raises WorkerError where all are lost."""
        token = self._gpu_token(place)
        return self.gpus.index(token) if token is not None else 0

    @contextlib.contextmanager
    def _take_turn(self, place: int) -> Iterator[None]:
        if self._held == self._card_number(place):
            yield
            return
        self._take_one([self._card_number(place)])
        try:
            yield
        finally:
            self._give_back()

    def _take_one(self, cards: Sequence[int]) -> int:
        """The first of these that is free. Raises WorkerError when none is within the limit, and where a turn is held:
        a place that was on this card is on another one since, and who waits while holding may wait for ever.
        """
        if self._held is not None:
            raise WorkerError(f"GPU {self.gpus[self._held]} was lost in its turn: a process there does not end")
        until = time.monotonic() + self.limit_s
        while True:
            for card in cards:
                with contextlib.suppress(Timeout):
                    self._locks[card].acquire(timeout=0)
                    self._held = card
                    return card
            if time.monotonic() >= until:
                named = ", ".join(self.gpus[card] for card in cards)
                raise WorkerError(
                    f"no turn on GPU {named} within {self.limit_s:.0f} s: another worker of this run has "
                    "measured there all that time; see its log under .attnperf/logs"
                )
            time.sleep(POLL_S)

    def _give_back(self) -> None:
        assert self._held is not None
        self._locks[self._held].release()
        self._held = None


@contextlib.contextmanager
def in_turns(pool: Pool, places: Sequence[int]) -> Iterator[Iterator[int]]:
    """Places in the order in which to measure in them: as given, or as cards that are shared become free."""
    if not isinstance(pool, SharedGpuPool):
        yield iter(places)
        return
    with contextlib.closing(pool.by_turns(places)) as order:
        yield order
