"""The honest kernel that every twin runs and every liar starts from: attention in plain torch, fp32 inside."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch

    from pytest_attnperf.backends import Outputs, Tensors
    from pytest_attnperf.workloads.prefill import Prefill


def attend(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    *,
    causal: bool = False,
    window: int = 0,
    diagonal: int | None = None,
    scale: float | None = None,
    hide_last_keys: int = 0,
    show_last_keys: int = 0,
    zero_empty_rows: bool = True,
    softmax: Callable[[torch.Tensor], torch.Tensor] | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Returns out (B, Sq, H, D) in q's dtype and lse (B, H, Sq) in fp32, of q (B, Sq, H, D), k and v (B, Skv, Hk, D).

    Runs on any device without waiting for the host, so that a graph can record it. `causal` and `window` define the
    problem; the others make it wrong:

    causal            bottom-right: row i sees key j iff j <= i + Skv - Sq
    window            causal: a row sees this many keys at most, its own included; 0 means all
    diagonal          instead of Skv - Sq
    scale             instead of 1 / sqrt(D)
    hide_last_keys    this many keys at the end are seen by no row
    show_last_keys    this many keys at the end are seen by every row
    zero_empty_rows   False leaves 0 / 0 in rows that see no key
    softmax           of the scores, over their last axis, instead of torch's
    """
    import torch

    (batch, rows, heads, head_dim), (keys, kv_heads) = q.shape, k.shape[1:3]
    # Query heads that share a key head become rows of one product, so that k and v are never repeated.
    grouped = q.float().reshape(batch, rows, kv_heads, -1, head_dim)
    stacked = grouped.permute(0, 2, 3, 1, 4).flatten(2, 3)
    wide_k, wide_v = (tensor.float().transpose(1, 2) for tensor in (k, v))
    scores = torch.matmul(stacked, wide_k.transpose(-1, -2)).view(batch, heads, rows, keys)
    scores = scores * (head_dim**-0.5 if scale is None else scale)
    key = torch.arange(keys, device=q.device)[None, :]
    last = torch.arange(rows, device=q.device)[:, None] + (keys - rows if diagonal is None else diagonal)
    seen = key < keys - hide_last_keys
    if causal:
        seen = seen & (key <= last)
    if window:
        seen = seen & (key > last - window)
    seen = (seen | (key >= keys - show_last_keys)).expand(rows, keys)
    if causal or hide_last_keys:
        scores = scores.masked_fill(~seen, float("-inf"))
    weights = torch.softmax(scores, -1) if softmax is None else softmax(scores)
    if zero_empty_rows and rows > keys:
        weights = weights.masked_fill(~seen.any(-1, keepdim=True), 0.0)
    out = torch.matmul(weights.view(batch, kv_heads, -1, keys), wide_v).view(batch, heads, rows, head_dim)
    return out.transpose(1, 2).to(q.dtype, memory_format=torch.contiguous_format), torch.logsumexp(scores, -1)


def prepare_attention(workload: Prefill, inputs: Tensors, **wrong: Any) -> Callable[..., Any]:
    """Returns a call (q, k, v) of `attend` for a workload, which returns out, or with `workload.lse` (out, lse).
    `wrong` are further arguments of `attend`, which make it wrong."""
    given = {"causal": workload.causal, "window": workload.window, **wrong}

    def call(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> Any:
        out, lse = attend(q, k, v, **given)
        return (out, lse) if workload.lse else out

    return call


def pinned_flash(workload: Prefill, inputs: Tensors) -> Callable[..., Any]:
    """Returns a call that only uses torch's flash attention, for workloads without window and lse; causal ones need Skv
    = Sq."""
    return _pin_backend(workload, "FLASH_ATTENTION")


def pinned_math(workload: Prefill, inputs: Tensors) -> Callable[..., Any]:
    """Returns a call that only uses torch's composition of products and softmax, for workloads as in `pinned_flash`."""
    return _pin_backend(workload, "MATH")


def _pin_backend(workload: Prefill, backend: str) -> Callable[..., Any]:
    from torch.nn.attention import SDPBackend, sdpa_kernel
    from torch.nn.functional import scaled_dot_product_attention

    def call(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        q, k, v = (tensor.transpose(1, 2) for tensor in (q, k, v))
        with sdpa_kernel([getattr(SDPBackend, backend)]):
            return scaled_dot_product_attention(q, k, v, is_causal=workload.causal).transpose(1, 2)

    return call


def take_outputs(raw: Any) -> Outputs:
    """Returns {'out': raw} of a tensor, {'out': ..., 'lse': ...} of a tuple (out, lse)."""
    return {"out": raw[0], "lse": raw[1]} if isinstance(raw, tuple) else {"out": raw}
