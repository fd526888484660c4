"""The workers of one run: started when first needed, replaced when dead, stuck or poisoned."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

import msgspec

from pytest_attnperf.errors import CaseFailedError, WorkerError
from pytest_attnperf.records import ProcessSummary, Samples
from pytest_attnperf.stats.summaries import summarise
from pytest_attnperf.workers.command_plan import CommandPlan
from pytest_attnperf.workers.controller import Ready, Worker
from pytest_attnperf.workers.conversation import Conversation, OpenRequest, RemoteCase
from pytest_attnperf.workers.launch import LaunchPlan

START_LIMIT_SECONDS = 180.0
START_ATTEMPTS = 2


class Pool(Protocol):
    """Numbered places for fresh processes; what a session needs of its workers."""

    def case(self, place: int, request: OpenRequest) -> contextlib.AbstractContextManager[Conversation]:
        """A conversation with the process in that place; leaves it idle or gone, never parked."""

    def ready(self, place: int) -> Ready:
        """What the process in that place runs on."""

    def canary(self, place: int) -> dict[str, ProcessSummary]:
        """The fixed GEMM and copy, timed in the process in that place before anything else: once per process."""

    def start(self, places: Sequence[int]) -> None:
        """Begin starting processes without waiting for them."""

    def known(self) -> Ready | None:
        """What some process of this run said it runs on; None when none has answered yet."""

    def shutdown(self) -> None:
        """End every process."""


@dataclass
class WorkerPool:
    """A Pool of worker processes.

    gpus     visible-device tokens, given to places in turn
    held     kept alive as long as the pool is (the lease of a GPU)
    prefix   begins the names of its workers, and so of their logs
    """

    plan: LaunchPlan | CommandPlan
    gpus: Sequence[str] = ()
    held: object = None
    prefix: str = "worker"
    _known: Ready | None = None
    _places: dict[int, Worker] = field(default_factory=dict)
    _started: int = 0
    _failed_starts: list[WorkerError] = field(default_factory=list)
    _canaries: dict[str, dict[str, ProcessSummary]] = field(default_factory=dict)

    def start(self, places: Sequence[int]) -> None:
        """Begin starting processes without waiting for them."""
        for place in places:
            if place not in self._places:
                with contextlib.suppress(WorkerError):  # a command that does not exist is said when a place is asked
                    self._places[place] = self._launch(place)

    def ready(self, place: int) -> Ready:
        """What the process in that place runs on.

        Raises WorkerError when it cannot start; after START_ATTEMPTS in a row without starting another one, because
        what keeps a suite from being collected keeps it from being collected for every case.
        """
        if len(self._failed_starts) >= START_ATTEMPTS:
            raise self._failed_starts[-1]
        try:
            self._known = self._usable(place).ready(START_LIMIT_SECONDS)
        except WorkerError as error:
            self._failed_starts.append(error)
            self._drop(place)
            raise
        self._failed_starts.clear()
        return self._known

    def canary(self, place: int) -> dict[str, ProcessSummary]:
        """The process's canary, measured when first asked for. Raises as `ready`, and CaseFailedError."""
        ready, worker = self.ready(place), self._places[place]
        if worker.name not in self._canaries:
            answer = worker.request("canary", START_LIMIT_SECONDS)
            samples = msgspec.convert(answer, dict[str, Samples])
            self._canaries[worker.name] = {
                name: replace(summarise(taken, ready.device.device_id, f"pid {ready.pid}"), block_us=())
                for name, taken in samples.items()
            }
        return self._canaries[worker.name]

    def known(self) -> Ready | None:
        """What the last process that was asked runs on."""
        return self._known

    @contextlib.contextmanager
    def case(self, place: int, request: OpenRequest) -> Iterator[Conversation]:
        """A conversation with the process in that place."""
        worker = self._usable(place)
        case = RemoteCase(worker, request, START_LIMIT_SECONDS)
        try:
            yield case
        except KeyboardInterrupt:
            worker.kill()
            raise
        finally:
            self._leave(place, case)

    def shutdown(self) -> None:
        """End every process; also after an interrupt."""
        places, self._places = self._places, {}
        for worker in places.values():
            worker.ask_to_exit()
        for worker in places.values():
            worker.exit()

    def _leave(self, place: int, case: RemoteCase) -> None:
        """Bring the worker back to idle, or drop it."""
        if case.inside and case.worker.alive:
            with contextlib.suppress(WorkerError, CaseFailedError):
                case.close()
        if case.inside or case.spent or case.worker.poisoned or not case.worker.alive:
            self._drop(place)

    def _drop(self, place: int) -> None:
        worker = self._places.pop(place, None)
        if worker is not None:
            worker.kill()

    def _usable(self, place: int) -> Worker:
        """The place's worker; a fresh one where it died."""
        worker = self._places.get(place)
        if worker is None or not worker.alive:
            self._drop(place)
            worker = self._places[place] = self._launch(place)
        return worker

    def _launch(self, place: int) -> Worker:
        self._started += 1
        name = f"{self.prefix}{place}-{self._started}"
        return Worker(self.plan, name, self.gpus[place % len(self.gpus)] if self.gpus else None)
