"""The controller's side of `forking.py`: workers are forked from a template that has imported all they need.

Importing torch and collecting the suites takes seconds; forking a process that has done so takes milliseconds. Only
workers on a GPU are forked, because the driver gives each process its own GPU memory. On a CPU forked processes would
share memory layout, hash seed and allocator state, and so differ less than independent processes.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pytest_attnperf.records import Role
from pytest_attnperf.workers.command_plan import CommandPlan
from pytest_attnperf.workers.forking import SWITCH, Obstacle, is_readable
from pytest_attnperf.workers.launch import LaunchPlan
from pytest_attnperf.workers.protocol import Channel, open_pidfd

LOST_STATUS = 256
"""Used as exit status of a worker whose template ended first: only the template could read the real one."""

ANSWER_BYTES = 4096
STATUS_SECONDS = 2.0
"""Seconds that a template has to report how its worker has ended."""
GIVING_UP_SECONDS = 0.5
END_SECONDS = 5.0

Start = Callable[[int], "subprocess.Popen[bytes]"]
"""Starts a worker or a template, which gets the number of its descriptor."""


def may_fork(plan: LaunchPlan | CommandPlan, environ: Mapping[str, str] = os.environ) -> bool:
    """Returns whether workers of a plan may be forked: on a GPU, on Linux with pidfds, if the plan allows it, and not
    if ATTNPERF_FORK is '0'.
    The template may still refuse after it has collected."""
    on_gpu = isinstance(plan, LaunchPlan) and plan.role is Role.DEVICE and plan.forks
    if not on_gpu or environ.get(SWITCH) == "0" or sys.platform != "linux":
        return False
    pidfd = open_pidfd(os.getpid())
    if pidfd is not None:
        os.close(pidfd)
    return pidfd is not None


class ForkedProcess:
    """A worker requested from a template process, or started as a new process. It has the used part of Popen's API.

    returncode   as in Popen, or LOST_STATUS
    """

    def __init__(
        self, template: Template, answers: socket.socket, life: int, channel: socket.socket, start: Start
    ) -> None:
        self.returncode: int | None = None
        self._template, self._answers, self._life, self._channel, self._start = template, answers, life, channel, start
        self._popen: subprocess.Popen[bytes] | None = None
        self._pid = self._pidfd = -1

    @property
    def is_settled(self) -> bool:
        """Whether the worker has a process id or has ended; False while the template has not answered the request."""
        return self._popen is not None or self._pid > 0 or self.returncode is not None

    @property
    def pid(self) -> int:
        """Process id, also the id of its process group; 0 until the template has answered."""
        return self._popen.pid if self._popen is not None else max(0, self._pid)

    def settle(self, limit_seconds: float | None) -> None:
        """Waits for the template's answer with the process id, at most `limit_seconds` (None: forever)."""
        if not self.is_settled and is_readable(self._answers.fileno(), limit_seconds):
            self._receive_answer()

    def open_pidfd(self) -> int | None:
        """Returns a descriptor that becomes readable when the process ends, or None before it began; to be closed."""
        return os.dup(self._pidfd) if self._pidfd >= 0 else open_pidfd(self.pid) if self.pid else None

    def poll(self) -> int | None:
        """Returns the exit status; None if the process runs or has not begun."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.wait(0.0)
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Waits for the exit status and returns it. Raises subprocess.TimeoutExpired after `timeout` seconds."""
        began = time.monotonic()
        if not self.is_settled:
            self.settle(timeout)
        left = None if timeout is None else max(0.0, timeout - (time.monotonic() - began))
        if self.returncode is None and self._popen is not None:
            self.returncode = self._popen.wait(left)
        elif self.returncode is None:
            if self._pidfd < 0 or not is_readable(self._pidfd, left):
                raise subprocess.TimeoutExpired(f"worker {self._pid}", timeout or 0.0)
            self.returncode = self._receive_status()
            self._close_all()
        return self.returncode

    def kill(self) -> None:
        """Kills the process group. If the template has not answered yet, the worker is killed as soon as it begins."""
        if self.pid:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self.pid, signal.SIGKILL)
        elif self.returncode is None:
            self.returncode = -signal.SIGKILL
            self._close_all()
        if self._life >= 0:
            os.close(self._life)
            self._life = -1

    def _receive_answer(self) -> None:
        """Reads the template's answer: the process id and pidfd, or that the template itself is the worker. Starts a
        new process if the template closed the socket instead."""
        message, fds = b"", [-1]
        with contextlib.suppress(OSError):
            message, fds, _, _ = socket.recv_fds(self._answers, ANSWER_BYTES, 1, socket.MSG_CMSG_CLOEXEC)
        if not message:
            self._popen = self._start(self._channel.fileno())
        else:
            answer = json.loads(message)
            if "obstacle" in answer:
                self._template.obstacle, self._popen = Obstacle[answer["obstacle"]], self._template.process
            else:
                self._pid, self._pidfd = answer["pid"], fds[0]
        self._channel.close()
        if self._popen is not None:
            self._answers.close()
        self._template.handle_settled(self, gave_up=self._popen is not None)

    def _receive_status(self) -> int:
        if is_readable(self._answers.fileno(), STATUS_SECONDS):
            with contextlib.suppress(OSError, ValueError, KeyError):
                return int(json.loads(self._answers.recv(ANSWER_BYTES))["status"])
        return LOST_STATUS

    def _close_all(self) -> None:
        self._answers.close()
        self._channel.close()
        if self._pidfd >= 0:
            os.close(self._pidfd)
            self._pidfd = -1


@dataclass
class Template:
    """The process that has imported all suites and forks workers of one plan: started with the first worker.

    process    None before it is started
    obstacle   why it cannot fork; then it became the first worker, and other workers start as new processes
    """

    process: subprocess.Popen[bytes] | None = None
    obstacle: Obstacle | None = None
    _socket: socket.socket | None = None
    _environment: Mapping[str, str] = field(default_factory=dict)
    _waiting: list[ForkedProcess] = field(default_factory=list)
    _gave_up: bool = False

    def begin(self, environment: Mapping[str, str], start: Start) -> None:
        """Starts the template process with `environment`, by `start`, which starts a worker on a descriptor; does
        nothing if it was started before."""
        if self.process is not None:
            return
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self.process, self._environment = start(theirs.fileno()), dict(environment)

    @property
    def is_serving(self) -> bool:
        """Whether workers may be requested from the template; False after it has refused to fork one."""
        return not self._gave_up

    def fork(self, environment: Mapping[str, str], log: Path, start: Start) -> tuple[Channel, ForkedProcess]:
        """Requests a worker with this environment and log, without waiting; returns its channel and process.

        start   starts the worker as a new process if the template cannot fork
        """
        assert self._socket is not None
        (ours, theirs), (answers, saying) = (
            socket.socketpair(),
            socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET),
        )
        life, living = os.pipe()
        process = ForkedProcess(self, answers, living, theirs, start)
        self._waiting.append(process)
        message = json.dumps(_compare_environments(self._environment, environment)).encode()
        # If the template has ended, the answers socket is closed, which `ForkedProcess` notices.
        with contextlib.suppress(OSError), saying, log.open("ab") as output, os.fdopen(life, "rb") as ends:
            fds = [theirs.fileno(), output.fileno(), ends.fileno(), saying.fileno()]
            socket.send_fds(self._socket, [message], fds)
        return Channel(ours), process

    def handle_settled(self, process: ForkedProcess, *, gave_up: bool) -> None:
        """Removes an answered process from those that wait for the template. If `gave_up` (the template has refused to
        fork), waits for the answers of all other requested workers, too, so that new processes replace them."""
        self._waiting.remove(process)
        if gave_up and not self._gave_up:
            self._gave_up = True
            for waiting in [*self._waiting]:
                waiting.settle(GIVING_UP_SECONDS)

    def close(self) -> None:
        """Ends the template, by SIGKILL after END_SECONDS; workers that it has forked keep running. Does nothing if it
        was not started, or became a worker."""
        if self._socket is None or self.process is None:
            return
        self._socket.close()
        if self.obstacle is None:
            try:
                self.process.wait(END_SECONDS)
            except subprocess.TimeoutExpired:
                os.killpg(self.process.pid, signal.SIGKILL)
                self.process.wait(END_SECONDS)


def _compare_environments(template: Mapping[str, str], wanted: Mapping[str, str]) -> dict[str, str | None]:
    """Returns how `wanted` differs from the template's environment: variable -> value, or None if it is not set."""
    changed: dict[str, Any] = {name: value for name, value in wanted.items() if template.get(name) != value}
    return changed | dict.fromkeys(template.keys() - wanted.keys())
