"""`attnperf worker`: the remote end of a worker that is reached through a command. See docs/worker-protocol.md.

It moves the protocol away from standard input and output, reads the start line, runs pytest as a worker, and watches
it. It uses the standard library only, because our dependencies may be missing here.
"""

from __future__ import annotations

import argparse
import contextlib
import fcntl
import os
import select
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NoReturn

from pytest_attnperf.errors import UsageError
from pytest_attnperf.workers.command_plan import StartLine
from pytest_attnperf.workers.launch import LaunchPlan
from pytest_attnperf.workers.protocol import open_pidfd

GROUP = "also"
ORDER = 230
SUMMARY = "serve a pytest of another tree or machine over stdin and stdout; not typed by hand"
DESCRIPTION = """The remote end of `pytest --attnperf --attnperf-against="COMMAND"`, and of `--attnperf-candidate`.
Not typed by hand: COMMAND is, for example, `docker run -i --gpus all IMAGE attnperf worker --rootdir /src`. Two images:
examples/containers/compare_images.py, docs/containers.md. Reads a start line on standard input, runs
pytest in DIR as a worker, and speaks the worker protocol on standard input and output; everything that is printed goes
to standard error. It ends when standard input ends."""
EPILOG = """exit status: pytest's, or 128 + N where signal N killed it; 2 the first line on standard input is not a
start line, or the tree does not exist

examples:
  docker run -i --gpus all IMAGE attnperf worker --rootdir /src
  pytest --attnperf --attnperf-against="ssh gpu1 attnperf worker --rootdir base" suites/
"""

FIRST_FREE_FD = 10
START_LINE_BYTES = 1 << 20
END_SECONDS = 2.0
"""Seconds that pytest has to end by itself after standard input ends. A worker inside a kernel never ends by itself."""
POLL_MS = 500
"""Milliseconds between checks whether pytest has ended, if the kernel has no pidfd."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments and options of `attnperf worker` to its parser."""
    parser.add_argument(
        "--rootdir", type=Path, default=Path(), metavar="DIR", help="the tree to run (default: the current folder)"
    )


def run(options: argparse.Namespace) -> int:
    """Serves one worker of a run on another machine. Returns pytest's exit status, 128 + N if signal N killed it.

    Raises UsageError if standard input does not begin with a start line, or no file that it names exists under DIR.
    """
    if os.isatty(0):
        raise UsageError(
            "`attnperf worker` is not typed by hand: it is what COMMAND in --attnperf-against=COMMAND runs, with "
            "the worker protocol on its standard input and output"
        )
    read_fd, write_fd = _take_standard_fds()
    start = StartLine.parse(_first_line(read_fd))
    root: Path = options.rootdir.resolve()
    files = _list_present(root, start.files)
    signal.signal(signal.SIGTERM, _end_on_signal)
    with tempfile.TemporaryDirectory(prefix="attnperf-worker-") as scratch:
        plan = LaunchPlan(
            files=files,
            rootdir=root,
            scratch=Path(scratch),
            role=start.role,
            passed_options=start.options,
            extra_environment=start.environment,
        )
        return _to_exit_status(_serve(plan, start.name, read_fd, write_fd))


def _take_standard_fds() -> tuple[int, int]:
    """Returns new descriptors of standard input and output, for the protocol. Afterwards standard output is standard
    error and standard input is empty, so that what a kernel prints cannot corrupt the protocol."""
    read_fd, write_fd = (fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, FIRST_FREE_FD) for fd in (0, 1))
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    os.dup2(2, 1)
    return read_fd, write_fd


def _first_line(fd: int) -> bytes:
    """Returns the first line of `fd`, read byte by byte, because the rest belongs to pytest. Raises UsageError if it is
    incomplete or too long."""
    line = bytearray()
    while not line.endswith(b"\n"):
        byte = os.read(fd, 1)
        if not byte:
            raise UsageError(
                f"standard input ended before the start line was whole; it held {bytes(line[:120])!r}. Let COMMAND of "
                "--attnperf-against pass its standard input on, e.g. docker run -i"
            )
        line += byte
        if len(line) > START_LINE_BYTES:
            raise UsageError(
                f"the first line on standard input is longer than {START_LINE_BYTES} bytes, so it is no start line; "
                f"it begins with {bytes(line[:120])!r}"
            )
    return bytes(line)


def _list_present(root: Path, files: tuple[str, ...]) -> tuple[str, ...]:
    """Returns those of `files` that exist under `root`, and names the others on standard error. Raises UsageError if
    `root` is no folder or has none."""
    if not root.is_dir():
        raise UsageError(f"--rootdir={root} is no folder; name the tree that holds {files[0]}")
    present = tuple(file for file in files if (root / file).exists())
    if not present:
        raise UsageError(
            f"none of the {len(files)} test files exists in {root}, e.g. {files[0]}; name their tree by --rootdir=DIR"
        )
    for file in files:
        if file not in present:
            sys.stderr.write(f"attnperf worker: {root} has no {file}; it is left out\n")
    return present


def _serve(plan: LaunchPlan, name: str, read_fd: int, write_fd: int) -> int:
    """Runs pytest until it or standard input ends, then kills its process group. Returns pytest's exit status, -N if
    signal N killed it."""
    plan.link_harness()
    process = subprocess.Popen(
        plan.make_command(f"{read_fd},{write_fd}", name),
        cwd=plan.rootdir,
        env=plan.make_environment(os.environ, name, None),
        pass_fds=(read_fd, write_fd),
        start_new_session=True,
    )
    # Only pytest holds standard output now, so that the other side reads an end of file when it dies.
    os.close(write_fd)
    try:
        _wait_for_end(process, read_fd)
    finally:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
    return process.wait()


def _wait_for_end(process: subprocess.Popen[bytes], read_fd: int) -> None:
    """Waits until pytest ends, or until END_SECONDS after the other end of standard input is closed.

    It watches from outside, because a worker inside a kernel does not read. Through a container, this is the only way
    in which the controller can end it.
    """
    poller = select.poll()
    poller.register(read_fd, select.POLLRDHUP)  # and POLLHUP, which is always reported
    pidfd = open_pidfd(process.pid)
    if pidfd is not None:
        poller.register(pidfd, select.POLLIN)
    limit_ms = None if pidfd is not None else POLL_MS
    while process.poll() is None:
        if read_fd in {fd for fd, _ in poller.poll(limit_ms)}:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(END_SECONDS)
            return


def _to_exit_status(code: int) -> int:
    if code >= 0:
        return code
    sys.stderr.write(f"attnperf worker: pytest was killed by {signal.Signals(-code).name}\n")
    return 128 - code


def _end_on_signal(number: int, frame: object) -> NoReturn:
    """Exits with 128 + signal number when this process is asked to end (`docker stop`), so that pytest and the scratch
    folder are cleaned up."""
    sys.exit(128 + number)
