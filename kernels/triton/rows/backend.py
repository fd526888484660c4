"""Backends `triton.softmax`, `triton.rmsnorm` and `triton.layernorm`: this repository's own kernels over rows."""

from __future__ import annotations

import abc
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from kernels.configs import Problem, Space
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
    """One kernel over rows of any length; subclasses define its space and its launch."""

    @property
    def families(self) -> tuple[str, ...]:
        """The op family of this backend, which has the kernel's name."""
        return (self.space.kernel,)

    @property
    @abc.abstractmethod
    def space(self) -> Space:
        """The configuration space of this backend's kernel."""

    @property
    def kernel_name(self) -> str:
        """Regular expression of the kernel that a call launches."""
        return f"{self.space.kernel}_kernel"

    @property
    @abc.abstractmethod
    def replaced_operators(self) -> str:
        """Regular expression of torch's own operators for this family, which must not run."""

    @property
    def spaces(self) -> tuple[Space, ...]:
        """The configuration space of this backend's kernel, as a tuple of one."""
        return (self.space,)

    @abc.abstractmethod
    def bind_launch(self, workload: P, config: dict[str, int | bool]) -> Callable[..., Any]:
        """Returns a function of the workload's inputs that returns out, or (out, sum with the residual or None)."""

    def describe_problem(self, workload: P) -> Problem:
        """Returns the properties, name -> value, by which a rule of the space is chosen."""
        return problem_of(workload)

    def unsupported_reasons(self, workload: P, device: DeviceInfo) -> list[str]:
        """Returns why Triton or, without a GPU, its interpreter is missing; empty if it can run."""
        return missing_triton(device)

    def prepare(self, workload: P, inputs: Tensors) -> Prepared:
        """Copies the inputs, takes the configuration (pinned, else from this architecture's file), and compiles."""
        tensors = own_copies(inputs)
        choice = self.choose(self.space, arch_of(tensors[0].device), self.describe_problem(workload))
        call = self.bind_launch(workload, choice.config)
        compile_ahead(call, tensors, self.space, choice)
        return Prepared(
            call=call,
            tensors=tensors,
            convert=lambda new: new,
            outputs=_canonical_outputs,
            config=self.config_entries({self.space.kernel: choice}),
            declares=Declares(kernels=(self.kernel_name,), never=(self.replaced_operators,)),
        )


@dataclass(frozen=True)
class TritonSoftmax(RowsBackend[Softmax]):
    """Softmax in one pass if a row fits a program, otherwise online over tiles, and a second pass."""

    @property
    def space(self) -> Space:
        """The configuration space of `softmax_kernel`."""
        return SOFTMAX

    @property
    def launched(self) -> Callable[..., Any]:
        """The launcher of `softmax_kernel`."""
        from kernels.triton.rows.softmax import softmax as launcher

        return launcher

    @property
    def replaced_operators(self) -> str:
        """Regular expression of torch's softmax operators, which must not run."""
        return "aten::_?softmax"

    def bind_launch(self, workload: Softmax, config: dict[str, int | bool]) -> Callable[..., Any]:
        """Returns a function (x,) -> out that launches the kernel in this configuration."""
        launched = self.launched

        def launch_kernel(x: torch.Tensor) -> torch.Tensor:
            out: torch.Tensor = launched(x, config=config)
            return out

        return launch_kernel


@dataclass(frozen=True)
class TritonRmsNorm(RowsBackend[RmsNorm]):
    """RMSNorm that adds the residual in the same kernel, and normalises the sum as stored, after rounding."""

    @property
    def space(self) -> Space:
        """The configuration space of `rmsnorm_kernel`."""
        return RMSNORM

    @property
    def launched(self) -> Callable[..., Any]:
        """The launcher of `rmsnorm_kernel`."""
        from kernels.triton.rows.rmsnorm import rmsnorm as launcher

        return launcher

    @property
    def replaced_operators(self) -> str:
        """Regular expression of torch's RMSNorm operators, which must not run."""
        return "aten::(_fused_)?rms_norm"

    def bind_launch(self, workload: RmsNorm, config: dict[str, int | bool]) -> Callable[..., Any]:
        """Returns a function (x, weight) -> (out, None), or (x, residual, weight) -> (out, sum)."""
        launched = self.launched

        def launch_kernel(x: torch.Tensor, *others: torch.Tensor) -> Summed:
            *residual, weight = others
            results: Summed = launched(x, weight, *residual, eps=rmsnorm.EPS, config=config)
            return results

        return launch_kernel


@dataclass(frozen=True)
class TritonLayerNorm(RowsBackend[LayerNorm]):
    """LayerNorm that adds the residual in the same kernel, and normalises the sum as stored, after rounding."""

    @property
    def space(self) -> Space:
        """The configuration space of `layernorm_kernel`."""
        return LAYERNORM

    @property
    def launched(self) -> Callable[..., Any]:
        """The launcher of `layernorm_kernel`."""
        from kernels.triton.rows.layernorm import layernorm as launcher

        return launcher

    @property
    def replaced_operators(self) -> str:
        """Regular expression of torch's LayerNorm operators, which must not run."""
        return "aten::(native_)?layer_norm"

    def bind_launch(self, workload: LayerNorm, config: dict[str, int | bool]) -> Callable[..., Any]:
        """Returns a function (x, weight, bias) -> (out, None) or (x, residual, weight, bias) -> (out, sum)."""
        launched = self.launched

        def launch_kernel(x: torch.Tensor, *others: torch.Tensor) -> Summed:
            *residual, weight, bias = others
            results: Summed = launched(x, weight, bias, *residual, eps=layernorm.EPS, config=config)
            return results

        return launch_kernel


def _canonical_outputs(result: torch.Tensor | Summed) -> Outputs:
    out, summed = result if isinstance(result, tuple) else (result, None)
    return {"out": out} if summed is None else {"out": out, "residual_out": summed}


BACKENDS = (
    TritonSoftmax("triton.softmax", INTERPRETER_ROWS_FLOPS_MAX, times_on_cpu=False, invariant=True),
    TritonRmsNorm("triton.rmsnorm", INTERPRETER_ROWS_FLOPS_MAX, times_on_cpu=False, invariant=True),
    TritonLayerNorm("triton.layernorm", INTERPRETER_ROWS_FLOPS_MAX, times_on_cpu=False, invariant=True),
)
