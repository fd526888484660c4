"""Workers are forked from a template: a process that has collected its suites and never touched a device. Its side.

`template.py` is the controller's side. What a worker needs of a fresh process it gets here: a session and a process
group, log, channel and environment of its own, random numbers that no other draws, and an end with its controller.
Standard library only.
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
"""Environment variable; '0' starts every worker afresh, so that one way can be compared with the other."""

NVML_CHECK = "PYTORCH_NVML_BASED_CUDA_CHECK"
"""Lets `torch.cuda.is_available()` answer without initialising the driver, which no fork survives."""

MESSAGE_BYTES = 1 << 16
FDS = 4
CUDA_NOT_INITIALIZED = 3
TRIAL_SECONDS = 5.0
IDLE_THREADS = ("pytest_rerunfailures",)
"""Modules whose threads, in a worker, only wait for what never comes: their loss behind a fork is none."""

AMD_NODE = "/dev/kfd"
BAD_FORK, OUTLIVED = 1, 2
"""Exit statuses of a trial."""

_DRAWN_AT_START = random.getstate()


class Obstacle(str, enum.Enum):
    """Why a process is no template."""

    COLLECTION = "its suites could not be collected"
    DEVICE = "a conftest provides the device, and does not say that it may be forked"
    DRIVER = "a suite, or what it imports, has initialised the GPU's driver as it was imported"
    THREADS = "a suite, or what it imports, has started threads as it was imported"
    KERNEL = "this system cannot end a forked process with its controller"


@dataclass
class Requested:
    """A worker that a controller asks for; descriptors are this process's own until `become` or `forget`.

    environment   what differs from the template's own; None for what it has and the worker must not
    channel       a socket, for the worker protocol
    life          the reading end of a pipe whose other end ends with the controller
    answers       where the process id, and later the exit status, is said
    """

    environment: Mapping[str, str | None]
    channel: int
    log: int
    life: int
    answers: socket.socket

    def close_descriptors(self) -> None:
        """Close what the worker has now."""
        for fd in (self.channel, self.log, self.life):
            os.close(fd)

    def send_answer(self, message: Mapping[str, Any], *fds: int) -> None:
        """Say something, to a controller that may have lost interest."""
        with contextlib.suppress(OSError):
            socket.send_fds(self.answers, [json.dumps(message).encode()], fds)


class Requests:
    """What a controller asks of its template, over the socket that this owns."""

    def __init__(self, fd: int) -> None:
        os.set_inheritable(fd, False)
        self._socket = socket.socket(fileno=fd)
        self._logs: list[int] = []
        self._drawn = _DRAWN_AT_START
        self._running: dict[int, tuple[int, socket.socket]] = {}

    def receive_next(self) -> Requested | None:
        """Wait for the next request; None when the controller wants no more."""
        try:
            message, fds, _, _ = socket.recv_fds(self._socket, MESSAGE_BYTES, FDS, socket.MSG_CMSG_CLOEXEC)
        except OSError:
            return None
        if not message:
            return None
        channel, log, life, answers = fds
        return Requested(json.loads(message), channel, log, life, socket.socket(fileno=answers))

    def serve_alone(self, obstacle: Obstacle) -> Requested | None:
        """Be the worker that was asked for first, and leave the others to be started afresh; None without a request."""
        requested = self.receive_next()
        if requested is not None:
            sys.stderr.write(f"{log_line(obstacle)}\n")
            requested.send_answer({"pid": os.getpid(), "obstacle": obstacle.name})
            requested.answers.close()
            os.close(requested.log)  # which this process has written to from the start
            end_with(requested.life)
        self._socket.close()
        return requested

    def serve(self) -> Requested:
        """Fork a worker for every request. Returns in each worker; the template ends here, with its controller."""
        self._logs, self._drawn = _descriptors_of_log(), random.getstate()
        gc.freeze()  # a collection would copy every page that holds objects
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
        """Whether this is the worker. A process that could not be made is known by the end of its answers."""
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
        """Behind the first fork: that worker's log is its own."""
        nothing = os.open(os.devnull, os.O_WRONLY | os.O_CLOEXEC)
        _redirect_to(nothing, self._logs)
        os.close(nothing)


def find_obstacle(loaded: Mapping[str, Any] = sys.modules) -> Obstacle | None:
    """What keeps this process, its suites being collected, from being a template; None where nothing does."""
    if is_driver_initialised(loaded):
        return Obstacle.DRIVER
    status = _try_fork(loaded)
    if status == BAD_FORK:
        return Obstacle.DRIVER
    # Counted behind a fork: libraries that can be forked (OpenBLAS) have ended their threads for it.
    if _thread_ids():
        return Obstacle.THREADS
    return None if status == -signal.SIGKILL else Obstacle.KERNEL


def _thread_ids() -> set[int]:
    """Ids of this process's threads that would be missed: neither this one nor of IDLE_THREADS."""
    known = {
        thread.native_id
        for thread in threading.enumerate()
        if getattr(getattr(thread, "_target", None), "__module__", "") in IDLE_THREADS
    }
    return {int(name) for name in os.listdir("/proc/self/task")} - known - {threading.get_native_id()}


def is_driver_initialised(loaded: Mapping[str, Any] = sys.modules, cuda: Callable[[], Any] | None = None) -> bool:
    """Whether this process has initialised a GPU's driver.

    cuda   gives the CUDA driver where this process has loaded it, None where it has not
    """
    asked = getattr(getattr(loaded.get("torch"), "cuda", None), "is_initialized", None)
    if asked is not None and asked():
        return True
    driver, count = (cuda or _find_loaded_cuda)(), ctypes.c_int()
    if driver is not None and driver.cuDeviceGetCount(ctypes.byref(count)) != CUDA_NOT_INITIALIZED:
        return True
    return AMD_NODE in _list_open_files().values()


def _find_loaded_cuda() -> Any:
    """libcuda, without loading it; None where nothing has."""
    try:
        return ctypes.CDLL("libcuda.so.1", mode=os.RTLD_NOLOAD | os.RTLD_LAZY)
    except OSError:
        return None


def _list_open_files() -> dict[int, str]:
    found = {}
    for name in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):  # of the listing itself
            found[int(name)] = os.readlink(f"/proc/self/fd/{name}")
    return found


def _try_fork(loaded: Mapping[str, Any]) -> int:
    """How a forked process ends when its controller does: killed, unless it says first that torch is of no use there.

    torch remembers of itself, too, that it has asked for a GPU and may not in a forked process.
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
    os.read(said, 1)  # nothing, where it has ended
    for fd in (controller, life, said):
        os.close(fd)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def _flush_and_fork() -> int:
    """As `os.fork`, with nothing of this process left in a buffer that two would write."""
    sys.stdout.flush()
    sys.stderr.flush()
    ctypes.CDLL(None).fflush(None)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of threads, which are counted
        return os.fork()


def is_readable(fd: int, seconds: float | None) -> bool:
    """Whether a descriptor can be read, or its other end is closed, within so many seconds. Of any number."""
    poller = select.poll()
    poller.register(fd, select.POLLIN)
    return bool(poller.poll(None if seconds is None else seconds * 1000))


def end_with(life: int) -> None:
    """Have the kernel kill this process when nobody holds the other end of a pipe any more.

    Not PR_SET_PDEATHSIG: the parent is a template, whose end is no reason. Not a thread: one that is stuck in C would
    not let it run. Raises OSError where the kernel cannot.
    """
    fcntl.fcntl(life, fcntl.F_SETOWN, os.getpid())
    fcntl.fcntl(life, fcntl.F_SETSIG, signal.SIGKILL)
    fcntl.fcntl(life, fcntl.F_SETFL, fcntl.fcntl(life, fcntl.F_GETFL) | os.O_ASYNC)
    if is_readable(life, 0.0):  # it ended before
        os.kill(os.getpid(), signal.SIGKILL)


def reseed_random(state: object) -> None:
    """Draw other random numbers than the processes that were forked beside this one.

    Not where a suite has drawn or seeded as it was imported: seeded, a fresh process would draw those very numbers.
    torch starts every process from one seed.

    state   of `random` in the template; Python seeds that in every forked process
    """
    if state != _DRAWN_AT_START:
        random.setstate(state)  # type: ignore[arg-type]
    arrays = sys.modules.get("numpy.random")
    generator = getattr(arrays, "get_bit_generator", None)
    if arrays is not None and generator is not None and getattr(generator(), "seed_seq", None) is not None:
        arrays.seed()


def _descriptors_of_log() -> list[int]:
    """Standard output and error, and their copies, as faulthandler has one."""
    log = os.fstat(2)
    return [fd for fd in _list_open_files() if fd > 0 and os.path.samestat(os.fstat(fd), log)]


def _redirect_to(log: int, descriptors: list[int]) -> None:
    for fd in descriptors:
        os.dup2(log, fd, inheritable=fd <= 2)


def log_line(obstacle: Obstacle) -> str:
    """What a log says of workers that are not forked."""
    return f"attnperf: every worker is started afresh, which takes seconds: {obstacle.value}"


def spare_driver() -> Callable[[], None]:
    """Let suites ask for a GPU without initialising its driver; what is returned undoes it."""
    if NVML_CHECK in os.environ:
        return lambda: None
    os.environ[NVML_CHECK] = "1"

    def undo() -> None:
        os.environ.pop(NVML_CHECK, None)

    return undo
