"""Fresh processes, forked from one that has imported everything and touched no device."""

from __future__ import annotations

import gc
import multiprocessing
import os
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

LIMIT_S = 240.0
"""For one process's answer. A child that needs longer is ended."""

_NOISE = tempfile.NamedTemporaryFile(prefix="attnperf-quality-", suffix=".log")  # noqa: SIM115
"""What children write to stderr: torch's profiler writes lines that say nothing. Shown where a child has died."""


def preload(device: str) -> None:
    """Import what children need, so that forking one is all that it costs to start."""
    import pytest  # noqa: F401
    import pytest_benchmark.plugin  # noqa: F401
    import torch  # noqa: F401

    if device == "gpu":
        import triton.testing  # noqa: F401
    gc.collect()
    gc.freeze()  # a child's collector would write to every object, and copy its page


def forked(work: Callable[[], Any]) -> Any:
    """What `work` returns in a fresh process. Raises RuntimeError with its traceback, or when it takes too long."""
    return Forked(work).result()


class Forked:
    """A fresh process that computes something; several may run at once where nothing is timed."""

    def __init__(self, work: Callable[[], Any]) -> None:
        self._receiving, sending = multiprocessing.Pipe(duplex=False)
        self._pid = fork(lambda: sending.send(answered(work)))
        sending.close()

    def result(self, limit_s: float = LIMIT_S) -> Any:
        """Wait for it."""
        try:
            return received(self._receiving, limit_s)
        finally:
            end(self._pid)


def fork(work: Callable[[], Any]) -> int:
    """Run `work` in a child, which then ends without what the parent would do at its own end; the child's pid."""
    sys.stdout.flush()
    sys.stderr.flush()
    pid = os.fork()
    if pid:
        return pid
    try:
        os.dup2(_NOISE.fileno(), 2)
        work()
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(0)


def answered(work: Callable[[], Any]) -> tuple[bool, Any]:
    """(True, what `work` returns), or (False, its traceback)."""
    try:
        return True, work()
    except BaseException:
        return False, traceback.format_exc()


def received(pipe: Connection, limit_s: float) -> Any:
    """What a child has answered. Raises RuntimeError with its traceback, or what it wrote before it died."""
    if not pipe.poll(limit_s):
        raise RuntimeError(f"a measuring process has not answered within {limit_s:g} s")
    try:
        good, answer = pipe.recv()
    except EOFError:
        said = Path(_NOISE.name).read_text(errors="replace")[-2000:]
        raise RuntimeError(f"a measuring process has ended without an answer; it said:\n{said}") from None
    if not good:
        raise RuntimeError(f"a measuring process failed:\n{answer}")
    return answer


def end(pid: int) -> None:
    """Wait a little for a child that should have ended, then end it."""
    for _ in range(200):
        if os.waitpid(pid, os.WNOHANG)[0]:
            return
        time.sleep(0.01)
    os.kill(pid, 9)
    os.waitpid(pid, 0)
