"""The configuration space of `gluon.gemm`, the architectures that it has a kernel for, and what it can multiply. No
Triton is imported."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from kernels.configs import Problem, Space
from pytest_attnperf.workloads.base import DTYPE_BYTES

if TYPE_CHECKING:
    from pytest_attnperf.workloads.gemm import Gemm

SINCE = {"sm_90": (3, 6)}
"""Architecture with a kernel -> the oldest Triton, (major, minor), that compiles it: each release was tried."""

DTYPES = {"f16": "fp16", "bf16": "bf16", "f8e4m3": "fp8e4nv", "f8e5m2": "fp8e5"}
"""Dtype of a and b -> its name in Triton. wgmma also takes int8 and TF32, which this kernel does not."""

ROW_BYTES = 16
"""Divisor of the bytes of a row that TMA copies (CUDA driver API, cuTensorMapEncodeTiled)."""

SPACE = Space(
    "gemm",
    {
        **dict.fromkeys(("BLOCK_M", "BLOCK_N", "BLOCK_K", "GROUP_M", "SLOTS", "PIECES"), int),
        **dict.fromkeys(("PROMOTE", "CUT"), bool),
    },
    ("outputs", "element_bits", "transposed"),
    folder=Path(__file__).parents[1] / "configs",
    options=frozenset({"num_warps"}),
    further=frozenset(),
)


def problem_of(workload: Gemm) -> Problem:
    """Returns the properties, name -> value, by which a rule of SPACE is chosen: M * N, bits of an element of a, and
    whether b is stored (N, K)."""
    return {
        "outputs": workload.size_m * workload.size_n,
        "element_bits": DTYPE_BYTES[workload.dtype] * 8,
        "transposed": workload.layout == "nt",
    }


def operand_reasons(who: str, workload: Gemm) -> list[str]:
    """Returns why the kernel cannot multiply the workload's matrices: their dtype, layout, or length of rows."""
    if workload.dtype not in DTYPES:
        return [f"{who} takes {', '.join(DTYPES)}, not {workload.dtype}; use triton.gemm"]
    found = []
    if workload.is_scaled and workload.layout != "nt":
        found.append(f"{who} takes fp8 b stored (N, K) only, as wgmma reads 8-bit elements along K: add nt")
    rows = {
        "a": workload.size_k * DTYPE_BYTES[workload.dtype],
        "b": (workload.size_k if workload.layout == "nt" else workload.size_n) * DTYPE_BYTES[workload.dtype],
        "out": workload.size_n * DTYPE_BYTES[workload.out_dtype],
    }
    ragged = [f"{name}'s are {size} bytes" for name, size in rows.items() if size % ROW_BYTES]
    if ragged:
        found.append(
            f"{who} copies by TMA, rows of a multiple of {ROW_BYTES} bytes; {', '.join(ragged)}; use triton.gemm"
        )
    return found
