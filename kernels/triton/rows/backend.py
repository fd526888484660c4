"""Backends `triton.softmax`, `triton.rmsnorm` and `triton.layernorm`: this repository's own kernels over rows."""

from __future__ import annotations

import abc
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from kernels.configs import Space
from kernels.configured import Configured
from kernels.layouts import own_copies
from kernels.triton.rows.space import LAYERNORM, RMSNORM, SOFTMAX, problem_of
from kernels.triton.triton_backend import INTERPRETER_ROWS_FLOPS_MAX, arch_of, compile_ahead, missing_triton
from pytest_attnperf.backends import Backend, Declares, Prepared
from pytest_attnperf.workloads import layernorm, rmsnorm
from pytest_attnperf.workloads.layernorm import LayerNorm
from pytest_attnperf.workloads.rmsnorm import RmsNorm
from pytest_attnperf.workloads.row_shape import RowProblem
from pytest_attnperf.workloads.softmax import Softmax

if TYPE_CHECKING:
    import torch

    from pytest_attnperf.backends import Outputs, Tensors
    from pytest_attnperf.records import DeviceInfo

    Summed = tuple[torch.Tensor, torch.Tensor | None]

P = TypeVar("P", bound=RowProblem)


@dataclass(frozen=True)
class RowsBackend(Configured, Backend[P]):
    """One kernel over rows of any length; subclasses give its space and its launch."""

    @property
    def families(self) -> tuple[str, ...]:
        """The one of the same name as the kernel."""
        return (self.space.kernel,)

    @property
    @abc.abstractmethod
    def space(self) -> Space:
        """The kernel's."""

    @property
    @abc.abstractmethod
    def replaced_operators(self) -> str:
        """Names of torch's own operators for it, which must not run."""

    @property
    def spaces(self) -> tuple[Space, ...]:
        """The one kernel's."""
        return (self.space,)

    @abc.abstractmethod
    def bind_launch(self, workload: P, config: dict[str, int | bool]) -> Callable[..., Any]:
        """The call on the workload's inputs: gives 'out', or ('out', 'residual_out' or None)."""

    def unsupported_reasons(self, workload: P, device: DeviceInfo) -> list[str]:
        """Needs Triton and, without a GPU, its interpreter."""
        return missing_triton(device)

    def prepare(self, workload: P, inputs: Tensors) -> Prepared:
        """Pick the configuration for this architecture from the data files, or the pinned one, and compile."""
        tensors = own_copies(inputs)
        choice = self.choose(self.space, arch_of(tensors[0].device), problem_of(workload))
        call = self.bind_launch(workload, choice.config)
        compile_ahead(call, tensors, self.space, choice)
        return Prepared(
            call=call,
            tensors=tensors,
            convert=lambda new: new,
            outputs=_canonical_outputs,
            config=self.config_entries({self.space.kernel: choice}),
            declares=Declares(kernels=(f"{self.space.kernel}_kernel",), never=(self.replaced_operators,)),
        )


@dataclass(frozen=True)
class TritonSoftmax(RowsBackend[Softmax]):
    """One pass where a row fits a program, otherwise online softmax over tiles and a second walk."""

    @property
    def space(self) -> Space:
        """softmax."""
        return SOFTMAX

    @property
    def replaced_operators(self) -> str:
        """torch's softmax."""
        return "aten::_?softmax"

    def bind_launch(self, workload: Softmax, config: dict[str, int | bool]) -> Callable[..., Any]:
        """(x,) -> out."""
        from kernels.triton.rows.softmax import softmax

        def launch_kernel(x: torch.Tensor) -> torch.Tensor:
            return softmax(x, config=config)

        return launch_kernel


@dataclass(frozen=True)
class TritonRmsNorm(RowsBackend[RmsNorm]):
    """The residual is added in the same kernel; what is normalised is the sum as it is stored."""

    @property
    def space(self) -> Space:
        """rmsnorm."""
        return RMSNORM

    @property
    def replaced_operators(self) -> str:
        """torch's RMSNorm."""
        return "aten::(_fused_)?rms_norm"

    def bind_launch(self, workload: RmsNorm, config: dict[str, int | bool]) -> Callable[..., Any]:
        """(x, weight) or (x, residual, weight) -> (out, residual_out)."""
        from kernels.triton.rows.rmsnorm import rmsnorm as launched

        def launch_kernel(x: torch.Tensor, *others: torch.Tensor) -> Summed:
            *residual, weight = others
            return launched(x, weight, *residual, eps=rmsnorm.EPS, config=config)

        return launch_kernel


@dataclass(frozen=True)
class TritonLayerNorm(RowsBackend[LayerNorm]):
    """The residual is added in the same kernel; what is normalised is the sum as it is stored."""

    @property
    def space(self) -> Space:
        """layernorm."""
        return LAYERNORM

    @property
    def replaced_operators(self) -> str:
        """torch's LayerNorm."""
        return "aten::(native_)?layer_norm"

    def bind_launch(self, workload: LayerNorm, config: dict[str, int | bool]) -> Callable[..., Any]:
        """(x, weight, bias) or (x, residual, weight, bias) -> (out, residual_out)."""
        from kernels.triton.rows.layernorm import layernorm as launched

        def launch_kernel(x: torch.Tensor, *others: torch.Tensor) -> Summed:
            *residual, weight, bias = others
            return launched(x, weight, bias, *residual, eps=layernorm.EPS, config=config)

        return launch_kernel


def _canonical_outputs(result: torch.Tensor | Summed) -> Outputs:
    out, summed = result if isinstance(result, tuple) else (result, None)
    return {"out": out} if summed is None else {"out": out, "residual_out": summed}


BACKENDS = (
    TritonSoftmax("triton.softmax", INTERPRETER_ROWS_FLOPS_MAX, times_on_cpu=False),
    TritonRmsNorm("triton.rmsnorm", INTERPRETER_ROWS_FLOPS_MAX, times_on_cpu=False),
    TritonLayerNorm("triton.layernorm", INTERPRETER_ROWS_FLOPS_MAX, times_on_cpu=False),
)
