"""Attention written out plainly, in chunks of batches and query rows so that memory stays bounded.

`reference` is the truth a backend is held against; `plain` is the same computation in the working dtype, whose error
against the reference is the yardstick of the budget (flash-attention's tests use the same pair).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from pytest_attnperf.workloads.precision import full_fp32_matmul, reference_dtype

if TYPE_CHECKING:
    import torch

    from pytest_attnperf.backends import Outputs

SCORE_BYTES_GPU = 1 << 30
SCORE_BYTES_CPU = 64 << 20
"""Largest block of scores held at once; softmax and the mask need a few times that for a moment."""


def reference(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, *, causal: bool, lse: bool) -> Outputs:
    """q (B, Sq, H, D), k and v (B, Skv, Hk, D) -> 'out' (B, Sq, H, D) [, 'lse' (B, H, Sq)], in fp64 or fp32.

    The precision is `reference_dtype`; inputs are upcast as they are stored.
    """
    with full_fp32_matmul():
        return _attention(q, k, v, causal=causal, lse=lse, dtype=reference_dtype((q, k, v)))


def plain(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, *, causal: bool, lse: bool) -> Outputs:
    """The same shapes in the dtype of `q`: scores, weights and 'out' are each rounded to it; 'lse' is fp32.

    fp32 inputs are multiplied in fp32, never TF32, so that the yardstick of an fp32 workload is fp32's own error.
    """
    with full_fp32_matmul():
        return _attention(q, k, v, causal=causal, lse=lse, dtype=q.dtype)


def _attention(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, *, causal: bool, lse: bool, dtype: torch.dtype
) -> Outputs:
    import torch

    batch, seq_q, heads, _ = q.shape
    wide = torch.float64 if dtype == torch.float64 else torch.float32
    out = torch.empty(q.shape, dtype=dtype, device=q.device)
    lse_out = torch.empty((batch, heads, seq_q), dtype=wide, device=q.device)
    per_row = heads * k.shape[1] * dtype.itemsize
    limit = SCORE_BYTES_CPU if q.device.type == "cpu" else SCORE_BYTES_GPU
    with torch.no_grad():
        for batches, rows in _chunks(batch, seq_q, max(1, limit // per_row)):
            offset = rows.start + k.shape[1] - seq_q if causal else None
            keys, values = (x[batches].to(dtype).permute(0, 2, 1, 3) for x in (k, v))
            queries = q[batches, rows].to(dtype).permute(0, 2, 1, 3)
            want = lse_out[batches, :, rows].copy_ if lse else None
            chunk = _attention_chunk(queries, keys, values, offset, want)
            out[batches, rows] = chunk.permute(0, 2, 1, 3)
    return {"out": out, "lse": lse_out} if lse else {"out": out}


def _chunks(batch: int, seq_q: int, rows_at_once: int) -> Iterator[tuple[slice, slice]]:
    """Slices of batches and of query rows that hold at most `rows_at_once` rows of all heads."""
    batches = max(1, min(batch, rows_at_once // seq_q))
    rows = min(seq_q, rows_at_once)
    for first in range(0, batch, batches):
        for row in range(0, seq_q, rows):
            yield slice(first, first + batches), slice(row, min(row + rows, seq_q))


def _attention_chunk(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    first_row_last_key: int | None,
    take_lse: Callable[[torch.Tensor], object] | None,
) -> torch.Tensor:
    """q (b, H, rows, D), k and v (b, Hk, Skv, D) -> (b, H, rows, D), all in one dtype.

    first_row_last_key    the last key the chunk's first row sees (row r sees r more); None without a mask
    take_lse              is given the log-sum-exp (b, H, rows), fp32 or wider
    """
    import torch

    batch, heads, rows, head_dim = q.shape
    group = heads // k.shape[1]
    # Heads that share a key head are stacked into rows of one product, so k and v are never repeated.
    stacked = q.reshape(batch, k.shape[1], group * rows, head_dim)
    scores = torch.matmul(stacked, k.transpose(-1, -2)).view(batch, heads, rows, -1).mul_(1.0 / math.sqrt(head_dim))
    if first_row_last_key is not None:
        key = torch.arange(k.shape[2], device=q.device)
        last = first_row_last_key + torch.arange(rows, device=q.device)
        scores.masked_fill_(key[None, :] > last[:, None], float("-inf"))
    if take_lse is not None:
        take_lse(torch.logsumexp(scores if scores.dtype == torch.float64 else scores.float(), dim=-1))
    weights = torch.softmax(scores, dim=-1)
    return torch.matmul(weights.view(batch, k.shape[1], group * rows, -1), v).view(batch, heads, rows, head_dim)
