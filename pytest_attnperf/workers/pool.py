"""The workers of one run: started when first needed, replaced when dead, stuck, poisoned or promised elsewhere."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from pytest_attnperf.errors import CaseFailedError, WorkerError
from pytest_attnperf.records import CaseKey
from pytest_attnperf.workers.controller import Ready, Worker
from pytest_attnperf.workers.conversation import Conversation, OpenRequest, RemoteCase
from pytest_attnperf.workers.launch import LaunchPlan

START_LIMIT_SECONDS = 180.0


class Pool(Protocol):
    """Numbered places for fresh processes; what a session needs of its workers."""

    def case(self, place: int, request: OpenRequest) -> contextlib.AbstractContextManager[Conversation]:
        """A conversation with the process in that place; leaves it idle or gone, never parked."""

    def ready(self, place: int) -> Ready:
        """What the process in that place runs on."""

    def start(self, places: Sequence[int]) -> None:
        """Begin starting processes without waiting for them."""

    def known(self) -> Ready | None:
        """What some process of this run said it runs on; None when none has answered yet."""

    def shutdown(self) -> None:
        """End every process."""


@dataclass
class _Place:
    worker: Worker
    promised: CaseKey | None = None
    used: bool = False


@dataclass
class WorkerPool:
    """A Pool of worker processes. `gpus` are visible-device tokens, given to places in turn; `held` is kept alive as
    long as the pool is (the lease of a GPU)."""

    plan: LaunchPlan
    gpus: Sequence[str] = ()
    held: object = None
    _known: Ready | None = None
    _places: dict[int, _Place] = field(default_factory=dict)
    _started: int = 0

    def start(self, places: Sequence[int]) -> None:
        """Begin starting processes without waiting for them."""
        for place in places:
            if place not in self._places:
                self._places[place] = _Place(self._launch(place))

    def ready(self, place: int) -> Ready:
        """What the process in that place runs on. Raises WorkerError when it cannot start."""
        self._known = self._usable(place, None).worker.ready(START_LIMIT_SECONDS)
        return self._known

    def known(self) -> Ready | None:
        """What the last process that was asked runs on."""
        return self._known

    @contextlib.contextmanager
    def case(self, place: int, request: OpenRequest) -> Iterator[Conversation]:
        """A conversation with the process in that place."""
        held = self._usable(place, request.key)
        held.used, held.promised = True, request.next_key
        case = RemoteCase(held.worker, request, START_LIMIT_SECONDS)
        try:
            yield case
        except KeyboardInterrupt:
            held.worker.kill()
            raise
        finally:
            self._leave(place, case)

    def shutdown(self) -> None:
        """End every process; also after an interrupt."""
        places, self._places = self._places, {}
        for place in places.values():
            place.worker.ask_to_exit()
        for place in places.values():
            place.worker.exit()

    def _leave(self, place: int, case: RemoteCase) -> None:
        """Bring the worker back to idle, or drop it."""
        if case.inside and case.worker.alive:
            with contextlib.suppress(WorkerError, CaseFailedError):
                case.close()
        if case.inside or case.worker.poisoned or not case.worker.alive:
            self._drop(place)

    def _drop(self, place: int) -> None:
        held = self._places.pop(place, None)
        if held is not None:
            held.worker.kill()

    def _usable(self, place: int, key: CaseKey | None) -> _Place:
        """The place's worker; a fresh one where it died, or was promised another case than `key`."""
        held = self._places.get(place)
        broken_promise = key is not None and held is not None and held.used and held.promised not in (None, key)
        if held is None or not held.worker.alive or broken_promise:
            if held is not None:
                held.worker.exit() if broken_promise else held.worker.kill()
            held = self._places[place] = _Place(self._launch(place))
        return held

    def _launch(self, place: int) -> Worker:
        self._started += 1
        name = f"worker{place}-{self._started}"
        return Worker(self.plan, name, self.gpus[place % len(self.gpus)] if self.gpus else None)
