"""Attention prefill: softmax(q k^T / sqrt(D)) v over whole sequences, with GQA, causal masks and log-sum-exp."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from pytest_attnperf.errors import WorkloadError
from pytest_attnperf.workloads import attention_math, planted_keys
from pytest_attnperf.workloads.base import DTYPE_BYTES, TORCH_DTYPES
from pytest_attnperf.workloads.fields import Grammar, id_words, require_dtype, require_positive

if TYPE_CHECKING:
    from pytest_attnperf.backends import Outputs, Tensors

HEAD_DIM_MAX = 512
_LSE_BYTES = 4
_GRAMMAR = Grammar(
    family="prefill",
    numbers={"b": "batch", "s": "seq_q", "kv": "seq_kv", "h": "heads", "hk": "kv_heads", "d": "head_dim"},
    required=("s", "h", "d"),
    flags=("causal", "lse"),
)


@dataclass(frozen=True)
class Prefill:
    """One attention prefill problem; id e.g. `prefill-b1-s512-kv2048-h32-hk8-d128-bf16-causal-lse`.

    batch      B
    seq_q      Sq, queries per sequence
    seq_kv     Skv, keys per sequence; 0 means Sq
    heads      H, query heads
    kv_heads   Hk, key and value heads; 0 means H. Query head h reads key head h // (H / Hk)
    head_dim   D, at most 512
    dtype      'f16', 'bf16' or 'f32': inputs and 'out'
    causal     bottom-right aligned: query row i sees key j iff j <= i + Skv - Sq
    lse        also return the natural-log log-sum-exp of the scaled scores

    Inputs are (q, k, v): q (B, Sq, H, D), k and v (B, Skv, Hk, D), contiguous. Outputs are 'out' (B, Sq, H, D) and,
    with `lse`, 'lse' (B, H, Sq) in fp32.

    Four keys and two causal queries, 1 where a query sees a key (the last query always sees the last key):

                 k0 k1 k2 k3
        row 0     1  1  1  0
        row 1     1  1  1  1

    Raises WorkloadError naming the field for sizes that are not positive integers, heads that kv_heads does not
    divide, an unknown dtype, too large a head_dim, and causal with Skv < Sq, where the first rows would see no key.
    """

    batch: int
    seq_q: int
    heads: int
    head_dim: int
    seq_kv: int = 0
    kv_heads: int = 0
    dtype: str = "f16"
    causal: bool = False
    lse: bool = False

    def __post_init__(self) -> None:
        # Equal problems must be equal and hash equal, however they were written.
        object.__setattr__(self, "seq_kv", self.seq_q if self.seq_kv == 0 else self.seq_kv)
        object.__setattr__(self, "kv_heads", self.heads if self.kv_heads == 0 else self.kv_heads)
        require_positive("prefill", ((name, getattr(self, name)) for name in _GRAMMAR.numbers.values()))
        require_dtype("prefill", self.dtype)
        if self.heads % self.kv_heads:
            raise WorkloadError(
                f"prefill workload: heads must be a multiple of kv_heads, got heads={self.heads} and "
                f"kv_heads={self.kv_heads}"
            )
        if self.head_dim > HEAD_DIM_MAX:
            raise WorkloadError(f"prefill workload: head_dim must be at most {HEAD_DIM_MAX}, got {self.head_dim}")
        if self.causal and self.seq_kv < self.seq_q:
            raise WorkloadError(
                f"prefill workload: causal needs seq_kv >= seq_q, got seq_q={self.seq_q} and seq_kv={self.seq_kv}: "
                "the mask is bottom-right aligned, so the first rows would see no key"
            )

    @classmethod
    def parse(cls, text: str) -> Prefill:
        """The workload of an id. Raises WorkloadError, also for an id whose words are in another order."""
        workload = cls(**_GRAMMAR.parse_id(text))
        if workload.id != text:
            raise WorkloadError(f"prefill workload id {text!r} is not in its one form; write {workload.id!r}")
        return workload

    @classmethod
    def parse_line(cls, text: str) -> Prefill:
        """The workload of a line such as `b=1,s=512,h=8,d=64,causal,f16`, fields in any order; b is
        1 and dtype f16 unless given. Raises WorkloadError."""
        return cls(**{"batch": 1, **_GRAMMAR.parse_line(text)})

    @property
    def family(self) -> str:
        """'prefill'."""
        return "prefill"

    @property
    def cache_state(self) -> str:
        """'hot': the tensors of a prefill were just written by the layers before it."""
        return "hot"

    @property
    def id(self) -> str:
        """Readable and parsed back by `parse`; words that say nothing new (kv = s, hk = h) are left out."""
        numbers = (
            ("b", self.batch),
            ("s", self.seq_q),
            ("kv", self.seq_kv if self.seq_kv != self.seq_q else None),
            ("h", self.heads),
            ("hk", self.kv_heads if self.kv_heads != self.heads else None),
            ("d", self.head_dim),
        )
        flags = [flag for flag in _GRAMMAR.flags if getattr(self, flag)]
        return "-".join(["prefill", *id_words(numbers), self.dtype, *flags])

    @property
    def visible_pairs(self) -> int:
        """(query, key) pairs of one head that the mask lets through.

        Causal row i sees i + 1 + (Skv - Sq) keys; the sum over rows is Sq (Skv - Sq) + Sq (Sq + 1) / 2.
        """
        if not self.causal:
            return self.seq_q * self.seq_kv
        return self.seq_q * (self.seq_kv - self.seq_q) + self.seq_q * (self.seq_q + 1) // 2

    @property
    def flops(self) -> float:
        """4 D per visible pair, head and batch: 2 D for q k^T and 2 D for the product with v; softmax not counted."""
        return float(4 * self.head_dim * self.visible_pairs * self.heads * self.batch)

    @property
    def bytes_min(self) -> float:
        """q, k, v read once and out (and lse, fp32) written once."""
        rows = self.batch * self.seq_q * self.heads
        keys = self.batch * self.seq_kv * self.kv_heads
        elements = 2 * rows * self.head_dim + 2 * keys * self.head_dim
        return float(elements * DTYPE_BYTES[self.dtype] + (rows * _LSE_BYTES if self.lse else 0))

    def definition(self) -> dict[str, Any]:
        """Every field, the scale and the alignment of the mask, as builtins."""
        alignment = "bottom-right" if self.causal else "none"
        return {"family": self.family, **asdict(self), "scale": "1/sqrt(head_dim)", "mask_alignment": alignment}

    def make_inputs(self, seed: int, device: str, *, planted: bool) -> Tensors:
        """(q, k, v) drawn from N(0, 1) on `device`; with `planted`, see `planted_keys`, which changes
        rows of q and the length of some keys."""
        import torch

        generator = torch.Generator(device=device).manual_seed(seed)
        dtype = getattr(torch, TORCH_DTYPES[self.dtype])
        query_shape = (self.batch, self.seq_q, self.heads, self.head_dim)
        key_shape = (self.batch, self.seq_kv, self.kv_heads, self.head_dim)
        q, k, v = (
            torch.randn(shape, generator=generator, device=device) for shape in (query_shape, key_shape, key_shape)
        )
        if planted:
            planted_keys.plant(q, k, causal=self.causal, seed=seed)
        return q.to(dtype), k.to(dtype), v.to(dtype)

    def reference(self, inputs: Tensors) -> Outputs:
        """fp64 on a CPU and for f32; fp32 without TF32 on a GPU for f16 and bf16. Chunked, so memory is bounded."""
        return attention_math.reference(*inputs, causal=self.causal, lse=self.lse)

    def plain(self, inputs: Tensors) -> Outputs:
        """The same in the working dtype: scores, weights and 'out' are rounded to it, as eager torch does."""
        return attention_math.plain(*inputs, causal=self.causal, lse=self.lse)
