"""The backward pass of attention: gradients of q, k and v, given the results of the forward pass."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from pytest_attnperf.errors import WorkloadError
from pytest_attnperf.workloads import attention_gradients, attention_math, planted_keys
from pytest_attnperf.workloads.family_workload import FamilyWorkload
from pytest_attnperf.workloads.fields import Grammar, require_grouped_heads, require_head_dim

if TYPE_CHECKING:
    import torch

    from pytest_attnperf.backends import Outputs, Tensors

DTYPES = ("f32", "f16", "bf16")
"""Dtypes that gradients are computed in; tf32 and the 8-bit formats have no backward pass here."""
_LSE_BYTES = 4


@dataclass(frozen=True)
class Backward(FamilyWorkload):
    """One backward pass of attention; id e.g. `backward-b1-s512-kv2048-h8-hk2-d64-bf16-causal`.

    batch      B
    seq_q      Sq, queries per sequence
    seq_kv     Skv, keys per sequence, at least 2; 0 means Sq
    heads      H, query heads
    kv_heads   Hk, key and value heads; 0 means H. Query head h reads key head h // (H / Hk)
    head_dim   D, at most 512
    dtype      'f32', 'f16' or 'bf16': inputs (but for lse) and outputs
    causal     bottom-right aligned: query row i sees key j iff j <= i + Skv - Sq; a row that sees none has out = 0 and
               lse = -inf, and zero gradients
    cold       timed with inputs that are in no cache; hot otherwise

    Inputs are (q, k, v, dout, out, lse): q, dout and out (B, Sq, H, D), k and v (B, Skv, Hk, D), contiguous, and lse
    (B, H, Sq) in fp32, the natural-log log-sum-exp of the scaled scores. `out` and `lse` come from the exact forward
    pass, rounded to their dtypes. Outputs are 'dq' (B, Sq, H, D), 'dk' and 'dv' (B, Skv, Hk, D).

    Raises WorkloadError naming the field for sizes that are not positive integers, heads that kv_heads does not
    divide, another dtype, too large a head_dim, and a single key. Its weight is 1 whatever q and k are, so that dq and
    dk would be zero everywhere and prove nothing.
    """

    grammar = Grammar(
        family="backward",
        numbers={"b": "batch", "s": "seq_q", "kv": "seq_kv", "h": "heads", "hk": "kv_heads", "d": "head_dim"},
        required=("s", "h", "d"),
        flags=("causal", "cold"),
        dtypes=DTYPES,
        same={"seq_kv": "seq_q", "kv_heads": "heads"},
        unsaid=("cold",),
    )

    row_field, row_inputs = "batch", 6
    row_outputs: ClassVar[Mapping[str, int]] = {"dq": 0, "dk": 0, "dv": 0}

    batch: int
    seq_q: int
    heads: int
    head_dim: int
    seq_kv: int = 0
    kv_heads: int = 0
    dtype: str = "f16"
    causal: bool = False
    cold: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        require_grouped_heads("backward", self.heads, self.kv_heads)
        require_head_dim("backward", self.head_dim)
        if self.seq_kv == 1:
            raise WorkloadError(
                f"backward workload: seq_kv must be at least 2, got {self.seq_kv}: a single key has the weight 1 "
                "whatever q and k are, so dq and dk are zero everywhere and prove nothing"
            )

    @property
    def visible_pairs(self) -> int:
        """Number of (query, key) pairs of one head and sequence that the mask lets through. The last n = min(Sq, Skv)
        rows see d + 1, d + 2, ... d + n keys, d = max(0, Skv - Sq); earlier rows see none."""
        if not self.causal:
            return self.seq_q * self.seq_kv
        rows = min(self.seq_q, self.seq_kv)
        return rows * max(0, self.seq_kv - self.seq_q) + rows * (rows + 1) // 2

    @property
    def flops(self) -> float:
        """FLOPs: 10 head_dim per visible (query, key) pair of each head and sequence: 2 for each of the products S, dV,
        dP, dQ and dK. That is 2.5 times the forward pass, as FlashAttention-2 counts it (arXiv:2307.08691, section
        4.1)."""
        return float(10 * self.head_dim * self.visible_pairs * self.heads * self.batch)

    @property
    def bytes_min(self) -> float:
        """Least bytes moved: q, k, v, out, dout and lse (fp32) read once; dq, dk and dv written once."""
        rows = self.batch * self.seq_q * self.heads
        keys = self.batch * self.seq_kv * self.kv_heads
        return float(4 * (rows + keys) * self.head_dim * self.element_bytes + rows * _LSE_BYTES)

    def _conventions(self) -> dict[str, Any]:
        return {"scale": "1/sqrt(head_dim)", "mask_alignment": "bottom-right" if self.causal else "none"}

    def make_inputs(self, seed: int, device: str, *, planted: bool) -> Tensors:
        """Makes (q, k, v, dout, out, lse) on `device`: q, k, v and dout from N(0, 1), out and lse by the exact forward
        pass. With `planted`, rows of q and the length of some keys change: the weight of such a key is then far from
        both 0 and 1, where its gradient is large."""
        import torch

        generator = torch.Generator(device=device).manual_seed(seed)
        query_shape = (self.batch, self.seq_q, self.heads, self.head_dim)
        key_shape = (self.batch, self.seq_kv, self.kv_heads, self.head_dim)
        q, k, v, dout = (
            torch.randn(shape, generator=generator, device=device)
            for shape in (query_shape, key_shape, key_shape, query_shape)
        )
        if planted:
            planted_keys.plant_keys(q, k, causal=self.causal, seed=seed)
        return self._with_forward(*(tensor.to(self.stored_as) for tensor in (q, k, v, dout)))

    def _with_forward(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, dout: torch.Tensor) -> Tensors:
        forward = attention_math.compute_reference(q, k, v, attention_math.AttentionProblem(self.causal, lse=True))
        return q, k, v, dout, forward["out"].to(q.dtype), forward["lse"].float()

    def reference(self, inputs: Tensors) -> Outputs:
        """Computes dq, dk and dv from q, k, v and dout alone: in fp64 on a CPU and for f32, on a GPU for f16 and bf16
        in fp32."""
        return attention_gradients.compute_reference(*inputs[:4], causal=self.causal)

    def plain(self, inputs: Tensors) -> Outputs:
        """Computes dq, dk and dv in the workload's dtype, rounded where autograd of eager attention rounds."""
        return attention_gradients.compute_plain(*inputs, causal=self.causal)

    def plain_otherwise(self, inputs: Tensors) -> tuple[Outputs, ...]:
        """Computes dq, dk and dv again, with dP left unrounded, as kernels do; () for f32, where nothing is rounded in
        between."""
        if self.dtype == "f32":
            return ()
        return (attention_gradients.compute_plain(*inputs, causal=self.causal, wide_dp=True),)
