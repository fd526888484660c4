"""Backends `gluon.softmax`, `gluon.rmsnorm` and `gluon.layernorm`: rows shared by the CTAs of a cluster, for Hopper.

Triton is imported in `prepare` only.
"""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from kernels.configs import Problem, Space
from kernels.gluon.rows.space import LAYERNORM, RMSNORM, ROW_BYTES, SINCE, SOFTMAX, VECTOR_BYTES, problem_of
from kernels.triton.rows.backend import RowsBackend
from pytest_attnperf.environment.software import TRITON_DISTRIBUTIONS, version_of
from pytest_attnperf.workloads import layernorm, rmsnorm
from pytest_attnperf.workloads.layernorm import LayerNorm
from pytest_attnperf.workloads.rmsnorm import RmsNorm
from pytest_attnperf.workloads.row_shape import RowProblem
from pytest_attnperf.workloads.softmax import Softmax

if TYPE_CHECKING:
    import torch

    from pytest_attnperf.records import DeviceInfo

    Summed = tuple[torch.Tensor, torch.Tensor | None]

P = TypeVar("P", bound=RowProblem)


@dataclass(frozen=True)
class GluonRows(RowsBackend[P]):
    """The kernel over long rows; subclasses define its space and its launch."""

    @property
    def kernel_name(self) -> str:
        """Regular expression of the kernel that a call launches."""
        return "rows_sm_90_kernel"

    def describe_problem(self, workload: P) -> Problem:
        """Returns the properties, name -> value, by which a rule of the space is chosen."""
        return problem_of(workload)

    def unsupported_reasons(self, workload: P, device: DeviceInfo) -> list[str]:
        """Returns why the workload cannot run: an architecture without a kernel, a Triton that does not compile it, or
        rows that are too short, too long, or not in pieces of 16 bytes."""
        found = _device_reasons(self.name, device, other := f"triton.{self.space.kernel}")
        row_bytes = workload.columns * workload.element_bytes
        short, most = ROW_BYTES[self.space.kernel]
        if not short < row_bytes <= most:
            found.append(
                f"{self.name} takes rows of more than {short} and at most {most} bytes, not {row_bytes}; use {other}"
            )
        if row_bytes % VECTOR_BYTES:
            multiple = f"rows of a multiple of {VECTOR_BYTES} bytes"
            found.append(f"{self.name} takes {multiple}, not {row_bytes}; pad them, or use {other}")
        return found


@dataclass(frozen=True)
class GluonSoftmax(GluonRows[Softmax]):
    """Softmax of rows that a cluster shares; each exponential is computed once."""

    @property
    def space(self) -> Space:
        """The configuration space of softmax."""
        return SOFTMAX

    @property
    def replaced_operators(self) -> str:
        """Regular expression of torch's softmax operators, which must not run."""
        return "aten::_?softmax"

    def bind_launch(self, workload: Softmax, config: dict[str, int | bool]) -> Callable[..., Any]:
        """Returns a function (x,) -> out that launches the kernel in this configuration."""
        from kernels.gluon.rows.launch import softmax

        def launch_kernel(x: torch.Tensor) -> torch.Tensor:
            return softmax(x, config=config)

        return launch_kernel


@dataclass(frozen=True)
class GluonRmsNorm(GluonRows[RmsNorm]):
    """RMSNorm of rows that a cluster shares, or of their sum with a residual as stored, after rounding."""

    @property
    def space(self) -> Space:
        """The configuration space of RMSNorm."""
        return RMSNORM

    @property
    def replaced_operators(self) -> str:
        """Regular expression of torch's RMSNorm operators, which must not run."""
        return "aten::(_fused_)?rms_norm"

    def bind_launch(self, workload: RmsNorm, config: dict[str, int | bool]) -> Callable[..., Any]:
        """Returns a function (x, weight) -> (out, None), or (x, residual, weight) -> (out, sum)."""
        from kernels.gluon.rows.launch import rmsnorm as launched

        def launch_kernel(x: torch.Tensor, *others: torch.Tensor) -> Summed:
            *residual, weight = others
            return launched(x, weight, *residual, eps=rmsnorm.EPS, config=config)

        return launch_kernel


@dataclass(frozen=True)
class GluonLayerNorm(GluonRows[LayerNorm]):
    """LayerNorm of rows that a cluster shares, or of their sum with a residual as stored, after rounding."""

    @property
    def space(self) -> Space:
        """The configuration space of LayerNorm."""
        return LAYERNORM

    @property
    def replaced_operators(self) -> str:
        """Regular expression of torch's LayerNorm operators, which must not run."""
        return "aten::(native_)?layer_norm"

    def bind_launch(self, workload: LayerNorm, config: dict[str, int | bool]) -> Callable[..., Any]:
        """Returns a function (x, weight, bias) -> (out, None) or (x, residual, weight, bias) -> (out, sum)."""
        from kernels.gluon.rows.launch import layernorm as launched

        def launch_kernel(x: torch.Tensor, *others: torch.Tensor) -> Summed:
            *residual, weight, bias = others
            return launched(x, weight, bias, *residual, eps=layernorm.EPS, config=config)

        return launch_kernel


def _device_reasons(who: str, device: DeviceInfo, other: str) -> list[str]:
    """Returns why the device cannot run the kernel: none is for it, or this Triton does not compile it."""
    if device.kind == "cpu":
        return [f"{who} is compiled for {' or '.join(SINCE)}; Triton's interpreter does not run Gluon"]
    if device.arch not in SINCE:
        return [f"{who} has a kernel for {' and '.join(SINCE)}, not for {device.arch}; use {other}"]
    if importlib.util.find_spec("triton") is None:
        return ["triton is not installed"]
    version = next(filter(None, map(version_of, TRITON_DISTRIBUTIONS)), "")
    numbers = re.match(r"(\d+)\.(\d+)", version)
    oldest = SINCE[device.arch]
    if numbers is not None and (int(numbers[1]), int(numbers[2])) < oldest:
        return [f"{who} needs Triton {oldest[0]}.{oldest[1]} or newer on {device.arch}; this is {version}; install one"]
    return []


BACKENDS = (
    GluonSoftmax("gluon.softmax", times_on_cpu=False),
    GluonRmsNorm("gluon.rmsnorm", times_on_cpu=False),
    GluonLayerNorm("gluon.layernorm", times_on_cpu=False),
)
