"""Flash attention forward in Gluon for sm_90 (NVIDIA Hopper): wgmma, TMA and warps with different jobs.

The algorithm is that of `kernels.triton.prefill.forward`. A program owns 128 query rows of one head and has three
groups of warps, which run at the same time and meet at barriers in shared memory only:

    load_tiles     one warp copies Q, then K and V tile by tile into SLOTS buffers each, by TMA: one instruction a tile
    attend_rows    twice, four warps and 64 rows each: while one waits for its exponentials, the other multiplies

    ready[slot]    a copy has arrived: TMA counts its bytes
    free[slot]     both attend_rows have read it: two arrivals. The n-th use of a buffer waits for phase n - 1

Within attend_rows, too, the tensor cores work during the softmax: S of a tile and P V of the one before are issued
together, and the softmax needs S only. TMA fills rows behind a sequence's last one with zeros and does not store them.

tests/kernels/gluon executes this source on tensors, its groups as threads, and the compiled kernel on a GPU.
"""

# mypy: disable-error-code="untyped-decorator, no-untyped-def, no-untyped-call"
# Parameters of a jit function are tensors or compile-time constants as its caller decides; mypy cannot say which.

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import triton
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.nvidia.hopper import TensorDescriptor

if TYPE_CHECKING:
    import torch

    from kernels.triton.prefill.launch import PrefillSizes

tma = gl.nvidia.hopper.tma
load_by_tma = getattr(tma, "async_load", None) or tma.async_copy_global_to_shared
store_by_tma = getattr(tma, "async_store", None) or tma.async_copy_shared_to_global
"""Triton 3.6 has the latter names, which 3.9 answers with an error."""

LN_2 = gl.constexpr(math.log(2.0))
ROWS = gl.constexpr(64)
"""Rows of a group of four warps: the height of a wgmma."""
SLOTS = gl.constexpr(2)
"""Tiles of K, and of V, in shared memory."""
PRODUCER_REGISTERS = gl.constexpr(24)
CONSUMER_REGISTERS = gl.constexpr(240)


@gluon.jit
def as_matrix(tile):
    """A tile (1, rows, HEAD_DIM) of shared memory without its first dimension, the batch."""
    return tile.reshape([tile.shape[1], tile.shape[2]])


@gluon.jit
def load_tiles(
    q_desc, k_desc, v_desc, q_smem, k_smem, v_smem, q_ready, k_ready, k_free, v_ready, v_free,
    batch, head, kv_head, start_m, tiles,
):  # fmt: skip
    """Copy Q of both groups, then K and V of each tile into a buffer as soon as it is free."""
    BLOCK_N: gl.constexpr = k_desc.block_shape[1]
    HEAD_DIM: gl.constexpr = k_desc.block_shape[2]
    gl.nvidia.hopper.mbarrier.expect(q_ready, 2 * ROWS * HEAD_DIM * 2)
    load_by_tma(q_desc, [batch, start_m, head * HEAD_DIM], q_ready, q_smem.index(0))
    load_by_tma(q_desc, [batch, start_m + ROWS, head * HEAD_DIM], q_ready, q_smem.index(1))
    for tile in range(tiles):
        slot = tile % SLOTS
        phase = (tile // SLOTS & 1) ^ 1
        gl.nvidia.hopper.mbarrier.wait(k_free.index(slot), phase)
        gl.nvidia.hopper.mbarrier.expect(k_ready.index(slot), BLOCK_N * HEAD_DIM * 2)
        load_by_tma(k_desc, [batch, tile * BLOCK_N, kv_head * HEAD_DIM], k_ready.index(slot), k_smem.index(slot))
        gl.nvidia.hopper.mbarrier.wait(v_free.index(slot), phase)
        gl.nvidia.hopper.mbarrier.expect(v_ready.index(slot), BLOCK_N * HEAD_DIM * 2)
        load_by_tma(v_desc, [batch, tile * BLOCK_N, kv_head * HEAD_DIM], v_ready.index(slot), v_smem.index(slot))


@gluon.jit
def weigh(s, l_i, m_i, seen, start_n, scale_log2, MASKED: gl.constexpr, s_layout: gl.constexpr):
    """(p, rescale, l_i, m_i) after the scores s of the keys from start_n on: p are their weights, and rescale scales
    what was summed before them."""
    if MASKED:
        keys = gl.arange(0, s.shape[1], layout=gl.SliceLayout(0, s_layout))
        s = gl.where(keys[None, :] < (seen - start_n)[:, None], s, float("-inf"))
    m_new = gl.maximum(m_i, gl.max(s, 1) * scale_log2)
    shift = m_new
    if MASKED:
        shift = gl.where(m_new == float("-inf"), 0.0, m_new)  # -inf - -inf would be NaN
    p = gl.exp2(s * scale_log2 - shift[:, None])
    rescale = gl.exp2(m_i - shift)
    return p, rescale, l_i * rescale + gl.sum(p, 1), m_new


@gluon.jit
def walk(
    acc, p, l_i, m_i, q, k_smem, v_smem, k_ready, k_free, v_ready, v_free, seen, start, stop, scale_log2,
    MASKED: gl.constexpr, BLOCK_N: gl.constexpr, s_layout: gl.constexpr, o_layout: gl.constexpr,
):  # fmt: skip
    """Fold the tiles start..stop into the running values. p holds the weights of tile start - 1, whose V is still to be
    multiplied, and those of tile stop - 1 when it returns."""
    for tile in range(start, stop):
        slot = tile % SLOTS
        before = (tile - 1) % SLOTS
        gl.nvidia.hopper.mbarrier.wait(k_ready.index(slot), tile // SLOTS & 1)
        k = as_matrix(k_smem.index(slot))
        zeros = gl.zeros([ROWS, BLOCK_N], gl.float32, layout=s_layout)
        s = gl.nvidia.hopper.warpgroup_mma(q, k.permute([1, 0]), zeros, use_acc=False, is_async=True)
        gl.nvidia.hopper.mbarrier.wait(v_ready.index(before), (tile - 1) // SLOTS & 1)
        acc = gl.nvidia.hopper.warpgroup_mma(p, as_matrix(v_smem.index(before)), acc, is_async=True)
        # The few masked tiles wait for P V, too: their masks need its registers.
        s = gl.nvidia.hopper.warpgroup_mma_wait(0 if MASKED else 1, deps=[s])
        gl.nvidia.hopper.mbarrier.arrive(k_free.index(slot), count=1)
        weights, rescale, l_i, m_i = weigh(s, l_i, m_i, seen, tile * BLOCK_N, scale_log2, MASKED, s_layout)
        weights = weights.to(p.dtype)
        acc = gl.nvidia.hopper.warpgroup_mma_wait(0, deps=[acc])
        gl.nvidia.hopper.mbarrier.arrive(v_free.index(before), count=1)
        acc = acc * gl.convert_layout(rescale, gl.SliceLayout(1, o_layout))[:, None]
        p = gl.convert_layout(weights, gl.DotOperandLayout(0, o_layout, 2))
    return acc, p, l_i, m_i


@gluon.jit
def attend_rows(
    q_tile, out_desc, lse_ptr, k_smem, v_smem, q_ready, k_ready, k_free, v_ready, v_free,
    batch, head, heads, start_m, tiles, seq_q, seq_kv, scale_log2, CAUSAL: gl.constexpr, BLOCK_N: gl.constexpr,
):  # fmt: skip
    """Attention of ROWS query rows from start_m on; q_tile holds them, and their result at the end."""
    HEAD_DIM: gl.constexpr = q_tile.shape[2]
    s_layout: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, BLOCK_N, 16])
    o_layout: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, HEAD_DIM, 16])
    rows = start_m + gl.arange(0, ROWS, layout=gl.SliceLayout(1, s_layout))
    # Keys that a row sees, bottom-right: row i sees those up to i + Skv - Sq.
    seen = gl.full([ROWS], 0, gl.int32, layout=gl.SliceLayout(1, s_layout)) + seq_kv
    whole = seq_kv // BLOCK_N
    if CAUSAL:
        seen = gl.minimum(rows + (1 + seq_kv - seq_q), seq_kv)
        whole = gl.maximum(gl.minimum(start_m + 1 + seq_kv - seq_q, seq_kv), 0) // BLOCK_N
    whole = gl.maximum(whole, 1)

    l_i = gl.zeros([ROWS], gl.float32, layout=gl.SliceLayout(1, s_layout))
    m_i = gl.full([ROWS], float("-inf"), gl.float32, layout=gl.SliceLayout(1, s_layout))
    acc = gl.zeros([ROWS, HEAD_DIM], gl.float32, layout=o_layout)
    q = as_matrix(q_tile)
    gl.nvidia.hopper.mbarrier.wait(q_ready, 0)
    gl.nvidia.hopper.mbarrier.wait(k_ready.index(0), 0)
    zeros = gl.zeros([ROWS, BLOCK_N], gl.float32, layout=s_layout)
    s = gl.nvidia.hopper.warpgroup_mma(q, as_matrix(k_smem.index(0)).permute([1, 0]), zeros, use_acc=False)
    gl.nvidia.hopper.mbarrier.arrive(k_free.index(0), count=1)
    weights, _, l_i, m_i = weigh(s, l_i, m_i, seen, 0, scale_log2, True, s_layout)
    p = gl.convert_layout(weights.to(q_tile.dtype), gl.DotOperandLayout(0, o_layout, 2))
    # Tiles that every row sees whole need no mask.
    acc, p, l_i, m_i = walk(
        acc, p, l_i, m_i, q, k_smem, v_smem, k_ready, k_free, v_ready, v_free, seen, 1, whole, scale_log2,
        False, BLOCK_N, s_layout, o_layout,
    )  # fmt: skip
    acc, p, l_i, m_i = walk(
        acc, p, l_i, m_i, q, k_smem, v_smem, k_ready, k_free, v_ready, v_free, seen, whole, tiles, scale_log2,
        True, BLOCK_N, s_layout, o_layout,
    )  # fmt: skip
    gl.nvidia.hopper.mbarrier.wait(v_ready.index((tiles - 1) % SLOTS), (tiles - 1) // SLOTS & 1)
    acc = gl.nvidia.hopper.warpgroup_mma(p, as_matrix(v_smem.index((tiles - 1) % SLOTS)), acc)

    divisor = gl.where(l_i == 0.0, 1.0, l_i)  # a row without keys: out is 0, its log-sum-exp -inf
    out = acc * gl.convert_layout(1.0 / divisor, gl.SliceLayout(1, o_layout))[:, None]
    q.store(out.to(q_tile.dtype))
    gl.nvidia.hopper.fence_async_shared()
    store_by_tma(out_desc, [batch, start_m, head * HEAD_DIM], q_tile)
    if lse_ptr is not None:
        lse = (m_i + gl.log2(divisor)) * LN_2
        gl.store(lse_ptr + (batch.to(gl.int64) * heads + head) * seq_q + rows, lse, mask=rows < seq_q)
    gl.nvidia.hopper.tma.store_wait(0)


@gluon.jit
def prefill_sm_90_kernel(
    q_desc, k_desc, v_desc, out_desc, lse_ptr,  # (B, Sq, H * D), 2 x (B, Skv, Hk * D), as q; (B, H, Sq) fp32 or None
    heads, kv_heads, seq_q, seq_kv, scale_log2, CAUSAL: gl.constexpr,
):  # fmt: skip
    """Attention of 128 query rows of one head. Grid: (B * H, ceil(Sq / 128))."""
    BLOCK_N: gl.constexpr = k_desc.block_shape[1]
    HEAD_DIM: gl.constexpr = k_desc.block_shape[2]
    barrier: gl.constexpr = gl.nvidia.hopper.mbarrier.MBarrierLayout()
    q_smem = gl.allocate_shared_memory(q_desc.dtype, [2, 1, ROWS, HEAD_DIM], q_desc.layout)
    k_smem = gl.allocate_shared_memory(k_desc.dtype, [SLOTS, 1, BLOCK_N, HEAD_DIM], k_desc.layout)
    v_smem = gl.allocate_shared_memory(v_desc.dtype, [SLOTS, 1, BLOCK_N, HEAD_DIM], v_desc.layout)
    q_ready = gl.allocate_shared_memory(gl.int64, [1], barrier)
    k_ready = gl.allocate_shared_memory(gl.int64, [SLOTS, 1], barrier)
    k_free = gl.allocate_shared_memory(gl.int64, [SLOTS, 1], barrier)
    v_ready = gl.allocate_shared_memory(gl.int64, [SLOTS, 1], barrier)
    v_free = gl.allocate_shared_memory(gl.int64, [SLOTS, 1], barrier)
    gl.nvidia.hopper.mbarrier.init(q_ready, count=1)
    for slot in gl.static_range(SLOTS):
        gl.nvidia.hopper.mbarrier.init(k_ready.index(slot), count=1)
        gl.nvidia.hopper.mbarrier.init(k_free.index(slot), count=2)
        gl.nvidia.hopper.mbarrier.init(v_ready.index(slot), count=1)
        gl.nvidia.hopper.mbarrier.init(v_free.index(slot), count=2)
    gl.nvidia.hopper.fence_async_shared()

    batch, head = gl.program_id(0) // heads, gl.program_id(0) % heads
    # Under a causal mask the last rows see the most keys: starting them first keeps the tail of the grid short.
    start_m = (gl.num_programs(1) - 1 - gl.program_id(1) if CAUSAL else gl.program_id(1)) * (2 * ROWS)
    stop = seq_kv
    if CAUSAL:
        stop = gl.minimum(start_m + 2 * ROWS + seq_kv - seq_q, seq_kv)
    tiles = (gl.maximum(stop, 1) + BLOCK_N - 1) // BLOCK_N  # at least one, if all of it is masked
    gl.warp_specialize(
        [
            (attend_rows, (q_smem.index(0), out_desc, lse_ptr, k_smem, v_smem, q_ready, k_ready, k_free, v_ready,
             v_free, batch, head, heads, start_m, tiles, seq_q, seq_kv, scale_log2, CAUSAL, BLOCK_N)),
            (attend_rows, (q_smem.index(1), out_desc, lse_ptr, k_smem, v_smem, q_ready, k_ready, k_free, v_ready,
             v_free, batch, head, heads, start_m + ROWS, tiles, seq_q, seq_kv, scale_log2, CAUSAL, BLOCK_N)),
            (load_tiles, (q_desc, k_desc, v_desc, q_smem, k_smem, v_smem, q_ready, k_ready, k_free, v_ready, v_free,
             batch, head, head // (heads // kv_heads), start_m, tiles)),
        ],
        [4, 1],
        [CONSUMER_REGISTERS, PRODUCER_REGISTERS],
    )  # fmt: skip


def launch_sm_90(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    out: torch.Tensor,
    lse: torch.Tensor | None,
    shape: PrefillSizes,
    *,
    causal: bool,
    config: Mapping[str, Any],
) -> None:
    """Writes attention to `out` and, unless it is None, the log-sum-exp to `lse`; tensors as `prefill_forward` has
    checked them. `config` has BLOCK_M, which is 128, BLOCK_N and the compiler's options."""
    options = {name: value for name, value in config.items() if not name.startswith("BLOCK")}
    grid = (shape.batch * shape.heads, triton.cdiv(shape.seq_q, 2 * ROWS.value))
    prefill_sm_90_kernel[grid](
        describe(q, ROWS.value), describe(k, config["BLOCK_N"]), describe(v, config["BLOCK_N"]),
        describe(out, ROWS.value), lse,
        shape.heads, shape.kv_heads, shape.seq_q, shape.seq_kv, math.log2(math.e) / math.sqrt(shape.head_dim),
        CAUSAL=causal, **options,
    )  # fmt: skip


def describe(tensor: torch.Tensor, rows: int) -> TensorDescriptor:
    """Returns what TMA copies of a tensor (B, S, H, D): `rows` rows of one head at a time."""
    block = [1, rows, tensor.shape[3]]
    element = {"float16": gl.float16, "bfloat16": gl.bfloat16}[str(tensor.dtype).removeprefix("torch.")]
    layout = gl.NVMMASharedLayout.get_default_for(block, element)
    return TensorDescriptor.from_tensor(tensor.view(*tensor.shape[:2], -1), block, layout)
