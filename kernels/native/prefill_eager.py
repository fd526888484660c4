"""Attention as two matrix products around a softmax, the whole score matrix in memory.

    scores = Q K^T / sqrt(D)   (B, H, Sq, Skv)      out = softmax(scores) V

`native.eager` does this in the workload's dtype; `native.eager_fp32` upcasts its inputs before timing and does it in
fp32, which is the "native" column of the MI300X report that speedups are quoted against. Unlike the report's code, the
causal mask is built before timing.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kernels.prefill_backend import PrefillBackend, heads_first, heads_last
from pytest_attnperf.backends import Prepared
from pytest_attnperf.errors import AttnperfError

if TYPE_CHECKING:
    import torch

    from pytest_attnperf.backends import Outputs, Tensors
    from pytest_attnperf.records import DeviceInfo
    from pytest_attnperf.workloads.prefill import Prefill


@dataclass(frozen=True)
class Eager(PrefillBackend):
    """Plain attention; `upcast` says whether the inputs are turned into fp32 before timing."""

    upcast: bool = False

    def reasons(self, workload: Prefill, device: DeviceInfo) -> list[str]:
        """Nothing is refused: this is the implementation every other is compared with."""
        return []

    def bind(self, workload: Prefill, inputs: Tensors) -> Prepared:
        """Transpose to (B, H, S, D), upcast if asked, build the mask; out comes back in the workload's dtype, untimed.

        Raises AttnperfError when fp32 products were allowed to be TF32, which would not be the report's reference.
        """
        import torch

        stored_as = inputs[0].dtype
        precision = torch.get_float32_matmul_precision()
        if self.upcast and precision != "highest":
            raise AttnperfError(
                f"{self.name} needs full fp32 products, but torch's float32 matmul precision is {precision!r}; "
                "call torch.set_float32_matmul_precision('highest')"
            )

        def convert(new: Tensors) -> Tensors:
            return tuple(t.float() for t in heads_first(new)) if self.upcast else heads_first(new)

        def outputs(result: Any) -> Outputs:
            canonical = canonical_outputs(result)
            return {**canonical, "out": canonical["out"].to(stored_as)}

        return Prepared(
            call=eager_attention(workload, inputs[0].device),
            tensors=convert(inputs),
            convert=convert,
            outputs=outputs,
            config={"compute_dtype": "f32" if self.upcast else workload.dtype, "float32_matmul": precision},
        )


def eager_attention(workload: Prefill, device: torch.device) -> Callable[..., Any]:
    """A function of q (B, H, Sq, D), k and v (B, Hk, Skv, D), contiguous, giving out (B, H, Sq, D) [, lse (B, H, Sq)].

    Query heads that share a K/V head are stacked as further rows, so no K or V is copied for grouped heads.
    """
    import torch

    batch, heads, kv_heads, head_dim = workload.batch, workload.heads, workload.kv_heads, workload.head_dim
    seq_q, seq_kv, with_lse = workload.seq_q, workload.seq_kv, workload.lse
    scale = 1.0 / math.sqrt(head_dim)
    hidden = ~visible_keys(workload, device) if workload.causal else None

    def attention(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> Any:
        rows = q.view(batch, kv_heads, heads // kv_heads * seq_q, head_dim)
        scores = torch.matmul(rows, k.transpose(-1, -2)) * scale
        if hidden is not None:
            by_head = scores.view(batch, heads, seq_q, seq_kv)
            scores = by_head.masked_fill(hidden, float("-inf")).view(batch, kv_heads, -1, seq_kv)
        out = torch.matmul(torch.softmax(scores, dim=-1), v).view(batch, heads, seq_q, head_dim)
        if not with_lse:
            return out
        return out, torch.logsumexp(scores.float(), dim=-1).view(batch, heads, seq_q)

    return attention


def visible_keys(workload: Prefill, device: torch.device) -> torch.Tensor:
    """The causal mask, bool (Sq, Skv), bottom-right: row i sees key j iff j <= i + Skv - Sq."""
    import torch

    ones = torch.ones(workload.seq_q, workload.seq_kv, dtype=torch.bool, device=device)
    return ones.tril(workload.seq_kv - workload.seq_q)


def canonical_outputs(result: Any) -> Outputs:
    """Out (B, H, Sq, D) [, lse (B, H, Sq)] to the canonical dictionary; out becomes a (B, Sq, H, D) view."""
    if isinstance(result, tuple):
        return {"out": heads_last(result[0]), "lse": result[1]}
    return {"out": heads_last(result)}
