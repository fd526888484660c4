"""Matrix multiplication of few rows without `tl.dot`, in Triton: it forms every product, then sums over K.

Matrix instructions take 16 rows; a tile of fewer is padded, and its padding multiplied too. This kernel's tiles have
only the existing rows. Its products are ordinary multiply-adds: acc (BLOCK_M, BLOCK_N) grows by the sum over axis 1 of
a (BLOCK_M, BLOCK_K, 1) times b (1, BLOCK_K, BLOCK_N). It is kept for comparison with `gemm_kernel`.

Its cost: ordinary instructions multiply each element of b, loaded and widened to fp32, BLOCK_M times, and the sum over
BLOCK_K crosses lanes and warps. A matrix instruction does both while b is still being read, so its padding costs
nothing if the time goes into reading b.
"""

# mypy: disable-error-code="untyped-decorator, no-untyped-def"
# Parameters of a jit function are tensors or compile-time constants as its caller decides; mypy cannot say which.

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import triton
import triton.language as tl

from kernels.triton.gemm.kernel import checked_sizes, empty_result, kernel_constants, store_tile
from kernels.triton.gemm.space import MULTIPLY_REDUCE_SIZE_M_MAX
from pytest_attnperf.errors import UsageError

if TYPE_CHECKING:
    import torch

    from kernels.triton.gemm.kernel import Scales


@triton.jit
def gemm_multiply_reduce_kernel(
    a_ptr, b_ptr, out_ptr, a_scale_ptr, b_scale_ptr,  # (M, K), (K, N) or (N, K), (M, N), 2 x (1,) fp32 or None
    size_m, size_n, size_k,
    TRANSPOSED: tl.constexpr, SCALED: tl.constexpr, INTEGER: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """All rows of BLOCK_N columns of the result, BLOCK_M >= M. Grid: (ceil(N / BLOCK_N),); all tensors contiguous."""
    tile_n = tl.program_id(0)
    offs_m = tl.arange(0, BLOCK_M)
    offs_n = tile_n.to(tl.int64) * BLOCK_N + tl.arange(0, BLOCK_N)
    offs_k = tl.arange(0, BLOCK_K)
    wide = tl.int32 if INTEGER else tl.float32
    acc = tl.zeros([BLOCK_M, BLOCK_N], dtype=wide)
    for start_k in tl.range(0, size_k, BLOCK_K):
        at_k = tl.cast(start_k, tl.int64) + offs_k
        in_k = at_k < size_k
        a_mask = (offs_m < size_m)[:, None] & in_k[None, :]
        a = tl.load(a_ptr + offs_m[:, None] * size_k + at_k[None, :], mask=a_mask, other=0.0)  # (BLOCK_M, BLOCK_K)
        if TRANSPOSED:
            b = b_ptr + offs_n[None, :] * size_k + at_k[:, None]
        else:
            b = b_ptr + at_k[:, None] * size_n + offs_n[None, :]
        b = tl.load(b, mask=in_k[:, None] & (offs_n < size_n)[None, :], other=0.0)  # (BLOCK_K, BLOCK_N)
        acc += tl.sum(a.to(wide)[:, :, None] * b.to(wide)[None, :, :], axis=1)
    store_tile(acc, out_ptr, a_scale_ptr, b_scale_ptr, 0, tile_n, size_m, size_n, SCALED, BLOCK_M, BLOCK_N)


def gemm_multiply_reduce(
    a: torch.Tensor,
    b: torch.Tensor,
    scales: Scales | None = None,
    *,
    transposed: bool,
    config: dict[str, Any],
    out_dtype: torch.dtype | None = None,
) -> torch.Tensor:
    """Multiplies few rows without matrix instructions: operands and result as `gemm`, M at most 8.

    `config` holds BLOCK_N, BLOCK_K and the compiler's options; the tile has M rows, padded to a power of two. Raises
    UsageError naming the argument that does not fit.
    """
    size_m, size_n, size_k = checked_sizes(a, b, scales, transposed=transposed)
    if size_m > MULTIPLY_REDUCE_SIZE_M_MAX:
        raise UsageError(f"a must have at most {MULTIPLY_REDUCE_SIZE_M_MAX} rows, got {size_m}; use gemm for more")
    out = empty_result(a, size_n, out_dtype)
    constants = kernel_constants(a, transposed=transposed)
    del constants["IN_FP32"]  # it always widens
    a_scale, b_scale = scales or (None, None)
    gemm_multiply_reduce_kernel[(triton.cdiv(size_n, config["BLOCK_N"]),)](
        a, b, out, a_scale, b_scale, size_m, size_n, size_k, BLOCK_M=triton.next_power_of_2(size_m),
        **constants, **config,
    )  # fmt: skip
    return out
