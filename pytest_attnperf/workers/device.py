"""What a worker measures on: the real device through torch, or the fake one of `pytest_attnperf.testing`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from pytest_attnperf.errors import UnsupportedError

if TYPE_CHECKING:
    from pytest_attnperf.backends import Backend
    from pytest_attnperf.measure.subject_protocol import Subject
    from pytest_attnperf.records import DeviceInfo, Fingerprint, Samples
    from pytest_attnperf.workloads.base import Workload


CheckSeeds = tuple[int, int]
"""Seeds drawn afresh by the controller: of the check before timing, and of the last replay."""


class Device(Protocol):
    """A device as the server sees it.

    One that a conftest provides may say `forks = True`: nothing but its methods touches the device, so that the hook
    may be called in a process whose forks are workers.
    """

    def info(self) -> DeviceInfo:
        """Identify the device; initialises it."""

    def fingerprint(self) -> Fingerprint:
        """Where numbers of this process are made."""

    def subject(self, backend: Backend, workload: Workload, seeds: CheckSeeds) -> Subject:
        """Bind one backend to one workload; nothing is built yet."""

    def canary(self) -> dict[str, Samples]:
        """Time a fixed GEMM and a fixed copy, {'gemm': ..., 'copy': ...}: a machine shift moves them, code does not."""

    def healthy(self) -> bool:
        """Whether the device still answers after a case raised; False poisons this process."""


def can_fork(device: Device) -> bool:
    """Whether a device that a conftest provides may be made anew in a fork of the process where it was made."""
    return bool(getattr(device, "forks", False))


def prepare_or_reasons(subject: Subject) -> list[str]:
    """Build and compile the case; the reasons where it is unsupported, known before or found out by trying."""
    reasons = subject.unsupported_reasons()
    if reasons:
        return reasons
    try:
        subject.prepare()
    except UnsupportedError as error:
        return [str(error) or type(error).__name__]
    return []
