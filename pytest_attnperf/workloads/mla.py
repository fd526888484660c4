"""Multi-head latent attention (DeepSeek-V2, arXiv:2405.04434, section 2.1) over a cache of latents, after rotation.

All heads share one latent row and one rotated row per key; wkv_b holds, by head, W_UK (D, C) above W_UV (Dv, C):

    k_h = [W_UK_h latent, k_pe]    v_h = W_UV_h latent    out_h = softmax([q_nope_h, q_pe_h] k_h^T / sqrt(D + R)) v_h

It can be computed so ('naive'), or with W_UK moved to the query and W_UV behind the softmax ('absorbed', DeepSeek-V3's
`inference/model.py`), where keys and values are the latents themselves.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pytest_attnperf.errors import WorkloadError
from pytest_attnperf.workloads import loud_rows, mla_math
from pytest_attnperf.workloads.family_workload import FamilyWorkload
from pytest_attnperf.workloads.fields import Grammar

if TYPE_CHECKING:
    from pytest_attnperf.backends import Outputs, Tensors

DTYPES = ("f16", "bf16", "f32")
DECODE_QUERIES_MAX = 8
"""Up to so many queries per sequence it is decoding, a draft of a few tokens included."""
_LSE_BYTES = 4


@dataclass(frozen=True)
class Mla(FamilyWorkload):
    """One problem of latent attention; id e.g. `mla-b32-s1-kv4096-h16-d128-r64-c512-bf16`.

    batch        B
    seq_q        S, queries per sequence; up to 8 are decoding, and timed with cold caches
    heads        H
    nope_dim     D, the part of a query and of a key that is not rotated
    rope_dim     R, the rotated part, which all heads' keys share
    latent_dim   C, of the latent row that all heads' keys and values are projected from
    seq_kv       T, keys per sequence; 0 means S
    value_dim    Dv, of a head's values; 0 means D
    dtype        'f16', 'bf16' or 'f32': inputs and 'out'
    causal       bottom-right aligned: query row i sees key j iff j <= i + T - S
    lse          also return the natural-log log-sum-exp of the scaled scores

    Inputs are (q_nope, q_pe, kv_latent, k_pe, wkv_b): (B, S, H, D), (B, S, H, R), (B, T, C), (B, T, R) and
    (H, D + Dv, C), contiguous; latents are normalised and the R parts rotated already. Outputs are 'out' (B, S, H, Dv)
    and, with `lse`, 'lse' (B, H, S) in fp32. The scale is 1/sqrt(D + R).

    Raises WorkloadError naming the field for sizes that are not positive integers, another dtype, and a causal mask
    over fewer keys than queries: some rows would see none, though a cache holds a sequence's own keys at least.
    """

    grammar = Grammar(
        family="mla",
        numbers={
            "b": "batch",
            "s": "seq_q",
            "kv": "seq_kv",
            "h": "heads",
            "d": "nope_dim",
            "dv": "value_dim",
            "r": "rope_dim",
            "c": "latent_dim",
        },
        required=("s", "h", "d", "r", "c"),
        flags=("causal", "lse"),
        dtypes=DTYPES,
        same={"seq_kv": "seq_q", "value_dim": "nope_dim"},
    )

    batch: int
    seq_q: int
    heads: int
    nope_dim: int
    rope_dim: int
    latent_dim: int
    seq_kv: int = 0
    value_dim: int = 0
    dtype: str = "f16"
    causal: bool = False
    lse: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.causal and self.seq_kv < self.seq_q:
            raise WorkloadError(
                f"mla workload: causal needs seq_kv of at least seq_q, got seq_kv={self.seq_kv} and "
                f"seq_q={self.seq_q}: the first rows would see no key"
            )

    @property
    def decodes(self) -> bool:
        """Whether there are so few queries per sequence that reading the latents takes the time."""
        return self.seq_q <= DECODE_QUERIES_MAX

    @property
    def cache_state(self) -> str:
        """'cold' when it decodes, for other layers have used the cache since the last token; 'hot' otherwise."""
        return "cold" if self.decodes else "hot"

    @property
    def visible_pairs(self) -> int:
        """(query, key) pairs of one head that the mask lets through; causal row i sees i + 1 + T - S keys."""
        if not self.causal:
            return self.seq_q * self.seq_kv
        return self.seq_q * (self.seq_kv - self.seq_q) + self.seq_q * (self.seq_q + 1) // 2

    @property
    def flops_naive(self) -> float:
        """2 C (D + Dv) per key and head for k_nope and v, 2 (D + R + Dv) per visible pair and head."""
        keys, pairs = self.batch * self.seq_kv * self.heads, self.batch * self.visible_pairs * self.heads
        wide = self.nope_dim + self.value_dim
        return float(2 * keys * self.latent_dim * wide + 2 * pairs * (wide + self.rope_dim))

    @property
    def flops_absorbed(self) -> float:
        """2 C (D + Dv) per query and head to absorb and to project up, 2 (2 C + R) per visible pair and head."""
        rows, pairs = self.batch * self.seq_q * self.heads, self.batch * self.visible_pairs * self.heads
        wide = self.nope_dim + self.value_dim
        return float(2 * rows * self.latent_dim * wide + 2 * pairs * (2 * self.latent_dim + self.rope_dim))

    @property
    def flops(self) -> float:
        """Of the form that needs fewer, whichever a backend takes: naive for long prompts, absorbed for decoding."""
        return min(self.flops_naive, self.flops_absorbed)

    @property
    def bytes_min(self) -> float:
        """The five inputs read once and out (and lse, fp32) written once."""
        rows, keys = self.batch * self.seq_q * self.heads, self.batch * self.seq_kv
        elements = (
            rows * (self.nope_dim + self.rope_dim + self.value_dim)
            + keys * (self.latent_dim + self.rope_dim)
            + self.heads * (self.nope_dim + self.value_dim) * self.latent_dim
        )
        return float(elements * self.element_bytes + (rows * _LSE_BYTES if self.lse else 0))

    def _conventions(self) -> dict[str, Any]:
        alignment = "bottom-right" if self.causal else "none"
        return {"scale": "1/sqrt(nope_dim + rope_dim)", "mask_alignment": alignment}

    def make_inputs(self, seed: int, device: str, *, planted: bool) -> Tensors:
        """(q_nope, q_pe, kv_latent, k_pe, wkv_b) on `device`, from N(0, 1), wkv_b from N(0, 1/C): so that keys and
        values have elements of about 1. With `planted`, see `mla_math.plant`, which changes queries and scales keys."""
        import torch

        generator = torch.Generator(device=device).manual_seed(seed)
        rows, keys = (self.batch, self.seq_q, self.heads), (self.batch, self.seq_kv)
        q_nope, q_pe, kv_latent, k_pe, wkv_b = (
            torch.randn(shape, generator=generator, device=device)
            for shape in (
                (*rows, self.nope_dim),
                (*rows, self.rope_dim),
                (*keys, self.latent_dim),
                (*keys, self.rope_dim),
                (self.heads, self.nope_dim + self.value_dim, self.latent_dim),
            )
        )
        wkv_b *= self.latent_dim**-0.5
        if planted:
            loud = loud_rows.bears(self.dtype, lse=self.lse)
            mla_math.plant(q_nope, q_pe, kv_latent, k_pe, wkv_b, causal=self.causal, seed=seed, loud=loud)
        return tuple(tensor.to(self.stored_as) for tensor in (q_nope, q_pe, kv_latent, k_pe, wkv_b))

    def reference(self, inputs: Tensors) -> Outputs:
        """The absorbed form in fp64 on a CPU and for f32; in fp32 without TF32 on a GPU for f16 and bf16. Chunked."""
        return mla_math.reference(*inputs, causal=self.causal, lse=self.lse)

    def plain(self, inputs: Tensors) -> Outputs:
        """The absorbed form in the working dtype, rounded where DeepSeek-V3's einsums round."""
        return mla_math.plain(*inputs, causal=self.causal, lse=self.lse)
