"""Gradients of attention written out plainly, in chunks of batches and query rows so that memory stays bounded.

FlashAttention-2 (arXiv:2307.08691), section 2.3 and algorithm 2, for one head, S the scaled and masked scores:

    P  = exp(S - lse)              the weights, softmax(S)
    dV = P^T dO
    dP = dO V^T
    dS = P * (dP - delta)          delta = rowsum(dO * O), which equals rowsum(P * dP) because O = P V
    dQ = scale dS K
    dK = scale dS^T Q

A backend is compared with `compute_reference`. `compute_plain` is the same computation in the working dtype, whose
error against the reference is the yardstick of the budget.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from pytest_attnperf.workloads.attention_math import iterate_chunk_slices
from pytest_attnperf.workloads.precision import full_fp32_matmul, reference_dtype, wide_dtype

if TYPE_CHECKING:
    import torch

    from pytest_attnperf.backends import Outputs

SCORE_BYTES_GPU = 1 << 30
SCORE_BYTES_CPU = 64 << 20
"""Largest block of scores held at once, in the wide type; weights, their gradient and the mask need a multiple."""


def compute_reference(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, dout: torch.Tensor, *, causal: bool
) -> Outputs:
    """Returns {'dq', 'dk', 'dv'} from q and dout (B, Sq, H, D), k and v (B, Skv, Hk, D), each of its input's shape.

    dout is the gradient of a scalar by the attention's output. Causal is bottom-right aligned: row i sees key j iff j
    <= i + Skv - Sq; a row that sees no key gets and contributes zero gradients. Everything is in `reference_dtype`,
    fp64 or fp32, to which the inputs are upcast.
    """
    with full_fp32_matmul():
        return _compute_gradients(q, k, v, dout, causal=causal, dtype=reference_dtype((q, k, v, dout)))


def compute_plain(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    dout: torch.Tensor,
    out: torch.Tensor,
    lse: torch.Tensor,
    *,
    causal: bool,
    wide_dp: bool = False,
) -> Outputs:
    """Returns dq, dk and dv in the dtype of `q`, from the forward's `out` (B, Sq, H, D) and `lse` (B, H, Sq), fp32.

    As in autograd of eager attention, scores, weights, dP and dS are rounded to that dtype, each before and after a
    scale. So are the dk and dv of every query head before those of a group are summed (FlashAttention rounds there
    too). Sums over rows and keys are in fp32; fp32 inputs are multiplied in fp32, never TF32.

    Errors of the stored forward results enter as in a kernel: delta is rowsum(dO * O) of `out`, and in f32 the weights
    are exp(S - lse). There the rounding of S - lse, 1e-6 where lse is about 10, scales whole weights, which softmax
    would mostly cancel. In f16 and bf16 the weights are softmax(S): kernels keep S in fp32, and exp(S - lse) of rounded
    scores would have several times the error of kernels.

    With `wide_dp` dP is not rounded, as in a kernel that keeps it in registers. Where one key has nearly all of a row's
    weight, dP - delta cancels, and the rest of both roundings is small by luck in one row of many. A kernel has there
    the error of the other way of rounding.
    """
    import torch

    delta = (dout.detach().float() * out.detach().float()).sum(dim=-1).permute(0, 2, 1)
    given_lse = lse if q.dtype == torch.float32 else None
    with full_fp32_matmul():
        return _compute_gradients(
            q, k, v, dout, causal=causal, dtype=q.dtype, lse=given_lse, delta=delta, wide_dp=wide_dp
        )


def _compute_gradients(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    dout: torch.Tensor,
    *,
    causal: bool,
    dtype: torch.dtype,
    lse: torch.Tensor | None = None,
    delta: torch.Tensor | None = None,
    wide_dp: bool = False,
) -> Outputs:
    """Computes dq, dk and dv as `compute_reference`, but in `dtype`; with `wide_dp`, dP stays in the dtype of sums. lse
    and delta, (B, H, Sq), are computed if None."""
    import torch

    (batch, seq_q, heads, head_dim), seq_kv = q.shape, k.shape[1]
    wide, scale = wide_dtype(dtype), 1.0 / math.sqrt(head_dim)
    dq = torch.empty(q.shape, dtype=dtype, device=q.device)
    # By query head, in the wide type: the rows of a head are summed over chunks as one product would sum them.
    dk, dv = (torch.zeros((batch, heads, seq_kv, head_dim), dtype=wide, device=q.device) for _ in range(2))
    limit = SCORE_BYTES_CPU if q.device.type == "cpu" else SCORE_BYTES_GPU
    with torch.no_grad():
        for batches, rows in iterate_chunk_slices(batch, seq_q, max(1, limit // (heads * seq_kv * wide.itemsize))):
            keys, values = (x[batches].to(dtype).permute(0, 2, 1, 3) for x in (k, v))
            queries, grads = (x[batches, rows].to(dtype).permute(0, 2, 1, 3) for x in (q, dout))
            own_lse, own_delta = (None if x is None else x[batches, :, rows, None] for x in (lse, delta))
            hidden = _hidden_keys(rows, seq_q, seq_kv, q.device) if causal else None
            weights = _compute_weights(_by_key_head(queries, keys.transpose(-1, -2)).mul_(scale), hidden, own_lse)
            factors = (x.to(wide if wide_dp else dtype) for x in (grads, values.transpose(-1, -2)))
            dscores = _compute_score_gradients(weights, _by_key_head(*factors), own_delta).mul_(scale)
            dq[batches, rows] = _by_key_head(dscores, keys).permute(0, 2, 1, 3)
            dk[batches] += torch.matmul(dscores.to(wide).transpose(-1, -2), queries.to(wide))
            dv[batches] += torch.matmul(weights.to(wide).transpose(-1, -2), grads.to(wide))
        return {"dq": dq, "dk": _sum_groups(dk, k.shape[2], dtype), "dv": _sum_groups(dv, k.shape[2], dtype)}


def _hidden_keys(rows: slice, seq_q: int, seq_kv: int, device: torch.device) -> torch.Tensor:
    """Returns a bool mask (rows, Skv), True where a query of the slice `rows` does not see a key."""
    import torch

    last_key = torch.arange(rows.start, rows.stop, device=device) + (seq_kv - seq_q)
    return torch.arange(seq_kv, device=device)[None, :] > last_key[:, None]


def _compute_weights(scores: torch.Tensor, hidden: torch.Tensor | None, lse: torch.Tensor | None) -> torch.Tensor:
    """Returns the weights P (b, H, rows, Skv): exp(scores - lse), lse (b, H, rows, 1), or softmax of the scaled scores
    if None; 0 where `hidden`. `scores` are overwritten."""
    import torch

    if lse is not None:
        weights = scores.sub_(lse).exp_()
    else:
        weights = torch.softmax(scores if hidden is None else scores.masked_fill_(hidden, float("-inf")), dim=-1)
    # A hidden key may have NaN, from the softmax of a row without keys, or Inf, from a lse of -inf.
    return weights if hidden is None else weights.masked_fill_(hidden, 0.0)


def _compute_score_gradients(weights: torch.Tensor, dweights: torch.Tensor, delta: torch.Tensor | None) -> torch.Tensor:
    """Returns the gradient of the scores, P * (dP - delta), from `weights` P and `dweights` dP (b, H, rows, Skv),
    rounded once. delta is (b, H, rows, 1), or rowsum(P * dP) if None. `dweights` may be overwritten."""
    dweights = dweights.to(wide_dtype(weights.dtype))
    if delta is None:
        delta = (weights * dweights).sum(dim=-1, keepdim=True)
    return dweights.sub_(delta).mul_(weights).to(weights.dtype)


def _by_key_head(rows: torch.Tensor, of_keys: torch.Tensor) -> torch.Tensor:
    """Multiplies rows (b, H, r, n) by of_keys (b, Hk, n, m) -> (b, H, r, m), query head h with key head h // (H / Hk).
    Heads that share a key head are stacked into rows of one product, so k and v are never repeated."""
    import torch

    (batch, heads, count, inner), kv_heads = rows.shape, of_keys.shape[1]
    stacked = rows.reshape(batch, kv_heads, heads // kv_heads * count, inner)
    return torch.matmul(stacked, of_keys).view(batch, heads, count, of_keys.shape[-1])


def _sum_groups(by_head: torch.Tensor, kv_heads: int, dtype: torch.dtype) -> torch.Tensor:
    """Sums the gradients (B, H, Skv, D) of query heads that share a key head -> (B, Skv, Hk, D) in `dtype`; each head
    is rounded to it before the sum."""
    batch, heads, seq_kv, head_dim = by_head.shape
    grouped = by_head.to(dtype).view(batch, kv_heads, heads // kv_heads, seq_kv, head_dim)
    return grouped.sum(dim=2, dtype=by_head.dtype).to(dtype).permute(0, 2, 1, 3).contiguous()
