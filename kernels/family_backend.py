"""What backends of every op family share: their description, and the step from `Workload` to the family's own type."""

from __future__ import annotations

import abc
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Generic, TypeVar, cast

from pytest_attnperf.records import DeviceInfo, Tolerance

if TYPE_CHECKING:
    from pytest_attnperf.backends import Prepared, Tensors
    from pytest_attnperf.workloads.base import Workload

W = TypeVar("W")
"""The workload's type, e.g. `Prefill`; one backend may take several, as a union."""


@dataclass(frozen=True)
class FamilyBackend(abc.ABC, Generic[W]):
    """One implementation of one op family, or of a few; subclasses give `families`, `reasons` and `bind`.

    name             as registered, e.g. 'native.eager'
    cpu_flops_max    largest workload offered where there is no GPU, in useful floating-point operations; 0 means none
    times_on_cpu     whether a time taken without a GPU says anything
    tolerance        error budget against the plain computation's own error
    """

    name: str
    cpu_flops_max: float = 0.0
    times_on_cpu: bool = True
    tolerance: Tolerance = field(default_factory=Tolerance)

    @property
    @abc.abstractmethod
    def families(self) -> frozenset[str]:
        """Names of the op families it implements."""

    def unsupported_reasons(self, workload: Workload, device: DeviceInfo) -> list[str]:
        """Why this workload cannot run on this device; empty means it can. Imports nothing."""
        return self.reasons(cast("W", workload), device)

    def prepare(self, workload: Workload, inputs: Tensors) -> Prepared:
        """Bind to one workload; `inputs` are its canonical ones, contiguous, on the device."""
        return self.bind(cast("W", workload), inputs)

    @abc.abstractmethod
    def reasons(self, workload: W, device: DeviceInfo) -> list[str]:
        """As `unsupported_reasons`."""

    @abc.abstractmethod
    def bind(self, workload: W, inputs: Tensors) -> Prepared:
        """As `prepare`."""
