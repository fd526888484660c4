"""First stage of unfused attention: scores = q k^T / sqrt(D), of every pair, including hidden ones."""

from __future__ import annotations

import math
import random
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pytest_attnperf.errors import WorkloadError
from pytest_attnperf.workloads import attention_stages
from pytest_attnperf.workloads.attention_stages import SCORE_BYTES, ProductStage
from pytest_attnperf.workloads.precision import full_fp32_matmul, reference_dtype
from pytest_attnperf.workloads.row_shape import list_edges

if TYPE_CHECKING:
    import torch

    from pytest_attnperf.backends import Outputs, Tensors

PLANTED_SCORE = 4.0
"""Contribution of the planted dimension of a query and a key to their score. Losing that dimension makes this error,
some 40 times bf16's rounding of such scores; it is small enough not to increase the budget of the others."""


@dataclass(frozen=True, kw_only=True)
class QkScores(ProductStage):
    """Scaled products of queries and keys; id e.g. `qk_scores-b1-s512-kv2048-h8-hk2-d64-f16`. Fields as `ProductStage`.

    Inputs are (q, k), contiguous: q (B, Sq, H, D), k (B, Skv, Hk, D). Output is 'scores' (B, H, Sq, Skv) in fp32.

    The plain computation multiplies in the dtype, and converts the scaled product to fp32. PyTorch attention does so
    before an fp32 softmax, and whole attention is judged so, too. The budget is therefore that of a score stored in the
    dtype. An fp32 product of the upcast inputs would be a yardstick of some 1e-7, which neither matrix units (they drop
    bits when they align the terms of a sum) nor PyTorch users reach. It would reject right kernels, and detect no
    further wrong one: a lost dimension, pair, scale or head moves scores by about their own size.

    Raises WorkloadError also for a single dimension.
    """

    grammar = attention_stages.make_grammar("qk_scores", product=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.head_dim < 2:
            raise WorkloadError(
                f"qk_scores workload: head_dim must be at least 2, got {self.head_dim}: planted inputs set one "
                "dimension of every row, which would leave all scores the same"
            )

    @property
    def flops(self) -> float:
        """FLOPs: 2 head_dim per (query, key) pair of every head; the scale is not counted."""
        return float(2 * self.head_dim * self.pairs)

    @property
    def bytes_min(self) -> float:
        """Least bytes moved: q and k read once, all scores written once."""
        rows = self.batch * (self.seq_q * self.heads + self.seq_kv * self.kv_heads)
        return float(rows * self.head_dim * self.element_bytes + self.pairs * SCORE_BYTES)

    def _conventions(self) -> dict[str, Any]:
        return {"scale": "1/sqrt(head_dim)"}

    def make_inputs(self, seed: int, device: str, *, planted: bool) -> Tensors:
        """Draws (q, k) from N(0, 1). With `planted` every query and every key has one large dimension, at an edge of a
        tile. Tokens take the edges in turn, in an order that the seed decides, so that each edge is large in both
        tokens of some pair."""
        import torch

        generator = torch.Generator(device=device).manual_seed(seed)
        q, k = (
            torch.randn((self.batch, seq, heads, self.head_dim), generator=generator, device=device)
            for seq, heads in ((self.seq_q, self.heads), (self.seq_kv, self.kv_heads))
        )
        if planted:
            _plant_dimensions(q, seed)
            _plant_dimensions(k, seed)
        return q.to(self.stored_as), k.to(self.stored_as)

    def reference(self, inputs: Tensors) -> Outputs:
        """Computes 'scores' in fp64 (on a GPU for f16 and bf16: fp32 without TF32); some heads at a time."""
        return self._compute_scores(inputs, reference_dtype(inputs), reference_dtype(inputs))

    def plain(self, inputs: Tensors) -> Outputs:
        """Computes 'scores': multiplies and scales in the workload's dtype, f32 without TF32, then converts to fp32."""
        import torch

        return self._compute_scores(inputs, self.stored_as, torch.float32)

    def _compute_scores(self, inputs: Tensors, dtype: torch.dtype, out: torch.dtype) -> Outputs:
        import torch

        q, k = inputs
        scores = torch.empty((self.batch, self.heads, self.seq_q, self.seq_kv), dtype=out, device=q.device)
        with torch.no_grad(), full_fp32_matmul():
            for b, heads, kv_head in self.iterate_lanes():
                queries = q[b, :, heads].transpose(0, 1).to(dtype)  # (group, Sq, D)
                product = torch.matmul(queries, k[b, :, kv_head].to(dtype).T)
                scores[b, heads] = product.mul_(1.0 / math.sqrt(self.head_dim))
        return {"scores": scores}


def _plant_dimensions(x: torch.Tensor, seed: int) -> None:
    """Sets one dimension, at an edge of a tile, in every row of x (B, S, heads, D), in place. A query and a key in
    which the same one is set score PLANTED_SCORE by it."""
    import torch

    seq, head_dim = x.shape[1], x.shape[3]
    *others, last = list_edges(head_dim)
    random.Random(seed).shuffle(others)
    # The first token plants the last dimension for odd seeds, so that a short sequence has it too.
    order = [last, *others] if seed % 2 else [*others, last]
    token = torch.arange(seq, device=x.device)
    x[:, token, :, torch.tensor(order, device=x.device)[token % len(order)]] = math.sqrt(
        PLANTED_SCORE * math.sqrt(head_dim)
    )
