"""Runs of pytest that somebody watches: on a pseudo terminal, read as they go on."""

from __future__ import annotations

import os
import pty
import signal
import sys
import time

import pytest

from pytest_attnperf.testing.project import FakeProject

READ_LIMIT_S = 60.0
"""A terminal that is silent for so long fails the test: a loaded machine starts a worker in ten seconds."""


def read_until(fd: int, text: str, so_far: str = "") -> str:
    """What a terminal shows up to this text."""
    os.set_blocking(fd, False)
    until = time.monotonic() + READ_LIMIT_S
    while text not in so_far:
        assert time.monotonic() < until, so_far
        try:
            so_far += os.read(fd, 1 << 16).decode(errors="replace")
        except BlockingIOError:
            time.sleep(0.05)
        except OSError:
            pytest.fail(f"ended without {text!r}: {so_far}")
    return so_far


def start_on_terminal(project: FakeProject, *args: str, **environment: str) -> tuple[int, int]:
    """(process id, terminal) of a pytest that somebody watches."""
    argv = [sys.executable, "-m", "pytest", "-p", "pytest_attnperf.plugin.main", "-p", "no:randomly", *args]
    settings = {"TERM": "xterm", "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTHONIOENCODING": "utf-8"}
    pid, fd = pty.fork()
    if pid == 0:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        os.chdir(project.path)
        os.execve(sys.executable, argv, {**os.environ, **settings, **environment})
    return pid, fd
