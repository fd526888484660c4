"""Cards that several sessions of a run share while they record: on each card one process measures at a time.

Every worker of pytest-xdist is such a session. It records its own cases in processes on all cards, so that a baseline
includes how cards differ, and takes turns on the cards with the other sessions. A turn is a file lock, which ends with
its process. A session holds at most one turn, so that no two sessions wait for each other.
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
    """A WorkerPool whose processes work only while this session holds the turn (a file lock) of their card.

    turns      a lock file for each GPU, the same files in every session of the run
    limit_s    seconds to wait for a turn
    """

    turns: Sequence[Path] = field(kw_only=True)
    limit_s: float = field(default=3600.0, kw_only=True)
    _locks: list[FileLock] = field(default_factory=list)
    _held: int | None = None
    _begun: bool = False
    _answers: dict[int, Ready] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Makes a lock for each file of `turns`, without taking it."""
        self._locks = [FileLock(path) for path in self.turns]

    def start(self, places: Sequence[int]) -> None:
        """Starts these processes at the first call. Later calls do nothing, because starting would disturb other
        sessions: later processes start while this session holds their card's lock."""
        if not self._begun:
            self._begun = True
            super().start(places)

    def wait_until_ready(self, place: int) -> Ready:
        """Returns the first message of process number `place`: a kept one, or read from the process at the first call
        and while this session holds the card's lock."""
        if place not in self._answers or self._held == self._card_number(place):
            with self._take_turn(place):
                self._answers[place] = super().wait_until_ready(place)
        return self._answers[place]

    def measure_canary(self, place: int) -> dict[str, ProcessSummary]:
        """Returns the times of a fixed GEMM and copy as `WorkerPool.measure_canary`, while holding the card's lock, for
        which it waits."""
        with self._take_turn(place):
            return super().measure_canary(place)

    @contextlib.contextmanager
    def case_at(self, place: int, request: OpenRequest) -> Iterator[Conversation]:
        """Yields a conversation with process number `place` as `WorkerPool.case_at`; holds the card's lock in the
        `with` block, so that other sessions do not measure there."""
        with self._take_turn(place), super().case_at(place, request) as case:
            yield case

    def examine(self, request: OpenRequest, environment: Mapping[str, str]) -> None:
        """Opens and checks a case as `WorkerPool.examine`, while holding the card's lock, for which it waits."""
        with self._take_turn(EXAMINED_PLACE):
            super().examine(request, environment)

    def by_turns(self, places: Iterable[int]) -> Generator[int, None, None]:
        """Yields these process numbers, those of free cards first, and holds the card's lock while each is used. Close
        the generator when leaving early.

        The card used last is tried last, so that another session can get it. Raises WorkerError if no card becomes
        free within `limit_s`.
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
        """Returns the index in `gpus` of the GPU of process number `place`. Raises WorkerError if all are lost."""
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
        """Waits for the lock of one of these cards, takes it and returns the card's index; tries earlier cards first.

        Raises WorkerError after `limit_s`, or if this session already holds a lock: its process had to move to another
        card, and two sessions that hold one lock and wait for another could wait forever.
        """
        if self._held is not None:
            raise WorkerError(
                f"GPU {self.gpus[self._held]} was lost while this session measured on it: a process there does not end "
                "when it is killed; reset the GPU, or reboot the machine"
            )
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
                    f"GPU {named} did not become free within {self.limit_s:.0f} s: another worker of this run "
                    "measured there all the time; see its log under .attnperf/logs"
                )
            time.sleep(POLL_S)

    def _give_back(self) -> None:
        assert self._held is not None
        self._locks[self._held].release()
        self._held = None


@contextlib.contextmanager
def in_turns(pool: Pool, places: Sequence[int]) -> Iterator[Iterator[int]]:
    """Yields an iterator over the process numbers `places` in the order in which to measure: as given, or on shared
    cards as these become free; then the card's lock is held while a number is used."""
    if not isinstance(pool, SharedGpuPool):
        yield iter(places)
        return
    with contextlib.closing(pool.by_turns(places)) as order:
        yield order
