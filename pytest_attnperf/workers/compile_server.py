"""The worker's side where kernels are compiled and nothing runs: one item is one build. Standard library only.

Triton cannot interpret and compile in one process, so such a worker does nothing else; it is shown no GPU.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from pytest_attnperf.codeobject.building import build_object, unsupported_reasons
from pytest_attnperf.errors import ToolMissingError, UsageError
from pytest_attnperf.records import CaseKey, DeviceInfo, Fingerprint, Role, Samples
from pytest_attnperf.workers.protocol import Channel, WorkerState
from pytest_attnperf.workers.server import Server
from pytest_attnperf.workers.sources import loaded_sources

if TYPE_CHECKING:
    from pytest_attnperf.backends import Backend
    from pytest_attnperf.kernel_builds import KernelBuild
    from pytest_attnperf.workers.device import CheckSeeds
    from pytest_attnperf.workloads.base import Workload


class CompilerDevice:
    """Stands where the protocol wants a device: there is none."""

    def info(self) -> DeviceInfo:
        """A compiler."""
        return DeviceInfo(kind="cpu", arch="none", product="compiler")

    def fingerprint(self) -> Fingerprint:
        """Empty: each code object names its own compiler."""
        return Fingerprint(must_match={}, named={})

    def subject(self, backend: Backend, workload: Workload, seeds: CheckSeeds) -> NoReturn:
        """Refused: nothing runs here."""
        raise UsageError(f"a compile worker runs no backend, and was asked for {backend.name}")

    def canary(self) -> dict[str, Samples]:
        """Nothing to time."""
        return {}

    def healthy(self) -> bool:
        """A compiler that raised can be asked again."""
        return True


class CompileServer(Server):
    """Answers `open` with what the item's kernel was compiled to, and then takes `close` only.

    cache   where compiled objects are kept
    """

    def __init__(self, channel: Channel, keys: Sequence[CaseKey], root: Path, cache: Path) -> None:
        super().__init__(channel, CompilerDevice(), keys, Role.COMPILE, root)
        self._cache = cache

    def serve_case(self, backend: Backend, workload: Workload) -> None:
        """Refuse a timed case: it is not asked for here."""
        raise UsageError(f"a compile worker runs no backend, and was asked for {backend.name} on {workload.id}")

    def serve_build(self, declared: KernelBuild) -> None:
        """Serve one build until it is closed; called from inside the test's body.

        Raises UsageError on a second call in one test, and for another build than the item's: it would be held against
        the item's baseline.
        """
        request = self._meet_request("code_object.gate()")
        key = CaseKey(**request["key"])
        if (declared.kernel, declared.config, declared.arch) != (key.backend, key.workload, key.label):
            raise UsageError(
                f"code_object.gate() was given {declared.id} in the test of {key}; give it the test's own kernel_build"
            )
        self.state = WorkerState.OPEN
        self._reply_with(request, lambda: self._compile_build(declared))
        self.state = WorkerState.FINISHED
        self._pending = self._receive_request()

    def _compile_build(self, declared: KernelBuild) -> dict[str, Any]:
        reasons, built = unsupported_reasons(declared), None
        if not reasons:
            try:
                built = asdict(build_object(declared, self._cache))
            except ToolMissingError as error:  # some targets a compiler refuses only while it compiles
                reasons = [str(error)]
        sources, foreign = loaded_sources(self._root)
        return {"state": "open", "unsupported": reasons, "built": built, "sources": sources, "foreign": foreign}
