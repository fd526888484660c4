"""Runs one backend on one workload in this process without timing: prepares, checks, and calls it in a named range."""

from __future__ import annotations

import contextlib
import importlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pytest_attnperf.environment.device import identify_device
from pytest_attnperf.errors import AttnperfError
from pytest_attnperf.measure import graph_nodes
from pytest_attnperf.measure.proving import Prover
from pytest_attnperf.measure.seeds import Seeds, timed_seed
from pytest_attnperf.measure.timers.capture import capture_graph, warm_up_for_capture
from pytest_attnperf.measure.timers.stream import side_stream
from pytest_attnperf.records import CheckReport, DeviceInfo, Launch

if TYPE_CHECKING:
    from pytest_attnperf.backends import Backend, Prepared
    from pytest_attnperf.workloads.base import Workload

RANGE = "attnperf"
"""Name of the NVTX or ROCTX range around the calls."""

CHECK_SEED = 1


@dataclass(frozen=True)
class SingleRun:
    """A backend bound to a workload on this machine's device."""

    backend: Backend
    workload: Workload
    device: DeviceInfo

    @classmethod
    def make_here(cls, backend: Backend, workload: Workload, *, on_gpu: bool, interpreted: bool) -> SingleRun:
        """Binds backend and workload to torch's current GPU or to the CPU. Raises UsageError if torch sees no GPU."""
        return cls(backend, workload, identify_device("cuda" if on_gpu else "cpu", interpreted=interpreted))

    @property
    def on_gpu(self) -> bool:
        """Whether kernels run on a GPU."""
        return self.device.torch_device == "cuda"

    def prepare(self) -> Prepared:
        """Builds and compiles the backend with the workload's timed inputs."""
        inputs = self.workload.make_inputs(timed_seed(self.workload), self.device.torch_device, planted=False)
        return self.backend.prepare(self.workload, inputs)

    def check(self, prepared: Prepared) -> CheckReport:
        """Calls the backend and compares its result with the reference's; loads the timed inputs afterwards."""
        seeds = Seeds(timed_seed(self.workload), CHECK_SEED, CHECK_SEED)
        prover = Prover(self.backend, self.workload, self.device, seeds)
        judge = prover.make_judge(prepared)
        judge.watch(prepared.run())
        report = judge.check_call("one call", prepared.run, seed=seeds.timed, planted=False)
        prover.load_timed_inputs(prepared)
        return report

    def read_launches(self, prepared: Prepared) -> tuple[tuple[Launch, ...], str]:
        """Returns (launches of one call, read from a graph, ''), or ((), why they are unknown)."""
        if not self.on_gpu:
            return (), "on a CPU nothing is launched"
        try:
            stream = side_stream()
            warm_up_for_capture(prepared.run, stream)
            graph, _ = capture_graph(prepared.run, 1, stream)
            return graph_nodes.read_graph_content(graph).launches, ""
        except AttnperfError as error:
            return (), str(error)

    def repeat(self, prepared: Prepared, warm_up: int, calls: int) -> None:
        """Calls `warm_up` times, then `calls` times inside the range 'attnperf' that profilers see (NVTX, ROCTX).
        It waits for the device before and after both."""
        for count, inside in ((warm_up, contextlib.nullcontext()), (calls, self._open_range())):
            self._wait_for_device()
            with inside:
                for _ in range(count):
                    prepared.run()
                self._wait_for_device()

    @contextlib.contextmanager
    def _open_range(self) -> Iterator[None]:
        """Opens an NVTX or ROCTX range around the context; does nothing on a CPU or if torch was built without it."""
        if not self.on_gpu:
            yield
            return
        nvtx: Any = importlib.import_module("torch.cuda.nvtx")
        opened = False
        with contextlib.suppress(RuntimeError):
            nvtx.range_push(RANGE)
            opened = True
        try:
            yield
        finally:
            if opened:
                nvtx.range_pop()

    def _wait_for_device(self) -> None:
        if self.on_gpu:
            import torch

            torch.cuda.synchronize()
