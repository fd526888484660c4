"""Attention of sequences of one size, written out plainly: causal bottom-right, window, soft cap and sinks.

What `reference` and `plain` of the family `mixed` are made of; they differ in the dtype that everything is stored in.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from pytest_attnperf.workloads.attention_math import SCORE_BYTES_CPU, SCORE_BYTES_GPU

if TYPE_CHECKING:
    import torch


def attention(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    *,
    window: int = 0,
    cap: float = 0.0,
    sinks: torch.Tensor | None = None,
) -> torch.Tensor:
    """q (b, Sq, H, D), k and v (b, Skv, Hk, D), all of one dtype, Sq <= Skv -> out (b, Sq, H, D) of that dtype.

    Row i sees the keys up to i + Skv - Sq, the last `window` of them unless that is 0. With `cap` c a scaled score s
    becomes c tanh(s / c) (Gemma 2, arXiv:2408.00118), unless c is 0. `sinks` (H,) are scores of one more key per head,
    whose value is 0 (gpt-oss, arXiv:2508.10925). Rows are done in chunks whose scores fit SCORE_BYTES_CPU or _GPU.
    """
    import torch

    (batch, seq_q, heads, _), seq_kv = q.shape, k.shape[1]
    limit = SCORE_BYTES_CPU if q.device.type == "cpu" else SCORE_BYTES_GPU
    rows = max(1, limit // (batch * heads * seq_kv * q.element_size()))
    keys, values = k.transpose(1, 2), v.transpose(1, 2)
    out = torch.empty_like(q)
    for first in range(0, seq_q, rows):
        chunk = q[:, first : first + rows].transpose(1, 2)
        hidden = hidden_keys(first + seq_kv - seq_q, chunk.shape[2], seq_kv, window, q.device)
        out[:, first : first + rows] = _attention_rows(chunk, keys, values, hidden, cap, sinks).transpose(1, 2)
    return out


def hidden_keys(position: int, rows: int, keys: int, window: int, device: torch.device) -> torch.Tensor:
    """Bool (rows, keys), True where a row does not see a key; row r is key `position` + r."""
    import torch

    key = torch.arange(keys, device=device)[None, :]
    last = position + torch.arange(rows, device=device)[:, None]
    return (key > last) | (key <= last - window) if window else key > last


def _attention_rows(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    hidden: torch.Tensor,
    cap: float,
    sinks: torch.Tensor | None,
) -> torch.Tensor:
    """q (b, H, rows, D), k and v (b, Hk, Skv, D), hidden (rows, Skv) -> (b, H, rows, D)."""
    import torch

    batch, heads, rows, head_dim = q.shape
    kv_heads, seq_kv = k.shape[1], k.shape[2]
    # Heads that share a key head are stacked into rows of one product, so k and v are never repeated.
    stacked = q.reshape(batch, kv_heads, heads // kv_heads * rows, head_dim)
    scores = torch.matmul(stacked, k.transpose(-1, -2)).view(batch, heads, rows, seq_kv).mul_(1.0 / math.sqrt(head_dim))
    if cap:
        scores.div_(cap).tanh_().mul_(cap)
    scores.masked_fill_(hidden, float("-inf"))
    if sinks is not None:
        sink = sinks.to(scores.dtype)[None, :, None, None].expand(batch, heads, rows, 1)
        weights = torch.softmax(torch.cat([scores, sink], dim=-1), dim=-1)[..., :-1]
    else:
        weights = torch.softmax(scores, dim=-1)
    weights = weights.reshape(batch, kv_heads, heads // kv_heads * rows, seq_kv)
    return torch.matmul(weights, v).view(batch, heads, rows, head_dim)
