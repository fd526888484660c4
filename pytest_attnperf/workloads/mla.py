"""Multi-head latent attention (DeepSeek-V2, arXiv:2405.04434, section 2.1) over a cache of latents, after rotation.

All heads share one latent row and one rotated row per key; wkv_b holds, by head, W_UK (D, C) above W_UV (Dv, C):

    k_h = [W_UK_h latent, k_pe]    v_h = W_UV_h latent    out_h = softmax([q_nope_h, q_pe_h] k_h^T / sqrt(D + R)) v_h

This is the 'naive' form. In the 'absorbed' form (DeepSeek-V3's `inference/model.py`), W_UK is applied to the query and
W_UV after the softmax, and keys and values are the latents themselves.

Reference and yardstick compute the absorbed form plainly, in chunks so that memory stays bounded. For a head:

    q_latent = q_nope W_UK    S = (q_latent latent^T + q_pe k_pe^T) / sqrt(D + R)    out = (softmax(S) latent) W_UV^T
"""

from __future__ import annotations

import math
import random
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from pytest_attnperf.errors import WorkloadError
from pytest_attnperf.workloads import loud_rows, planted_keys
from pytest_attnperf.workloads.attention_math import SCORE_BYTES_CPU, SCORE_BYTES_GPU, iterate_chunk_slices
from pytest_attnperf.workloads.family_workload import FamilyWorkload
from pytest_attnperf.workloads.fields import Grammar
from pytest_attnperf.workloads.parts import Part, last_rows, take_along
from pytest_attnperf.workloads.precision import full_fp32_matmul, reference_dtype

if TYPE_CHECKING:
    import torch

    from pytest_attnperf.backends import Outputs, Tensors

DTYPES = ("f16", "bf16", "f32")
DECODE_QUERIES_MAX = 8
"""With at most this many queries per sequence it is decoding, including a draft of a few tokens."""
_LSE_BYTES = 4


@dataclass(frozen=True)
class Mla(FamilyWorkload):
    """One problem of latent attention; id e.g. `mla-b32-s1-kv4096-h16-d128-r64-c512-bf16`.

    batch        B
    seq_q        S, queries per sequence; up to 8 are decoding, and timed with cold caches
    heads        H
    nope_dim     D, the part of a query and of a key that is not rotated
    rope_dim     R, the rotated part, which all heads' keys share
    latent_dim   C, size of the latent row that all heads' keys and values are projected from
    seq_kv       T, keys per sequence; 0 means S
    value_dim    Dv, size of a head's values; 0 means D
    dtype        'f16', 'bf16' or 'f32': inputs and 'out'
    causal       bottom-right aligned: query row i sees key j iff j <= i + T - S
    lse          also return the natural-log log-sum-exp of the scaled scores

    Inputs are (q_nope, q_pe, kv_latent, k_pe, wkv_b): (B, S, H, D), (B, S, H, R), (B, T, C), (B, T, R) and
    (H, D + Dv, C), contiguous; latents are normalised and the R parts rotated already. Outputs are 'out' (B, S, H, Dv)
    and, with `lse`, 'lse' (B, H, S) in fp32. The scale is 1/sqrt(D + R).

    Raises WorkloadError naming the field for sizes that are not positive integers, another dtype, and a causal mask
    over fewer keys than queries: some rows would see none, but a cache holds at least a sequence's own keys.
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

    row_field, row_inputs = "batch", 4

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
    def is_decode(self) -> bool:
        """True if there are so few queries per sequence that reading the latents takes most of the time."""
        return self.seq_q <= DECODE_QUERIES_MAX

    @property
    def cache_state(self) -> str:
        """'cold' when it decodes, because other layers have used the cache since the last token; 'hot' otherwise."""
        return "cold" if self.is_decode else "hot"

    @property
    def visible_pairs(self) -> int:
        """Number of (query, key) pairs of one head and sequence that the mask lets through; causal row i sees i + 1 + T
        - S."""
        if not self.causal:
            return self.seq_q * self.seq_kv
        return self.seq_q * (self.seq_kv - self.seq_q) + self.seq_q * (self.seq_q + 1) // 2

    @property
    def flops_naive(self) -> float:
        """FLOPs if every key is projected: 2 C (D + Dv) per key and head, 2 (D + R + Dv) per visible pair and head."""
        keys, pairs = self.batch * self.seq_kv * self.heads, self.batch * self.visible_pairs * self.heads
        wide = self.nope_dim + self.value_dim
        return float(2 * keys * self.latent_dim * wide + 2 * pairs * (wide + self.rope_dim))

    @property
    def flops_absorbed(self) -> float:
        """FLOPs of the form that projects queries and results instead: 2 C (D + Dv) per query and head, 2 (2 C + R) per
        visible pair and head."""
        rows, pairs = self.batch * self.seq_q * self.heads, self.batch * self.visible_pairs * self.heads
        wide = self.nope_dim + self.value_dim
        return float(2 * rows * self.latent_dim * wide + 2 * pairs * (2 * self.latent_dim + self.rope_dim))

    @property
    def flops(self) -> float:
        """FLOPs of the cheaper form, whichever a backend uses: `flops_naive` for prompts, else `flops_absorbed`."""
        return min(self.flops_naive, self.flops_absorbed)

    @property
    def bytes_min(self) -> float:
        """Least bytes moved: the five inputs read once and out (and lse, fp32) written once."""
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
        """Draws (q_nope, q_pe, kv_latent, k_pe, wkv_b) on `device` from N(0, 1), wkv_b from N(0, 1/C), so that keys and
        values have elements of about 1. With `planted`, single keys are made to dominate rows of the queries."""
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
            loud = loud_rows.can_have_loud_row(self.dtype, lse=self.lse)
            _plant_queries(q_nope, q_pe, kv_latent, k_pe, wkv_b, causal=self.causal, seed=seed, loud=loud)
        return tuple(tensor.to(self.stored_as) for tensor in (q_nope, q_pe, kv_latent, k_pe, wkv_b))

    def take_chunk(self) -> Part | None:
        """Returns the last queries of each sequence with all of its keys, as a problem; None for a single query."""
        if self.seq_q < 2:
            return None
        rows = last_rows(self.seq_q)
        return take_along(replace(self, seq_q=len(rows)), rows, {0: 1, 1: 1}, {"out": 1, "lse": 2})

    def reference(self, inputs: Tensors) -> Outputs:
        """Computes 'out' (and 'lse') in fp64 on a CPU and for f32, else in fp32 without TF32; in chunks."""
        return _compute_attention(inputs, reference_dtype(inputs), causal=self.causal, lse=self.lse)

    def plain(self, inputs: Tensors) -> Outputs:
        """Computes 'out' (and 'lse') in the workload's dtype, rounded where DeepSeek-V3's einsums round."""
        return _compute_attention(inputs, inputs[0].dtype, causal=self.causal, lse=self.lse)


def _compute_attention(inputs: Tensors, dtype: torch.dtype, *, causal: bool, lse: bool) -> Outputs:
    """Computes q_nope (B, S, H, D), q_pe (B, S, H, R), kv_latent (B, T, C), k_pe (B, T, R), wkv_b (H, D + Dv, C) ->
    'out' (B, S, H, Dv) [, 'lse' (B, H, S), fp64 for fp64 and else fp32] in `dtype`, to which stored inputs are
    converted. q_latent, both parts of the scores, their sum, the scaled sum, the weights and the weighted sum of
    latents are rounded to it, as by the einsums of DeepSeek-V3's `inference/model.py`. fp32 is multiplied in fp32,
    never TF32."""
    import torch

    q_nope, q_pe, kv_latent, k_pe, wkv_b = inputs
    (batch, seq_q, heads, nope_dim), (_, seq_kv, latent_dim) = q_nope.shape, kv_latent.shape
    wide = torch.float64 if dtype == torch.float64 else torch.float32
    out_shape = (batch, seq_q, heads, wkv_b.shape[1] - nope_dim)
    out = torch.empty(out_shape, dtype=dtype, device=q_nope.device)
    lse_out = torch.empty((batch, heads, seq_q), dtype=wide, device=q_nope.device)
    w_uk, w_uv = wkv_b[:, :nope_dim].to(dtype), wkv_b[:, nope_dim:].to(dtype)
    limit = SCORE_BYTES_CPU if q_nope.device.type == "cpu" else SCORE_BYTES_GPU
    rows_at_once = max(1, limit // (heads * (seq_kv + latent_dim) * dtype.itemsize))
    with torch.no_grad(), full_fp32_matmul():
        for batches, rows in iterate_chunk_slices(batch, seq_q, rows_at_once):
            last_key = rows.start + seq_kv - seq_q if causal else None
            queries = (q_nope[batches, rows].to(dtype), q_pe[batches, rows].to(dtype))
            keys = (kv_latent[batches].to(dtype), k_pe[batches].to(dtype))
            scores = _compute_scores(queries, keys, w_uk, last_key)
            if lse:
                lse_out[batches, :, rows] = torch.logsumexp(scores.to(wide), dim=-1)
            weights = torch.softmax(scores, dim=-1)
            latent = torch.einsum("bhst,btc->bhsc", weights, keys[0])
            out[batches, rows] = torch.einsum("bhsc,hdc->bshd", latent, w_uv)
    return {"out": out, "lse": lse_out} if lse else {"out": out}


def _compute_scores(
    queries: tuple[torch.Tensor, torch.Tensor],
    keys: tuple[torch.Tensor, torch.Tensor],
    w_uk: torch.Tensor,
    last_key: int | None,
) -> torch.Tensor:
    """Returns scaled scores (b, H, rows, T) of the (q_nope, q_pe) in `queries` with the (kv_latent, k_pe) in `keys`;
    row r does not see the keys after last_key + r, unless `last_key` is None."""
    import torch

    q_nope, q_pe = queries
    scale = 1.0 / math.sqrt(q_nope.shape[-1] + q_pe.shape[-1])
    q_latent = torch.einsum("bshd,hdc->bhsc", q_nope, w_uk)
    scores = torch.einsum("bhsc,btc->bhst", q_latent, keys[0]) + torch.einsum("bshr,btr->bhst", q_pe, keys[1])
    scores.mul_(scale)
    if last_key is not None:
        rows, seq_kv = scores.shape[-2:]
        last = last_key + torch.arange(rows, device=scores.device)[:, None]
        scores.masked_fill_(torch.arange(seq_kv, device=scores.device)[None, :] > last, float("-inf"))
    return scores


def _plant_queries(
    q_nope: torch.Tensor,
    q_pe: torch.Tensor,
    kv_latent: torch.Tensor,
    k_pe: torch.Tensor,
    wkv_b: torch.Tensor,
    *,
    causal: bool,
    seed: int,
    loud: bool = False,
) -> None:
    """Aligns rows of the queries with keys, in place, in fp32; `planted_keys` explains which and why.

    A row of head h in which key j is planted becomes q = k (t sqrt(D + R) / |k|^2), k = [W_UK_h latent_j, k_pe_j]; its
    scaled score with key j is t. Its score with another key is normal, of variance t^2 v / |k|^2, where v is the
    variance of a key along k: 1 where the rows of W_UK are orthogonal, and for those of N(0, 1/C) more by D / C for the
    part that is not rotated. So for `target_score` a key has (D + R) / v dimensions. If these are too few, it requires
    longer keys, and both parts of planted keys are scaled alike. With `loud` one row is loud (see `loud_rows`).
    """
    import torch

    batch, seq_q, heads, nope_dim = q_nope.shape
    (seq_kv, rope_dim), latent_dim = k_pe.shape[1:], kv_latent.shape[2]
    chosen = planted_keys.make_plans(seq_q, seq_kv, causal=causal, seed=seed, lanes=batch * heads)
    key_dim = nope_dim + rope_dim
    spread = nope_dim * (1 + nope_dim / latent_dim) + rope_dim
    target, stretch = planted_keys.target_score(seq_kv, max(1, round(key_dim * key_dim / spread)))
    keys = sorted({item.key for plan in chosen for item in plan})
    kv_latent[:, keys] *= stretch
    k_pe[:, keys] *= stretch
    for head in range(heads):
        lanes = [(b, chosen[(b * heads + head) % len(chosen)]) for b in range(batch)]
        places = [(b, item.row, item.key) for b, plan in lanes for item in plan]
        if not places:
            continue
        b, row, key = torch.tensor(places, device=q_nope.device).T
        with full_fp32_matmul():
            k_nope = kv_latent[b, key] @ wkv_b[head, :nope_dim].T
        squared = k_nope.square().sum(-1) + k_pe[b, key].square().sum(-1)
        factor = (target * math.sqrt(key_dim) / squared)[:, None]
        q_nope[b, row, head] = k_nope * factor
        q_pe[b, row, head] = k_pe[b, key] * factor
    if loud and loud_rows.has_loud_row(seed, batch * heads * seq_q):
        _make_loud((q_nope, q_pe), (kv_latent, k_pe, wkv_b), chosen, causal=causal, seed=seed)


def _make_loud(
    queries: tuple[torch.Tensor, torch.Tensor],
    keys: tuple[torch.Tensor, torch.Tensor, torch.Tensor],
    chosen: list[list[planted_keys.Plant]],
    *,
    causal: bool,
    seed: int,
) -> None:
    """Changes one planted row, in place, so that its scores overflow exp in fp32 (see `loud_rows`); tries LOUD_TRIES
    (batch, head) pairs, and changes none if all fail."""
    import torch

    (q_nope, q_pe), (kv_latent, k_pe, wkv_b) = queries, keys
    (batch, seq_q, heads, nope_dim), seq_kv = q_nope.shape, k_pe.shape[1]
    draw = random.Random(f"loud row {seed}")
    for lane in draw.sample(range(batch * heads), min(batch * heads, planted_keys.LOUD_TRIES)):
        b, head = divmod(lane, heads)
        seen = {item: range(item.row + seq_kv - seq_q + 1 if causal else seq_kv) for item in chosen[lane % len(chosen)]}
        items = [item for item in seen if item.key in seen[item]]
        if not items:
            continue
        item = draw.choice(items)
        with full_fp32_matmul():
            whole = torch.cat((kv_latent[b] @ wkv_b[head, :nope_dim].T, k_pe[b]), dim=-1)
        second = loud_rows.find_neighbour(item.key, seen[item])
        pair = [item.key] if second is None else [item.key, second]
        if (row := loud_rows.make_query(whole, pair, whole.shape[-1] ** -0.5)) is not None:
            q_nope[b, item.row, head], q_pe[b, item.row, head] = row[:nope_dim], row[nope_dim:]
            return
