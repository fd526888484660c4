"""The template's side of forking: a process that has collected its suites, without using a device, forks workers.

`template.py` is the controller's side. A forked worker gets here what a new process has: its own session and process
group, log, channel, environment and random numbers, and it is killed with its controller. Standard library only.
"""

from __future__ import annotations

import contextlib
import ctypes
import enum
import fcntl
import gc
import json
import os
import random
import select
import signal
import socket
import sys
import threading
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

SWITCH = "ATTNPERF_FORK"
"""Environment variable; '0' starts every worker as a new process, so that both ways can be compared."""

NVML_CHECK = "PYTORCH_NVML_BASED_CUDA_CHECK"
"""Makes `torch.cuda.is_available()` work without initialising the driver, after which a fork could not use it."""

MESSAGE_BYTES = 1 << 16
FDS = 4
CUDA_NOT_INITIALIZED = 3
TRIAL_SECONDS = 5.0
IDLE_THREADS = ("pytest_rerunfailures",)
"""Modules whose threads do nothing in a worker, so that a fork may lose them."""

AMD_NODE = "/dev/kfd"
BAD_FORK, OUTLIVED = 1, 2
"""Exit statuses of the trial process of `_try_fork`."""

_DRAWN_AT_START = random.getstate()


class Obstacle(str, enum.Enum):
    """Why a process cannot be a template, i.e. fork workers."""

    COLLECTION = "its suites could not be collected"
    DEVICE = "a conftest provides the device, and does not say that it may be forked"
    DRIVER = "a suite, or what it imports, has initialised the GPU's driver as it was imported"
    THREADS = "a suite, or what it imports, has started threads as it was imported"
    KERNEL = "this system cannot end a forked process with its controller"


@dataclass
class Requested:
    """A worker that a controller requests, with its descriptors in this process.

    environment   variables that differ from the template's; None removes a variable
    channel       socket for the worker protocol
    life          reading end of a pipe whose other end is closed when the controller ends
    answers       socket on which the process id, and later the exit status, is sent
    """

    environment: Mapping[str, str | None]
    channel: int
    log: int
    life: int
    answers: socket.socket

    def close_descriptors(self) -> None:
        """Closes, in the template process, its descriptors of the worker's channel, log and life pipe (whose closing
        kills the worker); the forked worker has its own copies."""
        for fd in (self.channel, self.log, self.life):
            os.close(fd)

    def send_answer(self, message: Mapping[str, Any], *fds: int) -> None:
        """Sends a JSON message and descriptors to the controller; ignores that it has closed the socket."""
        with contextlib.suppress(OSError):
            socket.send_fds(self.answers, [json.dumps(message).encode()], fds)


class Requests:
    """Receives a controller's requests to its template, over a socket that this owns."""

    def __init__(self, fd: int) -> None:
        os.set_inheritable(fd, False)
        self._socket = socket.socket(fileno=fd)
        self._logs: list[int] = []
        self._drawn = _DRAWN_AT_START
        self._running: dict[int, tuple[int, socket.socket]] = {}

    def receive_next(self) -> Requested | None:
        """Waits for the next request for a worker and returns it; None if the controller has closed the socket."""
        try:
            message, fds, _, _ = socket.recv_fds(self._socket, MESSAGE_BYTES, FDS, socket.MSG_CMSG_CLOEXEC)
        except OSError:
            return None
        if not message:
            return None
        channel, log, life, answers = fds
        return Requested(json.loads(message), channel, log, life, socket.socket(fileno=answers))

    def serve_alone(self, obstacle: Obstacle) -> Requested | None:
        """Makes this process itself the first requested worker, because of `obstacle`, and closes the socket; the
        controller starts others as new processes. Returns the request, or None if the controller ended without one."""
        requested = self.receive_next()
        if requested is not None:
            sys.stderr.write(f"{log_line(obstacle)}\n")
            requested.send_answer({"pid": os.getpid(), "obstacle": obstacle.name})
            requested.answers.close()
            os.close(requested.log)  # this process already writes to this log
            end_with(requested.life)
        self._socket.close()
        return requested

    def serve(self) -> Requested:
        """Forks a worker per request. Returns the request, only in the forked worker; the template exits with its
        controller."""
        self._logs, self._drawn = _descriptors_of_log(), random.getstate()
        gc.freeze()  # a garbage collection would copy every page with objects
        while True:
            asked = self._socket.fileno()
            ready = select.select([asked, *self._running], [], [])[0]
            for pidfd in self._running.keys() & ready:
                self._report_end(pidfd)
            if asked not in ready:
                continue
            requested = self.receive_next()
            if requested is None:
                os._exit(0)
            if self._fork_worker(requested):
                return requested
            self._stop_logging()

    def _fork_worker(self, requested: Requested) -> bool:
        """Forks a worker and sends its process id and pidfd; returns True in the worker, False in the template. If the
        fork fails, only closes the answers socket."""
        pid = -1
        with contextlib.suppress(OSError):
            pid = _flush_and_fork()
        if pid == 0:
            self._become_worker(requested)
            return True
        requested.close_descriptors()
        if pid > 0:
            pidfd = os.pidfd_open(pid)
            requested.send_answer({"pid": pid}, pidfd)
            self._running[pidfd] = pid, requested.answers
        else:
            requested.answers.close()
        return False

    def _become_worker(self, requested: Requested) -> None:
        os.setsid()
        end_with(requested.life)
        requested.answers.close()
        self._socket.close()
        for pidfd, (_, answers) in self._running.items():
            os.close(pidfd)
            answers.close()
        _redirect_to(requested.log, self._logs)
        os.close(requested.log)
        for name, value in requested.environment.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
        reseed_random(self._drawn)

    def _report_end(self, pidfd: int) -> None:
        pid, answers = self._running.pop(pidfd)
        os.close(pidfd)
        status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        with contextlib.suppress(OSError):
            answers.send(json.dumps({"status": status}).encode())
        answers.close()

    def _stop_logging(self) -> None:
        """Sends further output of the template to /dev/null: after the first fork the log belongs to that worker."""
        nothing = os.open(os.devnull, os.O_WRONLY | os.O_CLOEXEC)
        _redirect_to(nothing, self._logs)
        os.close(nothing)


def find_obstacle(loaded: Mapping[str, Any] = sys.modules) -> Obstacle | None:
    """Returns why this process, with its suites collected, cannot fork workers; None if it can."""
    if is_driver_initialised(loaded):
        return Obstacle.DRIVER
    status = _try_fork(loaded)
    if status == BAD_FORK:
        return Obstacle.DRIVER
    # Counted after a fork: libraries that support forking (OpenBLAS) have ended their threads before it.
    if _thread_ids():
        return Obstacle.THREADS
    return None if status == -signal.SIGKILL else Obstacle.KERNEL


def _thread_ids() -> set[int]:
    """Returns ids of threads that a fork would lose, without this thread and those of IDLE_THREADS."""
    known = {
        thread.native_id
        for thread in threading.enumerate()
        if getattr(getattr(thread, "_target", None), "__module__", "") in IDLE_THREADS
    }
    return {int(name) for name in os.listdir("/proc/self/task")} - known - {threading.get_native_id()}


def is_driver_initialised(loaded: Mapping[str, Any] = sys.modules, cuda: Callable[[], Any] | None = None) -> bool:
    """Returns whether this process has initialised a GPU's driver.

    cuda   returns the CUDA driver library if this process has loaded it, else None
    """
    asked = getattr(getattr(loaded.get("torch"), "cuda", None), "is_initialized", None)
    if asked is not None and asked():
        return True
    driver, count = (cuda or _find_loaded_cuda)(), ctypes.c_int()
    if driver is not None and driver.cuDeviceGetCount(ctypes.byref(count)) != CUDA_NOT_INITIALIZED:
        return True
    return AMD_NODE in _list_open_files().values()


def _find_loaded_cuda() -> Any:
    """Returns libcuda if it is loaded, else None; it does not load it."""
    try:
        return ctypes.CDLL("libcuda.so.1", mode=os.RTLD_NOLOAD | os.RTLD_LAZY)
    except OSError:
        return None


def _list_open_files() -> dict[int, str]:
    found = {}
    for name in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):  # the descriptor of the listing itself
            found[int(name)] = os.readlink(f"/proc/self/fd/{name}")
    return found


def _try_fork(loaded: Mapping[str, Any]) -> int:
    """Forks a trial process, closes the pipe that ends it, and returns its exit status: -SIGKILL if that worked.

    BAD_FORK: torch has used the GPU and refuses to do so in a forked process. OUTLIVED: it was not killed.
    """
    (life, controller), (said, saying) = os.pipe(), os.pipe()
    pid = _flush_and_fork()
    if pid == 0:
        os.close(controller)
        bad = getattr(getattr(loaded.get("torch"), "cuda", None), "_is_in_bad_fork", bool)
        with contextlib.suppress(BaseException):
            if bad():
                os._exit(BAD_FORK)
            end_with(life)
            os.write(saying, b".")
            select.select([], [], [], TRIAL_SECONDS)
        os._exit(OUTLIVED)
    os.close(saying)
    os.read(said, 1)  # returns nothing if it has ended
    for fd in (controller, life, said):
        os.close(fd)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def _flush_and_fork() -> int:
    """Forks as `os.fork`, after flushing all buffers, so that no output is written twice."""
    sys.stdout.flush()
    sys.stderr.flush()
    ctypes.CDLL(None).fflush(None)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about threads, which `find_obstacle` counts
        return os.fork()


def is_readable(fd: int, seconds: float | None) -> bool:
    """Returns whether a descriptor can be read, or its other end is closed, within `seconds` (None: forever)."""
    poller = select.poll()
    poller.register(fd, select.POLLIN)
    return bool(poller.poll(None if seconds is None else seconds * 1000))


def end_with(life: int) -> None:
    """Makes the kernel kill this process when the other end of the pipe `life` is closed.

    PR_SET_PDEATHSIG would react to the end of the template, which is the parent. A thread could not run while other
    code is stuck in C. Raises OSError if the kernel does not support it.
    """
    fcntl.fcntl(life, fcntl.F_SETOWN, os.getpid())
    fcntl.fcntl(life, fcntl.F_SETSIG, signal.SIGKILL)
    fcntl.fcntl(life, fcntl.F_SETFL, fcntl.fcntl(life, fcntl.F_GETFL) | os.O_ASYNC)
    if is_readable(life, 0.0):  # the controller has already ended
        os.kill(os.getpid(), signal.SIGKILL)


def reseed_random(state: object) -> None:
    """Gives this process other random numbers than those of other forked workers.

    Generators that a suite seeded or used at import keep their state, as in a new process with that seed. torch starts
    every process from the same seed anyway.

    state   state of `random` in the template; Python reseeds `random` in every forked process
    """
    if state != _DRAWN_AT_START:
        random.setstate(state)  # type: ignore[arg-type]
    arrays = sys.modules.get("numpy.random")
    generator = getattr(arrays, "get_bit_generator", None)
    if arrays is not None and generator is not None and getattr(generator(), "seed_seq", None) is not None:
        arrays.seed()


def _descriptors_of_log() -> list[int]:
    """Returns the descriptors of the file behind standard error: output, error, and copies such as faulthandler's."""
    log = os.fstat(2)
    return [fd for fd in _list_open_files() if fd > 0 and os.path.samestat(os.fstat(fd), log)]


def _redirect_to(log: int, descriptors: list[int]) -> None:
    for fd in descriptors:
        os.dup2(log, fd, inheritable=fd <= 2)


def log_line(obstacle: Obstacle) -> str:
    """Returns the log's line 'attnperf: every worker is started as a new process, ...: <obstacle>'."""
    return f"attnperf: every worker is started as a new process, which takes seconds: {obstacle.value}"


def spare_driver() -> Callable[[], None]:
    """Sets the variable NVML_CHECK, so that suites can look for a GPU without initialising its driver; returns a
    function that undoes it. A value that is already set stays."""
    if NVML_CHECK in os.environ:
        return lambda: None
    os.environ[NVML_CHECK] = "1"

    def undo() -> None:
        os.environ.pop(NVML_CHECK, None)

    return undo
