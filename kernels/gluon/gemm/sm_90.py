"""Matrix multiplication in Gluon for sm_90 (NVIDIA Hopper): wgmma, TMA and warps with different jobs.

A program, one per multiprocessor, computes tiles of BLOCK_M x BLOCK_N of the result, one after another, and has three
groups of warps, which run at the same time and meet at barriers in shared memory only:

    load_tiles       one warp copies tiles of a and b along K into a ring of SLOTS buffers, by TMA. It runs ahead: while
                     a tile of the result is stored, the first K tiles of the next one arrive
    multiply_rows    twice, four warps and 64 rows of the tile each

    ready[slot]      both copies have arrived: TMA counts their bytes
    free[slot]       both multiply_rows have read them: two arrivals. The n-th use of a buffer waits for phase n - 1

Within multiply_rows the product of a K tile is issued before the one before it is awaited, so that the tensor cores
always have one to begin with. The sums stay in registers. TMA fills what lies outside of a matrix with zeros, and does
not store it.

Tensor cores add products of fp8 with about 14 bits (arXiv:2412.19437, section 3.3.2). PROMOTE adds the sums of every
BLOCK_K products to fp32 numbers in registers, half of the tile's columns at a time, as there are registers for no more:
while one group of warps adds, the other one multiplies.

tests/kernels/gluon executes this source on tensors, its groups as threads, and the compiled kernel on a GPU.
"""

# mypy: disable-error-code="untyped-decorator, no-untyped-def, no-untyped-call"
# Parameters of a jit function are tensors or compile-time constants as its caller decides; mypy cannot say which.

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.nvidia.hopper import TensorDescriptor

from kernels.gluon.gemm.sum_parts import SUM_ROWS, sum_parts_kernel
from kernels.gluon.gemm.work import find_work

if TYPE_CHECKING:
    import torch

    from kernels.gluon.gemm.schedule import Schedule

tma = gl.nvidia.hopper.tma
load_by_tma = getattr(tma, "async_load", None) or tma.async_copy_global_to_shared
store_by_tma = getattr(tma, "async_store", None) or tma.async_copy_shared_to_global
reinterpret = getattr(gl.shared_memory_descriptor, "reinterpret", None) or gl.shared_memory_descriptor._reinterpret
"""Triton 3.6 has the latter names, of which 3.9 knows none."""

ROWS = gl.constexpr(64)
"""Rows of a group of four warps: the height of a wgmma."""
PRODUCER_REGISTERS = gl.constexpr(24)
CONSUMER_REGISTERS = gl.constexpr(240)
ELEMENTS = {
    "float16": gl.float16,
    "bfloat16": gl.bfloat16,
    "float32": gl.float32,
    "float8_e4m3fn": gl.float8e4nv,
    "float8_e5m2": gl.float8e5,
}
ROW_BYTES = 128
"""A buffer from which TMA stores has rows of as many bytes: the width of its swizzle."""


@gluon.jit
def load_tiles(
    a_desc, b_desc, a_smem, b_smem, ready, free, items, whole, parts, tiles_m, tiles_n, tiles_k,
    TRANSPOSED: gl.constexpr, BLOCK_N: gl.constexpr, GROUP_M: gl.constexpr, CUT: gl.constexpr,
):  # fmt: skip
    """Copy a's and b's part of each K tile of each item of this program into a buffer as soon as it is free."""
    SLOTS: gl.constexpr = a_smem.shape[0]
    BLOCK_M: gl.constexpr = a_smem.shape[1]
    BLOCK_K: gl.constexpr = a_smem.shape[2]
    BYTES: gl.constexpr = (BLOCK_M + BLOCK_N) * BLOCK_K * (a_desc.layout.element_bitwidth // 8)
    step = 0
    for item in range(gl.program_id(0), items, gl.num_programs(0)):
        tile_m, tile_n, from_k, to_k = find_work(item, whole, parts, tiles_m, tiles_n, tiles_k, GROUP_M, CUT)
        start_m, start_n = tile_m * BLOCK_M, tile_n * BLOCK_N
        for tile_k in range(from_k, to_k):
            slot = step % SLOTS
            gl.nvidia.hopper.mbarrier.wait(free.index(slot), (step // SLOTS & 1) ^ 1)
            gl.nvidia.hopper.mbarrier.expect(ready.index(slot), BYTES)
            load_by_tma(a_desc, [start_m, tile_k * BLOCK_K], ready.index(slot), a_smem.index(slot))
            if TRANSPOSED:
                load_by_tma(b_desc, [start_n, tile_k * BLOCK_K], ready.index(slot), b_smem.index(slot))
            else:
                load_by_tma(b_desc, [tile_k * BLOCK_K, start_n], ready.index(slot), b_smem.index(slot))
            step += 1


@gluon.jit
def await_buffer(a_smem, b_smem, ready, step, PART: gl.constexpr):
    """(slot, 64 rows of a, b) of the K tile that is the step-th of this program, once it has arrived."""
    SLOTS: gl.constexpr = a_smem.shape[0]
    slot = step % SLOTS
    gl.nvidia.hopper.mbarrier.wait(ready.index(slot), step // SLOTS & 1)
    return slot, a_smem.index(slot).slice(PART * ROWS, ROWS), b_smem.index(slot)


@gluon.jit
def add_products(
    acc, a_smem, b_smem, ready, free, step, tiles_k, PART: gl.constexpr, TRANSPOSED: gl.constexpr
):  # fmt: skip
    """(acc plus 64 rows of a times b,); `step` is that of the first K tile."""
    SLOTS: gl.constexpr = a_smem.shape[0]
    for tile_k in range(tiles_k):
        _slot, a, b = await_buffer(a_smem, b_smem, ready, step + tile_k, PART)
        if TRANSPOSED:
            b = b.permute([1, 0])
        acc = gl.nvidia.hopper.warpgroup_mma(a, b, acc, is_async=True)
        acc = gl.nvidia.hopper.warpgroup_mma_wait(1, deps=[acc])
        before = (step + tile_k + SLOTS - 1) % SLOTS
        gl.nvidia.hopper.mbarrier.arrive(free.index(before), count=1, pred=tile_k > 0)
    acc = gl.nvidia.hopper.warpgroup_mma_wait(0, deps=[acc])
    gl.nvidia.hopper.mbarrier.arrive(free.index((step + tiles_k - 1) % SLOTS), count=1)
    return (acc,)


@gluon.jit
def add_promoted(left, right, a_smem, b_smem, ready, free, step, tiles_k, PART: gl.constexpr):
    """As `add_products`, of b stored (N, K), for the tile's left and its right half of columns: tensor cores sum
    BLOCK_K products, and these sums are added in fp32."""
    HALF: gl.constexpr = left.shape[1]
    part = left
    for tile_k in range(tiles_k):
        slot, a, b = await_buffer(a_smem, b_smem, ready, step + tile_k, PART)
        part = gl.nvidia.hopper.warpgroup_mma(a, b.slice(0, HALF).permute([1, 0]), part, use_acc=False)
        left = left + part
        part = gl.nvidia.hopper.warpgroup_mma(a, b.slice(HALF, HALF).permute([1, 0]), part, use_acc=False)
        gl.nvidia.hopper.mbarrier.arrive(free.index(slot), count=1)
        right = right + part
    return left, right


@gluon.jit
def cut_in_two(tile):
    """The left and the right half of a tile's columns."""
    return gl.split(gl.permute(gl.reshape(tile, [tile.shape[0], 2, tile.shape[1] // 2]), [0, 2, 1]))


@gluon.jit
def split_columns(pieces, COLUMNS: gl.constexpr):
    """The pieces of a tile, cut into pieces of COLUMNS columns; their registers stay where they are."""
    for _ in gl.static_range(10):
        if pieces[0].shape[1] > COLUMNS:
            halves = ()
            for at in gl.static_range(len(pieces)):
                halves += cut_in_two(pieces[at])
            pieces = halves
    return pieces


@gluon.jit
def store_pieces(sums, scale, desc, out_smem, start_m, start_n, PART: gl.constexpr, SCALED: gl.constexpr):
    """Store 64 rows, in pieces as wide as a buffer, by TMA, each through the next buffer of this group of warps."""
    PIECES: gl.constexpr = out_smem.shape[0] // 2
    COLUMNS: gl.constexpr = out_smem.shape[2]
    pieces = split_columns(sums, COLUMNS)
    gl.static_assert(len(pieces) % PIECES == 0)  # so that PIECES stores ago is this buffer's last one
    for at in gl.static_range(len(pieces)):
        piece = pieces[at]
        if SCALED:
            piece = piece * scale
        buffer = out_smem.index(PART * PIECES + at % PIECES)
        gl.nvidia.hopper.tma.store_wait(PIECES - 1)  # what this buffer held before is stored
        buffer.store(piece.to(desc.dtype))
        gl.nvidia.hopper.fence_async_shared()
        store_by_tma(desc, [start_m + PART * ROWS, start_n + at * COLUMNS], buffer)


@gluon.jit
def multiply_rows(
    out_desc, parts_desc, a_scale_ptr, b_scale_ptr, a_smem, b_smem, out_smem, ready, free,
    items, whole, parts, tiles_m, tiles_n, tiles_k,
    PART: gl.constexpr, TRANSPOSED: gl.constexpr, BLOCK_N: gl.constexpr, GROUP_M: gl.constexpr, PROMOTE: gl.constexpr,
    BITS: gl.constexpr,
):  # fmt: skip
    """64 rows of each item of this program."""
    BLOCK_M: gl.constexpr = a_smem.shape[1]
    CUT: gl.constexpr = parts_desc is not None
    SCALED: gl.constexpr = a_scale_ptr is not None
    WIDTH: gl.constexpr = BLOCK_N // 2 if PROMOTE else BLOCK_N
    # A wgmma is 32 bytes deep.
    layout: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, WIDTH, 32 * 8 // BITS])
    scale = 1.0
    if SCALED:
        scale = gl.load(a_scale_ptr) * gl.load(b_scale_ptr)
    step = 0
    for item in range(gl.program_id(0), items, gl.num_programs(0)):
        tile_m, tile_n, from_k, to_k = find_work(item, whole, parts, tiles_m, tiles_n, tiles_k, GROUP_M, CUT)
        zeros = gl.zeros([ROWS, WIDTH], gl.float32, layout=layout)
        if PROMOTE:
            sums = add_promoted(zeros, zeros, a_smem, b_smem, ready, free, step, to_k - from_k, PART)
        else:
            sums = add_products(zeros, a_smem, b_smem, ready, free, step, to_k - from_k, PART, TRANSPOSED)
        step += to_k - from_k
        if not CUT or item < whole:
            store_pieces(sums, scale, out_desc, out_smem, tile_m * BLOCK_M, tile_n * BLOCK_N, PART, SCALED)
        else:
            shape: gl.constexpr = [out_smem.shape[0], ROWS, parts_desc.block_shape[1]]
            buffers = reinterpret(out_smem, gl.float32, shape, parts_desc.layout)
            store_pieces(sums, scale, parts_desc, buffers, (item - whole) * BLOCK_M, 0, PART, SCALED)
    gl.nvidia.hopper.tma.store_wait(0)


@gluon.jit
def gemm_sm_90_kernel(
    a_desc, b_desc, out_desc, parts_desc,  # (M, K), (K, N) or (N, K), (M, N), (parts * BLOCK_M, BLOCK_N) fp32 or None
    a_scale_ptr, b_scale_ptr,  # (1,) fp32 or None
    items, whole, parts, tiles_m, tiles_n, tiles_k,  # see Schedule
    TRANSPOSED: gl.constexpr, GROUP_M: gl.constexpr, SLOTS: gl.constexpr, PIECES: gl.constexpr, PROMOTE: gl.constexpr,
):  # fmt: skip
    """Items program, program + programs, ... of the schedule. Grid: (programs,), at most one per item."""
    BLOCK_M: gl.constexpr = a_desc.block_shape[0]
    BLOCK_K: gl.constexpr = a_desc.block_shape[1]
    BLOCK_N: gl.constexpr = b_desc.block_shape[0 if TRANSPOSED else 1]
    BITS: gl.constexpr = a_desc.layout.element_bitwidth
    CUT: gl.constexpr = parts_desc is not None
    barrier: gl.constexpr = gl.nvidia.hopper.mbarrier.MBarrierLayout()
    a_smem = gl.allocate_shared_memory(a_desc.dtype, [SLOTS, BLOCK_M, BLOCK_K], a_desc.layout)
    b_smem = gl.allocate_shared_memory(
        b_desc.dtype, [SLOTS, b_desc.block_shape[0], b_desc.block_shape[1]], b_desc.layout
    )
    out_smem = gl.allocate_shared_memory(out_desc.dtype, [2 * PIECES, ROWS, out_desc.block_shape[1]], out_desc.layout)
    ready = gl.allocate_shared_memory(gl.int64, [SLOTS, 1], barrier)
    free = gl.allocate_shared_memory(gl.int64, [SLOTS, 1], barrier)
    for slot in gl.static_range(SLOTS):
        gl.nvidia.hopper.mbarrier.init(ready.index(slot), count=1)
        gl.nvidia.hopper.mbarrier.init(free.index(slot), count=2)
    gl.nvidia.hopper.fence_async_shared()
    gl.warp_specialize(
        [
            (multiply_rows, (out_desc, parts_desc, a_scale_ptr, b_scale_ptr, a_smem, b_smem, out_smem, ready, free,
             items, whole, parts, tiles_m, tiles_n, tiles_k, 0, TRANSPOSED, BLOCK_N, GROUP_M, PROMOTE, BITS)),
            (multiply_rows, (out_desc, parts_desc, a_scale_ptr, b_scale_ptr, a_smem, b_smem, out_smem, ready, free,
             items, whole, parts, tiles_m, tiles_n, tiles_k, 1, TRANSPOSED, BLOCK_N, GROUP_M, PROMOTE, BITS)),
            (load_tiles, (a_desc, b_desc, a_smem, b_smem, ready, free,
             items, whole, parts, tiles_m, tiles_n, tiles_k, TRANSPOSED, BLOCK_N, GROUP_M, CUT)),
        ],
        [4, 1],
        [CONSUMER_REGISTERS, PRODUCER_REGISTERS],
    )  # fmt: skip


def launch_sm_90(
    a: torch.Tensor,
    b: torch.Tensor,
    out: torch.Tensor,
    scales: tuple[torch.Tensor, torch.Tensor] | None,
    *,
    transposed: bool,
    programs: int,
    schedule: Schedule,
    config: Mapping[str, Any],
) -> None:
    """Writes a b to `out`, times both scales of fp8; tensors as `gemm` has checked them. At most `programs` programs
    run. `config` has BLOCK_M, which is 128, BLOCK_N, BLOCK_K, GROUP_M, SLOTS, PIECES, PROMOTE and the compiler's
    options; whether it asks to CUT tiles is in `schedule`."""
    import torch

    block_m, block_n, block_k = (config[name] for name in ("BLOCK_M", "BLOCK_N", "BLOCK_K"))
    constants = {name: value for name, value in config.items() if not name.startswith(("BLOCK", "CUT"))}
    (size_m, size_k), size_n = a.shape, out.shape[1]
    tiles_m, tiles_n, tiles_k = -(-size_m // block_m), -(-size_n // block_n), -(-size_k // block_k)
    shape = (schedule.cut * schedule.parts * block_m, block_n)
    parts = torch.empty(shape, dtype=torch.float32, device=a.device) if schedule.cut else None
    gemm_sm_90_kernel[(min(programs, schedule.items),)](
        describe(a, [block_m, block_k]),
        describe(b, [block_n, block_k] if transposed else [block_k, block_n]),
        describe(out, [ROWS.value, ROW_BYTES // out.element_size()]),
        None if parts is None else describe(parts, [ROWS.value, ROW_BYTES // 4]),
        *(scales or (None, None)),
        schedule.items, schedule.whole, schedule.parts, tiles_m, tiles_n, tiles_k,
        TRANSPOSED=transposed, **constants,
    )  # fmt: skip
    if parts is not None:
        sum_parts_kernel[(schedule.cut, block_m // SUM_ROWS.value)](
            parts, out, size_m, size_n, schedule.whole, schedule.parts, tiles_m, tiles_n,
            GROUP_M=config["GROUP_M"], BLOCK_M=block_m, BLOCK_N=block_n,
        )  # fmt: skip


def describe(matrix: torch.Tensor, block: list[int]) -> TensorDescriptor:
    """Returns what TMA copies of a matrix: blocks of this shape."""
    layout = gl.NVMMASharedLayout.get_default_for(block, ELEMENTS[str(matrix.dtype).removeprefix("torch.")])
    return TensorDescriptor.from_tensor(matrix, block, layout)
