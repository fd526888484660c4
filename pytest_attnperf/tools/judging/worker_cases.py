"""The cases that `attnperf judge` has its workers serve; the test files that it writes for them call these.

Three processes have a part, and only what the second says can make a kernel RIGHT:

1. The kernel's process (`measure.kernel_process`) imports the kernel's file and calls it. It holds no reference, no
   seed and no judge, and cannot read the reference's file.
2. The judging worker never imports the kernel's file. It starts the first process, lets it import the kernel, draws a
   secret from which all seeds follow, and judges the remote function as `attnperf.gate` judges any function. It also
   times the reference, before anything of the kernel has run.
3. The inner worker, under the same limits, imports reference and kernel. There the judge sees what cannot be seen from
   outside: inputs that a call changes, work done late, operators and kernels that ran. It times the call. A kernel may
   forge all of that, so it can only add a failure. The reference's file is closed to it before the kernel is imported,
   but its function is in memory: only the first process is without it.

The first has ended before the third imports the kernel, and neither can read what the other has written.
"""

from __future__ import annotations

import hashlib
import json
import os
import secrets
import socket
import subprocess
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_attnperf.measure.function_file import find_function, load_file
from pytest_attnperf.measure.remote_function import (
    RemoteFailure,
    RemoteFunction,
    RemoteKernelError,
    RemoteProtocolError,
    Wire,
)
from pytest_attnperf.tools.judging import confinement
from pytest_attnperf.tools.judging.confinement import Confinement
from pytest_attnperf.tools.judging.process_tree import end_descendants

if TYPE_CHECKING:
    from pytest_attnperf.plugin.fixtures import CaseHandle

START_SECONDS = 120.0
SEED_BITS = 32
"""Bits of seeds: numpy's generators take no more."""

REFERENCE_CASE, REMOTE_CASE, INNER_CASE = "test_reference", "test_remote", "test_inner"
JUDGING_FILE, INNER_FILE = "test_judging.py", "test_inner.py"
_HEAD = """from pytest_attnperf.tools.judging import worker_cases

SPEC = worker_cases.read_spec({spec!r})
"""
JUDGING_TEXT = f"""{_HEAD}REMOTE = worker_cases.start_kernel_process(SPEC)


def {REFERENCE_CASE}(attnperf):
    worker_cases.serve_reference(attnperf, SPEC, REMOTE)


def {REMOTE_CASE}(attnperf):
    worker_cases.serve_remote(attnperf, SPEC, REMOTE)
"""
INNER_TEXT = f"""{_HEAD}

def {INNER_CASE}(attnperf):
    worker_cases.serve_inner(attnperf, SPEC)
"""


@dataclass(frozen=True)
class CaseSpec:
    """What both workers are told.

    kernel, function        the kernel's file and the function in it
    reference               file of the reference; `reference_name` and `inputs_name` are functions in it
    seconds                 wall time of each process that runs the kernel
    bytes_most              most bytes of the outputs of a call
    seed                    of the secret from which seeds follow; None draws one
    report                  file into which the judging worker writes a `RemoteReport`
    command, environment    of the kernel's process, without the number of its descriptor
    log, folder             its output, and the folder that it works in
    inner                   what the inner worker may still open once it has the reference
    host_sync               whether the call may wait for the device
    """

    kernel: str
    function: str
    reference: str
    reference_name: str
    inputs_name: str
    seconds: float
    bytes_most: int
    report: str
    command: tuple[str, ...]
    environment: dict[str, str]
    log: str
    folder: str
    inner: Confinement
    seed: int | None = None
    host_sync: bool = False
    flops: float | None = None
    bytes_min: float | None = None


@dataclass
class RemoteReport:
    """What the judging worker has seen of the kernel's process.

    seed             the secret from which all seeds follow; None if none was drawn
    input_seeds      seeds with which inputs were made
    load_seconds     time that importing the kernel's file took
    calls            number of calls; `answer_us` is the shortest time of one from outside
    moved_bytes      bytes of the inputs and outputs of a call
    failure          why the kernel gave no result; None if it gave one
    """

    seed: int | None = None
    input_seeds: list[int] = field(default_factory=list)
    load_seconds: float = 0.0
    calls: int = 0
    answer_us: float = 0.0
    moved_bytes: int = 0
    failure: RemoteFailure | None = None


@dataclass(frozen=True)
class KernelProcess:
    """The kernel's process and the connection to it."""

    process: subprocess.Popen[bytes]
    wire: Wire

    def describe_end(self) -> str:
        """Returns how the process has ended, in words."""
        try:
            code = self.process.wait(2.0)
        except subprocess.TimeoutExpired:
            return "it closed the connection"
        return f"it was killed by signal {-code}" if code < 0 else f"it ended with exit status {code}"

    def end(self) -> None:
        """Kills the process and all that it has started."""
        end_descendants(os.getpid())
        self.wire.connection.close()


def read_spec(path: str) -> CaseSpec:
    """Reads a file that `write_spec` has written."""
    given = json.loads(Path(path).read_text(encoding="utf-8"))
    inner = confinement.parse_confinement(given["inner"])
    return CaseSpec(**{**given, "command": tuple(given["command"]), "inner": inner})


def write_spec(path: Path, spec: CaseSpec) -> None:
    """Writes a spec as JSON."""
    path.write_text(json.dumps(asdict(spec)), encoding="utf-8")


def read_remote_report(path: Path) -> RemoteReport:
    """Reads what the judging worker has written; an empty report if it has not come that far."""
    try:
        given = json.loads(path.read_text(encoding="utf-8"))
        return RemoteReport(**{**given, "failure": RemoteFailure(**given["failure"]) if given["failure"] else None})
    except (OSError, ValueError):
        return RemoteReport()


def start_kernel_process(spec: CaseSpec) -> KernelProcess:
    """Starts the kernel's process, which imports torch and waits. Nothing of the kernel runs yet."""
    ours, theirs = socket.socketpair()
    with theirs, open(spec.log, "wb") as log:
        process = subprocess.Popen(
            [*spec.command, str(theirs.fileno())],
            cwd=spec.folder,
            env=spec.environment,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            pass_fds=(theirs.fileno(),),
            start_new_session=True,
        )
    return KernelProcess(process, Wire(ours))


def load_reference(spec: CaseSpec) -> tuple[Callable[..., Any], Callable[..., Any]]:
    """Returns (reference, function that makes inputs) of the reference's file."""
    module = load_file(spec.reference, "reference_of_judgement")
    name = os.path.basename(spec.reference)
    return find_function(module, spec.reference_name, name), find_function(module, spec.inputs_name, name)


def serve_reference(handle: CaseHandle, spec: CaseSpec, remote: KernelProcess) -> None:
    """Serves the case of the reference itself, whose time is what the kernel's is compared with."""
    await_ready(remote)
    reference, make_inputs = load_reference(spec)
    handle.gate(
        "reference", reference, reference=reference, inputs=make_inputs, flops=spec.flops, bytes_min=spec.bytes_min,
        host_sync=spec.host_sync,
    )  # fmt: skip


def await_ready(remote: KernelProcess) -> None:
    """Waits until the kernel's process has imported torch; a second call does nothing. Raises RemoteKernelError."""
    if remote.wire.deadline is not None:
        return
    remote.wire.deadline = time.monotonic() + START_SECONDS
    try:
        remote.wire.receive()
    except RemoteProtocolError as error:
        said = remote.describe_end() if error.ended else str(error)
        raise RemoteKernelError(f"the kernel's process could not start: {said}") from error


def serve_remote(handle: CaseHandle, spec: CaseSpec, remote: KernelProcess) -> None:
    """Serves the case of the kernel in its own process, judged from here on inputs that it cannot know before."""
    from pytest_attnperf.workloads.adhoc import with_own_seeds

    await_ready(remote)
    reference, make_inputs = load_reference(spec)
    function = RemoteFunction(remote.wire, spec.bytes_most, remote.describe_end)
    report = RemoteReport()
    try:
        remote.wire.deadline = time.monotonic() + spec.seconds
        started = time.monotonic()
        function.load(spec.kernel, spec.function)
        report.load_seconds = round(time.monotonic() - started, 3)
        report.seed = secret = secrets.randbits(SEED_BITS) if spec.seed is None else spec.seed

        def choose_seed(seed: int) -> int:
            chosen = derive_seed(secret, seed)
            if chosen not in report.input_seeds:
                report.input_seeds.append(chosen)
            return chosen

        handle.gate(
            "kernel", function, reference=reference, inputs=with_own_seeds(make_inputs, choose_seed), host_sync=True
        )
    finally:
        report.failure = function.failure
        report.calls = len(function.answer_us)
        report.answer_us = round(min(function.answer_us, default=0.0), 3)
        report.moved_bytes = function.sent_bytes + function.returned_bytes
        Path(spec.report).write_text(json.dumps(asdict(report)), encoding="utf-8")
        remote.end()


def derive_seed(secret: int, seed: int) -> int:
    """Returns a seed of SEED_BITS that follows from a secret and a seed."""
    return int.from_bytes(hashlib.sha256(f"{secret}:{seed}".encode()).digest()[: SEED_BITS // 8], "big")


def serve_inner(handle: CaseHandle, spec: CaseSpec) -> None:
    """Serves the case of the kernel imported here; before, its process gives up the reference's file."""
    reference, make_inputs = load_reference(spec)
    if confinement.read_landlock_version():
        confinement.restrict_files(spec.inner)
    kernel = find_function(load_file(spec.kernel), spec.function, os.path.basename(spec.kernel))
    handle.gate(
        "kernel", kernel, reference=reference, inputs=make_inputs, flops=spec.flops, bytes_min=spec.bytes_min,
        host_sync=spec.host_sync,
    )  # fmt: skip
