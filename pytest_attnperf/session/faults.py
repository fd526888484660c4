"""Finds out why a case broke its process or its device: the cause, and the kernel that ran."""

from __future__ import annotations

import re
import tempfile
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path

from pytest_attnperf.errors import AttnperfError, CaseFailedError, WorkerError
from pytest_attnperf.measure.flight_recorder import VARIABLE, WAITING, find_blamed_kernel, find_last_launch
from pytest_attnperf.records.notes import NoteKind, reword_note
from pytest_attnperf.results import CaseResult, Fault
from pytest_attnperf.session.looking import RunBench
from pytest_attnperf.session.settings import Case
from pytest_attnperf.workers.controller import PoisonedError
from pytest_attnperf.workers.interleave import SideFailedError
from pytest_attnperf.workers.pool import Pool, WorkerPool

ASSERT, ADDRESS, MEMORY = "device assert", "illegal address", "out of memory"
HANG, KILLED, CRASH, OTHER = "hang", "killed", "crash", "error"

TEXTS: tuple[tuple[str, tuple[str, ...]], ...] = (
    (ASSERT, ("device-side assert triggered", "device-side assertion `", "hiperrorassert", "cudaerrorassert")),
    (
        MEMORY,
        (
            "cuda out of memory",
            "hip out of memory",
            "hiperroroutofmemory",
            "error: out of memory",
            "hsa_status_error_out_of_resources",
            "can't allocate memory",
            "memoryerror",
        ),
    ),
    (
        ADDRESS,
        (
            "an illegal memory access was encountered",
            "misaligned address",
            "unspecified launch failure",
            "illegal instruction was encountered",
            "memory access fault by gpu node",
            "hiperrorillegaladdress",
            "hiperrorlaunchfailure",
            "hsa_status_error_memory_fault",
            "hsa_status_error_memory_aperture_violation",
            "hsa_status_error_exception",
        ),
    ),
    (HANG, ("gpu hang", "the launch timed out and was terminated")),
)
"""Error texts of CUDA, HIP, ROCr and torch, in lower case; the first kind that fits counts. Assertions come first,
because ROCm also reports them as a hardware exception or a failed launch. torch ends every CUDA error with advice on
how "to enable device-side assertions", which is not an assertion: real ones quote what failed."""

EXAMINED = frozenset({ASSERT, ADDRESS, HANG, KILLED, CRASH})
"""Kinds of faults for which a second run may name the kernel."""

ALIKE = dict.fromkeys((ASSERT, ADDRESS, CRASH), frozenset({ASSERT, ADDRESS, CRASH}))
"""Kinds that one cause may show in turn: a second run waits for every launch, so the error may read differently."""

ASSERTED = (
    re.compile(r"^.+?:\d+: (?P<kernel>[^\n]+?): block: \[\d+,\d+,\d+\]", re.MULTILINE),
    re.compile(r"^.+?:\d+: (?P<kernel>[^\n]+?): Device-side assertion", re.MULTILINE),
    re.compile(r"^\s*Kernel Name:\s*(?P<kernel>\S+)", re.MULTILINE | re.IGNORECASE),
)
"""How CUDA, HIP and ROCr name a kernel: `file:line: kernel: block: [..]`, `file:line: void kernel(int*): Device-side
assertion`, and `Kernel Name: kernel`."""

UNNAMED = frozenset({"", "unknown", "??", "operator"})
"""Names that say nothing: Triton's for a function it did not note, and `operator` for torch's kernels (lambdas)."""

POST_MORTEM_LIMIT_SECONDS = 60.0
POST_MORTEMS_AT_LEAST = 3
"""Number of post-mortems that a run makes in any case. Later ones only for a new pair of backend and kind, so that a
hundred broken cases do not take an hour."""

BY_ITSELF = "named by the error itself"
BY_SECOND_RUN = "the last launch of a second run that waited for every launch"
NO_FAULT = "a second run, which waited for every launch, had no fault: the fault is sporadic, or needs load"
OUTSIDE = "a second run broke, too, but outside every recorded launch"
ENOUGH = "kernel not searched for: a case of this backend broke the same way before"
CANNOT = "kernel not searched for: a worker behind a command is not run a second time"


def classify_fault(error: Exception) -> str:
    """Returns why a process or device broke, from its error and log: 'hang', 'crash', ...; '' if neither broke."""
    if isinstance(error, WorkerError):
        return _classify_worker_error(error)
    if not isinstance(error, CaseFailedError):
        return ""
    if error.out_of_memory:
        return MEMORY
    poisoned = _find_poisoned(error)
    if poisoned is None:
        return _classify_text(error.summary)
    return _classify_text(f"{error.summary}\n{poisoned.log_tail}") or OTHER


def find_kernel_name(text: str) -> str:
    """Returns the first kernel that the text of an error or log names, without signature; '' if it names none."""
    for pattern in ASSERTED:
        for match in pattern.finditer(text):
            name = _strip_signature(match["kernel"])
            if name not in UNNAMED:
                return name
    return ""


def with_fault(bench: RunBench, case: Case, result: CaseResult, error: AttnperfError | Exception) -> CaseResult:
    """Returns an ERROR with its cause (`Fault`) added. After a lost process or device, runs the case again, if allowed,
    to find the kernel. Unchanged if nothing broke."""
    kind = classify_fault(error)
    if not kind:
        return result
    kernel = find_kernel_name(f"{error}\n{_error_log(error)}")
    if kernel:
        return prefix_cause(result, Fault(kind, kernel, BY_ITSELF))
    if kind in EXAMINED and (isinstance(error, WorkerError) or _find_poisoned(error) is not None):
        return prefix_cause(result, _examine_again(bench, case, kind, error))
    return prefix_cause(result, Fault(kind))


def prefix_cause(result: CaseResult, fault: Fault) -> CaseResult:
    """Returns the result with cause and kernel before its summary: 'illegal address in kernel _attn_fwd: ...'."""
    known = fault.kind in result.summary.lower() or fault.kind == OTHER
    cause = "" if known and not fault.kernel else fault.kind
    cause += f" in kernel {fault.kernel}" if fault.kernel else ""
    if not cause:
        return replace(result, fault=fault)
    reasons = tuple(reword_note(reason, f"{cause}: {reason}") for reason in result.reasons[:1]) + result.reasons[1:]
    return replace(result, fault=fault, summary=f"{cause}: {result.summary}", reasons=reasons)


def _classify_worker_error(error: WorkerError) -> str:
    if error.starting:
        return OTHER
    if error.kind in (NoteKind.NO_ANSWER, NoteKind.NOT_READ):
        return HANG
    if found := _classify_text(error.summary):
        return found
    if error.kind is NoteKind.KILLED:
        return KILLED
    return _classify_text(error.log_tail) or CRASH if error.kind is NoteKind.DIED else OTHER


def _classify_text(text: str) -> str:
    lower = text.lower()
    return next((kind for kind, texts in TEXTS if any(each in lower for each in texts)), "")


def _is_fault_text(text: str) -> bool:
    return _classify_text(text) in EXAMINED


def _find_poisoned(error: Exception) -> PoisonedError | None:
    """Returns the PoisonedError (a fault made the GPU unusable): `error` itself or its cause; None if neither is."""
    return next((each for each in (error, error.__cause__) if isinstance(each, PoisonedError)), None)


def _error_log(error: Exception) -> str:
    found = error if isinstance(error, WorkerError) else _find_poisoned(error)
    return "" if found is None else found.log_tail


def _strip_signature(name: str) -> str:
    """Returns `kernel<float>` for `void kernel<float>(int*)`."""
    return name.partition("(")[0].strip().rpartition(" ")[2] if "(" in name else name.strip()


def _examine_again(bench: RunBench, case: Case, kind: str, error: Exception) -> Fault:
    """Runs the case once more in a fresh process that waits for every launch; returns the fault with the kernel, or why
    it was not found or not searched for."""
    pool = _pool_of(bench, error)
    if not isinstance(pool, WorkerPool) or not pool.can_examine:
        return Fault(kind, how=CANNOT)
    met = (case.key.backend, kind)
    if len(bench.examined) >= POST_MORTEMS_AT_LEAST and met in bench.examined:
        return Fault(kind, how=ENOUGH)
    bench.examined.append(met)
    with _flight_folder() as folder:
        return _second_run(bench, case, kind, pool, Path(folder) / "launches")


def _flight_folder() -> AbstractContextManager[str]:
    return tempfile.TemporaryDirectory(prefix="attnperf-flight-")


def _second_run(bench: RunBench, case: Case, kind: str, pool: WorkerPool, path: Path) -> Fault:
    try:
        request = bench.make_request(case, None)
        limit = min(request.limit_seconds, POST_MORTEM_LIMIT_SECONDS)
        pool.examine(replace(request, limit_seconds=limit, repeats=0), {**WAITING, VARIABLE: str(path)})
    except AttnperfError as again:
        return _second_fault(kind, again, path)
    return Fault(kind, how=NO_FAULT)


def _second_fault(kind: str, again: AttnperfError, path: Path) -> Fault:
    """Returns the fault with the kernel that the second run's error `again` or its launches name, or why none."""
    if classify_fault(again) not in ALIKE.get(kind, {kind}):
        return Fault(kind, how=f"a second run ended with another error: {(str(again).splitlines() or [''])[0]}")
    if kernel := find_kernel_name(f"{again}\n{_error_log(again)}"):
        return Fault(kind, kernel, BY_ITSELF)
    launches = path.read_text(errors="replace") if path.exists() else ""
    if kernel := find_blamed_kernel(launches, _is_fault_text):
        return Fault(kind, kernel, BY_SECOND_RUN)
    behind = find_last_launch(launches)
    return Fault(kind, how=f"{OUTSIDE}, behind {behind}" if behind else OUTSIDE)


def _pool_of(bench: RunBench, error: Exception) -> Pool:
    """Returns the worker pool whose process broke: the base side's if the error names it, else the candidate's."""
    against = bench.against
    side = error.side if isinstance(error, (WorkerError, SideFailedError)) else ""
    return bench.pool if against is None or side != against.name else against.pool
