"""A loaded kernel as a callable: it checks the arguments and launches on torch's current stream."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import torch

from kernels.hip.kernel_source import Parameter, format_path
from kernels.hip.sources import HipKernel
from pytest_attnperf.errors import UsageError
from pytest_attnperf.measure import flight_recorder, ran_code

Grid: TypeAlias = tuple[int, int, int]
Start: TypeAlias = Callable[[Grid, Sequence[Any]], None]
"""A function that launches on the current device and stream, without checks."""

THREADS_MOST = 1024
GRID_MOST = (2**31 - 1, 65535, 65535)
ALIGNMENT = 16
INT_LOWEST, INT_HIGHEST = -(2**31), 2**31 - 1
HALVES = (torch.float16, torch.bfloat16)
DTYPES = {"float": torch.float32, "int": torch.int32}
"""Pointed-to type -> dtype of its tensor. The dtype of an `element` follows from the kernel's macros."""


@dataclass(frozen=True)
class LoadedObject:
    """A code object on a device, as `ran_code.record_kernel` records it.

    data      the object; empty where it is not known
    handle    the driver's handle of the kernel; 0 where it is not known
    origin    where it came from: 'compiled by NVRTC 13.0', 'prebuilt flash.co'
    """

    start: Start
    data: bytes = field(default=b"", repr=False)
    static_lds_bytes: int = 0
    handle: int = 0
    origin: str = ""


@dataclass(frozen=True)
class GpuKernel:
    """One kernel on one device.

    parameters    from its source; None where they are not known, and then messages number the arguments
    """

    kernel: HipKernel
    device: torch.device
    loaded: LoadedObject
    parameters: tuple[Parameter, ...] | None = None

    def __call__(self, grid: Grid, *arguments: torch.Tensor | int) -> None:
        """Launches the kernel with these arguments on torch's current stream of its device, without waiting.

        Raises UsageError for a grid or an argument that the kernel cannot take.
        """
        self._check_grid(grid)
        self._check_arguments(arguments)
        with flight_recorder.launch(self.kernel.function):
            if torch.cuda.current_device() == self.device.index:
                self.loaded.start(grid, arguments)
            else:
                with torch.cuda.device(self.device):
                    self.loaded.start(grid, arguments)
        ran_code.record_kernel(
            self.kernel.function,
            self.loaded.data,
            self.kernel.threads,
            self.kernel.lds_bytes,
            static_lds_bytes=self.loaded.static_lds_bytes,
            function=self.loaded.handle,
        )

    def _check_grid(self, grid: Grid) -> None:
        for axis, blocks, most in zip("xyz", grid, GRID_MOST, strict=True):
            if not 1 <= blocks <= most:
                raise UsageError(
                    f"{self.kernel.function}: the grid {tuple(grid)} has {blocks} blocks in {axis}, and 1 to {most} "
                    "are possible; leave the launch out where there is nothing to do, or put the long dimension into x"
                )

    def _check_arguments(self, arguments: Sequence[torch.Tensor | int]) -> None:
        if self.parameters is not None and len(arguments) != len(self.parameters):
            names = ", ".join(parameter.name for parameter in self.parameters)
            raise UsageError(
                f"{self.kernel.function} takes {len(self.parameters)} arguments ({names}), got {len(arguments)}"
            )
        for place, argument in enumerate(arguments):
            if (wrong := self._argument_problem(argument, place)) is not None:
                named = f"argument {place + 1}"
                if self.parameters is not None:
                    named = f"{self.parameters[place].name} ({named})"
                raise UsageError(f"{self.kernel.function}: {named} {wrong}")

    def _argument_problem(self, argument: object, place: int) -> str | None:
        """Returns why the argument at index `place` cannot be passed; None if it can."""
        declared = None if self.parameters is None else self.parameters[place]
        if isinstance(argument, torch.Tensor):
            if declared is not None and not declared.pointer:
                return f"must be a 32-bit integer, got a tensor of shape {tuple(argument.shape)}"
            return self._tensor_problem(argument, declared)
        if declared is not None and declared.pointer:
            return f"must be a tensor on {self.device}, got {argument!r}"
        if type(argument) is not int:
            return f"must be a tensor or a 32-bit integer, got {argument!r} of type {type(argument).__name__}"
        if not INT_LOWEST <= argument <= INT_HIGHEST:
            return f"is {argument}, which no 32-bit integer holds ({INT_LOWEST} to {INT_HIGHEST})"
        return None

    def _tensor_problem(self, tensor: torch.Tensor, declared: Parameter | None) -> str | None:
        if tensor.device != self.device:
            return f"is on {tensor.device}, and the kernel was loaded for {self.device}; load it for that device"
        if not tensor.is_contiguous():
            return (
                f"must be contiguous, got strides {tensor.stride()} of shape {tuple(tensor.shape)}; "
                "call .contiguous() on it"
            )
        if tensor.data_ptr() % ALIGNMENT:
            return (
                f"must begin at a multiple of {ALIGNMENT} bytes, because kernels load that many at once, but it begins "
                f"{tensor.data_ptr() % ALIGNMENT} bytes after one; call .clone() on it"
            )
        expected = None if declared is None else self._expected_dtype(declared)
        if expected is not None and tensor.dtype != expected:
            return f"must be {expected}, for which the kernel was compiled, got {tensor.dtype}"
        return None

    def _expected_dtype(self, declared: Parameter) -> torch.dtype | None:
        """Returns the dtype that a parameter's tensor must have; None where it is not known."""
        if declared.type == "element":
            return HALVES[self.kernel.defines.get("ELEMENT_BF16", "0") == "1"]
        return DTYPES.get(declared.type)


class ExecutedKernel(GpuKernel):
    """One kernel whose machine code is interpreted, on CPU tensors, which it checks as on a GPU."""

    def __call__(self, grid: Grid, *arguments: torch.Tensor | int) -> None:
        """Executes the kernel to its end. Raises UsageError for a grid or an argument that the kernel cannot take, and
        what the executor raises."""
        self._check_grid(grid)
        self._check_arguments(arguments)
        self.loaded.start(grid, arguments)


def check_threads(kernel: HipKernel) -> None:
    """Raises UsageError for a workgroup size that no GPU runs: below 1 or above 1,024 threads."""
    if not 1 <= kernel.threads <= THREADS_MOST:
        raise UsageError(
            f"{kernel.function} in {format_path(kernel.path)} has workgroups of {kernel.threads} threads; 1 to "
            f"{THREADS_MOST} are possible"
        )


def check_lds(kernel: HipKernel, static_bytes: int, limit: int, arch: str) -> None:
    """Raises UsageError where the LDS of a workgroup, `static_bytes` plus the launch's, exceeds `limit`; in bytes."""
    wanted = kernel.lds_bytes + static_bytes
    if kernel.lds_bytes < 0 or wanted > limit:
        raise UsageError(
            f"{kernel.function} in {format_path(kernel.path)} asks for {wanted} bytes of LDS "
            f"({kernel.lds_bytes} of them "
            f"by its launch), and a workgroup of {arch} may have 0 to {limit}; take smaller tiles or fewer buffers"
        )
