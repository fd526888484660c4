"""The warp that loads, of flash attention forward on sm_90: which block comes next, and its tiles by TMA."""

# mypy: disable-error-code="untyped-decorator, no-untyped-def, no-untyped-call"
# Parameters of a jit function are tensors or compile-time constants as its caller decides; mypy cannot say which.

from __future__ import annotations

from triton.experimental import gluon
from triton.experimental.gluon import language as gl

tma = gl.nvidia.hopper.tma
load_by_tma = getattr(tma, "async_load", None) or tma.async_copy_global_to_shared
store_by_tma = getattr(tma, "async_store", None) or tma.async_copy_shared_to_global
"""Triton 3.6 has the latter names, which 3.9 answers with an error."""

ROWS = gl.constexpr(64)
"""Rows of a group of four warps: the height of a wgmma."""


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
        gl.nvidia.hopper.mbarrier.wait(q_free.index(0), (turn & 1) ^ 1)
        gl.nvidia.hopper.mbarrier.expect(q_ready.index(0), GROUPS * ROWS * HEAD_DIM * 2)
        for group in gl.static_range(GROUPS):
            load_by_tma(q_desc, [batch, start_m + group * ROWS, head, 0], q_ready.index(0), q_smem.index(group))
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
