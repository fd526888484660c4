"""Flash attention forward in Gluon for sm_90 (NVIDIA Hopper): wgmma, TMA and warps with different jobs.

The algorithm is that of `kernels.triton.prefill.forward`. A program has groups of warps, which run at the same time and
meet at barriers in shared memory only, and works off one block of query rows after the other, as `schedule` deals them:

    load_tiles     one warp copies Q of a block, then K and V tile by tile, by TMA: one instruction a tile. It runs
                   ahead as far as buffers are free, into the next block, too
    attend_rows    GROUPS times, four warps and 64 rows each

    ready          a copy has arrived: TMA counts its bytes
    free           every attend_rows has read it
    turns[group]   the group before has issued its products, so that the tensor cores get those of one group after the
                   other, and one multiplies while another computes its softmax

The n-th use of a buffer waits for phase n - 1 of its barriers. Within attend_rows, too, the tensor cores work during
the softmax: S of a tile and P V of the one before are issued together, and the softmax needs S only. TMA fills rows
behind a sequence's last one with zeros and does not store them.

tests/kernels/gluon executes this source on tensors, its groups as threads, and the compiled kernel on a GPU.
"""

# mypy: disable-error-code="untyped-decorator, no-untyped-def, no-untyped-call"
# Parameters of a jit function are tensors or compile-time constants as its caller decides; mypy cannot say which.

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.nvidia.hopper import TensorDescriptor

from kernels.configs import pad_size
from kernels.gluon.prefill.schedule import schedule_of

if TYPE_CHECKING:
    import torch

    from kernels.triton.prefill.launch import PrefillSizes

tma = gl.nvidia.hopper.tma
load_by_tma = getattr(tma, "async_load", None) or tma.async_copy_global_to_shared
store_by_tma = getattr(tma, "async_store", None) or tma.async_copy_shared_to_global
"""Triton 3.6 has the latter names, which 3.9 answers with an error."""

import os
OUTSTANDING = gl.constexpr(int(os.environ.get("X_OUT","1")))
LATE = gl.constexpr(os.environ.get("X_LATE","1")=="1")
LN_2 = gl.constexpr(math.log(2.0))
ROWS = gl.constexpr(64)
"""Rows of a group of four warps: the height of a wgmma."""
PRODUCER_REGISTERS = gl.constexpr(24)


@gluon.jit
def as_matrix(tile):
    """A tile (1, rows, 1, HEAD_DIM) of shared memory without its batch and head."""
    return tile.reshape([tile.shape[1], tile.shape[3]])


@gluon.jit
def place(schedule_ptr, turn, sizes, GROUPS: gl.constexpr, BLOCK_N: gl.constexpr, CAUSAL: gl.constexpr):
    """(batch, head, first row, tiles of keys) of the block that this program works off in this turn."""
    heads, _, seq_q, seq_kv = sizes
    blocks = (seq_q + GROUPS * ROWS - 1) // (GROUPS * ROWS)
    work = gl.load(schedule_ptr + turn)
    start_m = work % blocks * (GROUPS * ROWS)
    stop = seq_kv
    if CAUSAL:
        stop = gl.minimum(start_m + GROUPS * ROWS + seq_kv - seq_q, seq_kv)
    tiles = (gl.maximum(stop, 1) + BLOCK_N - 1) // BLOCK_N  # at least one, if all of it is masked
    return work // blocks // heads, work // blocks % heads, start_m, tiles


@gluon.jit
def load_tiles(q_desc, k_desc, v_desc, schedule_ptr, turns, sizes, q_smem, shared, CAUSAL: gl.constexpr):
    """Copy Q of all groups, then K and V of each tile into a buffer as soon as it is free; and so on."""
    k_smem, v_smem, q_ready, q_free, k_ready, k_free, v_ready, v_free, _ = shared
    GROUPS: gl.constexpr = q_smem.shape[0]
    SLOTS: gl.constexpr = k_smem.shape[0]
    BLOCK_N: gl.constexpr = k_smem.shape[2]
    HEAD_DIM: gl.constexpr = k_smem.shape[4]
    heads, kv_heads, _, _ = sizes
    use = 0
    for turn in range(turns):
        batch, head, start_m, tiles = place(schedule_ptr, turn, sizes, GROUPS, BLOCK_N, CAUSAL)
        kv_head = head // (heads // kv_heads)
        gl.nvidia.hopper.mbarrier.wait(q_free, (turn & 1) ^ 1)
        gl.nvidia.hopper.mbarrier.expect(q_ready, GROUPS * ROWS * HEAD_DIM * 2)
        for group in gl.static_range(GROUPS):
            load_by_tma(q_desc, [batch, start_m + group * ROWS, head, 0], q_ready, q_smem.index(group))
        for tile in range(tiles):
            slot = use % SLOTS
            phase = (use // SLOTS & 1) ^ 1
            gl.nvidia.hopper.mbarrier.wait(k_free.index(slot), phase)
            gl.nvidia.hopper.mbarrier.expect(k_ready.index(slot), BLOCK_N * HEAD_DIM * 2)
            load_by_tma(k_desc, [batch, tile * BLOCK_N, kv_head, 0], k_ready.index(slot), k_smem.index(slot))
            gl.nvidia.hopper.mbarrier.wait(v_free.index(slot), phase)
            gl.nvidia.hopper.mbarrier.expect(v_ready.index(slot), BLOCK_N * HEAD_DIM * 2)
            load_by_tma(v_desc, [batch, tile * BLOCK_N, kv_head, 0], v_ready.index(slot), v_smem.index(slot))
            use += 1


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
def multiply_in_turn(p, v, acc, q, k, turns, use, GROUP: gl.constexpr, WITH_V: gl.constexpr, s_layout: gl.constexpr):
    """(q k^T, acc + p v), both on their way, when the groups before have issued theirs."""
    GROUPS: gl.constexpr = turns.shape[0]
    BLOCK_N: gl.constexpr = k.shape[0]
    zeros = gl.zeros([ROWS, BLOCK_N], gl.float32, layout=s_layout)
    if GROUPS > 1:
        # The first group's n-th turn is when the last has had its turn n - 1, the others' when the one before has.
        gl.nvidia.hopper.mbarrier.wait(turns.index(GROUP), (use + (1 if GROUP == 0 else 0)) & 1)
    s = gl.nvidia.hopper.warpgroup_mma(q, k.permute([1, 0]), zeros, use_acc=False, is_async=True)
    if WITH_V:
        acc = gl.nvidia.hopper.warpgroup_mma(p, v, acc, is_async=True)
    if GROUPS > 1:
        gl.nvidia.hopper.mbarrier.arrive(turns.index((GROUP + 1) % GROUPS), count=1)
    return s, acc


@gluon.jit
def walk(
    acc, p, l_i, m_i, use, q, shared, seen, start, stop, scale_log2,
    GROUP: gl.constexpr, MASKED: gl.constexpr, s_layout: gl.constexpr, o_layout: gl.constexpr,
):  # fmt: skip
    """Fold the tiles start..stop into the running values. p holds the weights of tile start - 1, whose V is still to be
    multiplied, and those of tile stop - 1 when it returns. use counts the tiles of K since the kernel began."""
    k_smem, v_smem, _, _, k_ready, k_free, v_ready, v_free, turns = shared
    SLOTS: gl.constexpr = k_smem.shape[0]
    BLOCK_N: gl.constexpr = k_smem.shape[2]
    for tile in range(start, stop):
        slot = use % SLOTS
        before = (use - 1) % SLOTS
        gl.nvidia.hopper.mbarrier.wait(k_ready.index(slot), use // SLOTS & 1)
        k, v = as_matrix(k_smem.index(slot)), as_matrix(v_smem.index(before))
        s, acc = multiply_in_turn(p, v, acc, q, k, turns, use, GROUP, True, s_layout)
        s = gl.nvidia.hopper.warpgroup_mma_wait(OUTSTANDING, deps=[s])
        if not LATE:
            gl.nvidia.hopper.mbarrier.arrive(k_free.index(slot), count=1)
        weights, rescale, l_i, m_i = weigh(s, l_i, m_i, seen, tile * BLOCK_N, scale_log2, MASKED, s_layout)
        weights = weights.to(p.dtype)
        # V is not needed yet, but a wait is a branch: without one, ptxas moves the softmax behind the wait for P V.
        gl.nvidia.hopper.mbarrier.wait(v_ready.index(slot), use // SLOTS & 1)
        acc = gl.nvidia.hopper.warpgroup_mma_wait(0, deps=[acc])
        if LATE:
            gl.nvidia.hopper.mbarrier.arrive(k_free.index(slot), count=1)
        gl.nvidia.hopper.mbarrier.arrive(v_free.index(before), count=1)
        acc = acc * gl.convert_layout(rescale, gl.SliceLayout(1, o_layout))[:, None]
        p = gl.convert_layout(weights, gl.DotOperandLayout(0, o_layout, 2))
        use += 1
    return acc, p, l_i, m_i, use


@gluon.jit
def attend_block(
    q, shared, use, turn, start_m, tiles, sizes, scale_log2, GROUP: gl.constexpr, CAUSAL: gl.constexpr,
    OUT_IN_Q: gl.constexpr, s_layout: gl.constexpr, o_layout: gl.constexpr,
):  # fmt: skip
    """(acc, l_i, m_i, use) of the rows from start_m on over all tiles, P V of the last one included."""
    k_smem, v_smem, q_ready, q_free, k_ready, k_free, v_ready, v_free, turns = shared
    SLOTS: gl.constexpr = k_smem.shape[0]
    BLOCK_N: gl.constexpr = k_smem.shape[2]
    _, _, seq_q, seq_kv = sizes
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
    HEAD_DIM: gl.constexpr = k_smem.shape[4]
    acc = gl.zeros([ROWS, HEAD_DIM], gl.float32, layout=o_layout)
    slot = use % SLOTS
    gl.nvidia.hopper.mbarrier.wait(q_ready, turn & 1)
    gl.nvidia.hopper.mbarrier.wait(k_ready.index(slot), use // SLOTS & 1)
    k = as_matrix(k_smem.index(slot))
    s, acc = multiply_in_turn(q, k, acc, q, k, turns, use, GROUP, False, s_layout)
    s = gl.nvidia.hopper.warpgroup_mma_wait(0, deps=[s])
    gl.nvidia.hopper.mbarrier.arrive(k_free.index(slot), count=1)
    weights, _, l_i, m_i = weigh(s, l_i, m_i, seen, 0, scale_log2, True, s_layout)
    p = gl.convert_layout(weights.to(q.dtype), gl.DotOperandLayout(0, o_layout, 2))
    gl.nvidia.hopper.mbarrier.wait(v_ready.index(slot), use // SLOTS & 1)
    use += 1
    # Tiles that every row sees whole need no mask.
    acc, p, l_i, m_i, use = walk(
        acc, p, l_i, m_i, use, q, shared, seen, 1, whole, scale_log2, GROUP, False, s_layout, o_layout
    )
    acc, p, l_i, m_i, use = walk(
        acc, p, l_i, m_i, use, q, shared, seen, whole, tiles, scale_log2, GROUP, True, s_layout, o_layout
    )
    last = (use - 1) % SLOTS
    if not OUT_IN_Q:
        gl.nvidia.hopper.mbarrier.arrive(q_free, count=1)
    acc = gl.nvidia.hopper.warpgroup_mma(p, as_matrix(v_smem.index(last)), acc)
    gl.nvidia.hopper.mbarrier.arrive(v_free.index(last), count=1)
    return acc, l_i, m_i, use


@gluon.jit
def attend_rows(
    out_desc, lse_ptr, schedule_ptr, turns, sizes, q_smem, out_smem, shared, scale_log2,
    OUT_IN_Q: gl.constexpr, CAUSAL: gl.constexpr, GROUP: gl.constexpr,
):  # fmt: skip
    """Attention of this group's rows of each block."""
    GROUPS: gl.constexpr = q_smem.shape[0]
    BLOCK_N: gl.constexpr = shared[0].shape[2]
    HEAD_DIM: gl.constexpr = shared[0].shape[4]
    s_layout: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, BLOCK_N, 16])
    o_layout: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, HEAD_DIM, 16])
    heads, _, seq_q, _ = sizes
    out_tile = out_smem.index(GROUP)
    use = 0
    for turn in range(turns):
        batch, head, start_m, tiles = place(schedule_ptr, turn, sizes, GROUPS, BLOCK_N, CAUSAL)
        start_m += GROUP * ROWS
        acc, l_i, m_i, use = attend_block(
            as_matrix(q_smem.index(GROUP)), shared, use, turn, start_m, tiles, sizes, scale_log2, GROUP, CAUSAL,
            OUT_IN_Q, s_layout, o_layout,
        )  # fmt: skip
        divisor = gl.where(l_i == 0.0, 1.0, l_i)  # a row without keys: out is 0, its log-sum-exp -inf
        out = acc * gl.convert_layout(1.0 / divisor, gl.SliceLayout(1, o_layout))[:, None]
        gl.nvidia.hopper.tma.store_wait(0)  # the result of the block before has left
        as_matrix(out_tile).store(out.to(q_smem.dtype))
        gl.nvidia.hopper.fence_async_shared()
        store_by_tma(out_desc, [batch, start_m, head, 0], out_tile)
        if lse_ptr is not None:
            rows = start_m + gl.arange(0, ROWS, layout=gl.SliceLayout(1, s_layout))
            lse = (m_i + gl.log2(divisor)) * LN_2
            gl.store(lse_ptr + (batch.to(gl.int64) * heads + head) * seq_q + rows, lse, mask=rows < seq_q)
        if OUT_IN_Q:
            gl.nvidia.hopper.tma.store_wait(0)
            gl.nvidia.hopper.mbarrier.arrive(shared[3], count=1)
    gl.nvidia.hopper.tma.store_wait(0)


@gluon.jit
def prefill_sm_90_kernel(
    q_desc, k_desc, v_desc, out_desc, lse_ptr,  # (B, Sq, H, D), 2 x (B, Skv, Hk, D), as q; (B, H, Sq) fp32 or None
    schedule_ptr, most,  # (programs, 1 + most) int32: how many blocks a program works off, and which
    heads, kv_heads, seq_q, seq_kv, scale_log2,
    CAUSAL: gl.constexpr, GROUPS: gl.constexpr, SLOTS: gl.constexpr, TURNS: gl.constexpr, OUT_IN_Q: gl.constexpr,
    REGISTERS: gl.constexpr,
):  # fmt: skip
    """Attention of blocks of GROUPS * 64 query rows of one head. Grid: (programs,)."""
    BLOCK_N: gl.constexpr = k_desc.block_shape[1]
    HEAD_DIM: gl.constexpr = k_desc.block_shape[3]
    barrier: gl.constexpr = gl.nvidia.hopper.mbarrier.MBarrierLayout()
    q_smem = gl.allocate_shared_memory(q_desc.dtype, [GROUPS, 1, ROWS, 1, HEAD_DIM], q_desc.layout)
    if OUT_IN_Q:
        out_smem = q_smem
    else:
        out_smem = gl.allocate_shared_memory(q_desc.dtype, [GROUPS, 1, ROWS, 1, HEAD_DIM], q_desc.layout)
    k_smem = gl.allocate_shared_memory(k_desc.dtype, [SLOTS, 1, BLOCK_N, 1, HEAD_DIM], k_desc.layout)
    v_smem = gl.allocate_shared_memory(v_desc.dtype, [SLOTS, 1, BLOCK_N, 1, HEAD_DIM], v_desc.layout)
    q_ready = gl.allocate_shared_memory(gl.int64, [1], barrier)
    q_free = gl.allocate_shared_memory(gl.int64, [1], barrier)
    k_ready = gl.allocate_shared_memory(gl.int64, [SLOTS, 1], barrier)
    k_free = gl.allocate_shared_memory(gl.int64, [SLOTS, 1], barrier)
    v_ready = gl.allocate_shared_memory(gl.int64, [SLOTS, 1], barrier)
    v_free = gl.allocate_shared_memory(gl.int64, [SLOTS, 1], barrier)
    IN_TURN: gl.constexpr = GROUPS if TURNS else 1
    turns = gl.allocate_shared_memory(gl.int64, [IN_TURN, 1], barrier)
    gl.nvidia.hopper.mbarrier.init(q_ready, count=1)
    gl.nvidia.hopper.mbarrier.init(q_free, count=GROUPS)
    for slot in gl.static_range(SLOTS):
        gl.nvidia.hopper.mbarrier.init(k_ready.index(slot), count=1)
        gl.nvidia.hopper.mbarrier.init(k_free.index(slot), count=GROUPS)
        gl.nvidia.hopper.mbarrier.init(v_ready.index(slot), count=1)
        gl.nvidia.hopper.mbarrier.init(v_free.index(slot), count=GROUPS)
    for group in gl.static_range(IN_TURN):
        gl.nvidia.hopper.mbarrier.init(turns.index(group), count=1)
    gl.nvidia.hopper.fence_async_shared()

    schedule_ptr += gl.program_id(0) * (1 + most)
    blocks = gl.load(schedule_ptr)
    schedule_ptr += 1
    sizes = (heads, kv_heads, seq_q, seq_kv)
    shared = (k_smem, v_smem, q_ready, q_free, k_ready, k_free, v_ready, v_free, turns)
    load = (q_desc, k_desc, v_desc, schedule_ptr, blocks, sizes, q_smem, shared, CAUSAL)
    if GROUPS == 2:
        gl.warp_specialize(
            [
                (attend_rows, (out_desc, lse_ptr, schedule_ptr, blocks, sizes, q_smem, out_smem, shared, scale_log2,
                 OUT_IN_Q, CAUSAL, 0)),
                (attend_rows, (out_desc, lse_ptr, schedule_ptr, blocks, sizes, q_smem, out_smem, shared, scale_log2,
                 OUT_IN_Q, CAUSAL, 1)),
                (load_tiles, load),
            ],
            [4, 1],
            [REGISTERS, PRODUCER_REGISTERS],
        )  # fmt: skip
    else:
        gl.warp_specialize(
            [
                (attend_rows, (out_desc, lse_ptr, schedule_ptr, blocks, sizes, q_smem, out_smem, shared, scale_log2,
                 OUT_IN_Q, CAUSAL, 0)),
                (attend_rows, (out_desc, lse_ptr, schedule_ptr, blocks, sizes, q_smem, out_smem, shared, scale_log2,
                 OUT_IN_Q, CAUSAL, 1)),
                (attend_rows, (out_desc, lse_ptr, schedule_ptr, blocks, sizes, q_smem, out_smem, shared, scale_log2,
                 OUT_IN_Q, CAUSAL, 2)),
                (load_tiles, load),
            ],
            [4, 4, 1],
            [REGISTERS, REGISTERS, PRODUCER_REGISTERS],
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
    checked them. `config` has BLOCK_M, of 64 rows for each group of warps, BLOCK_N, SLOTS (tiles of K, and of V, in
    shared memory), TURNS, REGISTERS (of a thread that attends) and the compiler's options."""
    groups = config["BLOCK_M"] // ROWS.value
    constants = {"GROUPS": groups, **choose_constants(pad_size(shape.head_dim), groups)}
    constants |= {name: value for name, value in config.items() if not name.startswith("BLOCK")}
    schedule = schedule_of(q, shape, config["BLOCK_M"], config["BLOCK_N"], causal=causal)
    prefill_sm_90_kernel[(len(schedule),)](
        describe(q, ROWS.value), describe(k, config["BLOCK_N"]), describe(v, config["BLOCK_N"]),
        describe(out, ROWS.value), lse, schedule, schedule.shape[1] - 1,
        shape.heads, shape.kv_heads, shape.seq_q, shape.seq_kv, math.log2(math.e) / math.sqrt(shape.head_dim),
        CAUSAL=causal, **constants,
    )  # fmt: skip


def choose_constants(head_dim, groups):
    return {"SLOTS": 3 if head_dim == 64 else 2, "TURNS": head_dim <= 128, "OUT_IN_Q": head_dim == 256, "REGISTERS": 240 if groups == 2 else 160}


def describe(tensor: torch.Tensor, rows: int) -> TensorDescriptor:
    """Returns what TMA copies of a tensor (B, S, H, D): `rows` rows of one head at a time, with zeros up to a power of
    two behind the D columns."""
    block = [1, rows, 1, pad_size(tensor.shape[3])]
    element = {"float16": gl.float16, "bfloat16": gl.bfloat16}[str(tensor.dtype).removeprefix("torch.")]
    return TensorDescriptor.from_tensor(tensor, block, gl.NVMMASharedLayout.get_default_for(block, element))
