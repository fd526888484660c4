"""Shared code of the stages of unfused attention: shapes, ids, figures of the causal mask, products head by head.

    scores = q k^T / sqrt(D)    `qk_scores`          (B, H, Sq, Skv), fp32
    scores[hidden] = -inf       `causal_mask`        in place
    weights = softmax(scores)   `row_softmax`        (B, H, Sq, Skv), rounded to the dtype
    out = weights v             `weighted_values`    (B, Sq, H, D)

Each is an op family, so that one kernel can be proven and timed without the others.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from pytest_attnperf.workloads.family_workload import FamilyWorkload
from pytest_attnperf.workloads.fields import Grammar, require_grouped_heads, require_head_dim

if TYPE_CHECKING:
    import torch

DTYPES = ("f16", "bf16", "f32")
SCORE_BYTES = 4
"""Bytes of a score, which is fp32."""
_SIZES = {"b": "batch", "s": "seq_q", "kv": "seq_kv", "h": "heads"}


def make_grammar(
    family: str, *, product: bool = False, flags: tuple[str, ...] = (), dtypes: tuple[str, ...] = DTYPES
) -> Grammar:
    """Returns the grammar of a stage's ids: b, s, kv, h, for a `product` also hk and d, then a dtype and `flags`."""
    further = {"hk": "kv_heads", "d": "head_dim"} if product else {}
    return Grammar(
        family=family,
        numbers={**_SIZES, **further},
        required=("s", "h", "d") if product else ("s", "h"),
        flags=flags,
        dtypes=dtypes,
        same={"seq_kv": "seq_q", **({"kv_heads": "heads"} if product else {})},
    )


@dataclass(frozen=True, kw_only=True)
class AttentionStage(FamilyWorkload):
    """One stage of attention on (batch, heads, seq_q, seq_kv) pairs; subclasses define the computation.

    batch     B
    seq_q     Sq, queries per sequence
    heads     H, query heads
    seq_kv    Skv, keys per sequence; 0 means Sq
    dtype     of all tensors but scores: 'f16', 'bf16' or 'f32'; scores are fp32

    Causal masks are aligned bottom-right, as in `Prefill`: row i sees key j iff j <= i + Skv - Sq. Stages are timed
    hot: each reads what the one before it has just written.

    Raises WorkloadError naming the field for sizes that are not positive integers and for another dtype.
    """

    row_field, row_inputs = "batch", 2
    row_outputs: ClassVar[Mapping[str, int]] = {"scores": 0, "weights": 0, "out": 0}

    batch: int
    seq_q: int
    heads: int
    seq_kv: int = 0
    dtype: str = "f16"

    @property
    def pairs(self) -> int:
        """Number of (query, key) pairs of all heads of all sequences: B H Sq Skv."""
        return self.batch * self.heads * self.seq_q * self.seq_kv

    @property
    def causal_pairs(self) -> int:
        """Number of pairs that a causal mask lets through, of all heads: per sequence and head, the sum of 1 ... Skv
        minus that of 1 ... Skv - Sq."""
        unseen_by_first = max(0, self.seq_kv - self.seq_q)
        seen = self.seq_kv * (self.seq_kv + 1) // 2 - unseen_by_first * (unseen_by_first + 1) // 2
        return self.batch * self.heads * seen

    def hidden_keys(self, device: torch.device | str) -> torch.Tensor:
        """Returns a bool mask (Sq, Skv), True where a row of a causal mask does not see a key."""
        import torch

        key = torch.arange(self.seq_kv, device=device)
        row = torch.arange(self.seq_q, device=device)
        return key[None, :] > row[:, None] + (self.seq_kv - self.seq_q)


@dataclass(frozen=True, kw_only=True)
class ProductStage(AttentionStage):
    """A stage that multiplies by keys or values (B, Skv, Hk, D).

    head_dim    D, at most 512
    kv_heads    Hk, key and value heads; 0 means H. Query head h reads key head h // (H / Hk)

    Raises WorkloadError also if kv_heads does not divide heads, and if head_dim is too large.
    """

    head_dim: int
    kv_heads: int = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        require_grouped_heads(self.family, self.heads, self.kv_heads)
        require_head_dim(self.family, self.head_dim)

    @property
    def group(self) -> int:
        """Number of query heads that share one key head."""
        return self.heads // self.kv_heads

    def iterate_lanes(self) -> Iterator[tuple[int, slice, int]]:
        """Yields (batch index, query heads that share a key head, that key head): one product each, so that at most
        `group` heads are held in another precision."""
        for b in range(self.batch):
            for kv_head in range(self.kv_heads):
                yield b, slice(kv_head * self.group, (kv_head + 1) * self.group), kv_head
