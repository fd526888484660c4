"""The server of a compile worker, which compiles kernels and runs none on a device: one item is one build.

Triton cannot interpret and compile in one process, so a compile worker does nothing else. It sees no GPU. Standard
library only, unless the compiled machine code is to be executed by an interpreter.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from pytest_attnperf.codeobject.building import build_object, unsupported_reasons
from pytest_attnperf.errors import ToolMissingError, UsageError
from pytest_attnperf.records import CaseKey, DeviceInfo, Fingerprint, Role, Samples
from pytest_attnperf.records.code import NOT_EXECUTED, CodeExecution
from pytest_attnperf.records.costs import NO_COSTS, GatedCosts
from pytest_attnperf.workers.protocol import Channel, WorkerState
from pytest_attnperf.workers.server import Server
from pytest_attnperf.workers.sources import loaded_sources

if TYPE_CHECKING:
    from pytest_attnperf.backends import Backend
    from pytest_attnperf.codeobject.built import Built
    from pytest_attnperf.kernel_builds import KernelBuild
    from pytest_attnperf.workers.device_protocol import CheckSeeds
    from pytest_attnperf.workloads.base import Workload


class CompilerDevice:
    """A placeholder for the device that the worker protocol requires; a compile worker has none."""

    def info(self) -> DeviceInfo:
        """Returns a device of kind 'cpu' with the product name 'compiler', because there is no device."""
        return DeviceInfo(kind="cpu", arch="none", product="compiler")

    def fingerprint(self) -> Fingerprint:
        """Returns an empty fingerprint: each code object names its compiler."""
        return Fingerprint(must_match={}, named={})

    def subject(self, backend: Backend, workload: Workload, seeds: CheckSeeds) -> NoReturn:
        """Raises UsageError: a compile worker runs no backend."""
        raise UsageError(
            f"a compile worker runs no backend, but a test calls {backend.name} in it; use code_object.gate() there"
        )

    def canary(self) -> dict[str, Samples]:
        """Returns an empty dict: a compile worker times nothing."""
        return {}

    def healthy(self) -> bool:
        """Returns True: a compiler that raised can be used again."""
        return True


class CompileServer(Server):
    """Answers `open` with the compiled code object of the item, and then only accepts `close`.

    cache    folder of compiled code objects
    execute  whether every object is executed, too, by an interpreter of machine code
    backend  returns the backend of a name, which proofs name
    """

    def __init__(
        self,
        channel: Channel,
        keys: Sequence[CaseKey],
        root: Path,
        cache: Path,
        backend: Callable[[str], Backend],
        *,
        execute: bool = False,
    ) -> None:
        super().__init__(channel, CompilerDevice(), keys, Role.COMPILE, root)
        self._cache = cache
        self._execute = execute
        self._backend = backend

    def serve_case(self, backend: Backend, workload: Workload, costs: GatedCosts = NO_COSTS) -> None:
        """Raises UsageError when the test calls `attnperf.run()` or `gate()`: a compile worker runs no backend."""
        raise UsageError(
            f"a compile worker only compiles, but the test called attnperf.run() or gate() with {backend.name} on "
            f"{workload.id}; call code_object.gate(kernel_build) in the test of a compiled kernel"
        )

    def serve_build(self, declared: KernelBuild, *, execute: bool = False) -> None:
        """Compiles one build, executes it if `execute` or the run says so, sends it as answer to `open`, and waits for
        the next request; the test's body calls this.

        Raises UsageError on a second call in one test, and for a build that is not the item's: it would be compared
        with the item's baseline.
        """
        request = self._meet_request("code_object.gate()")
        key = CaseKey(**request["key"])
        if (declared.kernel, declared.config, declared.arch) != (key.backend, key.workload, key.label):
            raise UsageError(
                f"code_object.gate() was given {declared.id} in the test of {key}; give it the test's own kernel_build"
            )
        self.state = WorkerState.OPEN
        self._reply_with(request, lambda: self._compile_build(declared, execute=execute))
        self.state = WorkerState.FINISHED
        self._pending = self._receive_request()

    def _compile_build(self, declared: KernelBuild, *, execute: bool) -> dict[str, Any]:
        reasons, built, executed = unsupported_reasons(declared), None, None
        if not reasons:
            try:
                built = build_object(declared, self._cache)
                executed = self._execute_build(declared, built) if execute or self._execute else None
            except ToolMissingError as error:  # a compiler may reject a target only while compiling
                reasons = [str(error)]
        sources, foreign = loaded_sources(self._root)
        return {
            "state": "open",
            "unsupported": reasons,
            "built": None if built is None else asdict(built),
            "sources": sources,
            "foreign": foreign,
            "executed": None if executed is None else asdict(executed),
        }

    def _execute_build(self, declared: KernelBuild, built: Built) -> CodeExecution:
        """Returns what executing the object showed. An interpreter of Python that has only the compiler's packages
        executes nothing."""
        missing = [name for name in ("torch", "numpy") if importlib.util.find_spec(name) is None]
        if missing:
            return CodeExecution(NOT_EXECUTED, f"{' and '.join(missing)} not installed here; executing needs both")
        from pytest_attnperf.measure.build_proofs import BuildProver

        return BuildProver(declared, built, self._backend, self._cache).prove()
