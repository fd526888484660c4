"""Attention of a serving step in one launch: prompts, chunks and single tokens over a paged K/V cache.

One program owns BLOCK_Q = BLOCK_M // GROUP neighbouring query tokens of one sequence, with all GROUP query heads that
share one K/V head stacked as rows (row r is token r // GROUP, head r % GROUP), so that a single token still fills a
matrix product and K and V are loaded once for the group. It walks over the keys in tiles of BLOCK_N, whose pages it
looks up, and keeps three running values per row (Milakov and Gimelshein 2018, arXiv:1805.02867; Dao 2023,
arXiv:2307.08691; paged keys: Kwon et al. 2023, arXiv:2309.06180):

    m_i   (BLOCK_M,)            largest score so far, in units of log2; at first the sink's, or -inf
    l_i   (BLOCK_M,)            sum of 2^(score - m_i) so far; at first 1, the sink's, or 0
    acc   (BLOCK_M, BLOCK_D)    sum of 2^(score - m_i) * v so far, fp32

Which sequence a program is for is not in its id: a block that starts a sequence need not start at a multiple of
BLOCK_Q. Sequence b is given the blocks from cu_seqlens_q[b] // BLOCK_Q + b on, which are at least as many as it needs,
and a binary search over these firsts finds b. So T // BLOCK_Q + B blocks are enough for any lengths, and a launch needs
to know none of them; blocks that are too many return at once.
"""

# mypy: disable-error-code="untyped-decorator, no-untyped-def"
# Parameters of a jit function are tensors or compile-time constants as its caller decides; mypy cannot say which.

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import triton
import triton.language as tl

from kernels.configs import pad_size
from kernels.triton.primitives import LOG2_E, dot
from kernels.triton.triton_backend import is_interpreted
from pytest_attnperf.errors import UsageError

if TYPE_CHECKING:
    import torch

LOWEST = tl.constexpr(-1e30)
"""A finite value below every score."""


@triton.jit
def _sequence_of(cu_seqlens_ptr, block, sequences, BLOCK_Q: tl.constexpr):
    """The sequence that a block is for: the last b with cu_seqlens[b] // BLOCK_Q + b <= block."""
    low = tl.full([], 0, dtype=tl.int32)
    high = low + sequences
    while high - low > 1:
        middle = (low + high) // 2
        first_block = tl.load(cu_seqlens_ptr + middle) // BLOCK_Q + middle
        if first_block <= block:
            low = middle
        else:
            high = middle
    return low


@triton.jit
def _slots(table_ptr, start_n, keys, PAGE: tl.constexpr, BLOCK_N: tl.constexpr):
    """Where the keys of the tile from start_n on lie, counted in keys from the start of the cache: (BLOCK_N,) int64."""
    # A page's number is that of all keys of a tile that lies within one page.
    pages = tl.load(table_ptr + (start_n // PAGE if PAGE % BLOCK_N == 0 else keys // PAGE))
    return pages.to(tl.int64) * PAGE + keys % PAGE


@triton.jit
def _load_rows(pointers, in_head, WHOLE: tl.constexpr):
    """Keys or values of a tile, zero beyond the head dimension; where that fills the tile no mask is needed."""
    return tl.load(pointers) if WHOLE else tl.load(pointers, mask=in_head, other=0.0)


@triton.jit
def _widened(stored, like, IN_FP32: tl.constexpr):
    """8-bit keys or values in the type of q, exactly; fp32 under the interpreter, which turns integers into no bf16."""
    return stored.to(tl.float32) if IN_FP32 else stored.to(like.dtype)


@triton.jit
def _capped(s, scale, CAP: tl.constexpr):
    """Scores in units of log2: scale * log2(e) * s, or CAP * tanh(scale * s / CAP) * log2(e)."""
    if CAP == 0.0:
        capped = s * (scale * LOG2_E)
    else:
        # tanh x = 1 - 2 / (e^2x + 1), which is exact at both ends of the range of 2^x
        root = tl.rsqrt(tl.exp2(s * (scale * (2.0 * LOG2_E / CAP))) + 1.0)
        capped = (CAP * LOG2_E) * (1.0 - 2.0 * root * root)  # a square root has an instruction, a division many
    return capped


@triton.jit
def _attend(
    acc, l_i, m_i,  # (BLOCK_M, BLOCK_D), (BLOCK_M,), (BLOCK_M,): the running values
    q,  # (BLOCK_M, BLOCK_D)
    k_base, v_base, table_ptr,  # this head of slot 0, and the sequence's row of the block table
    positions, offs_n, offs_d,  # of the rows among the keys, keys of a tile, head dimensions
    start, stop,  # the keys to walk over; start is a multiple of BLOCK_N
    seq_len, slot_stride, scale,
    MASKED: tl.constexpr, WINDOW: tl.constexpr, CAP: tl.constexpr, PAGE: tl.constexpr, HEAD_DIM: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_D: tl.constexpr,
    PRECISION: tl.constexpr, IN_FP32: tl.constexpr,
):  # fmt: skip
    """Fold the keys start..stop into the running values."""
    in_head = offs_d[None, :] < HEAD_DIM  # (1, BLOCK_D)
    for start_n in tl.range(start, stop, BLOCK_N):
        start_n = tl.multiple_of(start_n, BLOCK_N)
        keys = start_n + offs_n
        # The last tile may reach past the end, where anything may lie, also NaN, and 0 * NaN is not 0: the last key is
        # loaded in place of those.
        loaded = tl.minimum(keys, seq_len - 1) if MASKED else keys
        tile = _slots(table_ptr, start_n, loaded, PAGE, BLOCK_N)[:, None] * slot_stride + offs_d[None, :]
        k = _load_rows(k_base + tile, in_head, BLOCK_D == HEAD_DIM)  # (BLOCK_N, BLOCK_D)
        v = _load_rows(v_base + tile, in_head, BLOCK_D == HEAD_DIM)
        s = dot(q, _widened(k, q, IN_FP32).T, tl.zeros([BLOCK_M, BLOCK_N], dtype=tl.float32), PRECISION, IN_FP32)
        s = _capped(s, scale, CAP)  # (BLOCK_M, BLOCK_N) fp32
        if MASKED:
            # Rows that are no token's may see what lies past the end, and are not stored.
            distance = positions[:, None] - keys[None, :]
            visible = distance.to(tl.uint32, bitcast=True) < WINDOW if WINDOW > 0 else distance >= 0
            s = tl.where(visible, s, float("-inf"))

        m_new = tl.maximum(m_i, tl.max(s, 1))
        subtracted = m_new
        if MASKED and WINDOW > 0:
            # A row may see no key of the first tiles: then its maximum is still -inf, and -inf - -inf is NaN.
            subtracted = tl.maximum(m_new, LOWEST)
        p = tl.exp2(s - subtracted[:, None])  # (BLOCK_M, BLOCK_N), at most 1
        rescale = tl.exp2(m_i - subtracted)  # (BLOCK_M,)
        l_i = l_i * rescale + tl.sum(p, 1)
        acc = dot(p.to(q.dtype), _widened(v, q, IN_FP32), acc * rescale[:, None], PRECISION, IN_FP32)
        m_i = m_new
    return acc, l_i, m_i


@triton.jit
def _attend_block(
    q_ptr, k_ptr, v_ptr, out_ptr, sinks_ptr, k_scale_ptr, v_scale_ptr,  # as in `mixed_kernel`
    table_row,  # the sequence's row of the block table
    kv_head, kv_heads, first_token, start_q, tokens, seq_len, scale,
    GROUP: tl.constexpr, PAGE: tl.constexpr, WINDOW: tl.constexpr, CAP: tl.constexpr,
    WITH_SINKS: tl.constexpr, QUANTISED: tl.constexpr, HEAD_DIM: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_D: tl.constexpr,
    PRECISION: tl.constexpr, IN_FP32: tl.constexpr,
):  # fmt: skip
    """Attention of the BLOCK_M // GROUP tokens of a sequence from start_q on, with the heads of one K/V head."""
    BLOCK_Q: tl.constexpr = BLOCK_M // GROUP
    offs_m = tl.arange(0, BLOCK_M)
    offs_n = tl.arange(0, BLOCK_N)
    offs_d = tl.arange(0, BLOCK_D)
    token = start_q + offs_m // GROUP
    head = kv_head * GROUP + offs_m % GROUP
    rows = (first_token + token).to(tl.int64) * (kv_heads * GROUP) + head
    to_rows = rows[:, None] * HEAD_DIM + offs_d[None, :]  # (BLOCK_M, BLOCK_D)
    q_mask = ((offs_m < BLOCK_Q * GROUP) & (token < tokens))[:, None] & (offs_d < HEAD_DIM)[None, :]
    offset = seq_len - tokens  # bottom-right: token i sees keys up to i + offset
    positions = token + offset  # of the rows among the keys

    q = tl.load(q_ptr + to_rows, mask=q_mask, other=0.0)
    acc = tl.zeros([BLOCK_M, BLOCK_D], dtype=tl.float32)
    if WITH_SINKS:
        m_i = tl.load(sinks_ptr + head).to(tl.float32) * LOG2_E
        l_i = tl.full([BLOCK_M], 1.0, dtype=tl.float32)
    else:
        m_i = tl.full([BLOCK_M], float("-inf"), dtype=tl.float32)
        l_i = tl.zeros([BLOCK_M], dtype=tl.float32)
    if QUANTISED:
        scale = scale * tl.load(k_scale_ptr)

    slot_stride = kv_heads * HEAD_DIM
    k_base = k_ptr + kv_head * HEAD_DIM
    v_base = v_ptr + kv_head * HEAD_DIM
    seen_by_any = tl.minimum(start_q + offset + BLOCK_Q, seq_len)
    if WINDOW > 0:
        full_stop = tl.maximum(start_q + offset - (WINDOW - 1), 0) // BLOCK_N * BLOCK_N  # before it nothing is seen
    else:
        full_stop = (start_q + offset + 1) // BLOCK_N * BLOCK_N  # before it every row sees every key
        acc, l_i, m_i = _attend(
            acc, l_i, m_i, q, k_base, v_base, table_row, positions, offs_n, offs_d,
            0, full_stop, seq_len, slot_stride, scale,
            False, WINDOW, CAP, PAGE, HEAD_DIM, BLOCK_M, BLOCK_N, BLOCK_D, PRECISION, IN_FP32,
        )  # fmt: skip
    acc, l_i, m_i = _attend(
        acc, l_i, m_i, q, k_base, v_base, table_row, positions, offs_n, offs_d,
        full_stop, seen_by_any, seq_len, slot_stride, scale,
        True, WINDOW, CAP, PAGE, HEAD_DIM, BLOCK_M, BLOCK_N, BLOCK_D, PRECISION, IN_FP32,
    )  # fmt: skip

    acc = acc * (1.0 / l_i)[:, None]
    if QUANTISED:
        acc = acc * tl.load(v_scale_ptr)
    tl.store(out_ptr + to_rows, acc.to(out_ptr.dtype.element_ty), mask=q_mask)


@triton.jit
def mixed_kernel(
    q_ptr, k_ptr, v_ptr, out_ptr,  # (T, H, D), 2 x (pages, PAGE, Hk, D), (T, H, D)
    table_ptr, cu_seqlens_ptr, seq_lens_ptr,  # (B, pages_per_sequence), (B + 1,), (B,), all int32
    sinks_ptr, k_scale_ptr, v_scale_ptr,  # (H,), (1,), (1,), all fp32; read only WITH_SINKS and QUANTISED
    sequences, table_stride, kv_heads, scale,
    GROUP: tl.constexpr, PAGE: tl.constexpr, WINDOW: tl.constexpr, CAP: tl.constexpr,
    WITH_SINKS: tl.constexpr, QUANTISED: tl.constexpr, HEAD_DIM: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, SMALL_M: tl.constexpr, SMALL_N: tl.constexpr, BLOCK_D: tl.constexpr,
    PRECISION: tl.constexpr, IN_FP32: tl.constexpr,
):  # fmt: skip
    """Attention of BLOCK_M // GROUP tokens of one sequence and the heads of one K/V head. Grid: (Hk, T // that + B).

    A sequence whose rows all fit SMALL_M, as that of a single token, is done in tiles of SMALL_M x SMALL_N instead of
    BLOCK_M x BLOCK_N; where SMALL_M is BLOCK_M there is but one kind.
    """
    BLOCK_Q: tl.constexpr = BLOCK_M // GROUP
    kv_head = tl.program_id(0)
    # The last tokens of a sequence see the most keys: starting them first keeps the tail of the grid short.
    block = tl.num_programs(1) - 1 - tl.program_id(1)
    sequence = _sequence_of(cu_seqlens_ptr, block, sequences, BLOCK_Q)
    first_token = tl.load(cu_seqlens_ptr + sequence)
    tokens = tl.load(cu_seqlens_ptr + sequence + 1) - first_token
    start_q = (block - (first_token // BLOCK_Q + sequence)) * BLOCK_Q
    if start_q >= tokens:
        return
    seq_len = tl.load(seq_lens_ptr + sequence)
    table_row = table_ptr + sequence.to(tl.int64) * table_stride
    is_large = tokens * GROUP > 0
    if SMALL_M < BLOCK_M:
        is_large = tokens * GROUP > SMALL_M
        if tokens * GROUP <= SMALL_M:
            _attend_block(
                q_ptr, k_ptr, v_ptr, out_ptr, sinks_ptr, k_scale_ptr, v_scale_ptr, table_row,
                kv_head, kv_heads, first_token, start_q, tokens, seq_len, scale,
                GROUP, PAGE, WINDOW, CAP, WITH_SINKS, QUANTISED, HEAD_DIM,
                SMALL_M, SMALL_N, BLOCK_D, PRECISION, IN_FP32,
            )  # fmt: skip
    if is_large:
        _attend_block(
            q_ptr, k_ptr, v_ptr, out_ptr, sinks_ptr, k_scale_ptr, v_scale_ptr, table_row,
            kv_head, kv_heads, first_token, start_q, tokens, seq_len, scale,
            GROUP, PAGE, WINDOW, CAP, WITH_SINKS, QUANTISED, HEAD_DIM,
            BLOCK_M, BLOCK_N, BLOCK_D, PRECISION, IN_FP32,
        )  # fmt: skip


def mixed_attention(
    q: torch.Tensor,
    k_cache: torch.Tensor,
    v_cache: torch.Tensor,
    block_table: torch.Tensor,
    cu_seqlens_q: torch.Tensor,
    seq_lens: torch.Tensor,
    *,
    config: dict[str, Any],
    window: int = 0,
    cap: float = 0.0,
    sinks: torch.Tensor | None = None,
    k_scale: torch.Tensor | None = None,
    v_scale: torch.Tensor | None = None,
) -> torch.Tensor:
    """Computes attention of a serving step and returns out (T, H, D) in q's dtype. All tensors are contiguous and on
    one device.

    q               (T, H, D), fp16 or bf16: the query tokens of all sequences, one after the other
    k_cache, v_cache    (pages, page_size, Hk, D) in q's dtype, or 8-bit with both scales; page_size a power of two
    block_table     (B, pages_per_sequence) int32: key j of sequence b is in page block_table[b, j // page_size]
    cu_seqlens_q    (B + 1,) int32, the first token of each sequence, and T
    seq_lens        (B,) int32, keys of each sequence, at least its tokens
    config          BLOCK_M, BLOCK_N, SMALL_M, SMALL_N and the compiler's options, as the data files hold them
    window, cap     the most keys a token sees, and the soft cap of scores; 0 for none
    sinks           (H,) fp32, one more score per head in the denominator
    k_scale, v_scale    (1,) fp32, value = stored * scale

    The host does not read the values of the int32 tensors. Raises UsageError naming the argument, its value and what
    is allowed, and if BLOCK_M is below H / Hk.
    """
    import torch

    inputs = {"q": q, "k_cache": k_cache, "v_cache": v_cache}
    indices = {"block_table": block_table, "cu_seqlens_q": cu_seqlens_q, "seq_lens": seq_lens}
    floats = {"sinks": sinks, "k_scale": k_scale, "v_scale": v_scale}
    _require_inputs(inputs)
    _require_indices(indices)
    _require_floats(floats, heads=q.shape[1], quantised=k_cache.element_size() == 1)
    _require_together({**inputs, **indices, **{name: one for name, one in floats.items() if one is not None}})
    group = q.shape[1] // k_cache.shape[2]
    if window < 0 or cap < 0:
        raise UsageError(f"window and cap must be at least 0, where 0 is none, got window={window} and cap={cap}")
    if config["BLOCK_M"] < group:
        raise UsageError(f"BLOCK_M is {config['BLOCK_M']}; it must be at least {group}, the query heads of a K/V head")
    sequences, head_dim = seq_lens.shape[0], q.shape[2]
    out = torch.empty_like(q)
    grid = (k_cache.shape[2], q.shape[0] // (config["BLOCK_M"] // group) + sequences)
    mixed_kernel[grid](
        q, k_cache, v_cache, out, block_table, cu_seqlens_q, seq_lens, sinks, k_scale, v_scale,
        sequences, block_table.shape[1], k_cache.shape[2], 1.0 / math.sqrt(head_dim),
        GROUP=group, PAGE=k_cache.shape[1], WINDOW=window, CAP=float(cap),
        WITH_SINKS=sinks is not None, QUANTISED=k_scale is not None, HEAD_DIM=head_dim, BLOCK_D=pad_size(head_dim),
        PRECISION="ieee", IN_FP32=q.dtype == torch.bfloat16 and is_interpreted(q), **config,
    )  # fmt: skip
    return out


def _require_inputs(tensors: dict[str, torch.Tensor]) -> None:
    """Raises UsageError unless q, k_cache and v_cache, in this order, have fitting shapes and dtypes."""
    import torch

    q, k, v = tensors.values()
    if q.dim() != 3 or q.dtype not in (torch.float16, torch.bfloat16):
        raise UsageError(f"q must be fp16 or bf16 (T, H, D), got {_describe_tensor(q)}")
    if k.dim() != 4 or k.shape[3] != q.shape[2] or q.shape[1] % k.shape[2]:
        raise UsageError(
            f"k_cache must be (pages, page_size, Hk, D) with the D of q and an Hk that divides its H, got "
            f"{_describe_tensor(k)} for q {_describe_tensor(q)}"
        )
    if k.shape != v.shape or k.dtype != v.dtype:
        raise UsageError(f"v_cache must match k_cache, got {_describe_tensor(v)} for {_describe_tensor(k)}")
    if k.dtype != q.dtype and k.element_size() != 1:
        raise UsageError(
            f"k_cache must be of q's dtype or of 8 bits, got {_describe_tensor(k)} for q {_describe_tensor(q)}"
        )
    if k.shape[1] & (k.shape[1] - 1):
        raise UsageError(f"k_cache has pages of {k.shape[1]} keys; it must be a power of two")


def _require_indices(tensors: dict[str, torch.Tensor]) -> None:
    """Raises UsageError unless block_table, cu_seqlens_q and seq_lens, in this order, are int32 of fitting shapes."""
    import torch

    table, starts, lengths = tensors.values()
    sequences = table.shape[0]
    for name, tensor, shape in (
        ("block_table", table, (sequences, *table.shape[1:2])),
        ("cu_seqlens_q", starts, (sequences + 1,)),
        ("seq_lens", lengths, (sequences,)),
    ):
        wanted_dims = 2 if tensor is table else 1
        if tensor.dtype != torch.int32 or tuple(tensor.shape) != shape or tensor.dim() != wanted_dims:
            wanted = "(B, pages_per_sequence)" if tensor is table else f"{shape} for a block_table of {sequences} rows"
            raise UsageError(f"{name} must be int32 {wanted}, got {_describe_tensor(tensor)}")


def _require_floats(tensors: dict[str, torch.Tensor | None], *, heads: int, quantised: bool) -> None:
    """Raises UsageError unless sinks, if given, and scales, which must be given with an 8-bit cache only, are fp32 of
    the right size."""
    import torch

    for name, tensor in tensors.items():
        if name != "sinks" and (tensor is not None) != quantised:
            raise UsageError(f"{name} must be given with an 8-bit cache and only then, got {_describe_tensor(tensor)}")
        size = heads if name == "sinks" else 1
        if tensor is not None and (tensor.dtype != torch.float32 or tuple(tensor.shape) != (size,)):
            raise UsageError(f"{name} must be fp32 ({size},), got {_describe_tensor(tensor)}")


def _require_together(tensors: dict[str, torch.Tensor]) -> None:
    """Raises UsageError unless all tensors are contiguous and on q's device."""
    device = tensors["q"].device
    for name, tensor in tensors.items():
        if tensor.device != device:
            raise UsageError(f"{name} is on {tensor.device}, and q on {device}; put all on one device")
        if not tensor.is_contiguous():
            raise UsageError(f"{name} must be contiguous, got strides {tensor.stride()} for {tuple(tensor.shape)}")


def _describe_tensor(tensor: torch.Tensor | None) -> str:
    return "none" if tensor is None else f"{tensor.dtype} {tuple(tensor.shape)}"
