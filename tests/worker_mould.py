"""Workers of tests are forked from one process that has imported what each of them imports.

Starting a worker takes 0.4 s, of which 0.3 s are imports, and the tests of the plugin start a few hundred. Only for
workers on the fake device, whose times are scripted: what processes have in common is measured by nobody there. How a
worker is really started is what tests/workers and every test with `own_process` go through.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import gc
import importlib
import json
import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
import types
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
PR_SET_PDEATHSIG = 1
MESSAGE_MAX = 1 << 20
AVAILABLE = sys.platform == "linux" and hasattr(os, "pidfd_open")
"""Elsewhere workers are started as ever."""
IMPORTED = (
    *("difflib", "faulthandler", "pdb", "unittest", "xml.etree.ElementTree", "pytest"),
    "pytest_attnperf.plugin.features.code_objects.code_items",
    "pytest_attnperf.plugin.hookspecs",
    "pytest_attnperf.plugin.worker_session",
    "pytest_attnperf.testing.fake.device",
    "pytest_attnperf.workloads.families",
)


class Mould:
    """The process that workers are forked from.

    more      names what it imports besides
    address   where it is asked
    """

    def __init__(self, *more: str) -> None:
        # A short name, because a socket's may have 107 bytes.
        self._folder = tempfile.TemporaryDirectory(prefix="mould-", dir="/tmp")
        self.address = str(Path(self._folder.name) / "socket")
        # torch counts its threads when it is imported, and workers without a GPU are told to use one.
        environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
        environment["OMP_NUM_THREADS"] = "1"
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
            listener.bind(self.address)
            listener.listen(64)
            command = [sys.executable, "-u", __file__, str(listener.fileno()), *more]
            nothing = subprocess.DEVNULL
            self._process = subprocess.Popen(
                command, env=environment, pass_fds=(listener.fileno(),), stdin=nothing, stdout=nothing
            )

    def close(self) -> None:
        """End it, and with it what it forked."""
        self._process.terminate()
        self._process.wait(30)
        self._folder.cleanup()


def fork(address: str, command: list[str], **how: Any) -> Forked:
    """What `subprocess.Popen` would start with the arguments that a controller gives it, by the mould at an address."""
    asked = {"command": command, "cwd": str(how["cwd"]), "environment": dict(how["env"]), "fd": how["pass_fds"][0]}
    said, saying = os.pipe()
    with os.fdopen(said, "rb", buffering=0) as first, os.fdopen(saying, "wb") as last:
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as asking:
            asking.connect(address)
            fds = [asked["fd"], how["stdout"].fileno(), last.fileno()]
            socket.send_fds(asking, [json.dumps(asked).encode()], fds)
        last.close()
        return Forked(int(first.readline()), os.dup(first.fileno()))


def subprocess_with(address: str) -> types.SimpleNamespace:
    """The module `subprocess` as a controller is to see it, whose processes come from the mould at an address."""
    return types.SimpleNamespace(**{**vars(subprocess), "Popen": functools.partial(fork, address)})


def use(address: str) -> None:
    """Called in a conftest: what controls workers in this process has them forked by the mould at an address."""
    vars(importlib.import_module("pytest_attnperf.workers.controller"))["subprocess"] = subprocess_with(address)


class Forked:
    """As much of a Popen object as a controller uses."""

    def __init__(self, pid: int, said: int) -> None:
        self.pid = pid
        self.returncode: int | None = None
        self._said = said

    def poll(self) -> int | None:
        """The exit status, None while it runs."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.wait(0)
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """The exit status, as soon as there is one. Raises subprocess.TimeoutExpired."""
        if self.returncode is None:
            if not select.select([self._said], [], [], timeout)[0]:
                raise subprocess.TimeoutExpired(f"worker {self.pid}", timeout or 0)
            self.returncode = int(os.read(self._said, 16) or -signal.SIGKILL)
            os.close(self._said)
        return self.returncode


def serve(listener: socket.socket, more: list[str]) -> None:
    """Fork a worker for every message, and say how each ended."""
    base_path = [*sys.path]
    sys.path.insert(0, str(ROOT))
    for name in (*IMPORTED, *more):
        importlib.import_module(name)
    gc.freeze()
    running: dict[int, tuple[int, int]] = {}
    while True:
        waiting: list[socket.socket | int] = [listener, *running]
        for ready in select.select(waiting, [], [])[0]:
            if isinstance(ready, int):
                pid, saying = running.pop(ready)
                status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
                os.close(ready)
                with contextlib.suppress(BrokenPipeError):
                    os.write(saying, b"%d" % status)
                os.close(saying)
                continue
            with listener.accept()[0] as asking:
                message, fds, _, _ = socket.recv_fds(asking, MESSAGE_MAX, 3)
            if len(fds) != 3:
                continue
            if not (pid := os.fork()):
                listener.detach()
                become(json.loads(message), fds, base_path)
            os.close(fds[0])
            os.close(fds[1])
            running[os.pidfd_open(pid)] = (pid, fds[2])


def become(asked: dict[str, Any], fds: list[int], base_path: list[str]) -> None:
    """Be the worker that was asked for, as far as it can see."""
    import pytest

    os.setsid()
    os.write(fds[2], b"%d\n" % os.getpid())
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(fds[1], 1)
    os.dup2(fds[1], 2)
    if fds[0] != asked["fd"]:  # which the kernel refuses
        os.dup2(fds[0], asked["fd"], inheritable=False)
    for name in os.listdir("/proc/self/fd"):
        if int(name) > 2 and int(name) != asked["fd"]:
            with contextlib.suppress(OSError):
                os.close(int(name))
    os.chdir(asked["cwd"])
    os.environ.clear()
    os.environ.update(asked["environment"])
    tempfile.tempdir = None
    sys.path[:] = [*filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep)), *base_path]
    importlib.invalidate_caches()
    sys.path_importer_cache.clear()
    sys.argv = ["-c", *asked["command"][3:]]
    sys.exit(pytest.main())


if __name__ == "__main__":
    del sys.path[0]  # the folder of this file
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    serve(socket.socket(fileno=int(sys.argv[1])), sys.argv[2:])
