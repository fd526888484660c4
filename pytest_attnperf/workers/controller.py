"""The controller's side of a worker: starts the process, waits for answers with a limit, and ends it."""

from __future__ import annotations

import contextlib
import functools
import os
import signal
import socket
import subprocess
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias, TypeVar

import msgspec

from pytest_attnperf.errors import CaseFailedError, UnsupportedError, WorkerError
from pytest_attnperf.records import CaseKey, CheckReport, DeviceInfo, Fingerprint, NotProvenRightError, Role
from pytest_attnperf.records.notes import NoteKind
from pytest_attnperf.stats.summaries import reason_not_believable
from pytest_attnperf.workers.command_plan import CommandPlan
from pytest_attnperf.workers.doing import DOING, Waiting
from pytest_attnperf.workers.launch import EXIT_LIMIT_SECONDS, TEMPLATE, LaunchPlan
from pytest_attnperf.workers.protocol import (
    PROTOCOL_VERSION,
    Channel,
    ChannelClosedError,
    ChannelTimeoutError,
    MalformedMessageError,
    open_pidfd,
)
from pytest_attnperf.workers.template import LOST_STATUS, ForkedProcess, Template, may_fork

Told = TypeVar("Told")
WorkerPlan: TypeAlias = LaunchPlan | CommandPlan
"""How workers of a run are started: by pytest on this machine, or by a command."""

LOG_TAIL_LINES = 25
LOG_TAIL_BYTES = 1 << 20
"""Most bytes of a log that are read: a kernel that prints in a loop can fill the log beyond memory."""
CRASH_LINES = 8
SEND_LIMIT_SECONDS = 30.0
HANG_UP_SECONDS = 5.0
"""Seconds that a command has to end after its standard input is closed; its worker needs at most half of them."""


@dataclass(frozen=True)
class Ready:
    """A worker's first message.

    pid       process id as the worker sees it; a container has its own numbers
    harness   version of pytest-attnperf in the worker, '' if not sent
    method    version of the measuring method in the worker (`records.METHOD_VERSION`), 0 if not sent
    host      hash that identifies the machine since its last boot (`server.host_identity`), '' if not sent
    """

    pid: int
    role: Role
    device: DeviceInfo
    fingerprint: Fingerprint
    cases: tuple[CaseKey, ...]
    harness: str = ""
    method: int = 0
    host: str = ""

    @functools.cached_property
    def known_cases(self) -> frozenset[CaseKey]:
        """The worker's cases as a set."""
        return frozenset(self.cases)


class WrongAsTimedError(CaseFailedError):
    """A case that is right when called, but wrong when replayed for timing; with the report of the check."""

    def __init__(self, message: str, report: CheckReport) -> None:
        super().__init__(message)
        self.report = report


class UsedProcessError(CaseFailedError):
    """A case whose costs are those of a process that has done nothing else was opened in one that has."""


class PoisonedError(CaseFailedError):
    """A case that raised and left a device that does not answer any more; with the end of its worker's log."""

    def __init__(self, message: str, *, traceback: str, out_of_memory: bool, log_tail: str) -> None:
        super().__init__(message, traceback=traceback, out_of_memory=out_of_memory)
        self.log_tail = log_tail


class Worker:
    """One worker process. Every method that waits has a limit; a worker that exceeds it is killed."""

    def __init__(
        self, plan: WorkerPlan, name: str, gpu: str | None = None, *, template: Template | None = None
    ) -> None:
        self.name = name
        self._command = plan if isinstance(plan, CommandPlan) else None
        self._title = f"worker {name} (`{self._command.title}`)" if self._command else f"worker {name}"
        self.gpu = gpu
        self._role = plan.role
        self._exit_seconds = plan.exit_seconds if isinstance(plan, LaunchPlan) else EXIT_LIMIT_SECONDS
        self.log = plan.scratch / f"{name}.log"
        self.poisoned = False
        self._killed = False
        self._next_id = 0
        self._ready: Ready | None = None
        self._channel, self._process = _start_process(plan, name, gpu, self.log, template)
        self._pidfd = None if isinstance(self._process, ForkedProcess) else open_pidfd(self._process.pid)
        DOING.add_worker(self, name)

    @property
    def pid(self) -> int:
        """Process id, which is also the id of its process group."""
        return self._process.pid

    @property
    def is_alive(self) -> bool:
        """Whether the process is running."""
        return self._process.poll() is None

    def wait_until_ready(self, limit_seconds: float) -> Ready:
        """Waits until the worker has collected its cases, and returns its first message (kept for later calls). Raises
        WorkerError with the end of its log if it cannot start, speaks another protocol or exceeds the limit; then it is
        killed."""
        if self._ready is None:
            message = self._first_message(limit_seconds)
            if message.get("event") != "ready":
                self._wait_for_end()
                raise self._kill_and_report(
                    f"{self._title} could not start: {message.get('message', message)}", starting=True
                )
            if message.get("protocol") != PROTOCOL_VERSION:
                where = "; a command uses the harness that is installed behind it" if self._command else ""
                raise self._kill_and_report(
                    f"{self._title} speaks protocol {message.get('protocol')}, this side {PROTOCOL_VERSION}: "
                    f"install the same version of pytest-attnperf on both sides{where}"
                )
            try:
                ready = msgspec.convert(message, Ready)
                wrong = reason_not_believable(ready)
            except (msgspec.ValidationError, ValueError, RecursionError) as error:
                wrong = str(error)
            if wrong:
                raise self._kill_and_report(f"{self._title} sent an invalid first message: {wrong[:400]}")
            self._ready = ready
        return self._ready

    def _first_message(self, limit_seconds: float) -> dict[str, Any]:
        began = time.monotonic()
        if isinstance(self._process, ForkedProcess):
            with DOING.record_wait(Waiting(self.name, self._role, "start")):
                self._process.settle(limit_seconds)
            self._pidfd = self._process.open_pidfd()
        return self._receive_message(limit_seconds, "start", began)

    def request(self, operation: str, limit_seconds: float, **fields: Any) -> dict[str, Any]:
        """Sends one request and returns its answer.

        Raises WorkerError if the worker died or exceeded the limit (it is killed), CaseFailedError if the case raised,
        NotProvenRightError if a time was requested before the case was proven.
        """
        self._next_id += 1
        try:
            self._channel.send({"id": self._next_id, "op": operation, **fields}, SEND_LIMIT_SECONDS)
        except ChannelClosedError as error:
            raise self._kill_and_report(f"{self._title} ended before {operation!r}", NoteKind.DIED) from error
        except ChannelTimeoutError:
            raise self._kill_and_report(
                f"{self._title} did not read {operation!r} within {SEND_LIMIT_SECONDS:.0f} s and was killed; "
                "the end of its log may show where it hangs",
                NoteKind.NOT_READ,
            ) from None
        answer = self._receive_message(limit_seconds, operation)
        if answer.get("id") != self._next_id:
            raise self._kill_and_report(
                f"{self._title} sent an answer with the id {answer.get('id')!r} to request {self._next_id}; run again, "
                "and report a bug if it repeats"
            )
        if "error" in answer:
            raise self._make_request_error(operation, answer["error"])
        ok = answer.get("ok")
        if not isinstance(ok, dict):
            raise self._kill_and_report(
                f"{self._title} answered {operation!r} with neither a result nor an error: {str(answer)[:200]!r}; run "
                "again, and report a bug if it repeats"
            )
        return ok

    def decode_answer(self, operation: str, answer: Any, kind: type[Told]) -> Told:
        """Decodes an answer as a record of type `kind`.

        Raises WorkerError, and kills the worker, if it is something else or holds values that cannot be measured.
        """
        try:
            record = msgspec.convert(answer, kind)
            wrong = reason_not_believable(record)
        except (msgspec.ValidationError, ValueError, ArithmeticError, RecursionError) as error:
            wrong = str(error)
        if wrong:
            raise self._kill_and_report(
                f"{self._title} sent an invalid answer to {operation!r}: {wrong[:400]}; run again, and report a bug "
                "if it repeats"
            )
        return record

    def ask_to_exit(self) -> None:
        """Sends a living worker the request to tear down fixtures and end, without waiting; `exit` waits."""
        if self.is_alive:
            with contextlib.suppress(ChannelClosedError, ChannelTimeoutError):
                self._channel.send({"id": 0, "op": "exit"}, EXIT_LIMIT_SECONDS)

    def exit(self) -> None:
        """Asks the worker to end, waits as long as its plan says, and kills what is left of its process group."""
        self.ask_to_exit()
        with contextlib.suppress(subprocess.TimeoutExpired), DOING.record_wait(Waiting(self.name, self._role, "end")):
            self._process.wait(self._exit_seconds)
        self.kill()

    def kill(self) -> None:
        """Kills the whole process group and closes the channel. A second call does nothing.

        Returns within EXIT_LIMIT_SECONDS even if the process does not end, because it is stuck in a driver; then
        `is_alive` stays true.
        """
        if self._killed:
            return
        if self._command:
            self._hang_up()
        if isinstance(self._process, ForkedProcess):
            self._process.kill()
        else:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self._process.pid, signal.SIGKILL)
        with contextlib.suppress(subprocess.TimeoutExpired), DOING.record_wait(Waiting(self.name, self._role, "end")):
            self._process.wait(EXIT_LIMIT_SECONDS)
        DOING.remove_worker(self)
        self._channel.close()
        pidfd, self._pidfd = self._pidfd, None  # cleared first: after an interrupt two threads may end one worker
        if pidfd is not None:
            os.close(pidfd)
        self._killed = True

    def _hang_up(self) -> None:
        """Closes a command's pipes, and waits HANG_UP_SECONDS for it to end.

        SIGKILL would end only the client: `docker run` or `ssh` cannot pass it on, and the worker behind it would keep
        the GPU. That worker ends at the end of its standard input, and then the client ends.
        """
        self._channel.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(HANG_UP_SECONDS)

    def log_tail(self) -> str:
        """Returns the last lines of the worker's stdout and stderr; '' if the log cannot be read."""
        try:
            with self.log.open("rb") as log:
                log.seek(max(0, self.log.stat().st_size - LOG_TAIL_BYTES))
                lines = log.read(LOG_TAIL_BYTES).decode(errors="replace").splitlines()
        except OSError:
            return ""
        return "\n".join(select_log_lines(lines))

    def _receive_message(self, limit_seconds: float, operation: str, began: float | None = None) -> dict[str, Any]:
        began = time.monotonic() if began is None else began
        try:
            with DOING.record_wait(Waiting(self.name, self._role, operation)):
                return self._channel.receive(began + limit_seconds - time.monotonic(), self._pidfd)
        except ChannelTimeoutError:
            waited = time.monotonic() - began
            raise self._kill_and_report(
                f"{self._title} did not answer {operation!r} within {waited:.0f} s and was killed"
                + ("" if operation == "start" else " (--attnperf-case-limit sets the limit)"),
                NoteKind.NO_ANSWER,
                starting=operation == "start",
            ) from None
        except ChannelClosedError:
            said = f"{self._title} died during {operation!r}: {self._describe_cause()}"
            raise self._kill_and_report(said, self._classify_ending(), starting=operation == "start") from None
        except MalformedMessageError as error:
            hint = "; a command must print banners to its standard error" if self._command else ""
            said = f"{self._title} sent an invalid answer to {operation!r}: {error}{hint}"
            raise self._kill_and_report(said, starting=operation == "start") from None

    def _wait_for_end(self) -> None:
        """Waits EXIT_LIMIT_SECONDS for a worker that cannot start to end, so that its log is complete."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(EXIT_LIMIT_SECONDS)

    def _describe_cause(self) -> str:
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(2.0)
        code = self._process.returncode
        if code is None:
            return "its channel was closed"
        if code == LOST_STATUS:
            return "unknown, because the template that forked it ended first"
        if code < 0:
            return f"killed by {signal.Signals(-code).name}"
        return f"exit status {code}{_describe_signal(code)}"

    def _classify_ending(self) -> NoteKind:
        """Returns KILLED for a process killed from outside, e.g. by the system without memory; else DIED."""
        code = self._process.returncode
        killed = code is not None and (-code if code < 0 else code - 128) in (signal.SIGKILL, signal.SIGTERM)
        return NoteKind.KILLED if killed else NoteKind.DIED

    def _kill_and_report(self, message: str, kind: NoteKind | None = None, *, starting: bool = False) -> WorkerError:
        self.kill()
        return WorkerError(message + self.describe_if_unkilled(), self.log_tail(), kind=kind, starting=starting)

    def describe_if_unkilled(self) -> str:
        """Returns '; process 7 does not end even when it is killed, ...', for errors; '' if it has ended."""
        if not self.is_alive:
            return ""
        device = "the device" if self.gpu is None else f"GPU {self.gpu}"
        return f"; process {self.pid} does not end even when it is killed, and still holds {device}"

    def _make_request_error(self, operation: str, error: Any) -> Exception:
        if not isinstance(error, dict):
            return self._kill_and_report(
                f"{self._title} answered {operation!r} with an invalid error: {str(error)[:200]!r}"
            )
        self.poisoned = self.poisoned or bool(error.get("poisoned"))
        kind, message = error.get("kind"), str(error.get("message"))
        if kind == "not_proven":
            return NotProvenRightError(message)
        if kind != "case":
            return self._kill_and_report(f"{self._title} refused {operation!r}: {message}")
        if operation == "check" and error.get("unsupported") and not error.get("poisoned"):
            return UnsupportedError(message)
        if error.get("used"):
            return UsedProcessError(message)
        if error.get("report"):
            return WrongAsTimedError(message, self.decode_answer(operation, error["report"], CheckReport))
        trace, out_of_memory = str(error.get("traceback", "")), bool(error.get("out_of_memory"))
        if error.get("poisoned"):
            return PoisonedError(message, traceback=trace, out_of_memory=out_of_memory, log_tail=self.log_tail())
        return CaseFailedError(message, traceback=trace, out_of_memory=out_of_memory)


def select_log_lines(lines: Sequence[str]) -> list[str]:
    """Returns the end of a log; for a Python crash, the lines before the crash report and its innermost frames.

    The full report (stack, and hundreds of extension modules with torch) would hide the line with the cause.
    """
    crash = next((index for index, line in enumerate(lines) if line.startswith("Fatal Python error")), None)
    if crash is None:
        return list(lines[-LOG_TAIL_LINES:])
    return [*lines[max(0, crash - LOG_TAIL_LINES) : crash], *lines[crash : crash + CRASH_LINES]]


def _describe_signal(code: int) -> str:
    """Returns ' (SIGNAL)' for the exit status 128 + signal of a command whose worker a signal killed, else ''."""
    try:
        return f" ({signal.Signals(code - 128).name})"
    except ValueError:
        return ""


def _start_process(
    plan: WorkerPlan, name: str, gpu: str | None, log: Path, template: Template | None
) -> tuple[Channel, subprocess.Popen[bytes] | ForkedProcess]:
    """Starts a worker and returns its channel and process: by the command of a CommandPlan, else forked from `template`
    if the template and the plan allow it, else as a new process."""
    if isinstance(plan, CommandPlan):
        return plan.start(name, gpu, log)
    log.parent.mkdir(parents=True, exist_ok=True)
    plan.link_harness()
    start = functools.partial(_spawn_process, plan, name, gpu, log)
    if template is not None and template.is_serving and may_fork(plan):
        environment = plan.make_environment(os.environ, name, gpu)
        template.begin(environment, functools.partial(start, mark=TEMPLATE))
        return template.fork(environment, log, start)
    ours, theirs = socket.socketpair()
    with theirs:
        return Channel(ours), start(theirs.fileno())


def _spawn_process(
    plan: LaunchPlan, name: str, gpu: str | None, log: Path, fd: int, *, mark: str = ""
) -> subprocess.Popen[bytes]:
    """Starts a process with its output in `log` that inherits the descriptor `fd`; `mark` is the descriptor's prefix in
    the command line (TEMPLATE for a template, '' for a worker)."""
    with log.open("wb") as output:
        return subprocess.Popen(
            plan.make_command(f"{mark}{fd}", name),
            cwd=plan.rootdir,
            env=plan.make_environment(os.environ, name, gpu),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            pass_fds=(fd,),
            start_new_session=True,
        )
