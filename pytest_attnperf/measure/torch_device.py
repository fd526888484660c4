"""The real device, through torch: a worker measures on it unless a conftest provides another."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pytest_attnperf.environment.device import identify_device
from pytest_attnperf.environment.fingerprint import take_fingerprint
from pytest_attnperf.measure import torch_settings, trace
from pytest_attnperf.measure.canary import take_canary
from pytest_attnperf.measure.seeds import Seeds, timed_seed
from pytest_attnperf.measure.subject import TorchSubject
from pytest_attnperf.records import NotProvenRightError

if TYPE_CHECKING:
    from pytest_attnperf.backends import Backend
    from pytest_attnperf.records import DeviceInfo, Fingerprint, Samples
    from pytest_attnperf.workloads.base import Workload


@dataclass
class TorchDevice:
    """A CPU, or the only GPU that this process sees."""

    device: DeviceInfo

    @classmethod
    def open(cls, kind: str, *, interpreted: bool) -> TorchDevice:
        """Returns the device of kind 'gpu' or 'cpu', which this initialises. Raises UsageError if torch sees no GPU."""
        torch_settings.threads_at_start()
        return cls(identify_device("cuda" if kind == "gpu" else "cpu", interpreted=interpreted))

    def info(self) -> DeviceInfo:
        """Returns torch's description of the device."""
        return self.device

    def fingerprint(self) -> Fingerprint:
        """Returns what must match when this process's times are compared, and what is reported if it differs."""
        return take_fingerprint(self.device)

    def subject(self, backend: Backend, workload: Workload, seeds: tuple[int, int]) -> TorchSubject:
        """Returns the case of a backend and a workload, not prepared yet; `seeds` are those of (check, last run)."""
        check, final = seeds
        return TorchSubject(backend, workload, self.device, Seeds(timed_seed(workload), check, final))

    def canary(self) -> dict[str, Samples]:
        """Times the fixed GEMM ('gemm') and the fixed copy ('copy').

        Raises NotProvenRightError if a profiler was used in this process.
        """
        if trace.was_profiler_used():
            raise NotProvenRightError(
                "the canary may not be timed: a profiler has been used in this process; time it in a new process"
            )
        return take_canary(self.device.torch_device)

    def healthy(self) -> bool:
        """Tells whether a kernel still runs: after an illegal access every later call on the context fails."""
        if self.device.torch_device == "cpu":
            return True
        import torch

        try:
            torch.ones(1, device="cuda").add_(1)
            torch.cuda.synchronize()
        except RuntimeError:
            return False
        return True
