"""The workers of one run: started when first needed, replaced when dead, stuck or poisoned."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

from pytest_attnperf.errors import CaseFailedError, UnsupportedError, WorkerError
from pytest_attnperf.records import CaseKey, ProcessSummary, Role, Samples
from pytest_attnperf.stats.summaries import summarise_process
from pytest_attnperf.workers.command_plan import CommandPlan
from pytest_attnperf.workers.controller import Ready, Worker
from pytest_attnperf.workers.conversation import Conversation, OpenRequest, RemoteCase
from pytest_attnperf.workers.launch import LaunchPlan
from pytest_attnperf.workers.template import Template, may_fork

START_LIMIT_SECONDS = 180.0
START_ATTEMPTS = 2
EXAMINED_PLACE = 998
"""Counted to a GPU like any place; its process opens and checks one case, and is never asked for a time."""

CONTEXT_BYTES = 2.0**29
"""What an idle process holds of a GPU: its context, and the code that it has loaded."""

WORKING_TIMES = 8.0
"""How many times a case's inputs and outputs the process that proves it may hold."""

_UNDEAD: list[Worker] = []
"""Processes that do not end even when they are killed. Whichever side started them, their GPU is lost to both."""


class Pool(Protocol):
    """Numbered places for fresh processes; what a session needs of its workers."""

    def case_at(self, place: int, request: OpenRequest) -> contextlib.AbstractContextManager[Conversation]:
        """A conversation with the process in that place; leaves it idle or gone, never parked."""

    def wait_until_ready(self, place: int) -> Ready:
        """What the process in that place runs on."""

    def measure_canary(self, place: int) -> dict[str, ProcessSummary]:
        """The fixed GEMM and copy, timed in the process in that place before anything else: once per process."""

    def start(self, places: Sequence[int]) -> None:
        """Begin starting processes without waiting for them."""

    def last_ready(self) -> Ready | None:
        """What some process of this run said it runs on; None when none has answered yet."""

    def shutdown(self) -> None:
        """End every process."""


def count_fitting(units: int, memory_bytes: float, bytes_min: float, processes: int = 1) -> int:
    """How many of `units` a device's memory has room for at once, at least one: so many may start ahead of their turn.

    memory_bytes   of the device; 0 where it is not known, or not the device's own
    bytes_min      inputs and outputs of the case that one unit at a time measures
    processes      of a unit
    """
    if not memory_bytes:
        return units
    free = memory_bytes - processes * WORKING_TIMES * bytes_min
    return max(1, min(units, int(free / (processes * CONTEXT_BYTES))))


def start_ahead(pool: Pool, places: Sequence[int], bytes_min: float, processes: int = 1) -> Sequence[int]:
    """Begin starting those of these places that there is room for, see `fitting`, and say which they are."""
    known = pool.last_ready()
    count = count_fitting(len(places), known.device.memory_bytes if known else 0, bytes_min, processes)
    pool.start(places[:count])
    return places[:count]


def wait_for_starts(pool: Pool, places: Sequence[int]) -> None:
    """Return when nothing starts there any more: what starts disturbs what is timed.

    A process that cannot start says so when it is asked for a case.
    """
    for place in places:
        with contextlib.suppress(WorkerError):
            pool.wait_until_ready(place)


@dataclass
class WorkerPool:
    """A Pool of worker processes.

    gpus     visible-device tokens, given to places in turn
    held     kept alive as long as the pool is (the lease of a GPU)
    prefix   begins the names of its workers, and so of their logs
    isolate  what a process may serve: 'worker' every case until one breaks it, 'backend' those of one backend in a row,
             'case' one
    """

    plan: LaunchPlan | CommandPlan
    gpus: Sequence[str] = ()
    held: object = None
    prefix: str = "worker"
    isolate: str = "worker"
    _served: dict[int, CaseKey] = field(default_factory=dict)
    _known: Ready | None = None
    _places: dict[int, Worker] = field(default_factory=dict)
    _started: int = 0
    _template: Template = field(default_factory=Template)
    _failed_starts: list[WorkerError] = field(default_factory=list)
    _canaries: dict[str, dict[str, ProcessSummary]] = field(default_factory=dict)

    @property
    def has_forked_workers(self) -> bool:
        """Whether its workers are forked from a template, as far as is known."""
        return may_fork(self.plan) and self._template.is_serving

    def start(self, places: Sequence[int]) -> None:
        """Begin starting processes without waiting for them."""
        for place in places:
            if place not in self._places:
                with contextlib.suppress(WorkerError):  # a command that does not exist is said when a place is asked
                    self._places[place] = self._launch_worker(place)

    def wait_until_ready(self, place: int) -> Ready:
        """What the process in that place runs on.

        Raises WorkerError when it cannot start; after START_ATTEMPTS in a row without starting another one, because
        what keeps a suite from being collected keeps it from being collected for every case.
        """
        if len(self._failed_starts) >= START_ATTEMPTS:
            raise self._failed_starts[-1]
        self._gpu_token(place)
        try:
            self._known = self._usable_worker(place).wait_until_ready(START_LIMIT_SECONDS)
        except WorkerError as error:
            self._failed_starts.append(error)
            self._drop_worker(place)
            raise
        self._failed_starts.clear()
        return self._known

    def measure_canary(self, place: int) -> dict[str, ProcessSummary]:
        """The process's canary, measured when first asked for. Raises as `ready`, and CaseFailedError."""
        ready, worker = self.wait_until_ready(place), self._places[place]
        if worker.name not in self._canaries:
            answer = worker.request("canary", START_LIMIT_SECONDS)
            samples = worker.decode_answer("canary", answer, dict[str, Samples])
            self._canaries[worker.name] = {
                name: replace(summarise_process(taken, ready.device.device_id, f"pid {ready.pid}"), block_us=())
                for name, taken in samples.items()
            }
        return self._canaries[worker.name]

    def last_ready(self) -> Ready | None:
        """What the last process that was asked runs on."""
        return self._known

    @contextlib.contextmanager
    def case_at(self, place: int, request: OpenRequest) -> Iterator[Conversation]:
        """A conversation with the process in that place."""
        if place in self._served and self._is_outworn(self._served[place], request.key):
            self._retire_workers([place])
        worker = self._usable_worker(place)
        self._served[place] = request.key
        case = RemoteCase(worker, self._drop_wrong_hint(request), START_LIMIT_SECONDS)
        try:
            yield case
        except KeyboardInterrupt:
            worker.kill()
            raise
        finally:
            self._leave_case(place, case)

    def renew(self, key: CaseKey) -> None:
        """End the processes that `isolate` keeps from serving this case; their places get fresh ones when asked."""
        self._retire_workers([place for place, last in self._served.items() if self._is_outworn(last, key)])

    @property
    def can_examine(self) -> bool:
        """Whether `examine` can reach a process here: what a command starts has another environment and other files."""
        return isinstance(self.plan, LaunchPlan)

    def examine(self, request: OpenRequest, environment: Mapping[str, str]) -> None:
        """Open and check one case in a process of its own, with more in its environment. Nothing is timed.

        Raises WorkerError when it dies or hangs there, too, CaseFailedError when it raises.
        """
        assert isinstance(self.plan, LaunchPlan)
        plan = replace(self.plan, extra_environment={**self.plan.extra_environment, **environment})
        self._started += 1
        worker = Worker(plan, f"{self.prefix}{EXAMINED_PLACE}-{self._started}", self._gpu_token(EXAMINED_PLACE))
        case = RemoteCase(worker, replace(request, next_key=None), START_LIMIT_SECONDS)
        try:
            opened = case.open()
            if opened.state == "open" and not opened.unsupported:
                with contextlib.suppress(UnsupportedError):
                    case.check()
        finally:
            self._end_worker(worker)

    def shutdown(self) -> None:
        """End every process; also after an interrupt."""
        self._retire_workers(list(self._places))
        self._template.close()

    def _leave_case(self, place: int, case: RemoteCase) -> None:
        """Bring the worker back to idle, or drop it."""
        if case.inside and case.worker.is_alive:
            with contextlib.suppress(WorkerError, CaseFailedError):
                case.close()
        if case.inside or case.spent or case.worker.poisoned or not case.worker.is_alive:
            self._drop_worker(place)

    def _drop_worker(self, place: int) -> None:
        self._served.pop(place, None)
        worker = self._places.pop(place, None)
        if worker is not None:
            self._end_worker(worker)

    def _retire_workers(self, places: Sequence[int]) -> None:
        """End these processes in an orderly way, all at once: fixtures are torn down."""
        workers = [self._places.pop(place) for place in places if place in self._places]
        for place in places:
            self._served.pop(place, None)
        for worker in workers:
            worker.ask_to_exit()
        for worker in workers:
            worker.exit()
            self._end_worker(worker)

    def _end_worker(self, worker: Worker) -> None:
        """Kill a process, and remember one that does not end."""
        worker.kill()
        if worker.is_alive and worker not in _UNDEAD:
            _UNDEAD.append(worker)

    def _is_outworn(self, last: CaseKey, key: CaseKey) -> bool:
        """Whether a process that has served `last` must not serve `key`."""
        if self.isolate == "case":
            return last != key
        return self.isolate == "backend" and last.backend != key.backend

    def _drop_wrong_hint(self, request: OpenRequest) -> OpenRequest:
        """The request, promising no case that another process will serve: its fixtures need not wait for that."""
        following = request.next_key
        return replace(request, next_key=None) if following and self._is_outworn(request.key, following) else request

    def _gpu_token(self, place: int) -> str | None:
        """The GPU of a place: its own, or, where a process that does not end holds that, another.

        Raises WorkerError where none is left.
        """
        _UNDEAD[:] = [worker for worker in _UNDEAD if worker.is_alive]
        lost = {worker.gpu: worker for worker in _UNDEAD if worker.gpu is not None or self.plan.role is Role.DEVICE}
        tokens: list[str | None] = [*self.gpus] or [None]
        free = [token for token in tokens if token not in lost]
        own = tokens[place % len(tokens)]
        if free:
            return own if own in free else free[place % len(free)]
        holder = lost[own]
        raise WorkerError(
            f"not started{holder.describe_if_unkilled()}: nothing is measured beside it. Where it does not go "
            f"away by itself, the GPU "
            "must be reset or the machine started again"
        )

    def _usable_worker(self, place: int) -> Worker:
        """The place's worker; a fresh one where it died, or stands on a GPU that is lost."""
        token, worker = self._gpu_token(place), self._places.get(place)
        if worker is None or not worker.is_alive or worker.gpu != token:
            self._drop_worker(place)
            worker = self._places[place] = self._launch_worker(place)
        return worker

    def _launch_worker(self, place: int) -> Worker:
        self._started += 1
        name = f"{self.prefix}{place}-{self._started}"
        return Worker(self.plan, name, self._gpu_token(place), template=self._template)
