"""Flash attention forward over values stored transposed, (B, Hk, D, Skv): the sequence is contiguous.

The second product sums over the keys of a tile. On AMD GPUs its operand V is read from LDS along the keys, which
needs single 16-bit reads where the head dimension is contiguous, and wide ones where the keys are; this is the layout
of ROCm/triton's python/perf-kernels/06-fused-attention-fwd-transV.py.

One program owns BLOCK_M query rows of one head and walks over the keys in tiles of BLOCK_N, keeping three running
values per row (Milakov and Gimelshein 2018, arXiv:1805.02867; Dao 2023, arXiv:2307.08691):

    m_i   (BLOCK_M,)            largest scaled score so far, in units of log2
    l_i   (BLOCK_M,)            sum of 2^(score - m_i) so far
    acc   (BLOCK_M, D)          sum of 2^(score - m_i) * v so far, fp32

At the end out = acc / l_i and the log-sum-exp is (m_i + log2 l_i) * ln 2.
"""

# mypy: disable-error-code="untyped-decorator, no-untyped-def"
# Parameters of a jit function are tensors or compile-time constants as its caller decides; mypy cannot say which.

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import triton
import triton.language as tl

from kernels.triton.prefill.forward import head_and_rank_on_xcd
from kernels.triton.primitives import LN_2, dot
from kernels.triton.trans_v.space import HEAD_DIMS, tile_head_dim
from kernels.triton.triton_backend import is_interpreted
from pytest_attnperf.errors import UsageError

if TYPE_CHECKING:
    import torch

DTYPES = ("float16", "bfloat16")


@triton.jit
def _load_tile(pointers, mask, WHOLE: tl.constexpr):
    """A tile, zero where the mask is false; a whole tile needs no mask and loads faster."""
    if WHOLE:
        return tl.load(pointers)
    return tl.load(pointers, mask=mask, other=0.0)


@triton.jit
def _load_transposed(pointers, inside, in_head, WHOLE: tl.constexpr, PADDED: tl.constexpr):
    """A tile (BLOCK_D, BLOCK_N), zero for keys not `inside` and, if PADDED, for elements not `in_head`."""
    mask = inside[None, :]
    if PADDED:
        mask = mask & in_head[:, None]
    return _load_tile(pointers, mask, WHOLE)


@triton.jit
def _load_rows(pointers, inside, in_head, WHOLE: tl.constexpr, PADDED: tl.constexpr):
    """As `_load_transposed`, a tile (BLOCK_N, BLOCK_D)."""
    mask = inside[:, None]
    if PADDED:
        mask = mask & in_head[None, :]
    return _load_tile(pointers, mask, WHOLE)


@triton.jit
def _load_values(pointers, inside, in_head, WHOLE: tl.constexpr, PADDED: tl.constexpr, AS_READ: tl.constexpr):
    """A tile of V, (BLOCK_D, BLOCK_N), zero as `_load_transposed` says."""
    if AS_READ:
        tile = _load_rows(pointers, inside, in_head, WHOLE, PADDED)
        tile = tile.T
    else:
        tile = _load_transposed(pointers, inside, in_head, WHOLE, PADDED)
    return tile


@triton.jit
def _attend(
    acc, l_i, m_i,  # (BLOCK_M, BLOCK_D), (BLOCK_M,), (BLOCK_M,): the running values
    q,  # (BLOCK_M, BLOCK_D)
    k_base, v_base,  # key 0 of this head
    offs_m, offs_n, offs_d,  # query rows, keys of a tile, head dimensions
    start, stop,  # the keys to walk over; start is a multiple of BLOCK_N
    seq_kv, causal_offset, row_stride, scale_log2,
    MASKED: tl.constexpr, CAUSAL: tl.constexpr, EVEN_N: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, PRELOAD_V: tl.constexpr, IN_FP32: tl.constexpr,
    AS_READ: tl.constexpr, HEAD_DIM: tl.constexpr, BLOCK_D: tl.constexpr,
):  # fmt: skip
    """Fold the keys start..stop into the running values. AS_READ: K and V are loaded the way round
    in which the products read them, see `prefill.tiles.load_key_columns`."""
    PADDED: tl.constexpr = BLOCK_D != HEAD_DIM
    WHOLE: tl.constexpr = (EVEN_N or not MASKED) and not PADDED
    in_head = offs_d < HEAD_DIM
    if AS_READ:
        k_tile = offs_n[None, :] * row_stride + offs_d[:, None]  # (BLOCK_D, BLOCK_N), fits 32 bits
    else:
        k_tile = offs_n[:, None] * row_stride + offs_d[None, :]  # (BLOCK_N, BLOCK_D), fits 32 bits
    # A head dimension of V is a whole sequence away from the next, which may pass 2^31 elements.
    if AS_READ:
        v_tile = offs_d.to(tl.int64)[None, :] * seq_kv + offs_n[:, None]  # (BLOCK_N, BLOCK_D)
    else:
        v_tile = offs_d.to(tl.int64)[:, None] * seq_kv + offs_n[None, :]  # (BLOCK_D, BLOCK_N)
    for start_n in tl.range(start, stop, BLOCK_N):
        start_n = tl.multiple_of(start_n, BLOCK_N)
        inside = start_n + offs_n < seq_kv
        k_pointers = k_base + start_n.to(tl.int64) * row_stride + k_tile
        if AS_READ:
            k = _load_transposed(k_pointers, inside, in_head, WHOLE, PADDED).T
        else:
            k = _load_rows(k_pointers, inside, in_head, WHOLE, PADDED)
        if PRELOAD_V:
            v = _load_values(v_base + start_n + v_tile, inside, in_head, WHOLE, PADDED, AS_READ)
        s = dot(q, k.T, tl.zeros([BLOCK_M, BLOCK_N], dtype=tl.float32), "ieee", IN_FP32)  # (BLOCK_M, BLOCK_N) fp32
        if MASKED:
            # A causal row's last key is in the sequence, so that the causal mask hides what is past its end.
            visible = start_n + offs_n[None, :] <= offs_m[:, None] + causal_offset if CAUSAL else inside[None, :]
            s = tl.where(visible, s, float("-inf"))

        m_new = tl.maximum(m_i, tl.max(s, 1) * scale_log2)
        p = tl.exp2(s * scale_log2 - m_new[:, None])  # (BLOCK_M, BLOCK_N), at most 1
        rescale = tl.exp2(m_i - m_new)  # (BLOCK_M,)
        l_i = l_i * rescale + tl.sum(p, 1)
        acc = acc * rescale[:, None]
        if not PRELOAD_V:
            v = _load_values(v_base + start_n + v_tile, inside, in_head, WHOLE, PADDED, AS_READ)
        acc = dot(p.to(v.dtype), v.T, acc, "ieee", IN_FP32)
        m_i = m_new
    return acc, l_i, m_i


@triton.jit
def trans_v_kernel(
    q_ptr, k_ptr, v_ptr, out_ptr, lse_ptr,  # (B, Sq, H, D), (B, Skv, Hk, D), (B, Hk, D, Skv), as q, (B, H, Sq) fp32
    heads, kv_heads, seq_q, seq_kv, scale_log2,
    CAUSAL: tl.constexpr, WITH_LSE: tl.constexpr, EVEN_N: tl.constexpr, HEAD_DIM: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_D: tl.constexpr, PRELOAD_V: tl.constexpr,
    IN_FP32: tl.constexpr, XCDS: tl.constexpr = 1, AS_READ: tl.constexpr = False,
):  # fmt: skip
    """Attention of BLOCK_M query rows of one head. Grid: (B * H, ceil(Sq / BLOCK_M)); all tensors contiguous.

    A head dimension that is smaller than its tile, BLOCK_D, is padded with zeros.
    """
    batch_head, rank = tl.program_id(0), tl.program_id(1)
    if XCDS > 1:
        batch_head, rank = head_and_rank_on_xcd(
            rank * tl.num_programs(0) + batch_head, tl.num_programs(0), tl.num_programs(1), heads // kv_heads, XCDS
        )
    batch = batch_head // heads
    head = batch_head % heads
    kv_head = head // (heads // kv_heads)
    # Under a causal mask the last rows see the most keys: starting them first keeps the tail of the grid short.
    block_m = tl.num_programs(1) - 1 - rank if CAUSAL else rank
    start_m = block_m * BLOCK_M
    causal_offset = seq_kv - seq_q  # bottom-right: row i sees keys up to i + causal_offset

    offs_m = start_m + tl.arange(0, BLOCK_M)
    offs_n = tl.arange(0, BLOCK_N)
    offs_d = tl.arange(0, BLOCK_D)
    row_stride = kv_heads * HEAD_DIM
    to_rows = (batch.to(tl.int64) * seq_q + start_m) * heads * HEAD_DIM + head * HEAD_DIM
    q_tile = tl.arange(0, BLOCK_M)[:, None] * (heads * HEAD_DIM) + offs_d[None, :]  # (BLOCK_M, BLOCK_D)
    inside = offs_m < seq_q
    q_mask = inside[:, None]
    if BLOCK_D != HEAD_DIM:
        q_mask = q_mask & (offs_d < HEAD_DIM)[None, :]
    k_base = k_ptr + batch.to(tl.int64) * seq_kv * row_stride + kv_head * HEAD_DIM
    v_base = v_ptr + (batch.to(tl.int64) * kv_heads + kv_head) * HEAD_DIM * seq_kv

    q = tl.load(q_ptr + to_rows + q_tile, mask=q_mask, other=0.0)
    acc = tl.zeros([BLOCK_M, BLOCK_D], dtype=tl.float32)
    l_i = tl.zeros([BLOCK_M], dtype=tl.float32)
    # Every row sees key 0, which is in the first tile walked, so m_i is finite from then on and no exp2 is of a NaN.
    m_i = tl.full([BLOCK_M], float("-inf"), dtype=tl.float32)
    seen_by_all = seq_kv
    seen_by_any = seq_kv
    if CAUSAL:
        seen_by_all = tl.minimum(start_m + causal_offset + 1, seq_kv)
        seen_by_any = tl.minimum(start_m + causal_offset + BLOCK_M, seq_kv)
    full_stop = seen_by_all // BLOCK_N * BLOCK_N
    acc, l_i, m_i = _attend(
        acc, l_i, m_i, q, k_base, v_base, offs_m, offs_n, offs_d,
        0, full_stop, seq_kv, causal_offset, row_stride, scale_log2,
        False, CAUSAL, EVEN_N, BLOCK_M, BLOCK_N, PRELOAD_V, IN_FP32, AS_READ, HEAD_DIM, BLOCK_D,
    )  # fmt: skip
    if CAUSAL or not EVEN_N:
        acc, l_i, m_i = _attend(
            acc, l_i, m_i, q, k_base, v_base, offs_m, offs_n, offs_d,
            full_stop, seen_by_any, seq_kv, causal_offset, row_stride, scale_log2,
            True, CAUSAL, EVEN_N, BLOCK_M, BLOCK_N, PRELOAD_V, IN_FP32, AS_READ, HEAD_DIM, BLOCK_D,
        )  # fmt: skip

    acc = acc * (1.0 / l_i)[:, None]
    tl.store(out_ptr + to_rows + q_tile, acc.to(out_ptr.dtype.element_ty), mask=q_mask)
    if WITH_LSE:
        lse_rows = lse_ptr + batch_head.to(tl.int64) * seq_q + offs_m
        tl.store(lse_rows, (m_i + tl.log2(l_i)) * LN_2, mask=inside)


def trans_v(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, *, causal: bool, with_lse: bool, config: Mapping[str, Any]
) -> tuple[torch.Tensor, torch.Tensor | None]:
    """Attends from q (B, Sq, H, D) to k (B, Skv, Hk, D), v (B, Hk, D, Skv), contiguous, all fp16 or all bf16.

    D is at most 128, Hk divides H, and with `causal`, which is bottom-right aligned, Skv is at least Sq, so that every
    row sees a key. `config` holds BLOCK_M, BLOCK_N, PRELOAD_V and the compiler's options. Returns out (B, Sq, H, D) in
    q's dtype and, when asked, the natural log-sum-exp (B, H, Sq) in fp32. Raises UsageError naming the argument.
    """
    import torch

    check_inputs(q, k, v, causal=causal)
    batch, seq_q, heads, head_dim = q.shape
    seq_kv, kv_heads = k.shape[1], k.shape[2]
    out = torch.empty_like(q)
    lse = torch.empty((batch, heads, seq_q), dtype=torch.float32, device=q.device) if with_lse else None
    grid = (batch * heads, triton.cdiv(seq_q, config["BLOCK_M"]))
    trans_v_kernel[grid](
        q, k, v, out, lse, heads, kv_heads, seq_q, seq_kv, math.log2(math.e) / math.sqrt(head_dim),
        CAUSAL=causal, WITH_LSE=with_lse, EVEN_N=seq_kv % config["BLOCK_N"] == 0, HEAD_DIM=head_dim,
        BLOCK_D=tile_head_dim(head_dim), IN_FP32=q.dtype == torch.bfloat16 and is_interpreted(q), **config,
    )  # fmt: skip
    return out, lse


def check_inputs(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, *, causal: bool) -> None:
    """Raises UsageError naming the argument, what it is and what it must be, unless `trans_v` takes q, k and v."""
    for name, tensor in (("q", q), ("k", k)):
        _require_argument(tensor.dim() == 4, name, f"{tensor.dim()} dimensions", "4")
    (batch, seq_q, heads, head_dim), (_, seq_kv, kv_heads, _) = q.shape, k.shape
    _require_argument(head_dim <= HEAD_DIMS[-1], "q", f"head_dim {head_dim}", f"a head_dim to {HEAD_DIMS[-1]}")
    _require_argument(str(q.dtype).removeprefix("torch.") in DTYPES, "q", str(q.dtype), f"one of {', '.join(DTYPES)}")
    _require_argument(heads % kv_heads == 0, "k", f"{kv_heads} heads", f"a number of heads that divides q's {heads}")
    shapes = {"k": (k, (batch, seq_kv, kv_heads, head_dim)), "v": (v, (batch, kv_heads, head_dim, seq_kv))}
    for name, (tensor, shape) in shapes.items():
        _require_argument(tuple(tensor.shape) == shape, name, f"shape {tuple(tensor.shape)}", f"{shape}")
        _require_argument(tensor.dtype == q.dtype, name, str(tensor.dtype), f"q's {q.dtype}")
        _require_argument(tensor.device == q.device, name, f"on {tensor.device}", f"on q's {q.device}")
    for name, tensor in (("q", q), ("k", k), ("v", v)):
        _require_argument(tensor.is_contiguous(), name, "not contiguous", "contiguous")
    _require_argument(not causal or seq_kv >= seq_q, "k", f"{seq_kv} keys", f"at least the {seq_q} causal rows of q")


def _require_argument(fulfilled: bool, name: str, found: str, wanted: str) -> None:
    if not fulfilled:
        raise UsageError(f"trans_v: {name} is {found}, must be {wanted}")
