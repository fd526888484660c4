"""The worker's side of the protocol: serves one controller, one case at a time. Imports no third-party package.

`Server` does not depend on pytest. `plugin/worker_session.py` runs the items: a test's body calls `serve_case`, and
after its teardown the session calls `report_item_finished`.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping, MutableMapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_attnperf import __version__
from pytest_attnperf.errors import CaseFailedError, CodeObjectError, UnsupportedError, UsageError
from pytest_attnperf.measure import flight_recorder
from pytest_attnperf.measure.not_interpreted import InterpretedKernelError
from pytest_attnperf.records import METHOD_VERSION, CaseKey, NotProvenRightError, Role
from pytest_attnperf.records.costs import COMPILE_MS, NO_COSTS, OF_THE_FIRST_CALL, CostSettings, GatedCosts
from pytest_attnperf.records.final_report import FinalReport
from pytest_attnperf.records.raised import format_user_frames
from pytest_attnperf.workers.device_protocol import Device, prepare_or_reasons
from pytest_attnperf.workers.protocol import ALLOWED, PROTOCOL_VERSION, Channel, WorkerState, protocol_error, to_plain
from pytest_attnperf.workers.source_tree import source_id
from pytest_attnperf.workers.sources import OwnCode, loaded_sources

if TYPE_CHECKING:
    from pytest_attnperf.backends import Backend
    from pytest_attnperf.measure.subject_protocol import Subject
    from pytest_attnperf.workloads.base import Workload

Request = dict[str, Any]

BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
"""Random id that the kernel makes at every boot; containers see that of their machine."""

COMPILE_CACHES = ("TRITON_CACHE_DIR", "TORCHINDUCTOR_CACHE_DIR", "TORCH_EXTENSIONS_DIR")
"""Environment variables that name folders of compiled kernels. Compilers read them whenever they look up a kernel."""

FUNCTIONS = "gate"
"""The backend in the keys of tests that are not parametrised by backend and workload."""

COMPILER_VARIABLES = "TRITON_"
"""Prefix of the environment variables that `_own_compilers` restores."""

TOLD = (CodeObjectError, InterpretedKernelError)
"""Errors that are sent without a traceback, because their text says everything."""


class Server:
    """Answers the requests of one controller. docs/worker-protocol.md describes how `state` changes."""

    def __init__(self, channel: Channel, device: Device, keys: Sequence[CaseKey], role: Role, root: Path) -> None:
        self.state = WorkerState.IDLE
        self._channel = channel
        self._device = device
        self._keys = list(keys)
        self._role = role
        self._root = root
        self._pending: Request | None = None
        self._met = False
        self._misused = ""
        self._own_code = OwnCode()
        self._used = False

    def announce(self) -> None:
        """Sends the worker's first message, {'event': 'ready', ...}, with its device, fingerprint and cases."""
        self._channel.send(
            {
                "event": "ready",
                "protocol": PROTOCOL_VERSION,
                "harness": __version__,
                "method": METHOD_VERSION,
                "pid": os.getpid(),
                "host": host_identity(),
                "role": self._role.value,
                "device": to_plain(self._device.info()),
                "fingerprint": to_plain(self._device.fingerprint()),
                "cases": [asdict(key) for key in self._keys],
            }
        )

    def next_item(self) -> Request | None:
        """Answers requests until an `open`, and returns that; None when the controller ends the session."""
        while True:
            request = self._receive_request()
            if request["op"] == "exit":
                self._send_answer(request, {})
                self.state = WorkerState.ENDED
                return None
            if request["op"] == "list":
                self._send_answer(request, {"cases": [asdict(key) for key in self._keys]})
            elif request["op"] == "canary":
                self._used = True
                self._reply_with(request, self._device.canary)
            elif request["op"] == "open":
                self._pending, self._met, self._misused = request, False, ""
                return request

    def refuse(self, request: Request, message: str) -> None:
        """Answers an `open` request with the error `message`, because its item cannot run; the state stays IDLE."""
        self._pending = None
        self._send_error(request, {"kind": "protocol", "message": message})

    def serve_case(self, backend: Backend, workload: Workload, costs: GatedCosts = NO_COSTS) -> None:
        """Answers requests about a case until `close`, in the test's body. Raises UsageError on a second call."""
        request = self._meet_request("attnperf.run() or attnperf.gate()")
        seeds = request["seeds"]
        self.state = WorkerState.OPEN
        subjects: list[Subject] = []
        settings = request.get("costs")
        costs = costs if settings is None else CostSettings(**settings).apply_to(costs)

        def open_subject() -> dict[str, Any]:
            self._require_own_case(request, backend, workload)
            firsts = sorted(OF_THE_FIRST_CALL & costs.limits.keys())
            if settings is not None and firsts and self._used:
                raise UsedError(f"{', '.join(firsts)}: this process has done other work before")
            self._used = True
            wanted = _pin_backend(backend, request.get("pin") or {})
            subjects.append(self._device.subject(wanted, workload, (int(seeds["check"]), int(seeds["final"]))))
            return _prepare_and_answer(subjects[0], workload)

        with _own_compilers(os.environ), _empty_caches(os.environ, needed=COMPILE_MS in costs.limits):
            self._reply_with(request, open_subject)
            self._serve_subject(subjects, costs)

    @staticmethod
    def _require_own_case(request: Request, backend: Backend, workload: Workload) -> None:
        """Raises UsageError if a test that was parametrised by backend and workload runs another one of them."""
        key = CaseKey(**request["key"])
        if key.backend == FUNCTIONS:
            return
        for what, given, wanted in (("backend", backend.name, key.backend), ("workload", workload.id, key.workload)):
            if given != wanted:
                raise UsageError(
                    f"attnperf.run() got the {what} {given!r:.200} in the test of {wanted!r:.200}: pass the fixtures "
                    "`backend` and `workload` on, or write a test without them"
                )

    def _meet_request(self, call: str) -> Request:
        """Returns the running item's `open` request. Raises UsageError, which names `call`, on a second call."""
        if self._met or self._pending is None:
            self._misused = (
                f"{call} was called twice in one test; a test is one case: parametrise it, or write a second test"
            )
            raise UsageError(self._misused)
        self._met = True
        return self._pending

    def report_item_finished(self, outcome: str, text: str) -> None:
        """Answers the request during which the item ended: `close`, or an earlier one if the body ended early.

        After a second call of `attnperf.run()` the item counts as failed, even if its body caught the exception.
        """
        self.state = WorkerState.IDLE
        if self._misused and outcome != "failed":
            outcome, text = "failed", f"UsageError: {self._misused}"
        request, self._pending = self._pending, None
        if request is not None:
            self._send_answer(request, {"state": "finished", "outcome": outcome, "text": text})

    def _serve_subject(self, subjects: Sequence[Subject], costs: GatedCosts) -> None:
        """Answers requests about the opened case until `close`. If opening failed, `subjects` is empty and other
        requests get an error."""
        answers = self._make_answers(subjects[0], costs) if subjects else {}
        while True:
            request = self._receive_request()
            self._pending = request
            operation = request["op"]
            if operation == "close":
                return
            if operation not in answers:
                self._send_error(request, {"kind": "case", "message": "the case could not be opened"})
                continue
            self._reply_with(request, functools.partial(self._compute_answer, answers[operation], request))
            if operation == "finish":
                self.state = WorkerState.FINISHED

    def _compute_answer(self, answer: Callable[[Request], Any], request: Request) -> Any:
        """Returns `answer(request)`. Raises CaseFailedError if the suite has replaced code that judges or measures."""
        if replaced := self._own_code.find_problem():
            raise CaseFailedError(replaced)
        return answer(request)

    def _make_answers(self, subject: Subject, costs: GatedCosts) -> dict[str, Callable[[Request], Any]]:
        """Returns operation -> function that computes its answer from the request, for an open case."""
        return {
            "check": lambda request: subject.check(**_check_arguments(request)),
            "block": lambda request: subject.measure_blocks(*_block_arguments(request)),
            "rotate": lambda request: subject.measure_rotation(float(request["block_us"])),
            "stages": lambda request: subject.measure_stages(float(request["block_us"])),
            "profile": lambda request: subject.profile(),
            "turns": lambda request: subject.prepare_turns(float(request["block_us"]), _timer_argument(request)),
            "turn": lambda request: subject.measure_turn(int(request["place"])),
            "finish": lambda request: self._finish_subject(subject, costs, request),
        }

    def _finish_subject(self, subject: Subject, costs: GatedCosts, request: Request) -> FinalReport:
        trials = tuple(map(str, request.get("trials", ())))
        report = replace(subject.finish(costs, trials), cost_limits=dict(costs.limits))
        sources, foreign = loaded_sources(self._root)
        named = source_id(self._root, sources)
        return replace(report, sources=sources, foreign_sources=tuple(foreign), source_id=named)

    def _receive_request(self) -> Request:
        """Returns the next request that the state allows; answers pings, and errors to forbidden requests, itself."""
        while True:
            request = self._channel.receive()
            operation = request.get("op")
            if operation not in ALLOWED[self.state]:
                self._send_error(request, protocol_error(self.state, operation))
            elif operation == "ping":
                self._send_answer(request, {"state": self.state.value})
            else:
                return request

    def _reply_with(self, request: Request, work: Callable[[], Any]) -> None:
        """Sends what `work` returns, or the error that it raises: a case that raises must not end the worker."""
        try:
            answer = to_plain(work())
        except NotProvenRightError as error:
            self._send_error(request, {"kind": "not_proven", "message": str(error)})
        except Exception as error:
            self._send_error(request, self._make_failure(error))
        else:
            self._send_answer(request, answer)

    def _make_failure(self, error: Exception) -> dict[str, Any]:
        flight_recorder.stop_recording()  # launches of the health check below must not be recorded
        unsupported = isinstance(error, UnsupportedError)
        out_of_memory = isinstance(error, CaseFailedError) and error.out_of_memory
        no_compiler = "" if unsupported else describe_missing_compiler(error)
        return {
            "kind": "case",
            "message": str(error) if unsupported else no_compiler or f"{type(error).__name__}: {error}",
            "unsupported": unsupported,
            "traceback": "" if no_compiler or out_of_memory or isinstance(error, TOLD) else format_user_frames(error),
            "out_of_memory": out_of_memory,
            "used": isinstance(error, UsedError),
            "report": to_plain(getattr(error, "report", None)),
            "poisoned": not self._device.healthy(),
        }

    def _send_answer(self, request: Request, answer: dict[str, Any]) -> None:
        self._channel.send({"id": request.get("id"), "ok": answer})

    def _send_error(self, request: Request, error: dict[str, Any]) -> None:
        self._channel.send({"id": request.get("id"), "error": error})


class UsedError(CaseFailedError):
    """Costs of a first call cannot be measured in this process, because it has served a case or measured a canary."""


@contextlib.contextmanager
def _empty_caches(environment: MutableMapping[str, str], *, needed: bool) -> Iterator[None]:
    """If `needed`, gives the case an empty folder for what Triton, Inductor and torch's extensions compile: a kernel
    that is loaded from a cache takes no time to compile."""
    if not needed:
        yield
        return
    before = {name: environment.get(name) for name in COMPILE_CACHES}
    with tempfile.TemporaryDirectory(prefix="attnperf-compile-", ignore_cleanup_errors=True) as folder:
        environment.update({name: os.path.join(folder, name) for name in COMPILE_CACHES})
        for name in COMPILE_CACHES:
            os.mkdir(environment[name])
        try:
            yield
        finally:
            for name, value in before.items():
                if value is None:
                    environment.pop(name, None)
                else:
                    environment[name] = value


def host_identity(path: Path = BOOT_ID) -> str:
    """Returns 16 hex digits that identify this machine until its next boot, the same in all its containers; '' if the
    kernel has no boot id.
    """
    try:
        return hashlib.sha256(path.read_bytes()).hexdigest()[:16]
    except OSError:
        return ""


@contextlib.contextmanager
def _own_compilers(environment: MutableMapping[str, str]) -> Iterator[None]:
    """Restores the variables that choose Triton's compilers after a case, so that the next case is not affected.

    torch's Inductor sets TRITON_PTXAS_PATH permanently at its first compilation
    (torch/_inductor/runtime/compile_tasks.py): Triton kernels of later cases then got other machine code.
    """
    before = {name: value for name, value in environment.items() if name.startswith(COMPILER_VARIABLES)}
    try:
        yield
    finally:
        for name in [name for name in environment if name.startswith(COMPILER_VARIABLES) and name not in before]:
            del environment[name]
        environment.update(before)


def _pin_backend(backend: Backend, config: Mapping[str, str]) -> Backend:
    """Returns the backend, fixed to `config` if that is not empty. Raises UsageError if that is impossible."""
    if not config:
        return backend
    from pytest_attnperf.measure.pinned_backend import pin_backend

    return pin_backend(backend, config)


def _prepare_and_answer(subject: Subject, workload: Workload) -> dict[str, Any]:
    """Builds and compiles the backend if it supports the workload, and returns the answer to `open`."""
    reasons = prepare_or_reasons(subject)
    return {
        "state": "open",
        "unsupported": reasons,
        "not_timed": "" if reasons else subject.not_timed_reason(),
        "loaded": [] if reasons else to_plain(subject.list_kernel_objects()),
        "figures": {
            "flops": workload.flops,
            "bytes_min": workload.bytes_min,
            "dtype": workload.dtype,
            "cache_state": workload.cache_state,
            "definition": workload.definition(),
        },
    }


def _check_arguments(request: Request) -> dict[str, Any]:
    return {"profiled": bool(request.get("profiled", False)), "repeats": int(request.get("repeats", 0))}


def _block_arguments(request: Request) -> tuple[int, float, float, str]:
    return int(request["max_blocks"]), float(request["block_us"]), float(request["budget_us"]), _timer_argument(request)


def _timer_argument(request: Request) -> str:
    return str(request.get("timer", "auto"))


INDUCTOR_ERROR = "InvalidCxxCompiler"
"""Name of the error class of torch.compile; importing the class would import Inductor."""

TRITON_BUILD = "triton.runtime.build"
"""The module that compiles Triton's driver and launchers with a C compiler."""

ADVICE = "install gcc or clang (Debian: apt-get install gcc g++), or name yours in {variable}"


def describe_missing_compiler(error: BaseException, environ: Mapping[str, str] = os.environ) -> str:
    """Returns a message that a C or C++ compiler is missing and how to install it, if that is why `error` or one of its
    causes was raised; else ''."""
    for one in _list_causes(error):
        if type(one).__name__ == INDUCTOR_ERROR:
            return f"no C++ compiler was found, and torch.compile needs one on a CPU: {ADVICE.format(variable='CXX')}"
        if _raising_module(one) == TRITON_BUILD and not _has_compiler(environ):
            return f"no C compiler was found, and Triton builds its driver with one: {ADVICE.format(variable='CC')}"
    return ""


def _list_causes(error: BaseException) -> Iterator[BaseException]:
    """Yields the error, then its causes, contexts and Inductor's `inner_exception`, each once."""
    seen: set[int] = set()
    left: list[object] = [error]
    while left:
        one = left.pop()
        if isinstance(one, BaseException) and id(one) not in seen:
            seen.add(id(one))
            left += [one.__cause__, one.__context__, getattr(one, "inner_exception", None)]
            yield one


def _raising_module(error: BaseException) -> str:
    """Returns the name of the module in which the error was raised; '' without a traceback."""
    frame = error.__traceback__
    while frame is not None and frame.tb_next is not None:
        frame = frame.tb_next
    return str(frame.tb_frame.f_globals.get("__name__", "")) if frame is not None else ""


def _has_compiler(environ: Mapping[str, str]) -> bool:
    return any(shutil.which(name, path=environ.get("PATH", "")) for name in (environ.get("CC"), "gcc", "clang") if name)
