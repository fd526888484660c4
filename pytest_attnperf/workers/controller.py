"""The controller's side: starts a worker process, talks to it with a limit on every answer, and ends it."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import msgspec

from pytest_attnperf.errors import CaseFailedError, WorkerError
from pytest_attnperf.records import CaseKey, CheckReport, DeviceInfo, Fingerprint, NotProvenRightError, Role
from pytest_attnperf.workers.command_plan import CommandPlan
from pytest_attnperf.workers.launch import LaunchPlan
from pytest_attnperf.workers.protocol import (
    PROTOCOL_VERSION,
    Channel,
    ChannelClosedError,
    ChannelTimeoutError,
    MalformedMessageError,
    open_pidfd,
)

WorkerPlan: TypeAlias = LaunchPlan | CommandPlan
"""How a run's workers are started: by this machine's pytest, or by a command."""

LOG_TAIL_LINES = 25
CRASH_LINES = 8
EXIT_LIMIT_SECONDS = 10.0
SEND_LIMIT_SECONDS = 30.0
HANG_UP_SECONDS = 5.0
"""How long a command has to end when its standard input is closed; `worker_command.py` needs half of it at most."""


@dataclass(frozen=True)
class Ready:
    """A worker's first message.

    pid       in the worker's own numbering: a container counts for itself
    harness   the version of pytest-attnperf that measures there, '' where it does not say
    method    how numbers are made there (`records.METHOD_VERSION`), 0 where it does not say
    """

    pid: int
    role: Role
    device: DeviceInfo
    fingerprint: Fingerprint
    cases: tuple[CaseKey, ...]
    harness: str = ""
    method: int = 0


class WrongAsTimedError(CaseFailedError):
    """The case raised with a check report: right when called, wrong when replayed as it is timed."""

    def __init__(self, message: str, report: CheckReport) -> None:
        super().__init__(message)
        self.report = report


class Worker:
    """One worker process. Every method that waits has a limit; a worker that overruns it is killed."""

    def __init__(self, plan: WorkerPlan, name: str, gpu: str | None = None) -> None:
        self.name = name
        self._command = plan if isinstance(plan, CommandPlan) else None
        self._title = f"worker {name} (`{self._command.title}`)" if self._command else f"worker {name}"
        self.gpu = gpu
        self.log = plan.scratch / f"{name}.log"
        self.poisoned = False
        self._next_id = 0
        self._ready: Ready | None = None
        self._channel, self._process = _start(plan, name, gpu, self.log)
        self._pidfd = open_pidfd(self._process.pid)

    @property
    def pid(self) -> int:
        """Process id, also the id of its process group."""
        return self._process.pid

    @property
    def alive(self) -> bool:
        """Whether the process runs."""
        return self._process.poll() is None

    def ready(self, limit_seconds: float) -> Ready:
        """Wait until the worker has collected its cases. Raises WorkerError with the log's tail when it cannot."""
        if self._ready is None:
            message = self._receive(limit_seconds, "start")
            if message.get("event") != "ready":
                self._wait_for_end()
                raise self._died(f"{self._title} could not start: {message.get('message', message)}")
            if message.get("protocol") != PROTOCOL_VERSION:
                where = ", and its harness is the one that is installed there" if self._command else ""
                raise self._died(
                    f"{self._title} speaks protocol {message.get('protocol')}, this side {PROTOCOL_VERSION}: "
                    f"the harness of both sides must be the same{where}"
                )
            try:
                self._ready = msgspec.convert(message, Ready)
            except msgspec.ValidationError as error:
                raise self._died(f"{self._title} says that it is ready, but not what it is: {error}") from None
        return self._ready

    def request(self, operation: str, limit_seconds: float, **fields: Any) -> dict[str, Any]:
        """Send one request and wait for its answer.

        Raises WorkerError when the worker died or overran the limit (it is killed), CaseFailedError when the case
        raised, NotProvenRightError when a time was asked for too early.
        """
        self._next_id += 1
        try:
            self._channel.send({"id": self._next_id, "op": operation, **fields}, SEND_LIMIT_SECONDS)
        except ChannelClosedError as error:
            raise self._died(f"{self._title} ended before {operation!r}") from error
        except ChannelTimeoutError:
            raise self._died(
                f"{self._title} did not read {operation!r} within {SEND_LIMIT_SECONDS:.0f} s and was killed"
            ) from None
        answer = self._receive(limit_seconds, operation)
        if answer.get("id") != self._next_id:
            raise self._died(f"{self._title} answered {answer.get('id')!r} to request {self._next_id}")
        if "error" in answer:
            raise self._refused(operation, answer["error"])
        ok: dict[str, Any] = answer["ok"]
        return ok

    def ask_to_exit(self) -> None:
        """Let the worker begin to end: fixtures are torn down. `exit` waits for it."""
        if self.alive:
            with contextlib.suppress(ChannelClosedError, ChannelTimeoutError):
                self._channel.send({"id": 0, "op": "exit"}, EXIT_LIMIT_SECONDS)

    def exit(self) -> None:
        """End the worker in an orderly way, or kill it."""
        self.ask_to_exit()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(EXIT_LIMIT_SECONDS)
        self.kill()

    def kill(self) -> None:
        """Kill the whole process group and release what is held for it."""
        if self._command:
            self._hang_up()
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(EXIT_LIMIT_SECONDS)
        self._channel.close()
        if self._pidfd is not None:
            os.close(self._pidfd)
            self._pidfd = None

    def _hang_up(self) -> None:
        """Close a command's pipes, and give it the time to end.

        SIGKILL ends the client only: `docker run` or `ssh` cannot pass it on, and what they started would go on and
        hold the GPU. The end of its standard input reaches it, and the client ends behind it.
        """
        self._channel.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(HANG_UP_SECONDS)

    def log_tail(self) -> str:
        """The last lines of the worker's stdout and stderr."""
        try:
            lines = self.log.read_text(errors="replace").splitlines()
        except OSError:
            return ""
        return "\n".join(telling_lines(lines))

    def _receive(self, limit_seconds: float, operation: str) -> dict[str, Any]:
        started = time.monotonic()
        try:
            return self._channel.receive(limit_seconds, self._pidfd)
        except ChannelTimeoutError:
            waited = time.monotonic() - started
            raise self._died(
                f"{self._title} did not answer {operation!r} within {waited:.0f} s and was killed"
                + ("" if operation == "start" else " (--attnperf-case-limit sets the limit)")
            ) from None
        except ChannelClosedError:
            raise self._died(f"{self._title} died during {operation!r}: {self._cause()}") from None
        except MalformedMessageError as error:
            hint = "; a command may print banners on its standard error only" if self._command else ""
            raise self._died(f"{self._title} answered {operation!r} with something else: {error}{hint}") from None

    def _wait_for_end(self) -> None:
        """Give a worker that gave up the time to write its log."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(EXIT_LIMIT_SECONDS)

    def _cause(self) -> str:
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(2.0)
        code = self._process.returncode
        if code is None:
            return "its channel was closed"
        if code < 0:
            return f"killed by {signal.Signals(-code).name}"
        return f"exit status {code}{_signal_in(code)}"

    def _died(self, message: str) -> WorkerError:
        self.kill()
        return WorkerError(message, self.log_tail())

    def _refused(self, operation: str, error: dict[str, Any]) -> Exception:
        self.poisoned = self.poisoned or bool(error.get("poisoned"))
        kind, message = error.get("kind"), str(error.get("message"))
        if kind == "not_proven":
            return NotProvenRightError(message)
        if kind != "case":
            return self._died(f"{self._title} refused {operation!r}: {message}")
        if error.get("report"):
            return WrongAsTimedError(message, msgspec.convert(error["report"], CheckReport))
        return CaseFailedError(
            message, traceback=str(error.get("traceback", "")), out_of_memory=bool(error.get("out_of_memory"))
        )


def telling_lines(lines: Sequence[str]) -> list[str]:
    """The end of a log. Around Python's own crash report, what was printed before it and the innermost frames.

    faulthandler's stack and its list of extension modules (hundreds with torch) would push out the line that says why.
    """
    crash = next((index for index, line in enumerate(lines) if line.startswith("Fatal Python error")), None)
    if crash is None:
        return list(lines[-LOG_TAIL_LINES:])
    return [*lines[max(0, crash - LOG_TAIL_LINES) : crash], *lines[crash : crash + CRASH_LINES]]


def _signal_in(code: int) -> str:
    """What a command means by an exit status above 128: the worker behind it was killed by a signal."""
    try:
        return f" ({signal.Signals(code - 128).name})"
    except ValueError:
        return ""


def _start(plan: WorkerPlan, name: str, gpu: str | None, log: Path) -> tuple[Channel, subprocess.Popen[bytes]]:
    if isinstance(plan, CommandPlan):
        return plan.start(name, gpu, log)
    ours, theirs = socket.socketpair()
    log.parent.mkdir(parents=True, exist_ok=True)
    plan.link_harness()
    with log.open("wb") as output, theirs:
        process = subprocess.Popen(
            plan.command(theirs.fileno(), name),
            cwd=plan.rootdir,
            env=plan.environment(os.environ, name, gpu),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            pass_fds=(theirs.fileno(),),
            start_new_session=True,
        )
    return Channel(ours), process
