"""Plain attention, in chunks of batches and query rows so that memory stays bounded.

A backend is compared with `compute_reference`. `compute_plain` is the same computation in the working dtype, whose
error against the reference is the yardstick of the budget (flash-attention's tests use the same pair).

Causal masks are aligned bottom-right; a row that sees no key has out = 0 and lse = -inf. With `window` a row sees at
most that many keys, the last ones. Tensors of an 8-bit format come with their `scales`, by 'q', 'k' and 'v', see
`quantisation`. ALiBi (slopes times a distance) or a bias matrix is `added` to the scaled scores.

ALiBi is arXiv:2108.12409 (Press, Smith, Lewis): score(i, j) += -slope_h |i + Skv - Sq - j|, the distance of a key from
the query's own position when both sequences end together, which is FlashAttention's convention.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

from pytest_attnperf.workloads.base import OUT_DTYPES, QUANTISED, TORCH_DTYPES
from pytest_attnperf.workloads.precision import full_fp32_matmul, reference_dtype
from pytest_attnperf.workloads.quantisation import dequantise, round_to_tf32, round_weights

if TYPE_CHECKING:
    import torch

    from pytest_attnperf.backends import Outputs

SCORE_BYTES_GPU = 1 << 30
SCORE_BYTES_CPU = 64 << 20
"""Largest block of scores held at once; softmax and the mask need a few times that for a moment."""


@dataclass(frozen=True)
class Arithmetic:
    """The rounding of a computation of attention.

    dtype      inputs are loaded in it; scores, weights and products are stored in it
    out        dtype of 'out'
    operand    rounding of both operands of both products; None if there is no rounding besides `dtype`
    weights    rounding of exp(score - row max) before the product with v, whose result is then divided by the sum of
               the unrounded ones; None if softmax comes first, in `dtype`
    loads      'k' or 'v' -> dtype that it is rounded to once dequantised
    """

    dtype: torch.dtype
    out: torch.dtype
    operand: Callable[[torch.Tensor], torch.Tensor] | None = None
    weights: Callable[[torch.Tensor], torch.Tensor] | None = None
    loads: Mapping[str, torch.dtype] = field(default_factory=dict)


@dataclass(frozen=True)
class _ChunkMask:
    """A mask where row r of a chunk sees the keys up to `last` + r, or the last `window` of these if not 0."""

    last: int
    window: int

    def hidden_keys(self, rows: int, keys: int, device: torch.device) -> torch.Tensor:
        """Returns a bool mask (rows, keys), True where a row of the chunk does not see a key."""
        import torch

        key = torch.arange(keys, device=device)[None, :]
        last = self.last + torch.arange(rows, device=device)[:, None]
        return (key > last) | (key <= last - self.window) if self.window else key > last


def plain_arithmetic(dtype: str, int8: str = "", out_dtype: str = "") -> Arithmetic:
    """Returns the rounding of plain attention in a workload's dtype, and for i8 in one of its modes (`Prefill.int8`).
    For 8-bit formats `out_dtype` takes the place of bf16, if it is given (`Prefill.out`).

    f32, f16, bf16    everything is stored in the dtype, products are summed as torch does
    tf32              the operands of both products are rounded to TF32, everything else is fp32
    8-bit formats     scores and their exponentials are fp32; these are rounded to the format before the product with
                      v, which is summed in fp32; 'out' is bf16
    pv16              as 8-bit formats, but the exponentials and the dequantised v are rounded to bf16
    kv8               as pv16, and the dequantised k is rounded to bf16, too
    """
    import torch

    wide = out_dtype or OUT_DTYPES[dtype]
    out: torch.dtype = getattr(torch, TORCH_DTYPES[wide])
    if int8:
        loads = {name: out for name in ("k", "v") if name == "v" or int8 == "kv8"}
        return Arithmetic(torch.float32, out, weights=partial(round_weights, dtype=wide), loads=loads)
    if dtype in QUANTISED:
        return Arithmetic(torch.float32, out, weights=partial(round_weights, dtype=dtype))
    return Arithmetic(out, out, operand=round_to_tf32 if dtype == "tf32" else None)


@dataclass(frozen=True)
class Added:
    """Terms added to scaled scores; none unless one is given.

    slopes    (H,) fp32, of ALiBi
    bias      (H, Sq, Skv)
    """

    slopes: torch.Tensor | None = None
    bias: torch.Tensor | None = None

    def of_rows(self, first: int, count: int, seq_q: int, seq_kv: int, dtype: torch.dtype) -> torch.Tensor | None:
        """Returns the terms (H, count, Skv) added to the scores of the query rows from `first` on, in `dtype` but at
        least fp32; None if nothing is added."""
        import torch

        wide = torch.float64 if dtype == torch.float64 else torch.float32
        if self.bias is not None:
            return self.bias[:, first : first + count].to(wide)
        if self.slopes is None:
            return None
        rows = torch.arange(first, first + count, device=self.slopes.device) + seq_kv - seq_q
        keys = torch.arange(seq_kv, device=self.slopes.device)
        return (keys[None, :] - rows[:, None]).abs().to(wide) * -self.slopes.to(wide)[:, None, None]


@dataclass(frozen=True)
class AttentionProblem:
    """The parameters of an attention besides q, k and v: those fields of `Prefill`, the scales by input, what is added
    to the scores, and whether the reference is computed in fp64, because 8-bit inputs have an fp32 result."""

    causal: bool
    lse: bool
    window: int = 0
    scales: Mapping[str, torch.Tensor] = field(default_factory=dict)
    added: Added = Added()
    in_fp64: bool = False


def compute_reference(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, problem: AttentionProblem) -> Outputs:
    """Returns 'out' (B, Sq, H, Dv) and, with `problem.lse`, 'lse' (B, H, Sq), from q (B, Sq, H, D), k (B, Skv, Hk, D),
    v (B, Skv, Hk, Dv). The precision is `reference_dtype`, fp64 or fp32, but fp64 for the log-sum-exp and the fp32
    result of an 8-bit format, whose scores plain attention keeps in fp32; stored inputs are upcast."""
    import torch

    wide = problem.in_fp64 or (problem.scales and problem.lse)
    dtype = torch.float64 if wide else reference_dtype((q, k, v))
    with full_fp32_matmul():
        return _compute_attention(q, k, v, problem, Arithmetic(dtype, dtype))


def compute_plain(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, problem: AttentionProblem, how: Arithmetic | None = None
) -> Outputs:
    """Computes 'out' and 'lse' as `compute_reference`, rounded as `how` says; without it, everything to the dtype of
    `q`. 'lse' is fp32. fp32 is multiplied in fp32, never TF32, so that the yardstick of an fp32 workload is fp32's
    own."""
    with full_fp32_matmul():
        return _compute_attention(q, k, v, problem, how or Arithmetic(q.dtype, q.dtype))


def _compute_attention(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, problem: AttentionProblem, how: Arithmetic
) -> Outputs:
    import torch

    (batch, seq_q, heads, _), seq_kv = q.shape, k.shape[1]
    wide = torch.float64 if how.dtype == torch.float64 else torch.float32
    out = torch.empty((batch, seq_q, heads, v.shape[3]), dtype=how.out, device=q.device)
    lse_out = torch.empty((batch, heads, seq_q), dtype=wide, device=q.device)
    limit = SCORE_BYTES_CPU if q.device.type == "cpu" else SCORE_BYTES_GPU

    def load_operand(name: str, stored: torch.Tensor) -> torch.Tensor:
        return _load_stored(stored, problem.scales.get(name), how.dtype, how.loads.get(name))

    with torch.no_grad():
        for batches, rows in iterate_chunk_slices(batch, seq_q, max(1, limit // (heads * seq_kv * how.dtype.itemsize))):
            mask = _ChunkMask(rows.start + seq_kv - seq_q, problem.window) if problem.causal else None
            added = problem.added.of_rows(rows.start, rows.stop - rows.start, seq_q, seq_kv, how.dtype)
            operands = load_operand("q", q[batches, rows]), load_operand("k", k[batches]), load_operand("v", v[batches])
            want = lse_out[batches, :, rows].copy_ if problem.lse else None
            out[batches, rows] = _attention_chunk(operands, mask, added, how, want).permute(0, 2, 1, 3)
    return {"out": out, "lse": lse_out} if problem.lse else {"out": out}


def _load_stored(
    stored: torch.Tensor, scale: torch.Tensor | None, dtype: torch.dtype, rounded: torch.dtype | None
) -> torch.Tensor:
    """Converts stored (b, s, h, D) -> (b, h, s, D) in `dtype`: times `scale` if given, then rounded to `rounded` if
    given."""
    values = stored.to(dtype) if scale is None else dequantise(stored, scale, dtype)
    return (values if rounded is None else values.to(rounded).to(dtype)).permute(0, 2, 1, 3)


def iterate_chunk_slices(batch: int, seq_q: int, rows_at_once: int) -> Iterator[tuple[slice, slice]]:
    """Yields (slice of batches, slice of query rows) that cover all rows, at most `rows_at_once` rows (of all heads) at
    a time."""
    batches = max(1, min(batch, rows_at_once // seq_q))
    rows = min(seq_q, rows_at_once)
    for first in range(0, batch, batches):
        for row in range(0, seq_q, rows):
            yield slice(first, first + batches), slice(row, min(row + rows, seq_q))


def _attention_chunk(
    operands: tuple[torch.Tensor, torch.Tensor, torch.Tensor],
    mask: _ChunkMask | None,
    added: torch.Tensor | None,
    how: Arithmetic,
    take_lse: Callable[[torch.Tensor], object] | None,
) -> torch.Tensor:
    """Computes q (b, H, rows, D), k (b, Hk, Skv, D), v (b, Hk, Skv, Dv) -> (b, H, rows, Dv), all in `how.dtype`.

    added       (H, rows, Skv), fp32 or wider: the sum with it is rounded once, when a score is stored
    take_lse    is called with the log-sum-exp (b, H, rows), fp32 or wider
    """
    import torch

    q, k, v = operands
    batch, heads, rows, head_dim = q.shape
    group = heads // k.shape[1]
    # Heads that share a key head are stacked into rows of one product, so k and v are never repeated.
    stacked = q.reshape(batch, k.shape[1], group * rows, head_dim)
    scores = (
        _multiply_matrices(stacked, k.transpose(-1, -2), how)
        .view(batch, heads, rows, -1)
        .mul_(1.0 / math.sqrt(head_dim))
    )
    if added is not None:
        scores.add_(added)
    if mask is not None:
        scores.masked_fill_(mask.hidden_keys(rows, k.shape[2], q.device), float("-inf"))
    if take_lse is not None:
        take_lse(torch.logsumexp(scores if scores.dtype == torch.float64 else scores.float(), dim=-1))
    weights, divisor = _compute_weights(scores, how)
    unseeing = 0 if mask is None else max(0, -mask.last)
    # Rows that see no key, whose softmax is 0 / 0. Not later: oneDNN's bf16 product on a CPU with AMX multiplies what
    # lies behind a row of odd length with 0, which the NaN of the row behind it turns into NaN.
    weights[:, :, :unseeing] = 0.0
    out = _multiply_matrices(weights.view(batch, k.shape[1], group * rows, -1), v, how).view(batch, heads, rows, -1)
    if divisor is not None:
        out.div_(divisor)
    out[:, :, :unseeing] = 0.0
    return out


def _multiply_matrices(a: torch.Tensor, b: torch.Tensor, how: Arithmetic) -> torch.Tensor:
    import torch

    return torch.matmul(a, b) if how.operand is None else torch.matmul(how.operand(a), how.operand(b))


def _compute_weights(scores: torch.Tensor, how: Arithmetic) -> tuple[torch.Tensor, torch.Tensor | None]:
    """Returns (weights (b, H, rows, Skv), sums (b, H, rows, 1) by which their product with v is to be divided). The
    second is None, and weights are the softmax, if `how` rounds no exponentials."""
    import torch

    if how.weights is None:
        return torch.softmax(scores, dim=-1), None
    weights = torch.exp(scores - scores.amax(dim=-1, keepdim=True))
    return how.weights(weights), weights.sum(dim=-1, keepdim=True)


ALIBI_DEFINITION = "score(h, i, j) -= slope_h |i + Skv - Sq - j|, slopes of arXiv:2108.12409"


def count_pairs(keys: int, window: int) -> int:
    """Returns the sum of min(c, window) over c = 1 ... `keys`: the pairs of the first `keys` positions of a sequence.
    A window of 0 is none."""
    growing = min(keys, window or keys)
    return growing * (growing + 1) // 2 + (keys - growing) * window


def alibi_slopes(heads: int) -> tuple[float, ...]:
    """Returns one slope per head, positive, falling: 2^(-8 (h + 1) / H) where H is a power of two (arXiv:2108.12409).
    Other H use the rule of its authors' code (ofirpress/attention_with_linear_biases, `get_slopes`): the slopes of the
    next lower power of two, P, followed by the first H - P of every other slope of 2 P, which lie between those."""
    power = 1 << (heads.bit_length() - 1)
    slopes = [2.0 ** (-8.0 * (head + 1) / power) for head in range(power)]
    between = [2.0 ** (-8.0 * (head + 1) / (2 * power)) for head in range(0, 2 * power, 2)]
    return tuple(slopes + between[: heads - power])


def alibi_sum(slope: float, position: int, keys: range) -> float:
    """Sums exp(-slope |position - j|) over consecutive keys j: the number of keys, weighted by ALiBi. `position` is the
    key position of row i, i + Skv - Sq; it may be before the keys, but not after them."""

    def sum_nearest(count: int) -> float:
        """Sums exp(-slope d) over d = 0 ... count - 1."""
        return math.expm1(-slope * count) / math.expm1(-slope)

    if position < keys.start:
        return math.exp(-slope * (keys.start - position)) * sum_nearest(len(keys))
    return sum_nearest(position - keys.start + 1) + sum_nearest(keys.stop - position) - 1.0
