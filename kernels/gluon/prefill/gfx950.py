"""Flash attention forward in Gluon for gfx950 (AMD CDNA4): what Triton's compiler decides, written out.

The algorithm is that of `kernels.triton.prefill.forward`: a program owns BLOCK_M query rows of one head, walks over the
keys in tiles of BLOCK_N, and keeps a running maximum m_i, sum l_i and weighted sum acc per row. In Gluon every tensor
has a layout that says which lane holds which element, LDS is allocated by hand, and copies are issued and awaited:

    mfma        scores and acc lie as v_mfma_f32_32x32x16 (or 16x16x32) leaves them, a row within two (four) lanes
    Q_OPERAND   a wave's own rows of Q, in registers for the whole kernel
    K_, V_OPERAND   what the matrix units read of a tile, by ds_read_b128 and, transposed, by ds_read_b64_tr_b16
    chunks      how a tile lies in LDS; `chunk_loads` is the same order over lanes, because a copy that bypasses the
                registers (buffer_load ... lds) writes the lanes' 16 bytes one after another, 1,024 bytes per wave

The pipeline: K and V of a tile are copied during the whole of the tile before.

    wait for K       V is still on its way
    K to registers   the matrix operand
    wait for V       and, by the barrier in it, for all waves: K's buffer, and V's other one, are free now
    copy the next K and V
    S = Q K^T, softmax, acc += P V

**Compiled and read, but never run on an AMD GPU.** tests/kernels/gluon executes this source on tensors without layouts,
with copies that arrive at their wait; barriers between waves are checked in the compiled instructions.
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

from kernels.gluon.prefill.padding import resize_rows
from kernels.gluon.prefill.space import tile_head_dim

if TYPE_CHECKING:
    import torch

    from kernels.triton.prefill.launch import PrefillSizes

LN_2 = gl.constexpr(math.log(2.0))
CHUNK = gl.constexpr(512)
"""Elements that a wave copies at once: 64 lanes, 16 bytes each."""
XCDS = 8
"""Dies of a gfx950, each with an L2 cache of its own (AMD, CDNA 4 architecture white paper)."""


@gluon.constexpr_function
def tile_bases(head_dim, block_n):
    """(columns, keys within a chunk, keys over chunks) of a tile (block_n, head_dim): the key and column that each bit
    of an element's number stands for. A chunk holds every 16th key, so that padding shifts neighbouring keys in bank.
    """
    columns = [[0, 1 << bit] for bit in range(head_dim.bit_length() - 1)]
    inside = [[16 << bit, 0] for bit in range(block_n.bit_length() - 5)]
    return columns, inside[::-1], [[1, 0], [2, 0], [8, 0], [4, 0]]


@gluon.constexpr_function
def chunks(head_dim, block_n, padding):
    """The layout of a tile in LDS: chunks, each followed by `padding` elements. 256 / M of them for K and M for V, M
    being the rows of a matrix instruction, let no two lanes that are served at once meet in one of the 64 banks."""
    columns, inside, over = tile_bases(head_dim, block_n)
    return gl.PaddedSharedLayout([[CHUNK.value, padding]], columns + inside + over, [], [block_n, head_dim])


@gluon.constexpr_function
def chunk_loads(head_dim, block_n, num_warps):
    """The layout of a tile's addresses: a lane has 8 neighbouring columns, a wave a chunk at a time."""
    columns, inside, over = tile_bases(head_dim, block_n)
    split = num_warps.bit_length() - 1
    return gl.DistributedLinearLayout(
        columns[:3] + over[split:], columns[3:] + inside, over[:split], [], [block_n, head_dim]
    )


@gluon.jit
def copy_tile(buffer, base, start_n, offsets, columns, stride, seq_kv):
    """Start the copy of the keys (or values) from start_n on to LDS.

    Rows behind the last key repeat it: their weights are 0, and 0 times what the memory behind holds may be NaN.
    """
    inside = gl.minimum(offsets, (seq_kv - 1 - start_n) * stride + columns)
    # The position of a tile may pass 2^31 elements in a long sequence; positions inside a tile cannot.
    gl.amd.cdna4.async_copy.buffer_load_to_shared(buffer, base + start_n * stride.to(gl.int64), inside)
    gl.amd.cdna4.async_copy.commit_group()


@gluon.jit
def walk(
    acc, l_i, m_i, q, k_base, v_base, k_buffer, v_buffers, offsets, columns, stride,
    seen, start, stop, last, seq_kv, scale_log2,
    MASKED: gl.constexpr, BLOCK_N: gl.constexpr, mfma: gl.constexpr,
):  # fmt: skip
    """Fold the keys start..stop into the running values. K and V of the first tile are on their way already, in this
    order; those of the tile behind stop are when it returns, at most of tile `last`."""
    K_OPERAND: gl.constexpr = gl.DotOperandLayout(1, mfma, 8)
    V_OPERAND: gl.constexpr = gl.DotOperandLayout(1, mfma, 8)
    P_OPERAND: gl.constexpr = gl.DotOperandLayout(0, mfma, 8)
    keys = gl.arange(0, BLOCK_N, layout=gl.SliceLayout(0, mfma))
    for start_n in range(start, stop, BLOCK_N):
        slot = start_n // BLOCK_N % 2
        following = gl.minimum(start_n + BLOCK_N, last)
        gl.amd.cdna4.async_copy.wait_group(1)
        k = gl.amd.cdna4.async_copy.load_shared_relaxed(k_buffer.permute([1, 0]), K_OPERAND)
        gl.amd.cdna4.async_copy.wait_group(0)
        copy_tile(k_buffer, k_base, following, offsets, columns, stride, seq_kv)
        copy_tile(v_buffers.index(1 - slot), v_base, following, offsets, columns, stride, seq_kv)

        s = gl.amd.cdna4.mfma(q, k, gl.zeros([q.shape[0], BLOCK_N], gl.float32, layout=mfma))
        if MASKED:
            s = gl.where(keys[None, :] < (seen - start_n)[:, None], s, float("-inf"))
        m_new = gl.maximum(m_i, gl.max(s, 1) * scale_log2)
        shift = m_new
        if MASKED:
            shift = gl.where(m_new == float("-inf"), 0.0, m_new)  # -inf - -inf would be NaN
        p = gl.exp2(s * scale_log2 - shift[:, None])  # (BLOCK_M, BLOCK_N), at most 1
        rescale = gl.exp2(m_i - shift)
        l_i = l_i * rescale + gl.sum(p, 1)
        acc = acc * rescale[:, None]
        m_i = m_new

        v = gl.amd.cdna4.async_copy.load_shared_relaxed(v_buffers.index(slot), V_OPERAND)
        acc = gl.amd.cdna4.mfma(gl.convert_layout(p.to(q.dtype), P_OPERAND), v, acc)
    return acc, l_i, m_i


@gluon.jit
def prefill_gfx950_kernel(
    q_ptr, k_ptr, v_ptr, out_ptr, lse_ptr,  # (B, Sq, H, D), 2 x (B, Skv, Hk, D), (B, Sq, H, D), (B, H, Sq) fp32 or None
    heads, kv_heads, seq_q, seq_kv, scale_log2,
    CAUSAL: gl.constexpr, HEAD_DIM: gl.constexpr, BLOCK_M: gl.constexpr, BLOCK_N: gl.constexpr, XCDS: gl.constexpr,
):  # fmt: skip
    """Attention of BLOCK_M query rows of one head. Grid: (B * H, ceil(Sq / BLOCK_M)); all tensors contiguous.

    BLOCK_M is 32 or 16 rows a wave. A tile has 16 chunks: BLOCK_N * HEAD_DIM = 8,192 elements. XCDS: 1, or XCDs that
    get equal ranges of heads (workgroup n runs on XCD n % XCDS): those of a K/V head share as few L2 caches as can be.
    """
    num_warps: gl.constexpr = gl.num_warps()
    M: gl.constexpr = BLOCK_M // num_warps
    gl.static_assert(BLOCK_N * HEAD_DIM == 16 * CHUNK)
    mfma: gl.constexpr = gl.amd.AMDMFMALayout(4, [M, M, 512 // M], True, [num_warps, 1])
    Q_OPERAND: gl.constexpr = gl.DotOperandLayout(0, mfma, 8)
    loads: gl.constexpr = chunk_loads(HEAD_DIM, BLOCK_N, num_warps)
    element: gl.constexpr = q_ptr.dtype.element_ty
    k_buffer = gl.allocate_shared_memory(element, [BLOCK_N, HEAD_DIM], chunks(HEAD_DIM, BLOCK_N, 256 // M))
    v_buffers = gl.allocate_shared_memory(element, [2, BLOCK_N, HEAD_DIM], chunks(HEAD_DIM, BLOCK_N, M))

    batch_head = gl.program_id(0) % XCDS * (gl.num_programs(0) // XCDS) + gl.program_id(0) // XCDS
    # Under a causal mask the last rows see the most keys: starting them first keeps the tail of the grid short.
    start_m = (gl.num_programs(1) - 1 - gl.program_id(1) if CAUSAL else gl.program_id(1)) * BLOCK_M
    batch, head = batch_head // heads, batch_head % heads
    stride = kv_heads * HEAD_DIM
    first_key = batch.to(gl.int64) * seq_kv * stride + head // (heads // kv_heads) * HEAD_DIM
    columns = gl.arange(0, HEAD_DIM, layout=gl.SliceLayout(0, loads))[None, :]
    offsets = gl.arange(0, BLOCK_N, layout=gl.SliceLayout(1, loads))[:, None] * stride + columns
    rows = start_m + gl.arange(0, BLOCK_M, layout=gl.SliceLayout(1, mfma))
    # Keys that a row sees, bottom-right: row i sees those up to i + Skv - Sq.
    seen = gl.full([BLOCK_M], 0, gl.int32, layout=gl.SliceLayout(1, mfma)) + seq_kv
    stop = seq_kv
    whole_to = seq_kv // BLOCK_N * BLOCK_N
    if CAUSAL:
        seen = gl.minimum(rows + (1 + seq_kv - seq_q), seq_kv)
        stop = gl.minimum(start_m + BLOCK_M + seq_kv - seq_q, seq_kv)
        whole_to = gl.maximum(gl.minimum(start_m + 1 + seq_kv - seq_q, seq_kv), 0) // BLOCK_N * BLOCK_N
    last = gl.maximum(stop - 1, 0) // BLOCK_N * BLOCK_N
    copy_tile(k_buffer, k_ptr + first_key, 0, offsets, columns, stride, seq_kv)
    copy_tile(v_buffers.index(0), v_ptr + first_key, 0, offsets, columns, stride, seq_kv)

    q_stride = heads * HEAD_DIM
    first_row = (batch.to(gl.int64) * seq_q + start_m) * q_stride + head * HEAD_DIM
    q_rows = gl.minimum(gl.arange(0, BLOCK_M, layout=gl.SliceLayout(1, Q_OPERAND)), seq_q - 1 - start_m)
    q_columns = gl.arange(0, HEAD_DIM, layout=gl.SliceLayout(0, Q_OPERAND))
    q = gl.amd.cdna4.buffer_load(q_ptr + first_row, q_rows[:, None] * q_stride + q_columns[None, :])

    acc = gl.zeros([BLOCK_M, HEAD_DIM], gl.float32, layout=mfma)
    l_i = gl.zeros([BLOCK_M], gl.float32, layout=gl.SliceLayout(1, mfma))
    m_i = gl.full([BLOCK_M], float("-inf"), gl.float32, layout=gl.SliceLayout(1, mfma))
    # Tiles that every row sees whole need no mask.
    acc, l_i, m_i = walk(
        acc, l_i, m_i, q, k_ptr + first_key, v_ptr + first_key, k_buffer, v_buffers, offsets, columns, stride,
        seen, 0, whole_to, last, seq_kv, scale_log2, False, BLOCK_N, mfma,
    )  # fmt: skip
    acc, l_i, m_i = walk(
        acc, l_i, m_i, q, k_ptr + first_key, v_ptr + first_key, k_buffer, v_buffers, offsets, columns, stride,
        seen, whole_to, stop, last, seq_kv, scale_log2, True, BLOCK_N, mfma,
    )  # fmt: skip
    gl.amd.cdna4.async_copy.wait_group(0)  # LDS is another workgroup's once this one has ended

    divisor = gl.where(l_i == 0.0, 1.0, l_i)  # a row without keys: out is 0, its log-sum-exp -inf
    out = acc * (1.0 / divisor)[:, None]
    out_columns = gl.arange(0, HEAD_DIM, layout=gl.SliceLayout(0, mfma))
    out_offsets = (rows - start_m)[:, None] * q_stride + out_columns[None, :]
    gl.amd.cdna4.buffer_store(out.to(element), out_ptr + first_row, out_offsets, mask=(rows < seq_q)[:, None])
    if lse_ptr is not None:
        lse = (m_i + gl.log2(divisor)) * LN_2
        gl.store(lse_ptr + (batch.to(gl.int64) * heads + head) * seq_q + rows, lse, mask=rows < seq_q)


def launch_gfx950(
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
    checked them. `config` has BLOCK_M, BLOCK_N and the compiler's options. Rows of another length than those of the
    tiles, which are copied to LDS whole, are copied into longer ones first, and out of them at the end.
    """
    batch_heads, head_dim = shape.batch * shape.heads, tile_head_dim(shape.head_dim)
    q, k, v = (resize_rows(tensor, head_dim) for tensor in (q, k, v))
    padded = out if q.shape == out.shape else q.new_empty(q.shape)
    prefill_gfx950_kernel[(batch_heads, triton.cdiv(shape.seq_q, config["BLOCK_M"]))](
        q, k, v, padded, lse,
        shape.heads, shape.kv_heads, shape.seq_q, shape.seq_kv, math.log2(math.e) / math.sqrt(shape.head_dim),
        CAUSAL=causal, HEAD_DIM=head_dim, XCDS=XCDS if batch_heads % XCDS == 0 else 1, **config,
    )  # fmt: skip
    if padded is not out:
        resize_rows(padded, shape.head_dim, out)
