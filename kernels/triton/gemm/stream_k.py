"""Stream-K matrix multiplication (Osama et al. 2023, arXiv:2301.03598) in Triton: two kernels and their launcher.

A data-parallel schedule gives whole tiles of the result to programs, and where the last wave of tiles does not fill the
GPU, the rest of it waits. Stream-K gives each of a fixed number of programs, one per multiprocessor, the same number of
K tiles, whichever result tiles they belong to. As in the paper's hybrid ("data-parallel + two-tile stream-K", section
5.2), only the incomplete last wave and the full one before it are cut so; the other waves stay data-parallel. With 8
programs and 19 tiles, 11 tiles are cut into 8 equal stretches of K tiles, and 8 follow whole, one per program:

    cut      stretch 0   stretch 1   stretch 2 ...      tiles 0..10, each stretch 1 3/8 tiles long
    whole    tile 11     tile 12     tile 13   ...      one each

A stretch has at most one fragment that begins inside a tile and one that ends inside one; both are written to a
workspace, and a second kernel sums the fragments of a tile in the order of K. So the result is the same in every run,
nothing waits on a lock, and no program needs another to be running.

    workspace   (2 * programs, BLOCK_M, BLOCK_N), fp32 or int32: of each program the fragment that begins inside a tile,
                then the one that begins with a tile but does not finish it
    acc         (BLOCK_M, BLOCK_N), as in gemm.py
"""

# mypy: disable-error-code="untyped-decorator, no-untyped-def"
# Parameters of a jit function are tensors or compile-time constants as its caller decides; mypy cannot say which.

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import triton
import triton.language as tl

from kernels.triton.gemm.kernel import (
    accumulate,
    checked_sizes,
    empty_result,
    kernel_constants,
    make_operands,
    store_tile,
    tile_place,
)
from kernels.triton.triton_backend import INTERPRETER, arch_of, count_multiprocessors
from pytest_attnperf.errors import UsageError

if TYPE_CHECKING:
    import torch

    from kernels.triton.gemm.kernel import Scales


@triton.jit
def _stretch_start(program, steps, programs):
    """The first of a program's K tiles, all cut tiles' K tiles counted on: the first steps % programs have one more."""
    return program * (steps // programs) + tl.minimum(program, steps % programs)


@triton.jit
def _owner(step, steps, programs):
    """The program whose stretch holds a K tile."""
    short = steps // programs
    longer = steps % programs
    in_longer = longer * (short + 1)
    return tl.where(step < in_longer, step // (short + 1), longer + (step - in_longer) // tl.maximum(short, 1))


@triton.jit
def gemm_stream_k_kernel(
    a_ptr, b_ptr, out_ptr, a_scale_ptr, b_scale_ptr, workspace_ptr,
    size_m, size_n, size_k, cut_tiles,  # the first tiles, which are cut; the others are whole
    TRANSPOSED: tl.constexpr, SCALED: tl.constexpr, INTEGER: tl.constexpr, EVEN_K: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP_M: tl.constexpr,
    DESCRIPTORS: tl.constexpr, IN_FP32: tl.constexpr,
):  # fmt: skip
    """One program's stretch of the cut tiles, then its whole tiles. Grid: (programs,)."""
    program = tl.program_id(0)
    programs = tl.num_programs(0)
    tiles_m = tl.cdiv(size_m, BLOCK_M)
    tiles_n = tl.cdiv(size_n, BLOCK_N)
    tiles_k = tl.cdiv(size_k, BLOCK_K)

    start = _stretch_start(program, cut_tiles * tiles_k, programs)
    stop = _stretch_start(program + 1, cut_tiles * tiles_k, programs)
    first = start // tiles_k
    fragments = tl.where(stop > start, tl.cdiv(stop, tiles_k) - first, 0)
    # Whole tiles of this program: cut_tiles + program, and on in steps of the number of programs.
    whole = tl.cdiv(tl.maximum(tiles_m * tiles_n - cut_tiles - program, 0), programs)
    for turn in tl.range(0, fragments + whole):
        is_cut = turn < fragments
        tile = tl.where(is_cut, first + turn, cut_tiles + program + (turn - fragments) * programs)
        from_k = tl.where(is_cut, tl.maximum(start - tile * tiles_k, 0), 0)
        to_k = tl.where(is_cut, tl.minimum(stop - tile * tiles_k, tiles_k), tiles_k)
        tile_m, tile_n = tile_place(tile, tiles_m, tiles_n, GROUP_M)
        acc = tl.zeros([BLOCK_M, BLOCK_N], dtype=tl.int32 if INTEGER else tl.float32)
        acc = accumulate(
            acc, a_ptr, b_ptr, tile_m, tile_n, from_k, to_k, size_m, size_n, size_k,
            TRANSPOSED, EVEN_K, BLOCK_M, BLOCK_N, BLOCK_K, DESCRIPTORS, IN_FP32,
        )  # fmt: skip
        if to_k - from_k == tiles_k:
            store_tile(acc, out_ptr, a_scale_ptr, b_scale_ptr, tile_m, tile_n, size_m, size_n, SCALED, BLOCK_M, BLOCK_N)
        else:
            slot = 2 * program + tl.where(from_k == 0, 1, 0)
            fragment = workspace_ptr + slot.to(tl.int64) * (BLOCK_M * BLOCK_N)
            offs_m = tl.arange(0, BLOCK_M)
            tl.store(fragment + (offs_m[:, None] * BLOCK_N + tl.arange(0, BLOCK_N)[None, :]), acc)


@triton.jit
def gemm_fix_up_kernel(
    workspace_ptr, out_ptr, a_scale_ptr, b_scale_ptr,
    size_m, size_n, size_k, cut_tiles, programs,
    SCALED: tl.constexpr, INTEGER: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP_M: tl.constexpr, FIX_M: tl.constexpr,
):  # fmt: skip
    """FIX_M rows of one cut tile: the sum of its fragments. Grid: (cut_tiles, BLOCK_M / FIX_M)."""
    tile = tl.program_id(0)
    strip = tl.program_id(1)
    tiles_k = tl.cdiv(size_k, BLOCK_K)
    steps = cut_tiles * tiles_k
    first = _owner(tile * tiles_k, steps, programs)
    last = _owner((tile + 1) * tiles_k - 1, steps, programs)
    if first != last:  # a tile within one stretch was finished by its program
        within = tl.arange(0, FIX_M)[:, None] * BLOCK_N + tl.arange(0, BLOCK_N)[None, :]
        base = workspace_ptr + strip * (FIX_M * BLOCK_N)
        acc = tl.load(base + tl.cast(2 * first + 1, tl.int64) * (BLOCK_M * BLOCK_N) + within)
        for program in tl.range(first + 1, last + 1):
            acc += tl.load(base + tl.cast(2 * program, tl.int64) * (BLOCK_M * BLOCK_N) + within)
        tile_m, tile_n = tile_place(tile, tl.cdiv(size_m, BLOCK_M), tl.cdiv(size_n, BLOCK_N), GROUP_M)
        strip_m = tile_m * (BLOCK_M // FIX_M) + strip
        store_tile(acc, out_ptr, a_scale_ptr, b_scale_ptr, strip_m, tile_n, size_m, size_n, SCALED, FIX_M, BLOCK_N)


def cut_tile_count(tiles: int, programs: int) -> int:
    """Returns how many tiles of the result are cut between programs: none if they fill whole waves (`programs` tiles
    each), all if they do not fill one, and otherwise those of the incomplete wave and of one full wave."""
    if tiles % programs == 0:
        return 0
    return tiles if tiles < programs else programs + tiles % programs


def program_count(device: torch.device, config: dict[str, Any]) -> int:
    """Returns the number of programs: PROGRAMS of the configuration, or for 0 one per multiprocessor.

    Raises UsageError for a negative number, and for 0 in Triton's interpreter.
    """
    programs = int(config["PROGRAMS"])
    if programs < 0 or (programs == 0 and arch_of(device) == INTERPRETER):
        raise UsageError(f"PROGRAMS must be positive, or on a GPU 0 for one per multiprocessor, got {programs}")
    return programs or count_multiprocessors(device)


def new_workspace(a: torch.Tensor, config: dict[str, Any]) -> torch.Tensor:
    """Allocates memory for the partial sums of `gemm_stream_k`, for any number of calls: (2 * programs, BLOCK_M,
    BLOCK_N)."""
    import torch

    dtype = torch.float32 if a.dtype.is_floating_point else torch.int32
    shape = (2 * program_count(a.device, config), config["BLOCK_M"], config["BLOCK_N"])
    return torch.empty(shape, dtype=dtype, device=a.device)


def gemm_stream_k(
    a: torch.Tensor,
    b: torch.Tensor,
    scales: Scales | None = None,
    *,
    transposed: bool,
    workspace: torch.Tensor,
    config: dict[str, Any],
    out_dtype: torch.dtype | None = None,
) -> torch.Tensor:
    """Multiplies with a fixed number of programs: operands and result as `gemm`, `workspace` from `new_workspace`.

    `config` holds BLOCK_M, BLOCK_N, BLOCK_K, GROUP_M, DESCRIPTORS, PROGRAMS (0: one per multiprocessor), FIX_M, which
    divides BLOCK_M, and the compiler's options. Calls that share a workspace must not overlap. Raises UsageError naming
    the argument that does not fit.
    """
    size_m, size_n, size_k = checked_sizes(a, b, scales, transposed=transposed)
    tile = {name: value for name, value in config.items() if name not in ("PROGRAMS", "FIX_M")}
    programs = _checked_programs(a, workspace, config)
    tiles = triton.cdiv(size_m, tile["BLOCK_M"]) * triton.cdiv(size_n, tile["BLOCK_N"])
    cut_tiles = cut_tile_count(tiles, programs)
    out = empty_result(a, size_n, out_dtype)
    a_scale, b_scale = scales or (None, None)
    constants = kernel_constants(a, transposed=transposed)
    a_read, b_read, read = make_operands(a, b, transposed=transposed, config=tile)
    gemm_stream_k_kernel[(programs,)](
        a_read, b_read, out, a_scale, b_scale, workspace, size_m, size_n, size_k, cut_tiles,
        EVEN_K=size_k % tile["BLOCK_K"] == 0, **constants, **read,
    )  # fmt: skip
    if cut_tiles:
        shared = {name: constants[name] for name in ("SCALED", "INTEGER")}
        del tile["DESCRIPTORS"]  # the workspace is read through pointers
        gemm_fix_up_kernel[(cut_tiles, tile["BLOCK_M"] // config["FIX_M"])](
            workspace, out, a_scale, b_scale, size_m, size_n, size_k, cut_tiles, programs,
            FIX_M=config["FIX_M"], **shared, **tile,
        )  # fmt: skip
    return out


def _checked_programs(a: torch.Tensor, workspace: torch.Tensor, config: dict[str, Any]) -> int:
    """Returns the number of programs. Raises UsageError for a FIX_M or a workspace that does not fit."""
    import torch

    block_m, fix_m = config["BLOCK_M"], config["FIX_M"]
    if fix_m < 1 or block_m % fix_m:
        raise UsageError(f"FIX_M must be a positive divisor of BLOCK_M, which is {block_m}, got {fix_m}")
    programs = program_count(a.device, config)
    shape = (2 * programs, block_m, config["BLOCK_N"])
    dtype = torch.float32 if a.dtype.is_floating_point else torch.int32
    if (tuple(workspace.shape), workspace.dtype, workspace.device) != (shape, dtype, a.device):
        raise UsageError(
            f"workspace must be {dtype} {shape} on {a.device}, as new_workspace gives it, got {workspace.dtype} "
            f"{tuple(workspace.shape)} on {workspace.device}"
        )
    return programs
