"""Runs one question in another process, because the answer may hang, crash or print rubbish."""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from pytest_attnperf.environment.system import ProbeError

_running: set[subprocess.Popen[str]] = set()
"""Running processes that `answer_of` started, each in a session of its own."""


def answer_of(command: Sequence[str], *, limit_s: float, environ: Mapping[str, str], folder: Path) -> dict[str, object]:
    """Runs a command and returns the JSON object in the last line that it prints.

    After `limit_s` seconds, kills the process and all that it started. Raises ProbeError if it cannot be started, takes
    longer, fails (with the last line of its error output) or prints something else."""
    try:
        process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL, text=True,
            errors="replace", env=dict(environ), cwd=folder, start_new_session=True,
        )  # fmt: skip
    except OSError as error:
        raise ProbeError(f"{command[0]} cannot be started: {error.strerror}") from error
    _running.add(process)
    try:
        out, err = process.communicate(timeout=limit_s)
    except subprocess.TimeoutExpired:
        raise ProbeError(f"the process did not answer in {limit_s:g} s") from None
    finally:
        _end_process(process)
        _running.discard(process)
    if process.returncode < 0:
        raise ProbeError(f"the process was ended by signal {-process.returncode}")
    if process.returncode:
        raise ProbeError(last_error(err) or f"the process ended with status {process.returncode}")
    return _parse_object(out)


def last_error(text: str) -> str:
    """Returns the last line of an error output that is not blank, because it names the error; '' if all are."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1] if lines else ""


@atexit.register
def end_all() -> None:
    """Kills the processes of `answer_of` that still run, so that none stays on a GPU. Ctrl-C does not reach them."""
    for process in tuple(_running):
        _kill(process)


def _kill(process: subprocess.Popen[str]) -> None:
    """Kills a process that has not ended, and its process group, because its children may hold its pipes open."""
    if process.returncode is None:  # not waited for yet, so the id still belongs to it
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)


def _end_process(process: subprocess.Popen[str]) -> None:
    _kill(process)
    process.wait()
    for pipe in (process.stdout, process.stderr):
        if pipe is not None:
            pipe.close()


def _parse_object(out: str) -> dict[str, object]:
    lines = [line for line in out.splitlines() if line.strip()]
    try:
        found = json.loads(lines[-1]) if lines else None
    except ValueError:
        found = None
    if not isinstance(found, dict):
        raise ProbeError(f"the last line of its output is {(lines[-1] if lines else '')[:60]!r}, not a JSON object")
    return found
