"""Attention over sequences of several lengths, packed end to end without padding (FlashAttention's varlen)."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from pytest_attnperf.errors import WorkloadError
from pytest_attnperf.workloads import attention_bias, loud_rows, planted_keys
from pytest_attnperf.workloads.base import TORCH_DTYPES
from pytest_attnperf.workloads.fields import Grammar, id_words, require_dtype, require_positive
from pytest_attnperf.workloads.prefill import Prefill
from pytest_attnperf.workloads.sequence_lengths import PATTERN, lengths_text, parse_lengths

if TYPE_CHECKING:
    from pytest_attnperf.backends import Outputs, Tensors

DTYPES = ("f32", "f16", "bf16", "tf32")
"""What sequences may be stored in; there are no scales for 8 bits here."""
_OFFSET_BYTES = 4
_SLOPE_BYTES = 4
_LENGTHS = {"q": "seqs_q", "kv": "seqs_kv"}
_GRAMMAR = Grammar(
    family="varlen",
    numbers={"h": "heads", "hk": "kv_heads", "d": "head_dim", "w": "window"},
    required=("q", "h", "d"),
    flags=("causal", "lse", "alibi", "cold"),
    dtypes=DTYPES,
    id_required=(),
    texts={short: (name, PATTERN) for short, name in _LENGTHS.items()},
)


@dataclass(frozen=True)
class Varlen:
    """One attention problem over packed sequences; id e.g. `varlen-q63_1000_2049-h8-hk2-d64-f16-causal`.

    seqs_q     queries of every sequence, in order; B of them, and Tq in all
    heads      H, query heads
    head_dim   D, at most 512
    seqs_kv    keys of every sequence, Tk in all; () means seqs_q. In text they are `kv`, and runs of equal lengths are
               written with their count: `q8x512_63-kv8x1024_63`
    kv_heads   Hk, key and value heads; 0 means H. Query head h reads key head h // (H / Hk)
    dtype      one of DTYPES: q, k, v and out
    causal, lse, window, alibi    as `Prefill`, of every sequence by itself: masks are bottom-right aligned in it
    cold       timed with inputs that are in no cache; hot otherwise

    Inputs are (q, k, v, cu_seqlens_q, cu_seqlens_k) and with `alibi` slopes: q (Tq, H, D), k and v (Tk, Hk, D),
    contiguous, the offsets of the sequences in the packed rows, (B + 1,) int32 from 0 to Tq and Tk, and slopes fp32
    (H,). Outputs are 'out' (Tq, H, D) and, with `lse`, 'lse' (H, Tq) in fp32; all of it the layout of
    flash_attn_varlen_func (flash-attention 2.7). A row that sees no key has out = 0 and lse = -inf.

    Raises WorkloadError naming the field for lengths that are not positive integers (a sequence of none is not
    allowed), other numbers of sequences in seqs_q and seqs_kv, another dtype, and whatever `Prefill` refuses.
    """

    seqs_q: tuple[int, ...]
    heads: int
    head_dim: int
    seqs_kv: tuple[int, ...] = ()
    kv_heads: int = 0
    dtype: str = "f16"
    causal: bool = False
    lse: bool = False
    window: int = 0
    alibi: bool = False
    cold: bool = False

    def __post_init__(self) -> None:
        # Equal problems must be equal and hash equal, however they were written.
        object.__setattr__(self, "seqs_q", tuple(self.seqs_q))
        object.__setattr__(self, "seqs_kv", tuple(self.seqs_kv) or self.seqs_q)
        object.__setattr__(self, "kv_heads", self.heads if self.kv_heads == 0 else self.kv_heads)
        require_dtype("varlen", self.dtype, DTYPES)
        for name in _LENGTHS.values():
            require_positive("varlen", ((name, length) for length in getattr(self, name) or (0,)))
        if len(self.seqs_q) != len(self.seqs_kv):
            raise WorkloadError(
                f"varlen workload: seqs_q and seqs_kv must be as many, got {len(self.seqs_q)} and {len(self.seqs_kv)}"
            )
        try:
            self.sequence(0)
        except WorkloadError as error:
            raise WorkloadError(str(error).replace("prefill workload", "varlen workload")) from error

    @classmethod
    def parse(cls, text: str) -> Varlen:
        """The workload of an id. Raises WorkloadError, also for an id whose words are in another order."""
        workload = cls(**_lengths_read(_GRAMMAR.parse_id(text)))
        if workload.id != text:
            raise WorkloadError(f"varlen workload id {text!r} is not in its one form; write {workload.id!r}")
        return workload

    @classmethod
    def parse_line(cls, text: str) -> Varlen:
        """The workload of a line such as `q=8x512_63,h=8,d=64,causal,f16`, fields in any order; dtype is f16 unless
        given. Raises WorkloadError."""
        return cls(**_lengths_read(_GRAMMAR.parse_line(text)))

    @property
    def family(self) -> str:
        """'varlen'."""
        return "varlen"

    @property
    def cache_state(self) -> str:
        """'hot' unless `cold`: the tensors of a prefill were just written by the layers before it."""
        return "cold" if self.cold else "hot"

    @property
    def non_finite_outputs(self) -> frozenset[str]:
        """'lse' where some rows see no key."""
        return frozenset({"lse"}) if self.lse and self.rows_without_keys else frozenset()

    @property
    def id(self) -> str:
        """Readable and parsed back by `parse`; words that say nothing new (kv = q, hk = h, w = 0) are left out."""
        lengths = [f"q{lengths_text(self.seqs_q)}"]
        if self.seqs_kv != self.seqs_q:
            lengths.append(f"kv{lengths_text(self.seqs_kv)}")
        kv_heads = self.kv_heads if self.kv_heads != self.heads else None
        numbers = (("h", self.heads), ("hk", kv_heads), ("d", self.head_dim), ("w", self.window or None))
        flags = [flag for flag in _GRAMMAR.flags if getattr(self, flag)]
        return "-".join(["varlen", *lengths, *id_words(numbers), self.dtype, *flags])

    @property
    def batch(self) -> int:
        """B, the number of sequences."""
        return len(self.seqs_q)

    @property
    def max_q(self) -> int:
        """Queries of the longest sequence."""
        return max(self.seqs_q)

    @property
    def max_kv(self) -> int:
        """Keys of the longest sequence."""
        return max(self.seqs_kv)

    def sequence(self, number: int) -> Prefill:
        """One sequence as a dense problem of batch 1."""
        names = ("heads", "head_dim", "kv_heads", "dtype", "causal", "lse", "window", "alibi")
        fields = {name: getattr(self, name) for name in names}
        return Prefill(batch=1, seq_q=self.seqs_q[number], seq_kv=self.seqs_kv[number], **fields)

    @property
    def sequences(self) -> tuple[Prefill, ...]:
        """Every sequence as a dense problem of batch 1."""
        return tuple(self.sequence(number) for number in range(self.batch))

    @property
    def rows_without_keys(self) -> int:
        """How many rows, of all sequences, see no key."""
        return sum(one.rows_without_keys for one in self.sequences)

    @property
    def visible_pairs(self) -> int:
        """(query, key) pairs of one head, of all sequences, that the mask lets through."""
        return sum(one.visible_pairs for one in self.sequences)

    @property
    def flops(self) -> float:
        """4 D per visible pair and head, as `Prefill`."""
        return float(4 * self.head_dim * self.visible_pairs * self.heads)

    @property
    def bytes_min(self) -> float:
        """That of every sequence, see `Prefill`, and both offsets (int32); the slopes count once."""
        slopes = (self.batch - 1) * self.heads * _SLOPE_BYTES if self.alibi else 0
        return sum(one.bytes_min for one in self.sequences) - slopes + 2 * (self.batch + 1) * _OFFSET_BYTES

    def definition(self) -> dict[str, Any]:
        """Every field that is not at its default (lengths as text), the scale and the alignment of the mask."""
        fields = asdict(self)
        for name in _LENGTHS.values():
            fields[name] = lengths_text(fields[name])
        for name in ("window", "alibi", "cold"):
            if not fields[name]:
                del fields[name]
        if self.rows_without_keys:
            fields["rows_without_keys"] = "out = 0, lse = -inf"
        if self.alibi:
            fields["alibi_bias"] = attention_bias.ALIBI_DEFINITION
        alignment = "bottom-right, by sequence" if self.causal else "none"
        return {"family": self.family, **fields, "scale": "1/sqrt(head_dim)", "mask_alignment": alignment}

    def make_inputs(self, seed: int, device: str, *, planted: bool) -> Tensors:
        """(q, k, v, cu_seqlens_q, cu_seqlens_k[, slopes]) on `device`, the first three drawn from N(0, 1).

        With `planted`, keys are planted in every sequence, see `planted_keys`, from a seed of its own, and rows are
        aligned with keys of the sequences beside theirs.
        """
        import torch

        generator = torch.Generator(device=device).manual_seed(seed)
        query_shape = (sum(self.seqs_q), self.heads, self.head_dim)
        key_shape = (sum(self.seqs_kv), self.kv_heads, self.head_dim)
        q, k, v = (
            torch.randn(shape, generator=generator, device=device) for shape in (query_shape, key_shape, key_shape)
        )
        slopes = attention_bias.alibi_slopes(self.heads) if self.alibi else ()
        if planted:
            loudest = seed % len(self.seqs_q)
            how: Any = {"causal": self.causal, "window": self.window, "slopes": slopes}
            for number, (rows, keys) in enumerate(self.slices()):
                loud = number == loudest and loud_rows.bears(self.dtype, lse=self.lse)
                planted_keys.plant(q[None, rows], k[None, keys], seed=seed + number, loud=loud, **how)
            planted_keys.plant_strangers(q, k, list(self.slices()), seed=seed)
        dtype: torch.dtype = getattr(torch, TORCH_DTYPES[self.dtype])
        offsets = (
            torch.tensor([0, *itertools.accumulate(lengths)], dtype=torch.int32, device=device)
            for lengths in (self.seqs_q, self.seqs_kv)
        )
        further = [torch.tensor(slopes, device=device)] if slopes else []
        return (q.to(dtype), k.to(dtype), v.to(dtype), *offsets, *further)

    def slices(self) -> Iterator[tuple[slice, slice]]:
        """(rows of q, rows of k) of every sequence."""
        ends = zip(itertools.accumulate(self.seqs_q), itertools.accumulate(self.seqs_kv), strict=True)
        for (end_q, end_kv), count_q, count_kv in zip(ends, self.seqs_q, self.seqs_kv, strict=True):
            yield slice(end_q - count_q, end_q), slice(end_kv - count_kv, end_kv)

    def reference(self, inputs: Tensors) -> Outputs:
        """Of every sequence by itself as `Prefill.reference`: fp64 on a CPU and for f32 and tf32, else fp32."""
        return self._joined(inputs, Prefill.reference)

    def plain(self, inputs: Tensors) -> Outputs:
        """Of every sequence by itself as `Prefill.plain`, in the working dtype."""
        return self._joined(inputs, Prefill.plain)

    def _joined(self, inputs: Tensors, compute: Callable[[Prefill, Tensors], Outputs]) -> Outputs:
        import torch

        q, k, v, _, _, *slopes = inputs
        found = [
            compute(one, (q[None, rows], k[None, keys], v[None, keys], *slopes))
            for one, (rows, keys) in zip(self.sequences, self.slices(), strict=True)
        ]
        outputs = {"out": torch.cat([one["out"][0] for one in found])}
        return outputs | {"lse": torch.cat([one["lse"][0] for one in found], dim=1)} if self.lse else outputs


def _lengths_read(fields: dict[str, Any]) -> dict[str, Any]:
    """Fields as parsed, with the lengths in place of their text."""
    return {name: parse_lengths(value) if name in _LENGTHS.values() else value for name, value in fields.items()}
