"""The interface of devices: the real one through torch, or the fake one of `pytest_attnperf.testing`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from pytest_attnperf.errors import UnsupportedError

if TYPE_CHECKING:
    from pytest_attnperf.backends import Backend
    from pytest_attnperf.measure.subject_protocol import Subject
    from pytest_attnperf.records import DeviceInfo, Fingerprint, Samples
    from pytest_attnperf.workloads.base import Workload


CheckSeeds = tuple[int, int]
"""Random seeds from the controller: for the check before timing, and for the last replay."""


class Device(Protocol):
    """A device as the server sees it.

    A device of a conftest may set `forks = True`: then only its methods may use the device, so that the hook can be
    called in a template, which forks workers.
    """

    def info(self) -> DeviceInfo:
        """Returns the kind, architecture, product and id of the device; initialises the device."""

    def fingerprint(self) -> Fingerprint:
        """Returns the fingerprint of the machine and software of this process."""

    def subject(self, backend: Backend, workload: Workload, seeds: CheckSeeds) -> Subject:
        """Returns the object that checks and times this backend on this workload; builds nothing yet."""

    def canary(self) -> dict[str, Samples]:
        """Times a fixed GEMM and copy, {'gemm': ..., 'copy': ...}: they change with the machine, not with the code."""

    def healthy(self) -> bool:
        """Returns whether the device still answers after a case raised; if not, this process is replaced."""


def can_fork(device: Device) -> bool:
    """Returns whether a conftest's device may be made again in a forked process: its `forks`, else False."""
    return bool(getattr(device, "forks", False))


def prepare_or_reasons(subject: Subject) -> list[str]:
    """Builds and compiles the case. Returns [], or why it is unsupported, known before or found while compiling."""
    reasons = subject.unsupported_reasons()
    if reasons:
        return reasons
    try:
        subject.prepare()
    except UnsupportedError as error:
        return [str(error) or type(error).__name__]
    return []
