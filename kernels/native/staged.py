"""Backend `native.staged`: unfused attention in torch's operators, stage by stage. Torch is imported in `prepare` only.

As in a PyTorch model that computes attention itself, with the softmax in fp32, as most 16-bit models do:

    scores = (q @ k^T * scale).float()      two operators in the dtype, and the conversion
    scores.masked_fill_(hidden, -inf)       the mask is built before timing
    weights = softmax(scores).to(dtype)     and logsumexp(scores), if requested
    out = weights @ v

torch.matmul returns the dtype of its operands, so scores of 16-bit floats are rounded once more than `qk_scores`
requires; torch.bmm with an out_dtype exists only on GPUs and in newer versions.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kernels.limits import FLOATS, HALVES
from kernels.staged_backend import StagedBackend, StageKernel, StageProblem
from pytest_attnperf.backends import Declares
from pytest_attnperf.workloads.base import TORCH_DTYPES

if TYPE_CHECKING:
    import torch

    from pytest_attnperf.backends import Tensors

    Run = Callable[..., Tensors]


CPU_FLOPS_MAX = 5e7
"""CPU limit that keeps a check on two cores within seconds: masks (an operation per score) of 12 heads, 2,048 keys."""


@dataclass(frozen=True)
class NativeStaged(StagedBackend):
    """fp32, fp16 and bf16, causal (bottom-right), grouped K/V heads, any sizes, log-sum-exp; tf32 as fp32."""

    dtypes = FLOATS
    heads_first = True

    def stage_kernel(self, stage: str, problem: StageProblem, device: torch.device) -> StageKernel:
        """Returns a stage as torch operators, with the settings to record, such as the scores' dtype."""
        if stage == "qk_scores":
            how = f"matmul and scale in {problem.dtype}, then float" if problem.dtype in HALVES else "matmul, scale"
            config = {"scores": how, **_product_config(problem)}
            return StageKernel(_qk_scores(problem), config, _declare_operators("aten::matmul", "aten::mul"))
        if stage == "causal_mask":
            config = {"mask": "bool, built before timing"}
            return StageKernel(_causal_mask(problem, device), config, _declare_operators("aten::masked_fill_"))
        if stage == "row_softmax":
            return StageKernel(
                _row_softmax(problem), {"softmax": "f32, then rounded"}, _declare_operators("aten::_softmax")
            )
        return StageKernel(_weighted_values(problem), _product_config(problem), _declare_operators("aten::matmul"))


def _declare_operators(*operators: str) -> Declares:
    return Declares(operators=operators, never=("scaled_dot_product",))


def _product_config(problem: StageProblem) -> dict[str, str]:
    """Returns torch's setting of how fp32 is multiplied, as an entry to record; empty for f16 and bf16."""
    import torch

    return {} if problem.dtype in HALVES else {"float32_matmul": torch.get_float32_matmul_precision()}


def _qk_scores(problem: StageProblem) -> Run:
    """Returns a function: q (B, H, Sq, D), k (B, Hk, Skv, D) -> scores (B, H, Sq, Skv)."""
    import torch

    scale = 1.0 / math.sqrt(problem.head_dim)
    matrix = (problem.batch, problem.heads, problem.seq_q, problem.seq_kv)

    def run_stage(q: torch.Tensor, k: torch.Tensor) -> Tensors:
        scores = torch.matmul(_stack_heads(q, problem), k.transpose(-1, -2)).mul_(scale)
        return (scores.view(matrix).float(),)

    return run_stage


def _causal_mask(problem: StageProblem, device: torch.device) -> Run:
    import torch

    last = problem.seq_kv - problem.seq_q
    hidden = torch.ones(problem.seq_q, problem.seq_kv, dtype=torch.bool, device=device).triu(last + 1)

    def run_stage(scores: torch.Tensor) -> Tensors:
        return (scores.masked_fill_(hidden, float("-inf")),)

    return run_stage


def _row_softmax(problem: StageProblem) -> Run:
    import torch

    dtype: torch.dtype = getattr(torch, TORCH_DTYPES[problem.dtype])
    keyless = problem.rows_without_keys

    def run_stage(scores: torch.Tensor) -> Tensors:
        weights = torch.softmax(scores, dim=-1).to(dtype)
        if keyless:
            weights[:, :, :keyless] = 0.0  # softmax over no key is 0 / 0
        return (weights, torch.logsumexp(scores, dim=-1)) if problem.lse else (weights,)

    return run_stage


def _weighted_values(problem: StageProblem) -> Run:
    """Returns a function: weights (B, H, Sq, Skv), v (B, Hk, Skv, D) -> out (B, H, Sq, D)."""
    import torch

    out = (problem.batch, problem.heads, problem.seq_q, problem.head_dim)

    def run_stage(weights: torch.Tensor, v: torch.Tensor) -> Tensors:
        return (torch.matmul(_stack_heads(weights, problem), v).view(out),)

    return run_stage


def _stack_heads(x: torch.Tensor, problem: StageProblem) -> torch.Tensor:
    """Reshapes (B, H, Sq, C) to (B, Hk, H / Hk * Sq, C): heads that share a key head become rows of one product, so no
    key or value is repeated. q is copied if it is stored tokens first."""
    rows = problem.heads // problem.kv_heads * problem.seq_q
    return x.reshape(problem.batch, problem.kv_heads, rows, x.shape[-1])


BACKENDS = (NativeStaged("native.staged", CPU_FLOPS_MAX),)
