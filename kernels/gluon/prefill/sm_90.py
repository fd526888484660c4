"""Flash attention forward in Gluon for sm_90 (NVIDIA Hopper): wgmma, TMA and warps with different jobs.

The algorithm is that of `kernels.triton.prefill.forward`. A program has groups of warps, which run at the same time and
meet at barriers in shared memory only, and works off one block of query rows after the other, as `schedule` deals them:

    load_tiles     one warp copies Q of a block, then K and V tile by tile, by TMA: one instruction a tile. It runs
                   ahead as far as buffers are free, into the next block, too
    attend_rows    two or three times, four warps and 64 rows each

    ready          a copy has arrived: TMA counts its bytes
    free           every attend_rows has read it
    turns[group]   the group before has issued its products: the tensor cores get those of one group after the other,
                   and one multiplies while another weighs

The n-th use of a buffer waits for phase n - 1 of its barriers. S of a tile and P V of the one before are issued
together. Two groups weigh S while P V is computed; three, whose threads have too few registers for that, wait for both.
TMA fills what is behind the last row, or the last column of a head, with zeros and does not store it.

tests/kernels/gluon executes this source on tensors, its groups as threads, and the compiled kernel on a GPU.
"""

# mypy: disable-error-code="untyped-decorator, no-untyped-def, no-untyped-call"
# Parameters of a jit function are tensors or compile-time constants as its caller decides; mypy cannot say which.

from __future__ import annotations

import math

from triton.experimental import gluon
from triton.experimental.gluon import language as gl

from kernels.gluon.prefill.tile_loads import ROWS, load_tiles, place, store_by_tma
from kernels.gluon.prefill.weights import eights_of, weigh

LN_2 = gl.constexpr(math.log(2.0))
PRODUCER_REGISTERS = gl.constexpr(24)


@gluon.jit
def as_matrix(tile):
    """A tile (1, rows, 1, HEAD_DIM) of shared memory without its batch and head."""
    return tile.reshape([tile.shape[1], tile.shape[3]])


@gluon.jit
def make_barriers(NUMBER: gl.constexpr, ARRIVALS: gl.constexpr):
    """Barriers whose phases end after as many arrivals."""
    layout: gl.constexpr = gl.nvidia.hopper.mbarrier.MBarrierLayout()
    barriers = gl.allocate_shared_memory(gl.int64, [NUMBER, 1], layout)
    for number in gl.static_range(NUMBER):
        gl.nvidia.hopper.mbarrier.init(barriers.index(number), count=ARRIVALS)
    return barriers


@gluon.jit
def multiply_in_turn(p, v, acc, q, k, turns, use, GROUP: gl.constexpr, WITH_V: gl.constexpr, s_layout: gl.constexpr):
    """(q k^T, acc + p v), both on their way, when the group before has issued its own."""
    GROUPS: gl.constexpr = turns.shape[0]
    BLOCK_N: gl.constexpr = k.shape[0]
    zeros = gl.zeros([ROWS, BLOCK_N], gl.float32, layout=s_layout)
    # The first group's n-th turn is when the last has had its turn n - 1, the others' when the one before has.
    gl.nvidia.hopper.mbarrier.wait(turns.index(GROUP), (use + (1 if GROUP == 0 else 0)) & 1)
    s = gl.nvidia.hopper.warpgroup_mma(q, k.permute([1, 0]), zeros, use_acc=False, is_async=True)
    if WITH_V:
        acc = gl.nvidia.hopper.warpgroup_mma(p, v, acc, is_async=True)
    gl.nvidia.hopper.mbarrier.arrive(turns.index((GROUP + 1) % GROUPS), count=1)
    return s, acc


@gluon.jit
def walk(
    acc, weights, l_8, m_i, use, q, shared, seen, start, stop, scale_log2, GROUP: gl.constexpr,
    MASKED: gl.constexpr, s_layout: gl.constexpr, o_layout: gl.constexpr, eights: gl.constexpr,
):  # fmt: skip
    """Fold the tiles start..stop into the running values. weights are those of tile start - 1, whose V is still to be
    multiplied, and those of tile stop - 1 when it returns. use counts the tiles of K since the kernel began."""
    k_smem, v_smem, _, _, k_ready, k_free, v_ready, v_free, turns = shared
    SLOTS: gl.constexpr = k_smem.shape[0]
    GROUPS: gl.constexpr = turns.shape[0]
    BLOCK_N: gl.constexpr = k_smem.shape[2]
    for tile in range(start, stop):
        slot = use % SLOTS
        before = (use - 1) % SLOTS
        gl.nvidia.hopper.mbarrier.wait(k_ready.index(slot), use // SLOTS & 1)
        k, v = as_matrix(k_smem.index(slot)), as_matrix(v_smem.index(before))
        # Kept in fp32 until here: 16-bit values that a loop carries were packed anew in every iteration.
        p = gl.convert_layout(weights.to(q.dtype), gl.DotOperandLayout(0, o_layout, 2))
        s, acc = multiply_in_turn(p, v, acc, q, k, turns, use, GROUP, True, s_layout)
        s = gl.nvidia.hopper.warpgroup_mma_wait(1 if GROUPS == 2 else 0, deps=[s])
        gl.nvidia.hopper.mbarrier.arrive(k_free.index(slot), count=1)
        weights, rescale, l_8, m_i = weigh(
            s, l_8, m_i, seen, tile * BLOCK_N, scale_log2, MASKED, s_layout, eights
        )  # fmt: skip
        # V is not needed yet, but a wait is a branch: without one, ptxas moves the weights behind the wait for P V.
        gl.nvidia.hopper.mbarrier.wait(v_ready.index(slot), use // SLOTS & 1)
        acc = gl.nvidia.hopper.warpgroup_mma_wait(0, deps=[acc])
        gl.nvidia.hopper.mbarrier.arrive(v_free.index(before), count=1)
        acc = acc * gl.convert_layout(rescale, gl.SliceLayout(1, o_layout))[:, None]
        use += 1
    return acc, weights, l_8, m_i, use


@gluon.jit
def attend_block(
    q, shared, use, turn, start_m, tiles, sizes, scale_log2, GROUP: gl.constexpr, CAUSAL: gl.constexpr,
    s_layout: gl.constexpr, o_layout: gl.constexpr,
):  # fmt: skip
    """(acc, l_i, m_i) of the rows from start_m on over all tiles."""
    k_smem, v_smem, q_ready, q_free, k_ready, k_free, v_ready, v_free, turns = shared
    SLOTS: gl.constexpr = k_smem.shape[0]
    BLOCK_N: gl.constexpr = k_smem.shape[2]
    HEAD_DIM: gl.constexpr = k_smem.shape[4]
    eights: gl.constexpr = eights_of(BLOCK_N)
    _, _, seq_q, seq_kv = sizes
    rows = start_m + gl.arange(0, ROWS, layout=gl.SliceLayout(1, s_layout))
    # Keys that a row sees, bottom-right: row i sees those up to i + Skv - Sq.
    seen = gl.full([ROWS], 0, gl.int32, layout=gl.SliceLayout(1, s_layout)) + seq_kv
    whole = seq_kv // BLOCK_N
    if CAUSAL:
        seen = gl.minimum(rows + (1 + seq_kv - seq_q), seq_kv)
        whole = gl.maximum(gl.minimum(start_m + 1 + seq_kv - seq_q, seq_kv), 0) // BLOCK_N
    whole = gl.maximum(whole, 1)

    l_8 = gl.zeros([ROWS, 8], gl.float32, layout=gl.SliceLayout(1, eights))
    m_i = gl.full([ROWS], float("-inf"), gl.float32, layout=gl.SliceLayout(1, s_layout))
    acc = gl.zeros([ROWS, HEAD_DIM], gl.float32, layout=o_layout)
    slot = use % SLOTS
    gl.nvidia.hopper.mbarrier.wait(q_ready.index(0), turn & 1)
    gl.nvidia.hopper.mbarrier.wait(k_ready.index(slot), use // SLOTS & 1)
    k = as_matrix(k_smem.index(slot))
    s, acc = multiply_in_turn(q, k, acc, q, k, turns, use, GROUP, False, s_layout)
    s = gl.nvidia.hopper.warpgroup_mma_wait(0, deps=[s])
    gl.nvidia.hopper.mbarrier.arrive(k_free.index(slot), count=1)
    weights, _, l_8, m_i = weigh(s, l_8, m_i, seen, 0, scale_log2, True, s_layout, eights)
    gl.nvidia.hopper.mbarrier.wait(v_ready.index(slot), use // SLOTS & 1)
    use = use + 1
    # Tiles that every row sees whole need no mask.
    acc, weights, l_8, m_i, use = walk(
        acc, weights, l_8, m_i, use, q, shared, seen, 1, whole, scale_log2, GROUP, False, s_layout, o_layout, eights
    )
    acc, weights, l_8, m_i, use = walk(
        acc, weights, l_8, m_i, use, q, shared, seen, whole, tiles, scale_log2, GROUP, True, s_layout, o_layout, eights
    )
    last = (use - 1) % SLOTS
    if HEAD_DIM < 256:  # else the result takes its place
        gl.nvidia.hopper.mbarrier.arrive(q_free.index(0), count=1)
    p = gl.convert_layout(weights.to(q.dtype), gl.DotOperandLayout(0, o_layout, 2))
    acc = gl.nvidia.hopper.warpgroup_mma(p, as_matrix(v_smem.index(last)), acc)
    gl.nvidia.hopper.mbarrier.arrive(v_free.index(last), count=1)
    return acc, gl.convert_layout(gl.sum(l_8, 1), gl.SliceLayout(1, s_layout)), m_i


@gluon.jit
def attend_rows(
    out_desc, lse_ptr, schedule_ptr, turns, sizes, q_smem, out_smem, shared, scale_log2,
    CAUSAL: gl.constexpr, GROUP: gl.constexpr,
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
        acc, l_i, m_i = attend_block(
            as_matrix(q_smem.index(GROUP)), shared, use, turn, start_m, tiles, sizes, scale_log2, GROUP, CAUSAL,
            s_layout, o_layout,
        )  # fmt: skip
        use += tiles
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
        if HEAD_DIM == 256:
            gl.nvidia.hopper.tma.store_wait(0)
            gl.nvidia.hopper.mbarrier.arrive(shared[3].index(0), count=1)
    gl.nvidia.hopper.tma.store_wait(0)


@gluon.jit(do_not_specialize=["most", "heads", "kv_heads", "seq_q", "seq_kv"])
def prefill_sm_90_kernel(
    q_desc, k_desc, v_desc, out_desc, lse_ptr,  # (B, Sq, H, D), 2 x (B, Skv, Hk, D), as q; (B, H, Sq) fp32 or None
    schedule_ptr, most,  # (programs, 1 + most) int32: how many blocks a program works off, and which
    heads, kv_heads, seq_q, seq_kv, scale_log2, CAUSAL: gl.constexpr, GROUPS: gl.constexpr,
):  # fmt: skip
    """Attention of blocks of GROUPS * 64 query rows of one head. Grid: (programs,)."""
    BLOCK_N: gl.constexpr = k_desc.block_shape[1]
    HEAD_DIM: gl.constexpr = k_desc.block_shape[3]
    SLOTS: gl.constexpr = GROUPS  # tiles of K, and of V, in shared memory
    REGISTERS: gl.constexpr = 240 if GROUPS == 2 else 160
    q_smem = gl.allocate_shared_memory(q_desc.dtype, [GROUPS, 1, ROWS, 1, HEAD_DIM], q_desc.layout)
    if HEAD_DIM == 256:
        out_smem = q_smem
    else:
        out_smem = gl.allocate_shared_memory(q_desc.dtype, [GROUPS, 1, ROWS, 1, HEAD_DIM], q_desc.layout)
    k_smem = gl.allocate_shared_memory(k_desc.dtype, [SLOTS, 1, BLOCK_N, 1, HEAD_DIM], k_desc.layout)
    v_smem = gl.allocate_shared_memory(v_desc.dtype, [SLOTS, 1, BLOCK_N, 1, HEAD_DIM], v_desc.layout)
    q_ready, q_free = make_barriers(1, 1), make_barriers(1, GROUPS)
    k_ready, k_free = make_barriers(SLOTS, 1), make_barriers(SLOTS, GROUPS)
    v_ready, v_free = make_barriers(SLOTS, 1), make_barriers(SLOTS, GROUPS)
    turns = make_barriers(GROUPS, 1)
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
                 CAUSAL, 0)),
                (attend_rows, (out_desc, lse_ptr, schedule_ptr, blocks, sizes, q_smem, out_smem, shared, scale_log2,
                 CAUSAL, 1)),
                (load_tiles, load),
            ],
            [4, 1],
            [REGISTERS, PRODUCER_REGISTERS],
        )  # fmt: skip
    else:
        gl.static_assert(GROUPS == 3)
        gl.warp_specialize(
            [
                (attend_rows, (out_desc, lse_ptr, schedule_ptr, blocks, sizes, q_smem, out_smem, shared, scale_log2,
                 CAUSAL, 0)),
                (attend_rows, (out_desc, lse_ptr, schedule_ptr, blocks, sizes, q_smem, out_smem, shared, scale_log2,
                 CAUSAL, 1)),
                (attend_rows, (out_desc, lse_ptr, schedule_ptr, blocks, sizes, q_smem, out_smem, shared, scale_log2,
                 CAUSAL, 2)),
                (load_tiles, load),
            ],
            [4, 4, 1],
            [REGISTERS, REGISTERS, PRODUCER_REGISTERS],
        )  # fmt: skip
