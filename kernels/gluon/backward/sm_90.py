"""The backward pass of attention in Gluon for sm_90 (NVIDIA Hopper): dK, dV and dQ in one walk over the tiles.

A program owns BLOCK_N keys of one K/V head and walks over the queries that see them, as `kernels.triton.backward.dkv`
does, and of each tile it also adds what its keys contribute to dQ. So S and dP are computed once, where two kernels
compute them twice: five products a tile instead of seven. With everything but dQ transposed:

    P^T  = 2^(scale log2(e) K Q^T - log2(e) lse)     (BLOCK_N, BLOCK_M)
    dV  += P^T dO                                    (BLOCK_N, HEAD_DIM), in registers
    dS^T = P^T * (V dO^T - delta)                    (BLOCK_N, BLOCK_M), to shared memory, where dS is its transpose
    dK  += dS^T Q                                    (BLOCK_N, HEAD_DIM), in registers; times scale at the end
    dQ  += dS K                                      (BLOCK_M, HEAD_DIM), added in global memory, fp32

Programs add to dQ in the order in which they come, so its last bits differ from run to run.

One warp copies Q, dO, lse and delta of a tile by TMA into one of SLOTS buffers, eight warps multiply. Products are in
flight while the exponentials are computed: V dO^T during P, dV during dS, and dK during the sums of dQ and the next S.

    ready[slot]    a tile has arrived: TMA counts its bytes
    free[slot]     its products are done. The n-th use of a buffer waits for phase n - 1
"""

# mypy: disable-error-code="untyped-decorator, no-untyped-def, no-untyped-call"
# Parameters of a jit function are tensors or compile-time constants as its caller decides; mypy cannot say which.

from __future__ import annotations

from triton.experimental import gluon
from triton.experimental.gluon import language as gl

from kernels.gluon.backward.passes import in_lane_order, locate

tma = gl.nvidia.hopper.tma
load_by_tma = getattr(tma, "async_load", None) or tma.async_copy_global_to_shared
store_by_tma = getattr(tma, "async_store", None) or tma.async_copy_shared_to_global
"""Triton 3.6 has the latter names, which 3.9 answers with an error."""

SIZES = ("heads", "kv_heads", "seq_q", "seq_kv", "padded_rows")
"""Compiled code is not specialised to them: it would not be faster, and compiled again for other divisors."""
PRODUCER_REGISTERS = gl.constexpr(24)
WRAP = gl.constexpr(2**30)
"""Rows of a descriptor, more than any tensor has: see `place`."""


@gluon.jit
def as_matrix(tile):
    """A tile (1, 1, rows, HEAD_DIM) of shared memory without the first dimensions."""
    return tile.reshape([tile.shape[2], tile.shape[3]])


@gluon.jit
def place(first, length, row, column):
    """Where TMA finds row `row` of the sequence of `length` rows from row `first` of the packed tensor on.

    `describe` gives the descriptor two dimensions more, whose strides cancel modulo 2^64, so that the last row of the
    sequence is the last one of the descriptor: TMA reads zeros behind it, and writes nothing.
    """
    return [WRAP, first + length, WRAP - length + row, column]


@gluon.jit
def choose_keys(PAIRS: gl.constexpr):
    """(pair of a sequence and a K/V head, block of its keys) of this program.

    PAIRS pairs have their turn at a time, so that their rows stay in the L2 cache. Of these the first keys come first:
    under a causal mask most rows see them, and the tail of the grid is short.
    """
    linear = gl.program_id(1) * gl.num_programs(0) + gl.program_id(0)
    at_a_time = PAIRS * gl.num_programs(0)
    first = linear // at_a_time * PAIRS
    pairs = gl.minimum(gl.num_programs(1) - first, PAIRS)
    return first + linear % at_a_time % pairs, linear % at_a_time // pairs


@gluon.jit
def load_tiles(
    q_desc, k_desc, v_desc, dout_desc, lse_desc, delta_desc, k_smem, v_smem, q_smem, dout_smem, lse_smem, delta_smem,
    kv_ready, ready, free, kv_head, group, first_row, rows, first_key, keys, start_n, start_m, to_padded, padded_rows,
):  # fmt: skip
    """Copy K and V, then each tile of the queries into a buffer as soon as it is free."""
    BLOCK_M: gl.constexpr = q_desc.block_shape[2]
    BLOCK_N: gl.constexpr = k_desc.block_shape[2]
    HEAD_DIM: gl.constexpr = k_desc.block_shape[3]
    SLOTS: gl.constexpr = q_smem.shape[0]
    gl.nvidia.hopper.mbarrier.expect(kv_ready, 2 * BLOCK_N * HEAD_DIM * 2)
    load_by_tma(k_desc, place(first_key, keys, start_n, kv_head * HEAD_DIM), kv_ready, k_smem)
    load_by_tma(v_desc, place(first_key, keys, start_n, kv_head * HEAD_DIM), kv_ready, v_smem)
    count = 0
    for head in range(kv_head * group, kv_head * group + group):
        for row in range(start_m, rows, BLOCK_M):
            slot = count % SLOTS
            gl.nvidia.hopper.mbarrier.wait(free.index(slot), (count // SLOTS & 1) ^ 1)
            barrier = ready.index(slot)
            gl.nvidia.hopper.mbarrier.expect(barrier, 2 * BLOCK_M * HEAD_DIM * 2 + 2 * BLOCK_M * 4)
            load_by_tma(q_desc, place(first_row, rows, row, head * HEAD_DIM), barrier, q_smem.index(slot))
            load_by_tma(lse_desc, [head * padded_rows + to_padded + row], barrier, lse_smem.index(slot))
            load_by_tma(dout_desc, place(first_row, rows, row, head * HEAD_DIM), barrier, dout_smem.index(slot))
            load_by_tma(delta_desc, [head * padded_rows + to_padded + row], barrier, delta_smem.index(slot))
            count += 1


@gluon.jit
def walk(
    dk, dv, k, v, q_smem, dout_smem, lse_smem, delta_smem, ds_smem, p_smem, ready, free, dq_base, count, start, stop,
    keys_seen, scale_log2, MASKED: gl.constexpr, s_layout: gl.constexpr, d_layout: gl.constexpr,
    dq_layout: gl.constexpr,
):  # fmt: skip
    """Fold the tiles of the rows start..stop into dk and dv, and add theirs to dQ. keys_seen, of each owned key the
    first row that sees it."""
    BLOCK_M: gl.constexpr = q_smem.shape[3]
    BLOCK_N: gl.constexpr = k.shape[0]
    HEAD_DIM: gl.constexpr = k.shape[1]
    SLOTS: gl.constexpr = q_smem.shape[0]
    for row in range(start, stop, BLOCK_M):
        slot = count % SLOTS
        gl.nvidia.hopper.mbarrier.wait(ready.index(slot), count // SLOTS & 1)
        q = as_matrix(q_smem.index(slot))
        dout = as_matrix(dout_smem.index(slot))
        zeros = gl.zeros([BLOCK_N, BLOCK_M], gl.float32, layout=s_layout)
        s = gl.nvidia.hopper.warpgroup_mma(k, q.permute([1, 0]), zeros, use_acc=False, is_async=True)
        dp = gl.nvidia.hopper.warpgroup_mma(v, dout.permute([1, 0]), zeros, use_acc=False, is_async=True)
        s, dk = gl.nvidia.hopper.warpgroup_mma_wait(1, deps=[s, dk])
        lse = lse_smem.index(slot).load(gl.SliceLayout(0, s_layout))
        p = gl.exp2(s * scale_log2 - lse[None, :])
        if MASKED:
            rows = row + gl.arange(0, BLOCK_M, layout=gl.SliceLayout(0, s_layout))
            p = gl.where(keys_seen[:, None] <= rows[None, :], p, 0.0)
        if BLOCK_N == 128:
            weights = gl.convert_layout(p.to(q.dtype), gl.DotOperandLayout(0, d_layout, 2))
        else:
            p_smem.store(p.to(q.dtype))
            gl.nvidia.hopper.fence_async_shared()
            weights = p_smem
        dv = gl.nvidia.hopper.warpgroup_mma(weights, dout, dv, is_async=True)
        dp = gl.nvidia.hopper.warpgroup_mma_wait(1, deps=[dp])
        delta = delta_smem.index(slot).load(gl.SliceLayout(0, s_layout))
        ds_smem.store((p * (dp - delta[None, :])).to(q.dtype))
        gl.nvidia.hopper.fence_async_shared()
        gl.nvidia.hopper.mbarrier.arrive(free.index((count + SLOTS - 1) % SLOTS), count=1, pred=count > 0)
        zeros = gl.zeros([BLOCK_M, HEAD_DIM], gl.float32, layout=dq_layout)
        dq = gl.nvidia.hopper.warpgroup_mma(ds_smem.permute([1, 0]), k, zeros, use_acc=False, is_async=True)
        dk = gl.nvidia.hopper.warpgroup_mma(ds_smem, q, dk, is_async=True)
        dq, dv, dk = gl.nvidia.hopper.warpgroup_mma_wait(1, deps=[dq, dv, dk])
        sums = in_lane_order(dq)
        offsets = gl.arange(0, BLOCK_M * HEAD_DIM, layout=sums.type.layout)
        gl.atomic_add(dq_base + row * HEAD_DIM + offsets, sums, sem="relaxed")
        count += 1
    dk = gl.nvidia.hopper.warpgroup_mma_wait(0, deps=[dk])
    return dk, dv, count


@gluon.jit
def own_keys(
    k_desc, v_desc, dk_desc, dv_desc, k_smem, v_smem, q_smem, dout_smem, lse_smem, delta_smem, ds_smem, p_smem,
    kv_ready, ready, free, dq_ptr, kv_head, group, rows, first_key, keys, start_n, start_m, to_padded, padded_rows,
    scale_log2, scale, CAUSAL: gl.constexpr,
):  # fmt: skip
    """dK and dV of BLOCK_N keys, and what they add to dQ."""
    BLOCK_M: gl.constexpr = q_smem.shape[3]
    BLOCK_N: gl.constexpr = k_smem.shape[2]
    HEAD_DIM: gl.constexpr = k_smem.shape[3]
    halves: gl.constexpr = 128 // BLOCK_N  # of a tile's columns, one for each four warps
    s_layout: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [BLOCK_N // 16, halves], [16, BLOCK_M // halves, 16])
    d_layout: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [BLOCK_N // 16, halves], [16, HEAD_DIM // halves, 16])
    columns: gl.constexpr = HEAD_DIM * BLOCK_M // 128  # of four warps
    dq_layout: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [BLOCK_M // 16, 128 // BLOCK_M], [16, columns, 16])
    k = as_matrix(k_smem)
    v = as_matrix(v_smem)
    offs_n = start_n + gl.arange(0, BLOCK_N, layout=gl.SliceLayout(1, s_layout))
    keys_seen = gl.where(offs_n < keys, offs_n - (keys - rows) if CAUSAL else 0, WRAP)
    all_from = start_m
    if CAUSAL:
        all_from = (gl.maximum(start_n + BLOCK_N - 1 - (keys - rows), 0) + BLOCK_M - 1) // BLOCK_M * BLOCK_M
    all_from = gl.minimum(all_from, rows)
    if start_n + BLOCK_N > keys:
        all_from = rows
    dk = gl.zeros([BLOCK_N, HEAD_DIM], gl.float32, layout=d_layout)
    dv = gl.zeros([BLOCK_N, HEAD_DIM], gl.float32, layout=d_layout)
    count = 0
    gl.nvidia.hopper.mbarrier.wait(kv_ready, 0)
    for head in range(kv_head * group, kv_head * group + group):
        dq_base = dq_ptr + (head * padded_rows.to(gl.int64) + to_padded) * HEAD_DIM
        dk, dv, count = walk(
            dk, dv, k, v, q_smem, dout_smem, lse_smem, delta_smem, ds_smem, p_smem, ready, free, dq_base, count,
            start_m, all_from, keys_seen, scale_log2, True, s_layout, d_layout, dq_layout,
        )  # fmt: skip
        dk, dv, count = walk(
            dk, dv, k, v, q_smem, dout_smem, lse_smem, delta_smem, ds_smem, p_smem, ready, free, dq_base, count,
            all_from, rows, keys_seen, scale_log2, False, s_layout, d_layout, dq_layout,
        )  # fmt: skip
    k.store((dk * scale).to(k_smem.dtype))
    v.store(dv.to(v_smem.dtype))
    gl.nvidia.hopper.fence_async_shared()
    store_by_tma(dk_desc, place(first_key, keys, start_n, kv_head * HEAD_DIM), k_smem)
    store_by_tma(dv_desc, place(first_key, keys, start_n, kv_head * HEAD_DIM), v_smem)
    gl.nvidia.hopper.tma.store_wait(0)


@gluon.jit(do_not_specialize=SIZES)
def backward_sm_90_kernel(
    q_desc, k_desc, v_desc, dout_desc, lse_desc, delta_desc, dk_desc, dv_desc,  # of rows (T, H * D); fp32 (H * P,)
    dq_ptr,  # (H, P, D) fp32
    cu_seqlens_q_ptr, cu_seqlens_k_ptr,  # None, or of packed sequences 2 x (B + 1,) int32
    heads, kv_heads, seq_q, seq_kv, padded_rows, scale_log2, scale,
    CAUSAL: gl.constexpr, SLOTS: gl.constexpr, PAIRS: gl.constexpr,
):  # fmt: skip
    """dK and dV of BLOCK_N keys of one K/V head. Grid: (ceil(longest Skv / BLOCK_N), B * Hk)."""
    BLOCK_M: gl.constexpr = q_desc.block_shape[2]
    BLOCK_N: gl.constexpr = k_desc.block_shape[2]
    HEAD_DIM: gl.constexpr = k_desc.block_shape[3]
    barrier: gl.constexpr = gl.nvidia.hopper.mbarrier.MBarrierLayout()
    ds_layout: gl.constexpr = gl.NVMMASharedLayout.get_default_for([BLOCK_N, BLOCK_M], k_desc.dtype)
    k_smem = gl.allocate_shared_memory(k_desc.dtype, [1, 1, BLOCK_N, HEAD_DIM], k_desc.layout)
    v_smem = gl.allocate_shared_memory(k_desc.dtype, [1, 1, BLOCK_N, HEAD_DIM], k_desc.layout)
    q_smem = gl.allocate_shared_memory(k_desc.dtype, [SLOTS, 1, 1, BLOCK_M, HEAD_DIM], q_desc.layout)
    dout_smem = gl.allocate_shared_memory(k_desc.dtype, [SLOTS, 1, 1, BLOCK_M, HEAD_DIM], q_desc.layout)
    lse_smem = gl.allocate_shared_memory(gl.float32, [SLOTS, BLOCK_M], lse_desc.layout)
    delta_smem = gl.allocate_shared_memory(gl.float32, [SLOTS, BLOCK_M], lse_desc.layout)
    ds_smem = gl.allocate_shared_memory(k_desc.dtype, [BLOCK_N, BLOCK_M], ds_layout)
    p_smem = ds_smem
    if BLOCK_N == 64:  # eight warps share its rows, so that none has all of P^T that it multiplies
        p_smem = gl.allocate_shared_memory(k_desc.dtype, [BLOCK_N, BLOCK_M], ds_layout)
    kv_ready = gl.allocate_shared_memory(gl.int64, [1], barrier)
    ready = gl.allocate_shared_memory(gl.int64, [SLOTS, 1], barrier)
    free = gl.allocate_shared_memory(gl.int64, [SLOTS, 1], barrier)
    gl.nvidia.hopper.mbarrier.init(kv_ready, count=1)
    for slot in gl.static_range(SLOTS):
        gl.nvidia.hopper.mbarrier.init(ready.index(slot), count=1)
        gl.nvidia.hopper.mbarrier.init(free.index(slot), count=1)
    gl.nvidia.hopper.fence_async_shared()

    pair, block = choose_keys(PAIRS)
    batch, kv_head = pair // kv_heads, pair % kv_heads
    start_n = block * BLOCK_N
    first_row, rows, to_padded = locate(cu_seqlens_q_ptr, batch, seq_q, BLOCK_M)
    first_key, keys, _ = locate(cu_seqlens_k_ptr, batch, seq_kv, BLOCK_N)
    # Rows before start_m see none of the keys.
    start_m = gl.maximum(start_n - (keys - rows), 0) // BLOCK_M * BLOCK_M if CAUSAL else 0
    start_m = gl.minimum(start_m, rows)
    if start_n >= keys:
        start_m = rows
    group = heads // kv_heads
    gl.warp_specialize(
        [
            (own_keys, (k_desc, v_desc, dk_desc, dv_desc, k_smem, v_smem, q_smem, dout_smem, lse_smem, delta_smem,
             ds_smem, p_smem, kv_ready, ready, free, dq_ptr, kv_head, group, rows, first_key, keys, start_n, start_m,
             to_padded, padded_rows, scale_log2, scale, CAUSAL)),
            (load_tiles, (q_desc, k_desc, v_desc, dout_desc, lse_desc, delta_desc, k_smem, v_smem, q_smem, dout_smem,
             lse_smem, delta_smem, kv_ready, ready, free, kv_head, group, first_row, rows, first_key, keys, start_n,
             start_m, to_padded, padded_rows)),
        ],
        [1],
        [PRODUCER_REGISTERS],
    )  # fmt: skip
