"""Compile workers of one run: they compile every build once, before its test, in parallel.

A thread per worker waits for its answers; the run's own thread waits for the build that its test is about.
"""

from __future__ import annotations

import contextlib
import os
import queue
import signal
import threading
from collections.abc import Iterable
from concurrent.futures import Future
from dataclasses import dataclass, field, replace

import msgspec

from pytest_attnperf.codeobject.built import Built
from pytest_attnperf.errors import AttnperfError, CaseFailedError, WorkerError
from pytest_attnperf.records import CaseKey, Role
from pytest_attnperf.records.code import CodeExecution
from pytest_attnperf.workers.controller import Worker
from pytest_attnperf.workers.launch import LaunchPlan

START_LIMIT_SECONDS = 180.0
CLOSE_LIMIT_SECONDS = 60.0
END_SECONDS = 5.0
NO_GPU = ""
"""Value of VISIBLE_DEVICES for compile workers: a compiler must not use a GPU."""

ROLE_FLAG = "--attnperf-worker-role=compile"


@dataclass(frozen=True)
class CompiledBuild:
    """The result of one item in a compile worker.

    built     the code object; None if it is unsupported, or the test ended before `code_object.gate()`
    outcome   how the item ended: 'passed', 'skipped', 'failed'; `text` is the reason
    sources   hashes of loaded files of the tree; `foreign` lists modules that were loaded from elsewhere
    executed  what executing the object showed; None if it was not asked for
    """

    built: Built | None = None
    unsupported: tuple[str, ...] = ()
    outcome: str = "passed"
    text: str = ""
    sources: dict[str, str] = field(default_factory=dict)
    foreign: tuple[str, ...] = ()
    executed: CodeExecution | None = None


def make_compile_plan(plan: LaunchPlan, files: Iterable[str]) -> LaunchPlan:
    """Returns the plan of compile workers: `plan` of other workers with these test files and the role COMPILE."""
    return replace(
        plan, files=tuple(dict.fromkeys(files)), role=Role.COMPILE, passed_options=(*plan.passed_options, ROLE_FLAG)
    )


class CompilePool:
    """Compiles builds ahead in `size` processes. All methods must be called by the same thread."""

    def __init__(self, plan: LaunchPlan, size: int, limit_seconds: float = 300.0) -> None:
        self._plan = plan
        self._size = size
        self._limit_seconds = limit_seconds
        self._asked: queue.SimpleQueue[CaseKey | None] = queue.SimpleQueue()
        self._futures: dict[CaseKey, Future[CompiledBuild]] = {}
        self._slots: list[_CompilerSlot] = []
        self._ended = False

    def begin(self, keys: Iterable[CaseKey]) -> None:
        """Queues builds in this order, without those already queued, and starts missing workers; does not wait."""
        for key in keys:
            if key not in self._futures:
                self._futures[key] = Future()
                self._asked.put(key)
        numbers = range(len(self._slots), min(self._size, len(self._futures)))
        fresh = [_CompilerSlot(self._plan, number, self._limit_seconds) for number in numbers]
        self._slots += fresh
        for slot in fresh:
            slot.thread = threading.Thread(target=self._run_slot, args=(slot,), daemon=True)
            # Linux kills a worker when the thread that started it ends; this thread lives as long as the run.
            with contextlib.suppress(OSError):  # the slot's thread tries again and reports the error
                slot.start()
            slot.thread.start()

    @property
    def counts(self) -> tuple[int, int]:
        """Returns (number of test items that are compiled or failed, number of all requested ones)."""
        return sum(future.done() for future in tuple(self._futures.values())), len(self._futures)

    def compile_case(self, key: CaseKey) -> CompiledBuild:
        """Waits until the item is compiled, and returns the result.

        Raises WorkerError if its worker died or exceeded its limit, or if the workers were ended before it was
        compiled; CaseFailedError if it could not be compiled.
        """
        if not self._ended:
            self.begin([key])
        elif key not in self._futures or not self._futures[key].done():
            raise WorkerError(f"{key} was not compiled: the compile workers have been ended; run again")
        return self._futures[key].result()

    def shutdown(self) -> None:
        """Kills every compile worker; builds that are not compiled yet are dropped."""
        self._ended = True
        for _ in self._slots:
            self._asked.put(None)
        for slot in self._slots:
            slot.end()

    def _run_slot(self, slot: _CompilerSlot) -> None:
        while (key := self._asked.get()) is not None and not self._ended:
            if slot.cannot_start and not all(other.cannot_start for other in self._slots):
                self._asked.put(key)  # a slot that fails at once would take all items from the others
                return
            future = self._futures[key]
            try:
                future.set_result(slot.compile(key))
            except AttnperfError as error:
                future.set_exception(error)
            except Exception as error:
                # E.g. an invalid answer: the thread that waits must get an error.
                future.set_exception(WorkerError(f"compile worker {slot.name}: {type(error).__name__}: {error}"))


class _CompilerSlot:
    """One numbered compile worker and its thread; a process that died is replaced by a new one."""

    def __init__(self, plan: LaunchPlan, number: int, limit_seconds: float) -> None:
        self.thread: threading.Thread | None = None
        self._plan = plan
        self._number = number
        self._limit_seconds = limit_seconds
        self._worker: Worker | None = None
        self._started = 0
        self._cannot_start: WorkerError | None = None

    @property
    def name(self) -> str:
        """Name of the current (or first) process, 'compile<slot>-<number of starts>', and of its log."""
        return f"compile{self._number}-{max(1, self._started)}"

    @property
    def cannot_start(self) -> bool:
        """Whether a process of this slot failed before it was ready; then no other one is started."""
        return self._cannot_start is not None

    def start(self) -> Worker:
        """Starts a process without a GPU; does not wait until it is ready."""
        self._started += 1
        self._worker = Worker(self._plan, self.name, NO_GPU)
        return self._worker

    def compile(self, key: CaseKey) -> CompiledBuild:
        """Runs the test item of this key to its end in the worker, and returns its code object and outcome. Raises
        WorkerError if the worker cannot start, does not have the item or dies, CaseFailedError if the item raised."""
        worker = self._usable_worker()
        try:
            ready = worker.wait_until_ready(START_LIMIT_SECONDS)
        except WorkerError as error:
            self._cannot_start = error  # a suite that cannot be collected fails for every item
            raise
        if key not in ready.known_cases:
            raise WorkerError(
                f"worker {worker.name} has no item {key}; it has collected {len(ready.cases)} others: every process "
                "must collect the same tests, so do not parametrize by time, chance or process"
            )
        try:
            answer = worker.request("open", self._limit_seconds, key=msgspec.to_builtins(key), next_key=None)
        except CaseFailedError:
            worker.request("close", CLOSE_LIMIT_SECONDS)
            raise
        if answer.get("state") == "finished":
            return CompiledBuild(outcome=str(answer.get("outcome")), text=str(answer.get("text", "")))
        closed = worker.request("close", CLOSE_LIMIT_SECONDS)
        compiled = worker.decode_answer("open", answer, CompiledBuild)
        return replace(compiled, outcome=str(closed.get("outcome", "passed")), text=str(closed.get("text", "")))

    def end(self) -> None:
        """Kills the process, which may be in a long compilation: it holds no device and no state."""
        if self._worker is None:
            return
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._worker.pid, signal.SIGKILL)
        if self.thread is not None and self.thread.is_alive():
            self.thread.join(END_SECONDS)  # it may still read the channel that is closed next
        self._worker.kill()

    def _usable_worker(self) -> Worker:
        if self._cannot_start is not None:
            raise self._cannot_start
        if self._worker is None:
            return self.start()
        if not self._worker.is_alive or self._worker.poisoned:
            self._worker.kill()
            return self.start()
        return self._worker
