"""What broke a process or a device, and which kernel: from texts, and from a second run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from pytest_attnperf.baselines.store import BaselineStore
from pytest_attnperf.errors import AttnperfError, BaselineError, CaseFailedError, WorkerError
from pytest_attnperf.gate.policy import Policy
from pytest_attnperf.measure.flight_recorder import VARIABLE, WAITING
from pytest_attnperf.records import CaseKey, Role, Verdict
from pytest_attnperf.records.notes import NoteKind
from pytest_attnperf.results import CaseResult, Fault
from pytest_attnperf.session import faults
from pytest_attnperf.session.faults import classify_fault, find_kernel_name, prefix_cause, with_fault
from pytest_attnperf.session.looking import RunBench
from pytest_attnperf.session.settings import Case, RunMode, RunSettings
from pytest_attnperf.workers.controller import PoisonedError
from pytest_attnperf.workers.conversation import OpenRequest
from pytest_attnperf.workers.interleave import SideFailedError
from pytest_attnperf.workers.launch import LaunchPlan
from pytest_attnperf.workers.pool import WorkerPool

CASE = Case(CaseKey("prefill", "fake.a", "w"), "suites/test_prefill.py::test_prefill[fake.a]", Policy())


def raised(text: str) -> CaseFailedError:
    """A case that raised where the device still answers."""
    return CaseFailedError(text)


def died(cause: str, log: str = "") -> WorkerError:
    """A process that ended in the middle of a check."""
    kind = NoteKind.KILLED if "SIGKILL" in cause else NoteKind.DIED
    return WorkerError(f"worker worker0-1 died during 'check': {cause}", log, kind=kind)


def silent(what: str, kind: NoteKind, log: str = "") -> WorkerError:
    """A process that was killed because it said nothing."""
    return WorkerError(f"worker worker0-1 {what} and was killed", log, kind=kind)


def not_started(**fields: Any) -> WorkerError:
    """A process that did not come up."""
    return WorkerError("worker worker0-1 could not start: the suite could not be collected", starting=True, **fields)


def poisoned(text: str, log: str = "") -> PoisonedError:
    """A case that raised and left no device behind."""
    return PoisonedError(text, traceback="", out_of_memory=False, log_tail=log)


NO_PAGE = "Memory access fault by GPU node-2 (Agent handle: 0x56) on address (nil). Reason: Page not present."
EXCEPTION = ":0:rocdevice.cpp: Callback: Queue aborting with error : HSA_STATUS_ERROR_EXCEPTION: code: 0x1016"
PLACE = "block: [0,0,0], thread: [3,0,0] Assertion `x` failed."
ON_AMD = "a.hip:6: void f(): Device-side assertion `false' failed."

SAMPLES: tuple[tuple[str, Exception], ...] = (
    ("illegal address", raised("CUDA error: an illegal memory access was encountered\nCUDA kernel errors might")),
    (
        "illegal address",  # as torch 2.11 says it on an H200, with advice behind it
        raised(
            "AcceleratorError: CUDA error: an illegal memory access was encountered\n"
            "Search for `cudaErrorIllegalAddress' in the manual for more information.\n"
            "For debugging consider passing CUDA_LAUNCH_BLOCKING=1\n"
            "Compile with `TORCH_USE_CUDA_DSA` to enable device-side assertions.\n"
        ),
    ),
    ("illegal address", raised("RuntimeError: Triton Error [CUDA]: misaligned address")),
    ("illegal address", raised("RuntimeError: CUDA error: unspecified launch failure")),
    ("illegal address", raised("RuntimeError: HIP error: hipErrorIllegalAddress")),
    ("illegal address", died("killed by SIGABRT", NO_PAGE)),
    ("illegal address", died("killed by SIGABRT", EXCEPTION)),
    ("device assert", raised("RuntimeError: CUDA error: device-side assert triggered")),
    ("device assert", died("killed by SIGABRT", f"{ON_AMD}\n{EXCEPTION}")),
    ("device assert", poisoned("HIP error: unspecified launch failure", ON_AMD)),
    ("out of memory", CaseFailedError("out of memory: the call", out_of_memory=True)),
    ("out of memory", raised("OutOfMemoryError: CUDA out of memory. Tried to allocate 8.00 GiB")),
    ("out of memory", died("killed by SIGABRT", "HSA_STATUS_ERROR_OUT_OF_RESOURCES: The runtime failed to allocate")),
    ("hang", silent("did not answer 'block' within 5 s", NoteKind.NO_ANSWER, NO_PAGE)),
    ("hang", silent("did not read 'open' within 30 s", NoteKind.NOT_READ)),
    ("killed", died("killed by SIGKILL", "CUDA out of memory was said by a case before")),
    ("killed", died("exit status 137 (SIGKILL)")),
    ("crash", died("killed by SIGSEGV")),
    ("crash", died("exit status 3")),
    ("error", not_started()),
    ("error", not_started(kind=NoteKind.NO_ANSWER)),
    ("error", not_started(kind=NoteKind.DIED)),
    ("error", WorkerError("worker worker0-1 sent an invalid answer to 'check': x", NO_PAGE)),
    ("error", poisoned("CUDA error: unknown error")),
    ("", raised("CompilationError: at 3:4")),
    ("", BaselineError("rope.json is not JSON")),
)  # fmt: skip


@pytest.mark.parametrize(("kind", "error"), SAMPLES, ids=range(len(SAMPLES)))
def test_every_text_has_its_kind(kind: str, error: Exception) -> None:
    """What CUDA, HIP, ROCr, torch and the controller say of a broken process or device, one sample of each."""
    assert classify_fault(error) == kind


def test_an_error_that_names_a_side_keeps_its_kind_and_log() -> None:
    """In a pair the error is wrapped to say which side it was; what it was made from still tells."""
    wrapped = SideFailedError("the working tree", "RuntimeError: x", "")
    wrapped.__cause__ = poisoned("RuntimeError: x", "CUDA error: misaligned address")
    assert classify_fault(wrapped) == "illegal address"


@pytest.mark.parametrize(
    ("text", "kernel"),
    [
        (f"TensorCompare.cu:112: _assert_async_cuda_kernel: {PLACE}", "_assert_async_cuda_kernel"),
        (f"a.cu:7: void scale<float>(float*, int): {PLACE}", "scale<float>"),
        ("vectoradd.cpp:50: void vectoradd(float *__restrict, int): Device-side assertion `0' failed.", "vectoradd"),
        ("some log\n\tKernel Name: _attn_fwd\n", "_attn_fwd"),
        (f"k.py:248: unknown: {PLACE}", ""),
        (f"IndexKernel.cu:93: operator(): {PLACE}", ""),
        (f"C:/c10/core/DynamicCast.h:78: {PLACE}", ""),
        ("CUDA error: an illegal memory access was encountered", ""),
    ],
)  # fmt: skip
def test_a_kernel_that_the_error_names(text: str, kernel: str) -> None:
    """Assertions and ROCr name it by themselves; a name that is none (Triton's 'unknown', a lambda) is not taken."""
    assert find_kernel_name(text) == kernel


def test_the_summary_begins_with_cause_and_kernel() -> None:
    """In the summary and in its reason, so that a failure does not show the same line twice; nothing is said twice."""
    result = CaseResult(CASE.key, CASE.nodeid, Verdict.ERROR, "worker died", reasons=("worker died",))
    found = prefix_cause(result, Fault("crash", "_attn_fwd"))
    assert found.summary == "crash in kernel _attn_fwd: worker died"
    assert found.reasons == (found.summary,)
    told_before = CaseResult(CASE.key, CASE.nodeid, Verdict.ERROR, "out of memory: the call")
    assert prefix_cause(told_before, Fault("out of memory")).summary == "out of memory: the call"


@dataclass
class Examined(WorkerPool):
    """A pool whose second runs end in `again`, having launched what `launches` says."""

    again: AttnperfError | None = None
    launches: str = ""
    asked: list[tuple[OpenRequest, Mapping[str, str]]] = field(default_factory=list)

    def examine(self, request: OpenRequest, environment: Mapping[str, str]) -> None:
        """Write what a recorder would, and end."""
        self.asked.append((request, environment))
        Path(environment[VARIABLE]).write_text(self.launches)
        if self.again is not None:
            raise self.again


@pytest.fixture
def bench(tmp_path: Path) -> RunBench:
    """A bench over such a pool; nothing is started."""
    pool = Examined(LaunchPlan((), tmp_path, tmp_path, Role.DEVICE))
    settings = RunSettings(RunMode.GATE, cases=1, case_limit_seconds=300.0, determinism_repeats=3)
    return RunBench(settings, pool, BaselineStore(tmp_path), tmp_path)


def fault_of(bench: RunBench, error: Exception, backend: str = "fake.a") -> Fault:
    """What is said of an error of a case of this backend."""
    case = Case(CaseKey("prefill", backend, "w"), "nodeid", Policy())
    found = with_fault(bench, case, CaseResult(case.key, "nodeid", Verdict.ERROR, "broken"), error).fault
    assert found is not None
    return found


def pool_of(bench: RunBench) -> Examined:
    """The bench's pool."""
    assert isinstance(bench.pool, Examined)
    return bench.pool


def test_a_second_run_names_the_kernel(bench: RunBench) -> None:
    """Every launch of it is waited for, it may take a minute at most, repeats nothing, and promises no other case."""
    pool = pool_of(bench)
    pool.again, pool.launches = died("killed by SIGSEGV"), "> scale\n< scale\n> _attn_fwd\n"
    assert fault_of(bench, died("killed by SIGSEGV")) == Fault("crash", "_attn_fwd", faults.BY_SECOND_RUN)
    request, environment = pool.asked[0]
    assert (request.limit_seconds, request.repeats, request.next_key) == (60.0, 0, None)
    assert environment.items() >= WAITING.items()


def test_a_second_run_without_a_fault_is_said(bench: RunBench) -> None:
    """No kernel is accused: it is a race, or comes of what ran before."""
    pool_of(bench).launches = "> scale\n< scale\n"
    assert fault_of(bench, died("killed by SIGSEGV")) == Fault("crash", "", faults.NO_FAULT)


def test_a_second_run_that_ends_otherwise_accuses_nobody(bench: RunBench) -> None:
    """An error of another sort, also a hang where nothing hung before, is quoted; a death outside of every recorded
    launch is said with what came before."""
    pool = pool_of(bench)
    pool.again, pool.launches = raised("no such thing"), "> scale\n"
    assert fault_of(bench, died("killed by SIGSEGV")).how == "a second run ended with another error: no such thing"
    pool.again = silent("did not answer 'open' within 5 s", NoteKind.NO_ANSWER)
    assert fault_of(bench, died("killed by SIGSEGV")).how.startswith("a second run ended with another error: worker")
    pool.again, pool.launches = died("killed by SIGSEGV"), "> scale\n< scale\n"
    assert fault_of(bench, died("killed by SIGSEGV")) == Fault("crash", "", f"{faults.OUTSIDE}, behind scale")


def test_a_hundred_broken_cases_do_not_take_an_hour(bench: RunBench) -> None:
    """Three second runs, and beyond them one for each backend and kind; other errors get none."""
    for _ in range(9):
        last = fault_of(bench, died("killed by SIGSEGV"))
    assert len(pool_of(bench).asked) == 3
    assert last.how == faults.ENOUGH
    fault_of(bench, died("killed by SIGSEGV"), "fake.b")
    fault_of(bench, died("killed by SIGKILL"), "fake.b")
    assert len(pool_of(bench).asked) == 5
    fault_of(bench, CaseFailedError("out of memory: x", out_of_memory=True), "fake.c")
    fault_of(bench, not_started(), "fake.c")
    assert len(pool_of(bench).asked) == 5
