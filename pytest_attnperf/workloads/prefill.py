"""Attention prefill: softmax(q k^T / sqrt(D) + bias) v over whole sequences, with GQA, masks, ALiBi, 8-bit inputs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from pytest_attnperf.errors import WorkloadError
from pytest_attnperf.workloads import attention_math, loud_rows, planted_keys
from pytest_attnperf.workloads.base import DTYPE_BYTES, OUT_DTYPES, QUANTISED, TORCH_DTYPES
from pytest_attnperf.workloads.family_workload import FamilyWorkload
from pytest_attnperf.workloads.fields import (
    Grammar,
    require_grouped_heads,
    require_head_dim,
    require_positive_or_none,
)
from pytest_attnperf.workloads.parts import Part, last_rows, take_along
from pytest_attnperf.workloads.quantisation import PER_TENSOR
from pytest_attnperf.workloads.quantised_inputs import (
    INT8_MODES,
    OUT_CHOICES,
    insert_out,
    name_scaled,
    parse_int8_id,
    store_inputs,
)

if TYPE_CHECKING:
    import torch

    from pytest_attnperf.backends import Outputs, Tensors

ROWS_WITHOUT_KEYS = "out = 0, lse = -inf"
"""Text of a definition for rows that see no key."""
DTYPES = tuple(dtype for dtype in DTYPE_BYTES if dtype != "i32")
"""Dtypes of q, k and v."""
_LSE_BYTES = 4
_SCALE_BYTES = 4
_SLOPE_BYTES = 4
_SIZES = {
    "b": "batch",
    "s": "seq_q",
    "kv": "seq_kv",
    "h": "heads",
    "hk": "kv_heads",
    "d": "head_dim",
    "dv": "head_dim_v",
}


@dataclass(frozen=True)
class SplitInputs:
    """Inputs of a `Prefill` by kind.

    qkv       (q, k, v) as stored
    scales    'q', 'k', 'v' -> scale (1,), fp32, for those that have one
    slopes    (H,) fp32 with ALiBi, else None
    bias      (H, Sq, Skv) with a bias, else None
    """

    qkv: tuple[torch.Tensor, torch.Tensor, torch.Tensor]
    scales: Mapping[str, torch.Tensor]
    slopes: torch.Tensor | None
    bias: torch.Tensor | None

    @property
    def added_terms(self) -> attention_math.Added:
        """ALiBi slopes and bias, the terms that are added to the scaled scores."""
        return attention_math.Added(self.slopes, self.bias)


@dataclass(frozen=True)
class Prefill(FamilyWorkload):
    """One attention prefill problem; id e.g. `prefill-b1-s512-kv2048-h32-hk8-d128-bf16-causal-lse`.

    batch      B
    seq_q      Sq, queries per sequence
    seq_kv     Skv, keys per sequence; 0 means Sq
    heads      H, query heads
    kv_heads   Hk, key and value heads; 0 means H. Query head h reads key head h // (H / Hk)
    head_dim   D, at most 512
    dtype      one of DTYPES: dtype of q, k and v; 'out' has OUT_DTYPES[dtype], bf16 for 8 bits, or `out`
    causal     bottom-right aligned: query row i sees key j iff j <= i + Skv - Sq
    lse        also return the natural-log log-sum-exp of the scaled scores
    window     0, or with causal the largest number of keys a row sees, its own included:
               i + Skv - Sq - window < j <= i + Skv - Sq, which is FlashAttention's window_size = (window - 1, 0)
    cold       timed with inputs that are in no cache, as after layers that have moved other data; hot otherwise
    head_dim_v Dv, at most 512, of v and out; 0 means D
    alibi      score(i, j) += -slope_h |i + Skv - Sq - j|, FlashAttention's convention, with the slopes of
               `attention_math.alibi_slopes`
    bias       score(h, i, j) += bias[h, i, j], after the scores are scaled; not together with alibi
    int8       for dtype i8 only, which tensors are stored as int8 and which operands are multiplied as int8:
               ''      q, k and v are int8; both products have 8-bit operands
               'pv16'  q, k and v are int8; q k^T has 8-bit operands; weights and v * v_scale are multiplied in bf16
               'kv8'   k and v are int8, q is bf16; k * k_scale and v * v_scale are multiplied in bf16
    out        for 8-bit dtypes only, one of OUT_CHOICES: takes the place of bf16, as dtype of 'out' and of a bias, and
               of q and of what is multiplied in the two modes; '' means bf16, and so does 'bf16'

    Inputs are (q, k, v), then scales, then slopes or bias, contiguous: q (B, Sq, H, D), k (B, Skv, Hk, D), v (B, Skv,
    Hk, Dv); for an 8-bit dtype q_scale, k_scale, v_scale ('kv8': k_scale, v_scale), fp32 (1,), value = stored * scale;
    with `alibi` slopes fp32 (H,), with `bias` bias (H, Sq, Skv) in the dtype of 'out'. Outputs are 'out' (B, Sq, H, Dv)
    and, with `lse`, 'lse' (B, H, Sq) in fp32.

    Four keys and two causal queries, 1 where a query sees a key (the last query always sees the last key), then the
    same with a window of 2, and two keys and four queries:

                 k0 k1 k2 k3             k0 k1 k2 k3             k0 k1
        row 0     1  1  1  0              0  1  1  0              0  0
        row 1     1  1  1  1              0  0  1  1              0  0
        row 2                                                     1  0
        row 3                                                     1  1

    A row that sees no key, as happens with causal and Skv < Sq, has out = 0 exactly, as flash-attention documents it
    (flash_attn_func: "If the row of the mask is all zero, the output will be zero"), and lse = -inf, the logarithm of
    an empty sum, ln 0. At least one row sees a key.

    Raises WorkloadError naming the field for sizes that are not positive integers, heads that kv_heads does not
    divide, an unknown dtype, too large a head_dim or head_dim_v, a window that is negative or without causal, alibi
    together with bias, an int8 that is unknown or given for another dtype than i8, and such an out for one of more than
    8 bits.
    """

    grammar = Grammar(
        family="prefill",
        numbers={**_SIZES, "w": "window"},
        required=("s", "h", "d"),
        flags=("causal", "lse", "alibi", "bias", "cold"),
        dtypes=DTYPES,
        choices={"int8": INT8_MODES},
        texts={"out": ("out", "|".join(OUT_CHOICES))},
        same={"seq_kv": "seq_q", "kv_heads": "heads", "head_dim_v": "head_dim"},
        zeros=("window",),
        unsaid=("window", "cold", "alibi", "bias", "int8", "out"),
    )

    row_field, row_inputs = "batch", 3

    batch: int
    seq_q: int
    heads: int
    head_dim: int
    seq_kv: int = 0
    kv_heads: int = 0
    dtype: str = "f16"
    causal: bool = False
    lse: bool = False
    window: int = 0
    cold: bool = False
    head_dim_v: int = 0
    alibi: bool = False
    bias: bool = False
    int8: str = ""
    out: str = ""

    def __post_init__(self) -> None:
        super().__post_init__()
        require_grouped_heads("prefill", self.heads, self.kv_heads)
        require_head_dim("prefill", self.head_dim)
        require_head_dim("prefill", self.head_dim_v, "head_dim_v")
        require_positive_or_none("prefill", [("window", self.window)])
        self._require_features()
        if self.out == OUT_DTYPES[self.dtype]:
            self._set_field("out", "")

    def _require_features(self) -> None:
        if self.window and not self.causal:
            raise WorkloadError(
                f"prefill workload: window needs causal, got window={self.window} without it: a row sees the last "
                "keys of those that a causal mask lets through"
            )
        if self.alibi and self.bias:
            raise WorkloadError("prefill workload: alibi and bias cannot be combined; add the slopes to the bias")
        if self.int8 and self.int8 not in INT8_MODES:
            raise WorkloadError(
                f"prefill workload: int8 must be one of {', '.join(INT8_MODES)}, or empty, got {self.int8!r}"
            )
        if self.int8 and self.dtype != "i8":
            raise WorkloadError(f"prefill workload: int8={self.int8} needs dtype i8, got {self.dtype}")
        if self.out and self.out not in OUT_CHOICES:
            raise WorkloadError(
                f"prefill workload: out must be one of {', '.join(OUT_CHOICES)}, or empty, got {self.out!r}"
            )
        if self.out and self.dtype not in QUANTISED:
            raise WorkloadError(
                f"prefill workload: out={self.out} needs an 8-bit dtype, got {self.dtype}, whose result is "
                f"{OUT_DTYPES[self.dtype]}"
            )

    @classmethod
    def _fields_of_id(cls, text: str) -> dict[str, Any]:
        return parse_int8_id(super()._fields_of_id, text)

    def _option_words(self) -> list[str]:
        return insert_out(super()._option_words(), self.int8, self.out)

    @property
    def out_dtype(self) -> str:
        """Workload dtype of 'out': `out`, or OUT_DTYPES of the dtype."""
        return self.out or OUT_DTYPES[self.dtype]

    @property
    def non_finite_outputs(self) -> frozenset[str]:
        """{'lse'} if it is returned and some rows see no key, whose lse is -inf; else empty."""
        return frozenset({"lse"}) if self.lse and self.rows_without_keys else frozenset()

    @property
    def rows_without_keys(self) -> int:
        """Number of rows that see no key: the first Sq - Skv of a causal problem with fewer keys than queries."""
        return max(0, self.seq_q - self.seq_kv) if self.causal else 0

    @property
    def keys_seen(self) -> int:
        """Number of keys of a sequence that any row sees: with a window the last Sq + window - 1, at most all."""
        return min(self.seq_kv, self.seq_q + self.window - 1) if self.window else self.seq_kv

    @property
    def visible_pairs(self) -> int:
        """Number of (query, key) pairs of one head and sequence that the mask lets through. Causal row i sees min(c,
        window) keys, c = i + 1 + Skv - Sq, or none where c is not positive. The sum over the rows is the sum of min(c,
        window) over c = 1 ... Skv minus that over c = 1 ... Skv - Sq."""
        if not self.causal:
            return self.seq_q * self.seq_kv
        unseen = max(0, self.seq_kv - self.seq_q)
        return attention_math.count_pairs(self.seq_kv, self.window) - attention_math.count_pairs(unseen, self.window)

    @property
    def flops(self) -> float:
        """FLOPs: 2 (head_dim + head_dim_v) per visible pair, head and batch, for q k^T and the product with v; softmax
        is not counted."""
        return float(2 * (self.head_dim + self.head_dim_v) * self.visible_pairs * self.heads * self.batch)

    @property
    def bytes_min(self) -> float:
        """Least bytes moved: q, k, v (and fp32 scales, slopes, bias) read once and out (and lse, fp32) written once.
        Keys and values that no row sees, queries that see no key, and the bias of pairs that the mask hides need not be
        read."""
        out_rows = self.batch * self.seq_q * self.heads
        q_rows = self.batch * (self.seq_q - self.rows_without_keys) * self.heads
        keys = self.batch * self.keys_seen * self.kv_heads
        narrow, wide = DTYPE_BYTES[self.dtype], DTYPE_BYTES[self.out_dtype]
        read = q_rows * self.head_dim * (wide if self.int8 == "kv8" else narrow)
        read += keys * (self.head_dim + self.head_dim_v) * narrow + len(self.scaled_names) * _SCALE_BYTES
        read += self.heads * (self.visible_pairs * wide * self.bias + _SLOPE_BYTES * self.alibi)
        written = out_rows * (self.head_dim_v * wide + _LSE_BYTES * self.lse)
        return float(read + written)

    @property
    def scaled_names(self) -> tuple[str, ...]:
        """Those of 'q', 'k' and 'v' that have a scale, in the order of the inputs."""
        return name_scaled(self.dtype, self.int8)

    def definition(self) -> dict[str, Any]:
        """Returns the fields and conventions that baselines store, without `head_dim_v` where it equals `head_dim`."""
        said = super().definition()
        if self.head_dim_v == self.head_dim:
            del said["head_dim_v"]
        return said

    def _conventions(self) -> dict[str, Any]:
        said: dict[str, Any] = {}
        if self.rows_without_keys:
            said["rows_without_keys"] = ROWS_WITHOUT_KEYS
        if self.dtype in QUANTISED:
            said["quantisation"] = PER_TENSOR
        if self.alibi:
            said["alibi_bias"] = attention_math.ALIBI_DEFINITION
        alignment = "bottom-right" if self.causal else "none"
        return {**said, "scale": "1/sqrt(head_dim)", "mask_alignment": alignment}

    def make_inputs(self, seed: int, device: str, *, planted: bool) -> Tensors:
        """Draws (q, k, v) from N(0, 1) on `device`, quantised with their scales for an 8-bit dtype. The ALiBi slopes,
        or a bias drawn from N(0, 1), follow. With `planted`, rows of q, the length of some keys, and some of the bias
        change so that single keys dominate."""
        import torch

        generator = torch.Generator(device=device).manual_seed(seed)
        query_shape = (self.batch, self.seq_q, self.heads, self.head_dim)
        key_shape = (self.batch, self.seq_kv, self.kv_heads, self.head_dim)
        shapes: list[tuple[int, ...]] = [query_shape, key_shape, (*key_shape[:3], self.head_dim_v)]
        if self.bias:
            shapes.append((self.heads, self.seq_q, self.seq_kv))
        q, k, v, *bias = (torch.randn(shape, generator=generator, device=device) for shape in shapes)
        slopes = attention_math.alibi_slopes(self.heads) if self.alibi else ()
        if planted:
            planted_keys.plant_keys(
                q,
                k,
                causal=self.causal,
                seed=seed,
                window=self.window,
                slopes=slopes,
                bias=bias[0] if bias else None,
                loud=loud_rows.can_have_loud_row(self.dtype, lse=self.lse),
            )
        wide: torch.dtype = getattr(torch, TORCH_DTYPES[self.out_dtype])
        further = [torch.tensor(slopes, device=device)] if slopes else [matrix.to(wide) for matrix in bias]
        return (*store_inputs(q, k, v, self.dtype, self.scaled_names, wide), *further)

    def split_inputs(self, inputs: Tensors) -> SplitInputs:
        """Returns `inputs`, in the order of `Prefill`, grouped: q, k and v, their scales, slopes, bias."""
        count = 3 + len(self.scaled_names)
        further = inputs[count:]
        return SplitInputs(
            qkv=(inputs[0], inputs[1], inputs[2]),
            scales=dict(zip(self.scaled_names, inputs[3:count], strict=True)),
            slopes=further[0] if self.alibi else None,
            bias=further[0] if self.bias else None,
        )

    def take_chunk(self) -> Part | None:
        """Returns the last queries of each sequence with all of its keys, as a problem; None for a single query."""
        if self.seq_q < 2:
            return None
        rows = last_rows(self.seq_q)
        bias = {3 + len(self.scaled_names): 1} if self.bias else {}
        return take_along(replace(self, seq_q=len(rows)), rows, {0: 1, **bias}, {"out": 1, "lse": 2})

    def reference(self, inputs: Tensors) -> Outputs:
        """Computes 'out' (and 'lse') in fp64 on a CPU and for f32 and tf32; else on a GPU in fp32 without TF32.
        Chunked, so memory is bounded. 8-bit inputs are dequantised in that precision."""
        split = self.split_inputs(inputs)
        return attention_math.compute_reference(*split.qkv, self._make_problem(split))

    def plain(self, inputs: Tensors) -> Outputs:
        """Computes 'out' (and 'lse') in the workload's dtype, rounded as `attention_math.plain_arithmetic` says."""
        split = self.split_inputs(inputs)
        how = attention_math.plain_arithmetic(self.dtype, self.int8, self.out)
        return attention_math.compute_plain(*split.qkv, self._make_problem(split), how)

    def _make_problem(self, split: SplitInputs) -> attention_math.AttentionProblem:
        return attention_math.AttentionProblem(
            self.causal, self.lse, self.window, split.scales, split.added_terms, in_fp64=self.out == "f32"
        )
