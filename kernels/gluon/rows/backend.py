"""Backends `gluon.softmax`, `gluon.rmsnorm` and `gluon.layernorm`: rows shared by the CTAs of a cluster, for Hopper.

Triton is imported in `prepare` only.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from kernels.configs import Problem, Space
from kernels.gluon.devices import arch_reasons
from kernels.gluon.rows.space import LAYERNORM, RMSNORM, ROW_BYTES, SINCE, SOFTMAX, VECTOR_BYTES, problem_of
from kernels.triton.rows.backend import RowsBackend, TritonLayerNorm, TritonRmsNorm, TritonSoftmax
from pytest_attnperf.workloads.layernorm import LayerNorm
from pytest_attnperf.workloads.rmsnorm import RmsNorm
from pytest_attnperf.workloads.row_shape import RowProblem
from pytest_attnperf.workloads.softmax import Softmax

if TYPE_CHECKING:
    from pytest_attnperf.records import DeviceInfo

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
        found = arch_reasons(self.name, device, SINCE, other := f"triton.{self.space.kernel}")
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
class GluonSoftmax(GluonRows[Softmax], TritonSoftmax):
    """Softmax of rows that a cluster shares; each exponential is computed once."""

    @property
    def space(self) -> Space:
        """The configuration space of softmax."""
        return SOFTMAX

    @property
    def launched(self) -> Callable[..., Any]:
        """The launcher of the kernel."""
        from kernels.gluon.rows.launch import softmax

        return softmax


@dataclass(frozen=True)
class GluonRmsNorm(GluonRows[RmsNorm], TritonRmsNorm):
    """RMSNorm of rows that a cluster shares, or of their sum with a residual as stored, after rounding."""

    @property
    def space(self) -> Space:
        """The configuration space of RMSNorm."""
        return RMSNORM

    @property
    def launched(self) -> Callable[..., Any]:
        """The launcher of the kernel."""
        from kernels.gluon.rows.launch import rmsnorm

        return rmsnorm


@dataclass(frozen=True)
class GluonLayerNorm(GluonRows[LayerNorm], TritonLayerNorm):
    """LayerNorm of rows that a cluster shares, or of their sum with a residual as stored, after rounding."""

    @property
    def space(self) -> Space:
        """The configuration space of LayerNorm."""
        return LAYERNORM

    @property
    def launched(self) -> Callable[..., Any]:
        """The launcher of the kernel."""
        from kernels.gluon.rows.launch import layernorm

        return layernorm


BACKENDS = (
    GluonSoftmax("gluon.softmax", times_on_cpu=False),
    GluonRmsNorm("gluon.rmsnorm", times_on_cpu=False),
    GluonLayerNorm("gluon.layernorm", times_on_cpu=False),
)
