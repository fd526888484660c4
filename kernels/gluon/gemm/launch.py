"""The launcher of `gluon.gemm`: checks the arguments and calls the kernel of the architecture."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from kernels.gluon.gemm.schedule import Schedule, choose_schedule
from kernels.gluon.gemm.space import ROW_BYTES, SINCE
from kernels.triton.triton_backend import count_multiprocessors
from pytest_attnperf.errors import UsageError

if TYPE_CHECKING:
    import torch

TORCH_DTYPES = ("float16", "bfloat16", "float8_e4m3fn", "float8_e5m2")


def gemm(
    a: torch.Tensor,
    b: torch.Tensor,
    scales: tuple[torch.Tensor, torch.Tensor] | None = None,
    *,
    arch: str,
    transposed: bool,
    config: Mapping[str, Any],
    out_dtype: torch.dtype | None = None,
) -> torch.Tensor:
    """Multiplies a (M, K) by b (K, N) or, with `transposed`, (N, K); contiguous, both fp16, bf16, or one fp8 of OCP.

    scales     of a and b, fp32 (1,) each: of fp8, whose b must be (N, K)
    arch       e.g. 'sm_90': whose kernel is launched
    config     the kernel's constants and the compiler's options, as `SPACE` lists them

    Returns out (M, N) in `out_dtype`: fp32, fp16 or bf16; by default a's dtype, and bf16 for fp8. One program per
    multiprocessor runs, which computes several tiles. Rows of all three must be a multiple of 16 bytes. Raises
    UsageError naming the argument, its value and what is allowed.
    """
    launch = choose_launcher(arch)
    from kernels.triton.gemm.kernel import checked_sizes, empty_result

    _, size_n, _ = checked_sizes(a, b, scales, transposed=transposed)
    if (dtype := str(a.dtype).removeprefix("torch.")) not in TORCH_DTYPES:
        raise UsageError(f"a and b are {dtype}; they must be one of {', '.join(TORCH_DTYPES)}")
    if scales is not None and not transposed:
        raise UsageError(f"b is {dtype} and stored (K, N); wgmma reads 8-bit elements along K: store it (N, K)")
    out = empty_result(a, size_n, out_dtype)
    for name, matrix in (("a", a), ("b", b), ("out", out)):
        row = matrix.shape[1] * matrix.element_size()
        if row % ROW_BYTES or matrix.data_ptr() % ROW_BYTES:
            raise UsageError(
                f"{name} has rows of {row} bytes at address {matrix.data_ptr():#x}; TMA copies multiples of "
                f"{ROW_BYTES} bytes from multiples of {ROW_BYTES}"
            )
    programs = count_multiprocessors(a.device)
    schedule = plan(a.shape[0], size_n, a.shape[1], programs, config)
    launch(a, b, out, scales, transposed=transposed, programs=programs, schedule=schedule, config=config)
    return out


def plan(size_m: int, size_n: int, size_k: int, programs: int, config: Mapping[str, Any]) -> Schedule:
    """Returns what each of so many programs computes of a product of these sizes, in the tiles of `config`."""
    tiles = -(-size_m // config["BLOCK_M"]) * -(-size_n // config["BLOCK_N"])
    if not config["CUT"]:
        return Schedule(tiles, tiles, 1)
    return choose_schedule(tiles, programs, -(-size_k // config["BLOCK_K"]), config["BLOCK_N"])


def choose_launcher(arch: str) -> Callable[..., None]:
    """Returns the function that launches the kernel for `arch`; imports Triton. Raises UsageError for an architecture
    without a kernel."""
    if arch == "sm_90":
        from kernels.gluon.gemm.sm_90 import launch_sm_90

        return launch_sm_90
    raise UsageError(f"there is no Gluon kernel for {arch}; there is one for {', '.join(SINCE)}; use triton.gemm")
