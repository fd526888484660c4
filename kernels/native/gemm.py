"""Matrix multiplication with torch's own operators: torch.matmul, torch._int_mm and torch._scaled_mm."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kernels.layouts import own_copies
from kernels.limits import FP8_SUMS
from pytest_attnperf.backends import Backend, Declares, Prepared

if TYPE_CHECKING:
    import torch

    from pytest_attnperf.backends import Tensors
    from pytest_attnperf.records import DeviceInfo
    from pytest_attnperf.workloads.gemm import Gemm

    Product = Callable[..., torch.Tensor]

CPU_FLOPS_MAX = 6e8
"""CPU limit that keeps a check and a timing on two cores within a second or two."""

FP8_OPERANDS_MULTIPLE = 16
"""Divisor of K and N that torch._scaled_mm requires (pytorch, aten/src/ATen/native/cuda/Blas.cpp)."""

INT8_OPERANDS_MULTIPLE = 8
INT8_SIZE_M_MIN = 17
"""Limits of torch._int_mm on a GPU: M above 16, K and N divisible by 8 (pytorch, aten/.../cuda/Blas.cpp)."""


@dataclass(frozen=True)
class Matmul(Backend["Gemm"]):
    """The vendor's library behind torch: cuBLAS, hipBLASLt, and oneDNN or MKL on a CPU.

    Floats go through torch.matmul, as does int32 on a CPU, int8 through torch._int_mm, and fp8 through
    torch._scaled_mm without `use_fast_accum`.
    """

    families = ("gemm",)

    def unsupported_reasons(self, workload: Gemm, device: DeviceInfo) -> list[str]:
        """Returns what torch._scaled_mm refuses for fp8, torch._int_mm for i8, and torch.matmul for other dtypes."""
        if workload.is_scaled:
            return _fp8_reasons(workload, device)
        if workload.dtype == "i8":
            return _int8_reasons(workload, device)
        if workload.dtype == "i32" and device.kind != "cpu":
            return ["torch multiplies no int32 matrices on a GPU"]
        if workload.out_dtype != workload.dtype:
            return [f"torch.matmul gives {workload.dtype} for {workload.dtype}, not {workload.out_dtype}"]
        return []

    def prepare(self, workload: Gemm, inputs: Tensors) -> Prepared:
        """Copies the inputs and binds the operator. Nothing is converted: b of layout 'nt' is passed as a transposed
        view, as torch expects."""
        call, operator = _choose_product(workload)
        return Prepared(
            call=call,
            tensors=own_copies(inputs),
            convert=lambda new: new,
            outputs=lambda out: {"out": out},
            config={"operator": operator},
            declares=Declares(operators=(operator,)),
        )


BACKENDS: tuple[Backend, ...] = (Matmul("native.matmul", CPU_FLOPS_MAX),)


def _choose_product(workload: Gemm) -> tuple[Product, str]:
    """Returns (a function of the workload's inputs, the name of the torch operator that it calls)."""
    import torch

    transposed, out_dtype = workload.layout == "nt", workload.out_stored_as

    def multiply_scaled(a: torch.Tensor, b: torch.Tensor, a_scale: torch.Tensor, b_scale: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = torch._scaled_mm(a, b.t(), a_scale, b_scale, out_dtype=out_dtype)
        return out

    def multiply_int8(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return torch._int_mm(a, b.t() if transposed else b)

    def multiply(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return torch.matmul(a, b.t() if transposed else b)

    if workload.is_scaled:
        return multiply_scaled, "aten::_scaled_mm"
    return (multiply_int8, "aten::_int_mm") if workload.dtype == "i8" else (multiply, "aten::matmul")


def _int8_reasons(workload: Gemm, device: DeviceInfo) -> list[str]:
    if device.kind == "cpu":
        return []
    found = _divisor_reasons(workload, "torch._int_mm", INT8_OPERANDS_MULTIPLE)
    if workload.size_m < INT8_SIZE_M_MIN:
        found.append(f"torch._int_mm on a GPU takes at least {INT8_SIZE_M_MIN} rows, m is {workload.size_m}")
    if workload.layout != "nt":
        # CUBLAS_STATUS_NOT_SUPPORTED on an H200 with CUDA 13.0, of (48, 64) by (64, 48).
        found.append("cuBLASLt has no int8 kernel for b stored (K, N): add nt to the workload")
    return found


def _fp8_reasons(workload: Gemm, device: DeviceInfo) -> list[str]:
    if device.kind == "cpu":
        return ["torch._scaled_mm is used on GPUs only: few CPUs multiply fp8"]
    found = _divisor_reasons(workload, "torch._scaled_mm", FP8_OPERANDS_MULTIPLE)
    if workload.layout != "nt":
        found.append("torch._scaled_mm takes b stored (N, K) only: add nt to the workload")
    refused = fp8_format_reasons(workload, device) or fp8_sum_reasons(workload, device)
    if not refused and device.kind == "cuda" and workload.dtype == "f8e5m2":
        found.append("cuBLASLt multiplies no two matrices that are both f8e5m2 (its documentation, cublasLtMatmul)")
    return found + refused


def fp8_format_reasons(workload: Gemm, device: DeviceInfo) -> list[str]:
    """Returns why a GPU does not multiply the workload's fp8 format in hardware; empty if it does, and on a CPU."""
    formats = fp8_formats(device)
    if not workload.is_scaled or device.kind == "cpu" or workload.dtype in formats:
        return []
    held = ", ".join(sorted(formats)) or "no fp8 format"
    return [f"{device.arch} multiplies {held} in hardware, not {workload.dtype}"]


def fp8_sum_reasons(workload: Gemm, device: DeviceInfo) -> list[str]:
    """Returns why matrix instructions cannot sum the workload's fp8 products as precisely as its result asks; empty if
    they can."""
    if workload.is_scaled and workload.out_dtype == "f32" and device.kind == "cuda":
        return [f"an f32 result of {workload.dtype} must have fp32 precision, but {FP8_SUMS}"]
    return []


def _divisor_reasons(workload: Gemm, who: str, multiple: int) -> list[str]:
    sizes = (("n", workload.size_n), ("k", workload.size_k))
    return [f"{who} needs {name} divisible by {multiple}, got {size}" for name, size in sizes if size % multiple]


def fp8_formats(device: DeviceInfo) -> frozenset[str]:
    """Returns the fp8 formats whose products a GPU computes in hardware.

    OCP's from sm_89 on, and on gfx950 and RDNA4 (gfx12); the fnuz ones on gfx94x (AMD, CDNA3 and RDNA4 instruction set
    guides; CUDA programming guide, compute capability 8.9).
    """
    if device.kind == "cuda":
        digits = device.arch.removeprefix("sm_")
        return frozenset({"f8e4m3", "f8e5m2"}) if digits.isdigit() and int(digits) >= 89 else frozenset()
    if device.arch.startswith("gfx94"):
        return frozenset({"f8e4m3fnuz", "f8e5m2fnuz"})
    return frozenset({"f8e4m3", "f8e5m2"}) if device.arch.startswith(("gfx950", "gfx12")) else frozenset()
