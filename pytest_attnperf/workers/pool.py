"""The workers of one run: started when first needed, replaced when dead, stuck or poisoned."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

from pytest_attnperf.errors import CaseFailedError, UnsupportedError, WorkerError
from pytest_attnperf.records import CaseKey, ProcessSummary, Role, Samples
from pytest_attnperf.records.gpus import REFERENCES_SHARE
from pytest_attnperf.stats.summaries import summarise_process
from pytest_attnperf.workers.command_plan import CommandPlan
from pytest_attnperf.workers.controller import Ready, Worker
from pytest_attnperf.workers.conversation import Conversation, OpenRequest, RemoteCase
from pytest_attnperf.workers.launch import LaunchPlan
from pytest_attnperf.workers.template import Template, may_fork

START_LIMIT_SECONDS = 180.0
START_ATTEMPTS = 2
EXAMINED_PLACE = 998
"""Place of the process of `examine`, which opens and checks one case and times nothing."""

CONTEXT_BYTES = 2.0**29
"""Bytes of GPU memory that an idle process holds besides references: its context and the code that it has loaded."""

WORKING_TIMES = 8.0
"""Memory that the process that proves a case may need, in units of the case's inputs and outputs."""

_UNDEAD: list[Worker] = []
"""Processes that do not end when killed. Their GPU is lost to both sides, whichever side started them."""


class Pool(Protocol):
    """The workers of a session, in numbered places: each place has one process, started when it is needed."""

    def case_at(self, place: int, request: OpenRequest) -> contextlib.AbstractContextManager[Conversation]:
        """Opens a conversation with process number `place`; afterwards the process is idle or has ended."""

    def wait_until_ready(self, place: int) -> Ready:
        """Waits for process number `place` and returns its first message: device, fingerprint, cases."""

    def measure_canary(self, place: int) -> dict[str, ProcessSummary]:
        """Returns the times of a fixed GEMM and copy in process number `place`, measured once, before anything else."""

    def start(self, places: Sequence[int]) -> None:
        """Starts the processes with these numbers that are not running, without waiting for them."""

    def last_ready(self) -> Ready | None:
        """Returns the first message of the last process that answered; None if none has answered yet."""

    def shutdown(self) -> None:
        """Ends every process of the pool."""


def count_fitting(units: int, memory_bytes: float, bytes_min: float, processes: int = 1) -> int:
    """Returns how many of `units` (processes, or pairs of them) fit into the device's memory at once: 1 to `units`.

    memory_bytes   memory of the device; 0 if unknown, or shared with the host
    bytes_min      bytes of inputs and outputs of the case, which one unit at a time measures
    processes      number of processes per unit
    """
    if not memory_bytes:
        return units
    free = memory_bytes - processes * WORKING_TIMES * bytes_min
    return max(1, min(units, int(free / (processes * (CONTEXT_BYTES + memory_bytes / REFERENCES_SHARE)))))


def start_ahead(pool: Pool, places: Sequence[int], bytes_min: float, processes: int = 1) -> Sequence[int]:
    """Starts the first of these processes, as many as `count_fitting` allows; returns their numbers, without
    waiting."""
    known = pool.last_ready()
    count = count_fitting(len(places), known.device.memory_bytes if known else 0, bytes_min, processes)
    pool.start(places[:count])
    return places[:count]


def wait_for_starts(pool: Pool, places: Sequence[int]) -> None:
    """Waits until the processes in all these places have started, because starting disturbs timing. Ignores a process
    that cannot start: opening a case in it raises the error."""
    for place in places:
        with contextlib.suppress(WorkerError):
            pool.wait_until_ready(place)


@dataclass
class WorkerPool:
    """A Pool of worker processes.

    gpus     tokens for VISIBLE_DEVICES, given to places in turn
    held     object that lives as long as the pool (the lease of a GPU)
    prefix   prefix of the names of its workers and of their logs
    isolate  what a process may serve: 'worker' all cases until one breaks it, 'backend' consecutive cases of a backend,
             'case' one case
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
        """Whether this pool's workers are forked from a template process; true until the template refuses."""
        return may_fork(self.plan) and self._template.is_serving

    def start(self, places: Sequence[int]) -> None:
        """Starts those of these processes that do not run, without waiting. `wait_until_ready` raises their errors."""
        for place in places:
            if place not in self._places:
                with contextlib.suppress(WorkerError):  # `wait_until_ready` raises it again
                    self._places[place] = self._launch_worker(place)

    def wait_until_ready(self, place: int) -> Ready:
        """Waits for process number `place` and returns its first message: device, fingerprint, cases.

        Raises WorkerError if it cannot start. After START_ATTEMPTS failures in a row no other process is started,
        because a suite that cannot be collected fails for every case.
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
        """Returns the times of a fixed GEMM and copy in process number `place`, by name, measured once. Raises as
        `wait_until_ready`, and CaseFailedError if measuring fails."""
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
        """Returns the first message of the process that was ready last; None if none was yet."""
        return self._known

    @contextlib.contextmanager
    def case_at(self, place: int, request: OpenRequest) -> Iterator[Conversation]:
        """Yields a conversation with process number `place`; afterwards the process is idle, or ended if it cannot be.
        First replaces a process that must not serve the case because of `isolate` (whether cases or backends share a
        process). Kills the process after KeyboardInterrupt."""
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
        """Ends the processes that must not serve this case because of `isolate` (which cases may share a process);
        fresh ones start when needed."""
        self._retire_workers([place for place, last in self._served.items() if self._is_outworn(last, key)])

    def replace_used(self, place: int) -> None:
        """Ends process number `place` if it has served a case or measured a canary; a fresh one starts when needed."""
        worker = self._places.get(place)
        if worker is not None and (place in self._served or worker.name in self._canaries):
            self._retire_workers([place])

    @property
    def can_examine(self) -> bool:
        """Whether `examine` works: not for a command, whose processes have another environment and other files."""
        return isinstance(self.plan, LaunchPlan)

    def examine(self, request: OpenRequest, environment: Mapping[str, str]) -> None:
        """Opens and checks one case in a separate process, with `environment` added. Nothing is timed.
        Raises WorkerError if that process dies or hangs, CaseFailedError if the case raises."""
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
        """Ends every process, with teardown of its fixtures, and the template; also after an interrupt."""
        self._retire_workers(list(self._places))
        self._template.close()

    def _leave_case(self, place: int, case: RemoteCase) -> None:
        """Closes the case so that its worker is idle; ends a worker that fails in that or must not serve other
        cases."""
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
        """Ends the processes with these numbers in parallel, with teardown of their fixtures."""
        workers = [self._places.pop(place) for place in places if place in self._places]
        for place in places:
            self._served.pop(place, None)
        for worker in workers:
            worker.ask_to_exit()
        for worker in workers:
            worker.exit()
            self._end_worker(worker)

    def _end_worker(self, worker: Worker) -> None:
        """Kills a process, and adds it to _UNDEAD if it does not end: its GPU is not used any more."""
        worker.kill()
        if worker.is_alive and worker not in _UNDEAD:
            _UNDEAD.append(worker)

    def _is_outworn(self, last: CaseKey, key: CaseKey) -> bool:
        """Returns whether a process that has served the case `last` must not serve `key`: another case if `isolate` is
        'case', another backend if it is 'backend'."""
        if self.isolate == "case":
            return last != key
        return self.isolate == "backend" and last.backend != key.backend

    def _drop_wrong_hint(self, request: OpenRequest) -> OpenRequest:
        """Returns the request without its next case, `next_key`, if another process will serve that case."""
        following = request.next_key
        return replace(request, next_key=None) if following and self._is_outworn(request.key, following) else request

    def _gpu_token(self, place: int) -> str | None:
        """Returns the id of the GPU for process number `place`, or of another one if a process that cannot be killed
        holds that; None if the pool has no `gpus` to choose from. Raises WorkerError if no GPU is left."""
        _UNDEAD[:] = [worker for worker in _UNDEAD if worker.is_alive]
        lost = {worker.gpu: worker for worker in _UNDEAD if worker.gpu is not None or self.plan.role is Role.DEVICE}
        tokens: list[str | None] = [*self.gpus] or [None]
        free = [token for token in tokens if token not in lost]
        own = tokens[place % len(tokens)]
        if free:
            return own if own in free else free[place % len(free)]
        holder = lost[own]
        raise WorkerError(
            f"not started{holder.describe_if_unkilled()}: nothing is measured beside it. Wait until it ends, else "
            "reset the GPU or reboot the machine"
        )

    def _usable_worker(self, place: int) -> Worker:
        """Returns process number `place`; starts a fresh one if there is none, it died or its GPU is lost."""
        token, worker = self._gpu_token(place), self._places.get(place)
        if worker is None or not worker.is_alive or worker.gpu != token:
            self._drop_worker(place)
            worker = self._places[place] = self._launch_worker(place)
        return worker

    def _launch_worker(self, place: int) -> Worker:
        self._started += 1
        name = f"{self.prefix}{place}-{self._started}"
        return Worker(self.plan, name, self._gpu_token(place), template=self._template)
