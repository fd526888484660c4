"""Matrix multiplication in Triton: the kernel, its launcher, and the parts that other schedules share.

One program owns one tile of BLOCK_M x BLOCK_N of the result and walks along K in tiles of BLOCK_K:

    acc   (BLOCK_M, BLOCK_N)    sum over the K seen so far of a[:, k] b[k, :], fp32, or int32 for int8 and int32

Programs run about in the order of their number. Tiles are numbered so that GROUP_M rows of tiles are finished together:
programs that run at the same time then share both their rows of a and their columns of b, which stay in the L2 cache.

Tiles are read through pointers, or through tensor descriptors, which GPUs with a unit for it (NVIDIA's TMA) resolve
without any arithmetic in the kernel. Rows and columns past the end are read as those of the tile's start, or by a
descriptor as zero, and not stored; positions past K are read as zero.
"""

# mypy: disable-error-code="untyped-decorator, no-untyped-def"
# Parameters of a jit function are tensors or compile-time constants as its caller decides; mypy cannot say which.

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import triton
import triton.language as tl

from kernels.triton.gemm.int32_product import int32_product
from kernels.triton.gemm.space import DESCRIPTOR_BYTES
from kernels.triton.triton_backend import is_interpreted
from pytest_attnperf.errors import UsageError

if TYPE_CHECKING:
    import torch

    Scales = tuple[torch.Tensor, torch.Tensor]


@triton.jit
def tile_place(tile, tiles_m, tiles_n, GROUP_M: tl.constexpr):
    """(row, column) of a numbered tile: columns first within a group of GROUP_M rows of tiles."""
    in_group = GROUP_M * tiles_n
    first_m = tile // in_group * GROUP_M
    rows = tl.minimum(tiles_m - first_m, GROUP_M)
    return first_m + tile % in_group % rows, tile % in_group // rows


@triton.jit
def _product(a_tile, b_tile, acc, BLOCK_K: tl.constexpr, IN_FP32: tl.constexpr):
    """acc + a_tile b_tile."""
    if a_tile.dtype == tl.int32:
        acc = int32_product(a_tile, b_tile, acc)
    else:
        if IN_FP32:
            a_tile = a_tile.to(tl.float32)
            b_tile = b_tile.to(tl.float32)
        # Hopper's tensor cores sum fp8 products with about 14 bits (arXiv:2412.19437, section 3.3.2): the last argument
        # makes the compiler add them to fp32 after every tile. It changes no other type.
        acc = tl.dot(a_tile, b_tile, acc, input_precision="ieee", max_num_imprecise_acc=BLOCK_K, out_dtype=acc.dtype)
    return acc


@triton.jit
def _accumulate_pointers(
    acc, a_ptr, b_ptr,  # (BLOCK_M, BLOCK_N), (M, K), (K, N) or (N, K)
    start_m, start_n, from_k, to_k, size_m, size_n, size_k,
    TRANSPOSED: tl.constexpr, EVEN_K: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, IN_FP32: tl.constexpr,
):  # fmt: skip
    """`acc` plus the products of the tiles from_k..to_k of K, read through pointers."""
    offs_m = tl.arange(0, BLOCK_M)
    offs_n = tl.arange(0, BLOCK_N)
    offs_k = tl.arange(0, BLOCK_K)
    # A size that 16 divides ends between two vectors of a load, so each vector is whole or all at the tile's start.
    offs_m = tl.max_contiguous(tl.multiple_of(tl.where(start_m + offs_m < size_m, offs_m, 0), BLOCK_M), BLOCK_M)
    offs_n = tl.max_contiguous(tl.multiple_of(tl.where(start_n + offs_n < size_n, offs_n, 0), BLOCK_N), BLOCK_N)
    # Where a tile starts may pass 2^31 elements; positions inside a tile cannot.
    start_k = tl.cast(from_k * BLOCK_K, tl.int64)
    a = a_ptr + start_m.to(tl.int64) * size_k + start_k + (offs_m[:, None] * size_k + offs_k[None, :])
    if TRANSPOSED:
        b = b_ptr + start_n.to(tl.int64) * size_k + start_k + (offs_n[None, :] * size_k + offs_k[:, None])
        b_step = BLOCK_K
    else:
        b = b_ptr + start_k * size_n + start_n + (offs_k[:, None] * size_n + offs_n[None, :])
        b_step = BLOCK_K * size_n
    for tile_k in tl.range(from_k, to_k):
        if EVEN_K:
            a_tile = tl.load(a)
            b_tile = tl.load(b)
        else:
            left = size_k - tile_k * BLOCK_K
            a_tile = tl.load(a, mask=offs_k[None, :] < left, other=0.0)
            b_tile = tl.load(b, mask=offs_k[:, None] < left, other=0.0)
        acc = _product(a_tile, b_tile, acc, BLOCK_K, IN_FP32)
        a += BLOCK_K
        b += b_step
    return acc


@triton.jit
def accumulate(
    acc, a, b,  # (BLOCK_M, BLOCK_N), and pointers to or descriptors of (M, K) and (K, N) or (N, K)
    tile_m, tile_n, from_k, to_k,  # the tile of the result, and the tiles of K that are summed
    size_m, size_n, size_k,
    TRANSPOSED: tl.constexpr, EVEN_K: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
    DESCRIPTORS: tl.constexpr, IN_FP32: tl.constexpr,
):  # fmt: skip
    """`acc` plus the products of the tiles from_k..to_k of K."""
    start_m = tile_m * BLOCK_M
    start_n = tile_n * BLOCK_N
    if DESCRIPTORS:
        for tile_k in tl.range(from_k, to_k):
            start_k = tile_k * BLOCK_K
            a_tile = a.load([start_m, start_k])
            b_tile = b.load([start_n, start_k]).T if TRANSPOSED else b.load([start_k, start_n])
            acc = _product(a_tile, b_tile, acc, BLOCK_K, IN_FP32)
    else:
        acc = _accumulate_pointers(
            acc, a, b, start_m, start_n, from_k, to_k, size_m, size_n, size_k,
            TRANSPOSED, EVEN_K, BLOCK_M, BLOCK_N, BLOCK_K, IN_FP32,
        )  # fmt: skip
    return acc


@triton.jit
def store_tile(
    acc, out_ptr, a_scale_ptr, b_scale_ptr, tile_m, tile_n, size_m, size_n,
    SCALED: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    """Write a finished tile, times both scales where there are some, in the type of `out`."""
    if SCALED:
        acc = acc * (tl.load(a_scale_ptr) * tl.load(b_scale_ptr))
    offs_m = tile_m * BLOCK_M + tl.arange(0, BLOCK_M)
    offs_n = tile_n * BLOCK_N + tl.arange(0, BLOCK_N)
    inside = (offs_m < size_m)[:, None] & (offs_n < size_n)[None, :]
    out = out_ptr + offs_m.to(tl.int64)[:, None] * size_n + offs_n[None, :]
    tl.store(out, acc.to(out_ptr.dtype.element_ty), mask=inside)


@triton.jit
def gemm_kernel(
    a_ptr, b_ptr, out_ptr, a_scale_ptr, b_scale_ptr,  # (M, K), (K, N) or (N, K), (M, N), 2 x (1,) fp32 or None
    size_m, size_n, size_k,
    TRANSPOSED: tl.constexpr, SCALED: tl.constexpr, INTEGER: tl.constexpr, EVEN_K: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP_M: tl.constexpr,
    DESCRIPTORS: tl.constexpr, IN_FP32: tl.constexpr,
):  # fmt: skip
    """One tile of the result. Grid: (ceil(M / BLOCK_M) * ceil(N / BLOCK_N),); all tensors contiguous."""
    tiles_m = tl.cdiv(size_m, BLOCK_M)
    tiles_n = tl.cdiv(size_n, BLOCK_N)
    tile_m, tile_n = tile_place(tl.program_id(0), tiles_m, tiles_n, GROUP_M)
    acc = tl.zeros([BLOCK_M, BLOCK_N], dtype=tl.int32 if INTEGER else tl.float32)
    acc = accumulate(
        acc, a_ptr, b_ptr, tile_m, tile_n, 0, tl.cdiv(size_k, BLOCK_K), size_m, size_n, size_k,
        TRANSPOSED, EVEN_K, BLOCK_M, BLOCK_N, BLOCK_K, DESCRIPTORS, IN_FP32,
    )  # fmt: skip
    store_tile(acc, out_ptr, a_scale_ptr, b_scale_ptr, tile_m, tile_n, size_m, size_n, SCALED, BLOCK_M, BLOCK_N)


def gemm(
    a: torch.Tensor,
    b: torch.Tensor,
    scales: Scales | None = None,
    *,
    transposed: bool,
    config: dict[str, Any],
    out_dtype: torch.dtype | None = None,
) -> torch.Tensor:
    """Multiplies a (M, K) by b (K, N) or, with `transposed`, (N, K); contiguous, of one dtype. One program per tile.

    Takes fp32, fp16, bf16, int8 and int32, and fp8 with `scales` (a's, b's), fp32 (1,). Sums of integers are those
    modulo 2^32. `config` holds BLOCK_M, BLOCK_N, BLOCK_K, GROUP_M, DESCRIPTORS (see `make_operands`) and the compiler's
    options (num_warps, num_stages, on AMD waves_per_eu and others). Returns out (M, N) in `out_dtype`, see
    `empty_result`. Raises UsageError naming the argument that does not fit.
    """
    size_m, size_n, size_k = checked_sizes(a, b, scales, transposed=transposed)
    out = empty_result(a, size_n, out_dtype)
    grid = (triton.cdiv(size_m, config["BLOCK_M"]) * triton.cdiv(size_n, config["BLOCK_N"]),)
    constants = kernel_constants(a, transposed=transposed)
    a_scale, b_scale = scales or (None, None)
    even = size_k % config["BLOCK_K"] == 0
    a_read, b_read, config = make_operands(a, b, transposed=transposed, config=config)
    gemm_kernel[grid](a_read, b_read, out, a_scale, b_scale, size_m, size_n, size_k, EVEN_K=even, **constants, **config)
    return out


def make_operands(
    a: torch.Tensor, b: torch.Tensor, *, transposed: bool, config: dict[str, Any]
) -> tuple[Any, Any, dict[str, Any]]:
    """Returns (a, b, configuration) for the kernel, with DESCRIPTORS in the configuration set to what is used.

    They are tile descriptors if the configuration requests them and the operands allow it, otherwise the tensors.
    """
    if not config["DESCRIPTORS"] or not takes_descriptors(a, b):
        return a, b, {**config, "DESCRIPTORS": False}
    from triton.tools.tensor_descriptor import TensorDescriptor

    k_by_n = [config["BLOCK_K"], config["BLOCK_N"]]
    a_read = TensorDescriptor.from_tensor(a, [config["BLOCK_M"], config["BLOCK_K"]])
    return a_read, TensorDescriptor.from_tensor(b, k_by_n[::-1] if transposed else k_by_n), config


def takes_descriptors(a: torch.Tensor, b: torch.Tensor) -> bool:
    """Returns whether tensor descriptors can be made of a and b: their rows must start at multiples of 16 bytes."""
    return all(
        tensor.data_ptr() % DESCRIPTOR_BYTES == 0 and tensor.stride(0) * tensor.element_size() % DESCRIPTOR_BYTES == 0
        for tensor in (a, b)
    )


def kernel_constants(a: torch.Tensor, *, transposed: bool) -> dict[str, bool]:
    """Returns name -> value of the kernel's constants that follow from its operands.

    Triton's interpreter multiplies the bit patterns of bf16, so there types other than f16 and f32 are widened (exact).
    """
    import torch

    floating = a.dtype.is_floating_point
    return {
        "TRANSPOSED": transposed,
        "SCALED": floating and a.element_size() == 1,
        "INTEGER": not floating,
        "IN_FP32": is_interpreted(a) and floating and a.dtype not in (torch.float16, torch.float32),
    }


def empty_result(a: torch.Tensor, size_n: int, out_dtype: torch.dtype | None = None) -> torch.Tensor:
    """Allocates out (M, N) in `out_dtype`, by default int32 for int8, bf16 for fp8, else a's dtype.

    Raises UsageError for anything but int32 of integers, and for anything but fp32, fp16 and bf16 of floats.
    """
    import torch

    narrow = torch.int32 if a.dtype == torch.int8 else torch.bfloat16
    dtype = out_dtype or (narrow if a.element_size() == 1 else a.dtype)
    allowed = (torch.float32, torch.float16, torch.bfloat16) if a.dtype.is_floating_point else (torch.int32,)
    if dtype not in allowed:
        raise UsageError(f"out_dtype must be one of {', '.join(map(str, allowed))} for {a.dtype}, got {dtype}")
    return torch.empty((a.shape[0], size_n), dtype=dtype, device=a.device)


def checked_sizes(a: torch.Tensor, b: torch.Tensor, scales: Scales | None, *, transposed: bool) -> tuple[int, int, int]:
    """Returns (M, N, K) of two operands. Raises UsageError naming an invalid argument and its limits."""
    import torch

    for name, tensor in (("a", a), ("b", b)):
        if tensor.dim() != 2 or not tensor.is_contiguous() or not tensor.numel():
            raise UsageError(
                f"{name} must be a contiguous matrix with elements, got shape {tuple(tensor.shape)} and strides "
                f"{tensor.stride()}"
            )
    if a.dtype not in (allowed := operand_dtypes()):
        raise UsageError(f"a must be one of {', '.join(map(str, allowed))}, got {a.dtype}")
    if (b.dtype, b.device) != (a.dtype, a.device):
        raise UsageError(f"b must be {a.dtype} on {a.device} as a is, got {b.dtype} on {b.device}")
    size_n, b_size_k = b.shape if transposed else reversed(b.shape)
    if b_size_k != a.shape[1]:
        wanted = "(N, K)" if transposed else "(K, N)"
        raise UsageError(f"b must be {wanted} with a's K = {a.shape[1]}, got shape {tuple(b.shape)}")
    is_fp8 = a.dtype.is_floating_point and a.element_size() == 1
    if is_fp8 != (scales is not None):
        raise UsageError(
            f"scales must {'be given' if is_fp8 else 'be None'} for {a.dtype}, got {type(scales).__name__}"
        )
    for scale in scales or ():
        if scale.dtype != torch.float32 or scale.numel() != 1 or scale.device != a.device:
            raise UsageError(
                f"scales must be two fp32 tensors (1,) on {a.device}, got {scale.dtype} {tuple(scale.shape)} on "
                f"{scale.device}"
            )
    return a.shape[0], size_n, b_size_k


def operand_dtypes() -> tuple[torch.dtype, ...]:
    """Returns the dtypes that the kernels take for a and b: fp32, fp16, bf16, int8, int32 and four of fp8."""
    import torch

    return (
        *(torch.float32, torch.float16, torch.bfloat16, torch.int8, torch.int32),
        *(torch.float8_e4m3fn, torch.float8_e5m2, torch.float8_e4m3fnuz, torch.float8_e5m2fnuz),
    )
