"""Attention as two matrix products around a softmax, the whole score matrix in memory.

    scores = Q K^T / sqrt(D) [+ bias]   (B, H, Sq, Skv)      out = softmax(scores) V

`native.eager` does this in the workload's dtype. `native.eager_fp32` upcasts its inputs before timing and computes in
fp32: this is the "native" column of the MI300X report, the reference of its speedups. Unlike in the report's code, the
mask and ALiBi's distances are built before timing; slopes and biases are inputs of the timed call.

8-bit inputs, in every mode of i8, are converted to fp32: by `native.eager` inside the timed call, with their scales
folded into the scale of the scores and into the result, and by `native.eager_fp32` before it. tf32 inputs are
multiplied as fp32.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from kernels.layouts import heads_first, heads_last
from kernels.limits import HALVES
from pytest_attnperf.backends import Backend, Declares, Prepared
from pytest_attnperf.errors import AttnperfError
from pytest_attnperf.workloads.base import QUANTISED, TORCH_DTYPES
from pytest_attnperf.workloads.quantisation import dequantise

if TYPE_CHECKING:
    import torch

    from pytest_attnperf.backends import Outputs, Tensors
    from pytest_attnperf.workloads.prefill import Prefill


@dataclass(frozen=True)
class Eager(Backend["Prefill"]):
    """Plain attention for every workload, the reference for all other backends.

    upcast    whether the inputs are converted to fp32 before timing
    """

    families = ("prefill",)
    upcast: bool = False

    def prepare(self, workload: Prefill, inputs: Tensors) -> Prepared:
        """Copies the inputs to (B, H, S, D), in fp32 if `upcast`, and builds the mask; out gets back its dtype untimed.

        Raises AttnperfError if torch may compute fp32 products in TF32, because that is not the report's reference.
        """
        import torch

        precision = torch.get_float32_matmul_precision()
        if self.upcast and precision != "highest":
            raise AttnperfError(
                f"{self.name} needs full fp32 products, but torch's float32 matmul precision is {precision!r}; "
                "call torch.set_float32_matmul_precision('highest')"
            )
        out_dtype: torch.dtype = getattr(torch, TORCH_DTYPES[workload.out_dtype])
        convert = partial(upcast_inputs, workload) if self.upcast else heads_first
        fold_scales = workload.dtype in QUANTISED and not self.upcast

        def name_outputs(result: Any) -> Outputs:
            canonical = canonical_outputs(result)
            return {**canonical, "out": canonical["out"].to(out_dtype)}

        halves = workload.dtype in HALVES and not self.upcast
        return Prepared(
            call=(eager_quantised_attention if fold_scales else eager_attention)(workload, inputs[0].device),
            tensors=convert(inputs),
            convert=convert,
            outputs=name_outputs,
            config={"compute_dtype": workload.dtype if halves else "f32", "float32_matmul": precision},
            declares=Declares(never=("scaled_dot_product",)),
            arguments=None if self.upcast else heads_first_views,
        )


def heads_first_views(inputs: Tensors) -> Tensors:
    """Returns inputs (B, S, H, D) as (B, H, S, D) views; scales, slopes and a bias unchanged."""
    return tuple(tensor.transpose(1, 2) if tensor.dim() == 4 else tensor for tensor in inputs)


def upcast_inputs(workload: Prefill, inputs: Tensors) -> Tensors:
    """Returns copies of q, k and v in fp32, contiguous (B, H, S, D), times their scales if any; then slopes or bias in
    fp32."""
    import torch

    split = workload.split_inputs(inputs)
    values = zip("qkv", heads_first(split.qkv), strict=True)
    further = (tensor.float().clone() for tensor in (split.slopes, split.bias) if tensor is not None)
    return (
        *(
            dequantise(stored, split.scales[name], torch.float32) if name in split.scales else stored.float()
            for name, stored in values
        ),
        *further,
    )


def eager_attention(workload: Prefill, device: torch.device) -> Callable[..., Any]:
    """Returns a function of q (B, H, Sq, D), k (B, Hk, Skv, D) and v (B, Hk, Skv, Dv), of any strides, that returns
    contiguous out (B, H, Sq, Dv) [, lse (B, H, Sq)].

    Its fourth argument is the slopes (H,) or the bias (H, Sq, Skv) of a workload that has them, its fifth the scale of
    the scores, by default 1 / sqrt(D). Query heads that share a K/V head are stacked as further rows, so no K or V is
    copied for grouped heads.
    """
    import torch

    batch, heads, kv_heads, head_dim = workload.batch, workload.heads, workload.kv_heads, workload.head_dim
    seq_q, seq_kv, with_lse = workload.seq_q, workload.seq_kv, workload.lse
    scale = 1.0 / math.sqrt(head_dim)
    hidden = ~visible_keys(workload, device) if workload.causal else None
    distances = minus_distances(workload, device) if workload.alibi else None
    keyless = workload.rows_without_keys

    def run_attention(
        q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, further: Any = None, score_scale: Any = scale
    ) -> Any:
        rows = q.reshape(batch, kv_heads, heads // kv_heads * seq_q, head_dim)
        scores = torch.matmul(rows, k.transpose(-1, -2)) * score_scale
        by_head = scores.view(batch, heads, seq_q, seq_kv)
        if further is not None:
            # Slopes are fp32: the sum is rounded to the scores' dtype once.
            term = further if distances is None else further[:, None, None] * distances
            by_head = (by_head + term).to(scores.dtype)
        if hidden is not None:
            by_head = by_head.masked_fill(hidden, float("-inf"))
        scores = by_head.view(batch, kv_heads, -1, seq_kv)
        out = torch.matmul(torch.softmax(scores, dim=-1), v).view(batch, heads, seq_q, -1)
        if keyless:
            out[:, :, :keyless] = 0.0  # softmax over no key is 0 / 0
        if not with_lse:
            return out
        return out, torch.logsumexp(scores.float(), dim=-1).view(batch, heads, seq_q)

    return run_attention


def eager_quantised_attention(workload: Prefill, device: torch.device) -> Callable[..., Any]:
    """Returns a function of 8-bit q, k and v in (B, H, S, D), their scales, and slopes or a bias. It computes as
    `eager_attention` in fp32, and returns out (B, H, Sq, Dv) in the workload's dtype of it [, fp32 lse (B, H, Sq)]."""
    import torch

    attention = eager_attention(workload, device)
    scale = 1.0 / math.sqrt(workload.head_dim)
    out_dtype: torch.dtype = getattr(torch, TORCH_DTYPES[workload.out_dtype])

    def run_dequantised(*inputs: torch.Tensor) -> Any:
        split = workload.split_inputs(inputs)
        q, k, v = (tensor.float() for tensor in split.qkv)
        score_scale = split.scales["k"] * scale
        if "q" in split.scales:
            score_scale = split.scales["q"] * score_scale
        further = split.slopes if split.bias is None else split.bias
        result = attention(q, k, v, further, score_scale)
        if not workload.lse:
            return (result * split.scales["v"]).to(out_dtype)
        out, lse = result
        return (out * split.scales["v"]).to(out_dtype), lse

    return run_dequantised


def minus_distances(workload: Prefill, device: torch.device) -> torch.Tensor:
    """Returns -|i + Skv - Sq - j|, fp32 (Sq, Skv), the factor of ALiBi's slopes."""
    import torch

    rows = torch.arange(workload.seq_q, device=device) + workload.seq_kv - workload.seq_q
    return -(torch.arange(workload.seq_kv, device=device)[None, :] - rows[:, None]).abs().float()


def visible_keys(workload: Prefill, device: torch.device) -> torch.Tensor:
    """Returns the causal mask, bool (Sq, Skv), bottom-right: row i sees key j iff j <= i + Skv - Sq, and with a window
    only if j > i + Skv - Sq - window."""
    import torch

    last = workload.seq_kv - workload.seq_q
    visible = torch.ones(workload.seq_q, workload.seq_kv, dtype=torch.bool, device=device).tril(last)
    return visible.triu(last - workload.window + 1) if workload.window else visible


def canonical_outputs(result: Any) -> Outputs:
    """Returns 'out' as a (B, Sq, H, D) view of the result, and 'lse' (B, H, Sq) if the result is a pair."""
    if isinstance(result, tuple):
        return {"out": heads_last(result[0]), "lse": result[1]}
    return {"out": heads_last(result)}
