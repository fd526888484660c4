"""What every prefill backend shares: its description, and the step from `Workload` to `Prefill`."""

from __future__ import annotations

import abc
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, cast

from pytest_attnperf.records import DeviceInfo, Tolerance

if TYPE_CHECKING:
    import torch

    from pytest_attnperf.backends import Prepared, Tensors
    from pytest_attnperf.workloads.base import Workload
    from pytest_attnperf.workloads.prefill import Prefill


@dataclass(frozen=True)
class PrefillBackend(abc.ABC):
    """One way to do dense attention prefill; subclasses give `reasons` and `bind`.

    name             as registered, e.g. 'native.eager'
    cpu_flops_max    largest workload offered where there is no GPU, in useful floating-point operations; 0 means none
    times_on_cpu     whether a time taken without a GPU says anything
    tolerance        error budget against the plain computation's own error
    """

    name: str
    cpu_flops_max: float = 0.0
    times_on_cpu: bool = True
    tolerance: Tolerance = field(default_factory=Tolerance)
    families: frozenset[str] = frozenset({"prefill"})

    def unsupported_reasons(self, workload: Workload, device: DeviceInfo) -> list[str]:
        """Why this workload cannot run on this device; empty means it can. Imports nothing."""
        return self.reasons(cast("Prefill", workload), device)

    def prepare(self, workload: Workload, inputs: Tensors) -> Prepared:
        """Bind to one workload; `inputs` are q (B, Sq, H, D), k and v (B, Skv, Hk, D), contiguous, on the device."""
        return self.bind(cast("Prefill", workload), inputs)

    @abc.abstractmethod
    def reasons(self, workload: Prefill, device: DeviceInfo) -> list[str]:
        """As `unsupported_reasons`, for the one family these backends have."""

    @abc.abstractmethod
    def bind(self, workload: Prefill, inputs: Tensors) -> Prepared:
        """As `prepare`, for the one family these backends have."""


def heads_first(inputs: Tensors) -> Tensors:
    """(B, S, H, D) to contiguous (B, H, S, D), each in its own memory."""
    import torch

    return tuple(tensor.transpose(1, 2).clone(memory_format=torch.contiguous_format) for tensor in inputs)


def heads_last(out: torch.Tensor) -> torch.Tensor:
    """(B, H, S, D) to the canonical (B, S, H, D), a view."""
    return out.transpose(1, 2)


def own_copies(inputs: Tensors) -> Tensors:
    """The canonical layout in memory of the backend's own, so that nobody else's writes reach the timed call."""
    return tuple(tensor.clone() for tensor in inputs)
