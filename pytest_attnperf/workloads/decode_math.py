"""Attention of a few query tokens over one sequence of keys, written out plainly, with cap, window, sinks and lse.

One sequence at a time: at most (H, Q, L) scores are held at once, whatever the batch is.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True)
class Rules:
    """What becomes of scores before the softmax.

    cap       0, or c: a scaled score s becomes c tanh(s / c), as in Gemma 2 (arXiv:2408.00118, section 2)
    window    0, or the most keys a query sees, its own included
    """

    cap: int
    window: int


def attend(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, sinks: torch.Tensor | None, rules: Rules
) -> tuple[torch.Tensor, torch.Tensor]:
    """q (Q, H, D), k and v (L, Hk, D), sinks (H,) or None, all of one dtype -> out (Q, H, D) in it, and lse (H, Q).

    Query i is at position L - Q + i, and sees the keys up to its own. A sink is one more logit in the denominator of
    every query of its head, without a value (gpt-oss, arXiv:2508.10925). `lse` is the natural logarithm of that
    denominator, sink included, in fp32 or wider.
    """
    import torch

    (queries, heads, head_dim), (length, kv_heads, _) = q.shape, k.shape
    stacked = q.permute(1, 0, 2).reshape(kv_heads, heads // kv_heads * queries, head_dim)
    scores = torch.matmul(stacked, k.permute(1, 2, 0)) * (1.0 / math.sqrt(head_dim))
    scores = scores.view(heads, queries, length)
    if rules.cap:
        scores = torch.tanh(scores / rules.cap) * rules.cap
    scores = scores.masked_fill(~visible(queries, length, rules.window, q.device), float("-inf"))
    if sinks is not None:
        scores = torch.cat([scores, sinks[:, None, None].expand(heads, queries, 1)], dim=-1)
    lse = torch.logsumexp(scores if scores.dtype == torch.float64 else scores.float(), dim=-1)
    weights = torch.softmax(scores, dim=-1)[..., :length]
    out = torch.matmul(weights.reshape(kv_heads, -1, length), v.permute(1, 0, 2))
    return out.view(heads, queries, head_dim).permute(1, 0, 2), lse


def visible(queries: int, length: int, window: int, device: torch.device) -> torch.Tensor:
    """(Q, L), True where a query sees a key."""
    import torch

    position = torch.arange(length - queries, length, device=device)[:, None]
    key = torch.arange(length, device=device)[None, :]
    return (key <= position) & (key > position - window) if window else key <= position
