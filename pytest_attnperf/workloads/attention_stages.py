"""What the stages of unfused attention share: their shape, ids, figures of the causal mask, products a head at a time.

    scores = q k^T / sqrt(D)    `qk_scores`          (B, H, Sq, Skv), fp32
    scores[hidden] = -inf       `causal_mask`        in place
    weights = softmax(scores)   `row_softmax`        (B, H, Sq, Skv), rounded to the dtype
    out = weights v             `weighted_values`    (B, Sq, H, D)

Each is an op family, so that one kernel can be proven and timed without the others.
"""

from __future__ import annotations

import abc
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from pytest_attnperf.errors import WorkloadError
from pytest_attnperf.workloads.base import DTYPE_BYTES, TORCH_DTYPES
from pytest_attnperf.workloads.fields import Grammar, id_words, require_dtype, require_positive

if TYPE_CHECKING:
    import torch
    from typing_extensions import Self

    from pytest_attnperf.backends import Outputs, Tensors

DTYPES = ("f16", "bf16", "f32")
SCORE_BYTES = 4
"""Of a score, which is fp32."""
HEAD_DIM_MAX = 512
_SIZES = {"b": "batch", "s": "seq_q", "kv": "seq_kv", "h": "heads"}
_SAME_UNLESS_GIVEN = {"kv": "s", "hk": "h"}


def grammar(
    family: str, *, product: bool = False, flags: tuple[str, ...] = (), dtypes: tuple[str, ...] = DTYPES
) -> Grammar:
    """Of a stage: b, s, kv, h, of a product hk and d too, a dtype and flags."""
    further = {"hk": "kv_heads", "d": "head_dim"} if product else {}
    return Grammar(
        family=family,
        numbers={**_SIZES, **further},
        required=("s", "h", "d") if product else ("s", "h"),
        flags=flags,
        dtypes=dtypes,
    )


@dataclass(frozen=True, kw_only=True)
class AttentionStage(abc.ABC):
    """One stage of attention on (batch, heads, seq_q, seq_kv) pairs; subclasses give what it computes.

    batch     B
    seq_q     Sq, queries per sequence
    heads     H, query heads
    seq_kv    Skv, keys per sequence; 0 means Sq
    dtype     what is not a score is stored in: 'f16', 'bf16' or 'f32'; scores are fp32

    Causal masks are aligned bottom-right, as `Prefill`'s: row i sees key j iff j <= i + Skv - Sq. Stages are timed hot:
    each reads what the one before it has just written.

    Raises WorkloadError naming the field for sizes that are not positive integers and for another dtype.
    """

    batch: int
    seq_q: int
    heads: int
    seq_kv: int = 0
    dtype: str = "f16"

    def __post_init__(self) -> None:
        # Equal problems must be equal and hash equal, however they were written.
        for short, same in _SAME_UNLESS_GIVEN.items():
            name = self.grammar().numbers.get(short, "")
            if name and getattr(self, name) == 0:
                object.__setattr__(self, name, getattr(self, self.grammar().numbers[same]))
        require_positive(self.family, ((name, getattr(self, name)) for name in self.grammar().numbers.values()))
        require_dtype(self.family, self.dtype, self.grammar().dtypes)

    @classmethod
    @abc.abstractmethod
    def grammar(cls) -> Grammar:
        """What ids and lines may hold."""

    @classmethod
    def parse(cls, text: str) -> Self:
        """The workload of an id. Raises WorkloadError, also for an id whose words are in another order."""
        workload = cls(**cls.grammar().parse_id(text))
        if workload.id != text:
            raise WorkloadError(f"{workload.family} workload id {text!r} is not in its one form; write {workload.id!r}")
        return workload

    @classmethod
    def parse_line(cls, text: str) -> Self:
        """The workload of a line such as `s=512,h=8,bf16`, fields in any order; b is 1 unless given. Raises
        WorkloadError."""
        return cls(**{"batch": 1, **cls.grammar().parse_line(text)})

    @property
    def family(self) -> str:
        """The family's name."""
        return self.grammar().family

    @property
    def id(self) -> str:
        """Readable and parsed back by `parse`; kv is left out where it is s, and hk where it is h."""
        held = self.grammar()
        sizes: dict[str, int] = {short: getattr(self, name) for short, name in held.numbers.items()}
        same = (short for short, other in _SAME_UNLESS_GIVEN.items() if short in sizes and sizes[short] == sizes[other])
        left_out = set(same)
        numbers = ((short, None if short in left_out else size) for short, size in sizes.items())
        flags = [flag for flag in held.flags if getattr(self, flag)]
        return "-".join([held.family, *id_words(numbers), self.dtype, *flags])

    @property
    def cache_state(self) -> str:
        """'hot'."""
        return "hot"

    @property
    def non_finite_outputs(self) -> frozenset[str]:
        """None."""
        return frozenset()

    @property
    def pairs(self) -> int:
        """(query, key) pairs of all heads of all sequences."""
        return self.batch * self.heads * self.seq_q * self.seq_kv

    @property
    def causal_pairs(self) -> int:
        """Those that a causal mask lets through: of a sequence, the sum of 1 ... Skv without that of 1 ... Skv - Sq."""
        unseen_by_first = max(0, self.seq_kv - self.seq_q)
        seen = self.seq_kv * (self.seq_kv + 1) // 2 - unseen_by_first * (unseen_by_first + 1) // 2
        return self.batch * self.heads * seen

    @property
    def element_bytes(self) -> int:
        """Bytes of an element of the dtype."""
        return DTYPE_BYTES[self.dtype]

    @property
    def stored_as(self) -> torch.dtype:
        """The torch dtype of the dtype."""
        import torch

        dtype: torch.dtype = getattr(torch, TORCH_DTYPES[self.dtype])
        return dtype

    @property
    @abc.abstractmethod
    def flops(self) -> float:
        """Operations of one call; of pairs that a mask hides none."""

    @property
    @abc.abstractmethod
    def bytes_min(self) -> float:
        """Bytes that one call must move; of inputs that a mask hides none."""

    def definition(self) -> dict[str, Any]:
        """Every field, as builtins."""
        return {"family": self.family, **asdict(self)}

    @abc.abstractmethod
    def make_inputs(self, seed: int, device: str, *, planted: bool) -> Tensors:
        """What the stage before it has written, and keys or values."""

    @abc.abstractmethod
    def reference(self, inputs: Tensors) -> Outputs:
        """The truth for the stored inputs."""

    @abc.abstractmethod
    def plain(self, inputs: Tensors) -> Outputs:
        """The plain computation in the dtype."""

    def hidden(self, device: torch.device | str) -> torch.Tensor:
        """(Sq, Skv), True where a causal row does not see a key."""
        import torch

        key = torch.arange(self.seq_kv, device=device)
        row = torch.arange(self.seq_q, device=device)
        return key[None, :] > row[:, None] + (self.seq_kv - self.seq_q)


@dataclass(frozen=True, kw_only=True)
class ProductStage(AttentionStage):
    """A stage that multiplies by keys or values (B, Skv, Hk, D).

    head_dim    D, at most 512
    kv_heads    Hk, key and value heads; 0 means H. Query head h reads key head h // (H / Hk)

    Raises WorkloadError also for heads that kv_heads does not divide and for too large a head_dim.
    """

    head_dim: int
    kv_heads: int = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.heads % self.kv_heads:
            raise WorkloadError(
                f"{self.family} workload: heads must be a multiple of kv_heads, got heads={self.heads} and "
                f"kv_heads={self.kv_heads}"
            )
        if self.head_dim > HEAD_DIM_MAX:
            raise WorkloadError(f"{self.family} workload: head_dim must be at most {HEAD_DIM_MAX}, got {self.head_dim}")

    @property
    def group(self) -> int:
        """Query heads that share a key head."""
        return self.heads // self.kv_heads

    def lanes(self) -> Iterator[tuple[int, slice, int]]:
        """(batch index, query heads that share a key head, that key head): what is multiplied at once, so that no
        more than `group` heads are held in another precision."""
        for b in range(self.batch):
            for kv_head in range(self.kv_heads):
                yield b, slice(kv_head * self.group, (kv_head + 1) * self.group), kv_head
