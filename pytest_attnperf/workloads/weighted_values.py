"""Last stage of unfused attention: out = weights v."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pytest_attnperf.workloads import attention_stages
from pytest_attnperf.workloads.attention_stages import ProductStage
from pytest_attnperf.workloads.precision import full_fp32_matmul, reference_dtype
from pytest_attnperf.workloads.row_softmax import compute_plain_weights, draw_scores

if TYPE_CHECKING:
    import torch

    from pytest_attnperf.backends import Outputs, Tensors


@dataclass(frozen=True, kw_only=True)
class WeightedValues(ProductStage):
    """Sums of values by weight; id e.g. `weighted_values-b1-s512-h8-hk2-d64-f16-causal`. Fields as `ProductStage`.

    causal    weights of keys that a causal mask hides are exactly 0, so a kernel need not read them or their values

    Inputs are (weights, v), contiguous: weights (B, H, Sq, Skv), v (B, Skv, Hk, D). Output is 'out' (B, Sq, H, D).
    """

    grammar = attention_stages.make_grammar("weighted_values", product=True, flags=("causal",))

    causal: bool = False

    @property
    def visible_pairs(self) -> int:
        """Number of (query, key) pairs whose weight may differ from 0, over all heads of all sequences."""
        return self.causal_pairs if self.causal else self.pairs

    @property
    def flops(self) -> float:
        """FLOPs: 2 head_dim per visible (query, key) pair of every head."""
        return float(2 * self.head_dim * self.visible_pairs)

    @property
    def bytes_min(self) -> float:
        """Least bytes moved: visible weights and v read once, out written once; the last row sees every key."""
        rows = self.batch * (self.seq_q * self.heads + self.seq_kv * self.kv_heads)
        return float((self.visible_pairs + rows * self.head_dim) * self.element_bytes)

    def _conventions(self) -> dict[str, Any]:
        return {"mask_alignment": "bottom-right" if self.causal else "none"}

    def make_inputs(self, seed: int, device: str, *, planted: bool) -> Tensors:
        """Makes (weights, v): weights are the rounded softmax of scores drawn as for `RowSoftmax`, v is from N(0, 1).
        With `planted` one key of every row, the last it sees or one at an edge of a tile, has a weight of 0.8."""
        import torch

        generator = torch.Generator(device=device).manual_seed(seed)
        scores = draw_scores(self, generator, seed, causal=self.causal, planted=planted)
        weights = compute_plain_weights(self, scores, causal=self.causal)
        v = torch.randn((self.batch, self.seq_kv, self.kv_heads, self.head_dim), generator=generator, device=device)
        return weights, v.to(self.stored_as)

    def reference(self, inputs: Tensors) -> Outputs:
        """Computes 'out' in fp64 (on a GPU for f16 and bf16: fp32 without TF32); some heads at a time."""
        return self._compute_out(inputs, reference_dtype(inputs))

    def plain(self, inputs: Tensors) -> Outputs:
        """Computes 'out' by products in the workload's dtype, f32 without TF32."""
        return self._compute_out(inputs, self.stored_as)

    def _compute_out(self, inputs: Tensors, dtype: torch.dtype) -> Outputs:
        import torch

        weights, v = inputs
        out = torch.empty((self.batch, self.seq_q, self.heads, self.head_dim), dtype=dtype, device=v.device)
        with torch.no_grad(), full_fp32_matmul():
            for b, heads, kv_head in self.iterate_lanes():
                product = torch.matmul(weights[b, heads].to(dtype), v[b, :, kv_head].to(dtype))  # (group, Sq, D)
                out[b, :, heads] = product.transpose(0, 1)
        return {"out": out}
