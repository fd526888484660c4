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
from typing import Any

import msgspec

from pytest_attnperf.errors import CaseFailedError, WorkerError
from pytest_attnperf.records import CaseKey, CheckReport, DeviceInfo, Fingerprint, NotProvenRightError, Role
from pytest_attnperf.workers.launch import LaunchPlan
from pytest_attnperf.workers.protocol import (
    PROTOCOL_VERSION,
    Channel,
    ChannelClosedError,
    ChannelTimeoutError,
    MalformedMessageError,
)

LOG_TAIL_LINES = 25
CRASH_LINES = 8
EXIT_LIMIT_SECONDS = 10.0


@dataclass(frozen=True)
class Ready:
    """A worker's first message."""

    pid: int
    role: Role
    device: DeviceInfo
    fingerprint: Fingerprint
    cases: tuple[CaseKey, ...]


class WrongAsTimedError(CaseFailedError):
    """The case raised with a check report: right when called, wrong when replayed as it is timed."""

    def __init__(self, message: str, report: CheckReport) -> None:
        super().__init__(message)
        self.report = report


class Worker:
    """One worker process. Every method that waits has a limit; a worker that overruns it is killed."""

    def __init__(self, plan: LaunchPlan, name: str, gpu: str | None = None) -> None:
        self.name = name
        self.gpu = gpu
        self.log = plan.scratch / f"{name}.log"
        self.poisoned = False
        self._next_id = 0
        self._ready: Ready | None = None
        self._channel, self._process = _start(plan, name, gpu, self.log)
        self._pidfd = _open_pidfd(self._process.pid)

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
                raise self._died(f"worker {self.name} could not start: {message.get('message', message)}")
            if message.get("protocol") != PROTOCOL_VERSION:
                raise self._died(
                    f"worker {self.name} speaks protocol {message.get('protocol')}, this side {PROTOCOL_VERSION}: "
                    "the harness of both sides must be the same"
                )
            self._ready = msgspec.convert(
                {key: message[key] for key in ("pid", "role", "device", "fingerprint", "cases")}, Ready
            )
        return self._ready

    def request(self, operation: str, limit_seconds: float, **fields: Any) -> dict[str, Any]:
        """Send one request and wait for its answer.

        Raises WorkerError when the worker died or overran the limit (it is killed), CaseFailedError when the case
        raised, NotProvenRightError when a time was asked for too early.
        """
        self._next_id += 1
        try:
            self._channel.send({"id": self._next_id, "op": operation, **fields})
        except ChannelClosedError as error:
            raise self._died(f"worker {self.name} ended before {operation!r}") from error
        answer = self._receive(limit_seconds, operation)
        if answer.get("id") != self._next_id:
            raise self._died(f"worker {self.name} answered {answer.get('id')!r} to request {self._next_id}")
        if "error" in answer:
            raise self._refused(operation, answer["error"])
        ok: dict[str, Any] = answer["ok"]
        return ok

    def ask_to_exit(self) -> None:
        """Let the worker begin to end: fixtures are torn down. `exit` waits for it."""
        if self.alive:
            with contextlib.suppress(ChannelClosedError):
                self._channel.send({"id": 0, "op": "exit"})

    def exit(self) -> None:
        """End the worker in an orderly way, or kill it."""
        self.ask_to_exit()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(EXIT_LIMIT_SECONDS)
        self.kill()

    def kill(self) -> None:
        """Kill the whole process group and release what is held for it."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(EXIT_LIMIT_SECONDS)
        self._channel.close()
        if self._pidfd is not None:
            os.close(self._pidfd)
            self._pidfd = None

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
                f"worker {self.name} did not answer {operation!r} within {waited:.0f} s and was killed "
                "(--attnperf-case-limit sets the limit)"
            ) from None
        except ChannelClosedError:
            raise self._died(f"worker {self.name} died during {operation!r}: {self._cause()}") from None
        except MalformedMessageError as error:
            raise self._died(f"worker {self.name} answered {operation!r} with something else: {error}") from None

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
        return f"exit status {code}"

    def _died(self, message: str) -> WorkerError:
        self.kill()
        return WorkerError(message, self.log_tail())

    def _refused(self, operation: str, error: dict[str, Any]) -> Exception:
        self.poisoned = self.poisoned or bool(error.get("poisoned"))
        kind, message = error.get("kind"), str(error.get("message"))
        if kind == "not_proven":
            return NotProvenRightError(message)
        if kind != "case":
            return self._died(f"worker {self.name} refused {operation!r}: {message}")
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


def _start(plan: LaunchPlan, name: str, gpu: str | None, log: Path) -> tuple[Channel, subprocess.Popen[bytes]]:
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


def _open_pidfd(pid: int) -> int | None:
    """A descriptor that becomes readable when the process ends; None where the kernel has none (before Linux 5.3)."""
    try:
        return os.pidfd_open(pid)
    except (AttributeError, OSError):
        return None
