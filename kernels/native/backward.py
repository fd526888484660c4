"""The backward pass of attention with torch's own operators: plain ones, and the CPU's flash attention.

Both compute in the layout (B, H, S, D), from (q, k, v, dout, out, lse), and give (dq, dk, dv).
"""

from __future__ import annotations

import importlib.metadata
import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

from kernels.layouts import heads_first, heads_last
from pytest_attnperf.backends import Backend, Declares, Prepared

if TYPE_CHECKING:
    import torch

    from pytest_attnperf.backends import Outputs, Tensors
    from pytest_attnperf.records import DeviceInfo
    from pytest_attnperf.workloads.backward import Backward

    Gradients = tuple[torch.Tensor, torch.Tensor, torch.Tensor]

CPU_FLOPS_MAX = 6e8
"""CPU limit that keeps a check and a timing on two cores within seconds: 320 keys of 8 heads of 64."""

CPU_HALF_FLOPS_MAX = 2e8
"""The limit for half-precision matmuls, about ten times slower than fp32 on CPUs without units for them."""

GROUPED_HEADS_SINCE = (2, 9)
"""First torch whose CPU flash attention takes fewer K/V heads than query heads (pytorch pull request 157893)."""


@dataclass(frozen=True)
class BackwardBackend(Backend["Backward"]):
    """Base class for the backward pass of dense attention, whose inputs are (q, k, v, dout, out, lse)."""

    families = ("backward",)


@dataclass(frozen=True)
class EagerBackward(BackwardBackend):
    """FlashAttention-2's formulas (see `attention_gradients`) as torch operators, whole score matrices in memory.

    Scores, weights, dP and dS are in the workload's dtype. The weights are softmax(S) and lse is not read: with scores
    rounded to a half type, exp(S - lse) would have several times the error of rounding the weights.
    """

    def prepare(self, workload: Backward, inputs: Tensors) -> Prepared:
        """Copies the inputs to (B, H, S, D) and builds the causal mask, both untimed."""
        return Prepared(
            call=eager_backward(workload, inputs[0].device),
            tensors=_to_heads_first(inputs),
            convert=_to_heads_first,
            outputs=_canonical_outputs,
            config={"compute_dtype": workload.dtype, "weights": "softmax"},
            declares=Declares(never=("scaled_dot_product",)),
        )


@dataclass(frozen=True)
class SdpaFlashBackward(BackwardBackend):
    """The operator that torch's autograd calls for flash attention on a CPU, called directly."""

    def unsupported_reasons(self, workload: Backward, device: DeviceInfo) -> list[str]:
        """Returns reasons against devices other than a CPU, rows that see no key, and grouped K/V heads before torch
        2.9. Tested on torch 2.13; the version for grouped heads is from its pull request."""
        found = []
        if device.kind != "cpu":
            found.append(
                f"the flash attention of torch on {device.kind} needs its own forward pass's cumulative lengths and "
                "random state for its backward pass; only the CPU's is called here"
            )
        if workload.causal and workload.seq_kv < workload.seq_q:
            found.append(
                f"gives NaN where a query row sees no key (causal with seq_q={workload.seq_q} and "
                f"seq_kv={workload.seq_kv})"
            )
        if workload.kv_heads != workload.heads and (release := _torch_release()) < GROUPED_HEADS_SINCE:
            found.append(
                f"takes grouped K/V heads from torch {_format_release(GROUPED_HEADS_SINCE)} on, not in "
                f"{_format_release(release)} "
                f"({workload.heads} query heads, {workload.kv_heads} K/V heads)"
            )
        return found

    def prepare(self, workload: Backward, inputs: Tensors) -> Prepared:
        """Copies the inputs to (B, H, S, D) and, for a causal workload with Sq != Skv, builds an added mask, because
        torch's is_causal is top-left."""
        import torch

        mask = None
        if workload.causal and workload.seq_q != workload.seq_kv:
            # A float mask that is added to the scores: this operator silently reads a bool mask as numbers.
            hidden = hidden_keys(workload, inputs[0].device)
            mask = torch.zeros(hidden.shape, device=hidden.device).masked_fill_(hidden, float("-inf"))
        how = "none" if not workload.causal else "is_causal" if mask is None else "fp32 mask"
        return Prepared(
            call=_flash_backward(mask, is_causal=workload.causal and mask is None),
            tensors=_to_heads_first(inputs),
            convert=_to_heads_first,
            outputs=_canonical_outputs,
            config={"causal": how, "torch": torch.__version__},
            declares=Declares(operators=("_scaled_dot_product_flash_attention_for_cpu_backward",)),
        )


BACKENDS: tuple[Backend, ...] = (
    EagerBackward("native.eager_backward", CPU_HALF_FLOPS_MAX),
    SdpaFlashBackward("native.sdpa_flash_backward", CPU_FLOPS_MAX),
)


def eager_backward(workload: Backward, device: torch.device) -> Callable[..., Gradients]:
    """Returns a function (q, k, v, dout, out, lse) -> (dq, dk, dv), contiguous: q, dout, out (B, H, Sq, D), k, v (B,
    Hk, Skv, D); lse is not read.

    Query heads that share a K/V head are stacked as further rows, so no K or V is copied for grouped heads, and one
    product sums their dK and dV.
    """
    import torch

    batch, heads, kv_heads, head_dim = workload.batch, workload.heads, workload.kv_heads, workload.head_dim
    by_head = (batch, heads, workload.seq_q, workload.seq_kv)
    stacked = (batch, kv_heads, heads // kv_heads * workload.seq_q, -1)
    scale = 1.0 / math.sqrt(head_dim)
    hidden = hidden_keys(workload, device) if workload.causal else None
    rows_without_keys = workload.causal and workload.seq_kv < workload.seq_q

    def run_backward(
        q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, dout: torch.Tensor, out: torch.Tensor, lse: torch.Tensor
    ) -> Gradients:
        queries, grads = q.view(stacked), dout.view(stacked)
        scores = (torch.matmul(queries, k.transpose(-1, -2)) * scale).view(by_head)
        if hidden is not None:
            scores = scores.masked_fill(hidden, float("-inf"))
        weights = torch.softmax(scores, dim=-1)
        if hidden is not None and rows_without_keys:
            weights = weights.masked_fill(hidden, 0.0)  # their softmax is NaN
        dweights = torch.matmul(grads, v.transpose(-1, -2)).view(by_head)
        delta = (dout.float() * out.float()).sum(dim=-1, keepdim=True)
        dscores = ((weights * (dweights - delta)).to(q.dtype) * scale).view(stacked)
        dq = torch.matmul(dscores, k).view(q.shape)
        dk = torch.matmul(dscores.transpose(-1, -2), queries)
        dv = torch.matmul(weights.view(stacked).transpose(-1, -2), grads)
        return dq, dk, dv

    return run_backward


def hidden_keys(workload: Backward, device: torch.device) -> torch.Tensor:
    """Returns bool (Sq, Skv), True where a causal row does not see a key: row i sees key j iff j <= i + Skv - Sq."""
    import torch

    ones = torch.ones(workload.seq_q, workload.seq_kv, dtype=torch.bool, device=device)
    return ones.triu(workload.seq_kv - workload.seq_q + 1)


def _flash_backward(mask: torch.Tensor | None, *, is_causal: bool) -> Callable[..., Gradients]:
    import torch

    operator = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward

    def run_backward(
        q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, dout: torch.Tensor, out: torch.Tensor, lse: torch.Tensor
    ) -> Gradients:
        return cast("Gradients", operator(dout, q, k, v, out, lse, 0.0, is_causal, attn_mask=mask))

    return run_backward


def _to_heads_first(inputs: Tensors) -> Tensors:
    """Returns contiguous (B, H, S, D) copies of (q, k, v, dout, out), and an unchanged copy of lse."""
    *tensors, lse = inputs
    return (*heads_first(tuple(tensors)), lse.clone())


def _canonical_outputs(result: Gradients) -> Outputs:
    """Returns 'dq', 'dk' and 'dv' as (B, S, H, D) views of the (B, H, S, D) result."""
    return {name: heads_last(gradient) for name, gradient in zip(("dq", "dk", "dv"), result, strict=True)}


def _torch_release() -> tuple[int, int]:
    """Returns (major, minor) of the installed torch without importing it; (0, 0) if torch is not installed."""
    try:
        found = re.match(r"(\d+)\.(\d+)", importlib.metadata.version("torch"))
    except importlib.metadata.PackageNotFoundError:
        found = None
    return (int(found[1]), int(found[2])) if found else (0, 0)


def _format_release(release: tuple[int, int]) -> str:
    return ".".join(map(str, release))
