"""The configuration spaces of the matrix multiplication kernels, and the sizes and addresses that they take."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kernels.configs import Space
from pytest_attnperf.workloads.base import DTYPE_BYTES

if TYPE_CHECKING:
    from pytest_attnperf.workloads.gemm import Gemm

MULTIPLY_REDUCE_SIZE_M_MAX = 8
"""Most rows of a for the kernel without `tl.dot`: above it, padding to `tl.dot`'s 16 rows is less than half."""

DESCRIPTOR_BYTES = 16
"""Divisor of addresses and strides of a tensor descriptor (CUDA driver API, cuTensorMapEncodeTiled)."""

TILE = {"BLOCK_M": int, "BLOCK_N": int, "BLOCK_K": int, "GROUP_M": int, "DESCRIPTORS": bool}
STREAM_K_ONLY = {"PROGRAMS": int, "FIX_M": int}
PROPERTIES = ("m", "outputs", "dtype", "element_bits", "transposed")
"""Properties by which a rule is chosen: M, M * N, dtype and bits of an element of a, whether b is stored (N, K)."""

SPACE = Space("gemm", TILE, PROPERTIES)
STREAM_K_SPACE = Space("gemm_stream_k", TILE | STREAM_K_ONLY, PROPERTIES)
MULTIPLY_REDUCE_SPACE = Space("gemm_multiply_reduce", {"BLOCK_N": int, "BLOCK_K": int}, PROPERTIES)


def problem_of(workload: Gemm) -> dict[str, int | bool | str]:
    """Returns name -> value of the workload's PROPERTIES, by which a rule is chosen."""
    return {
        "m": workload.size_m,
        "outputs": workload.size_m * workload.size_n,
        "dtype": workload.dtype,
        "element_bits": DTYPE_BYTES[workload.dtype] * 8,
        "transposed": workload.layout == "nt",
    }
