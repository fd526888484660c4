"""The backward pass of attention over sequences of several lengths, packed end to end without padding."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from pytest_attnperf.errors import WorkloadError
from pytest_attnperf.workloads import attention_gradients, attention_math, planted_keys
from pytest_attnperf.workloads.backward import DTYPES, HEAD_DIM_MAX, Backward
from pytest_attnperf.workloads.base import DTYPE_BYTES, TORCH_DTYPES
from pytest_attnperf.workloads.fields import Grammar, id_words, require_dtype, require_positive
from pytest_attnperf.workloads.sequence_lengths import PATTERN, lengths_text, parse_lengths

if TYPE_CHECKING:
    import torch

    from pytest_attnperf.backends import Outputs, Tensors

_LSE_BYTES = 4
_OFFSET_BYTES = 4
_GRAMMAR = Grammar(
    family="varlen_backward",
    numbers={"h": "heads", "hk": "kv_heads", "d": "head_dim"},
    required=("q", "h", "d"),
    flags=("causal", "cold"),
    dtypes=DTYPES,
    id_required=(),
    texts={"q": ("seqs_q", PATTERN), "kv": ("seqs_kv", PATTERN)},
)


@dataclass(frozen=True)
class VarlenBackward:
    """One backward pass over packed sequences; id e.g. `varlen_backward-q63_1000-h8-hk2-d64-f16-causal`.

    seqs_q     queries of every sequence, in order; B of them, and Tq in all
    heads      H, query heads
    head_dim   D, at most 512
    seqs_kv    keys of every sequence, Tk in all; () means seqs_q. In text they are `kv`, and runs of equal lengths are
               written with their count: `q8x512_63-kv8x1024_63`
    kv_heads   Hk, key and value heads; 0 means H. Query head h reads key head h // (H / Hk)
    dtype      'f32', 'f16' or 'bf16': inputs (but for lse and the offsets) and outputs
    causal     bottom-right aligned in every sequence: its query row i sees key j iff j <= i + Skv - Sq; a row that sees
               none has out = 0 and lse = -inf, and zero gradients
    cold       timed with inputs that are in no cache; hot otherwise

    Inputs are (q, k, v, dout, out, lse, cu_seqlens_q, cu_seqlens_k): q, dout and out (Tq, H, D), k and v (Tk, Hk, D),
    contiguous, lse (H, Tq) in fp32, and the offsets of the sequences in the packed rows, (B + 1,) int32 from 0 to Tq
    and Tk; which is the layout of flash_attn_varlen_func (flash-attention 2.7). Outputs are 'dq' (Tq, H, D), 'dk' and
    'dv' (Tk, Hk, D).

    Raises WorkloadError naming the field for lengths that are not positive integers, other numbers of sequences in
    seqs_q and seqs_kv, heads that kv_heads does not divide, another dtype, too large a head_dim, and no sequence of
    at least two keys, for dq and dk would then be zero everywhere.
    """

    seqs_q: tuple[int, ...]
    heads: int
    head_dim: int
    seqs_kv: tuple[int, ...] = ()
    kv_heads: int = 0
    dtype: str = "f16"
    causal: bool = False
    cold: bool = False

    def __post_init__(self) -> None:
        # Equal problems must be equal and hash equal, however they were written.
        object.__setattr__(self, "seqs_q", tuple(self.seqs_q))
        object.__setattr__(self, "seqs_kv", tuple(self.seqs_kv) or self.seqs_q)
        object.__setattr__(self, "kv_heads", self.heads if self.kv_heads == 0 else self.kv_heads)
        require_positive("varlen_backward", ((name, getattr(self, name)) for name in _GRAMMAR.numbers.values()))
        require_dtype("varlen_backward", self.dtype, DTYPES)
        for name in ("seqs_q", "seqs_kv"):
            require_positive("varlen_backward", ((name, length) for length in getattr(self, name) or (0,)))
        if len(self.seqs_q) != len(self.seqs_kv):
            raise WorkloadError(
                f"varlen_backward workload: seqs_q and seqs_kv must be as many, got {len(self.seqs_q)} and "
                f"{len(self.seqs_kv)}"
            )
        if self.heads % self.kv_heads:
            raise WorkloadError(
                f"varlen_backward workload: heads must be a multiple of kv_heads, got heads={self.heads} and "
                f"kv_heads={self.kv_heads}"
            )
        if self.head_dim > HEAD_DIM_MAX:
            raise WorkloadError(
                f"varlen_backward workload: head_dim must be at most {HEAD_DIM_MAX}, got {self.head_dim}"
            )
        if max(self.seqs_kv) == 1:
            raise WorkloadError(
                "varlen_backward workload: seqs_kv must hold a length of at least 2, got only 1: a single key has the "
                "weight 1 whatever q and k are, so dq and dk are zero everywhere and prove nothing"
            )

    @classmethod
    def parse(cls, text: str) -> VarlenBackward:
        """The workload of an id. Raises WorkloadError, also for an id whose words are in another order."""
        workload = cls(**_lengths_read(_GRAMMAR.parse_id(text)))
        if workload.id != text:
            raise WorkloadError(f"varlen_backward workload id {text!r} is not in its one form; write {workload.id!r}")
        return workload

    @classmethod
    def parse_line(cls, text: str) -> VarlenBackward:
        """The workload of a line such as `q=8x512_63,h=8,d=64,causal,f16`, fields in any order; dtype is f16 unless
        given. Raises WorkloadError."""
        return cls(**_lengths_read(_GRAMMAR.parse_line(text)))

    @property
    def family(self) -> str:
        """'varlen_backward'."""
        return "varlen_backward"

    @property
    def cache_state(self) -> str:
        """'hot' unless `cold`: dout was just written by the layer after it."""
        return "cold" if self.cold else "hot"

    @property
    def non_finite_outputs(self) -> frozenset[str]:
        """None: the gradients of a row that sees no key are zero, though its lse is -inf."""
        return frozenset()

    @property
    def id(self) -> str:
        """Readable and parsed back by `parse`; words that say nothing new (kv = q, hk = h) are left out."""
        lengths = [f"q{lengths_text(self.seqs_q)}"]
        if self.seqs_kv != self.seqs_q:
            lengths.append(f"kv{lengths_text(self.seqs_kv)}")
        kv_heads = self.kv_heads if self.kv_heads != self.heads else None
        numbers = (("h", self.heads), ("hk", kv_heads), ("d", self.head_dim))
        flags = [flag for flag in _GRAMMAR.flags if getattr(self, flag)]
        return "-".join(["varlen_backward", *lengths, *id_words(numbers), self.dtype, *flags])

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

    @property
    def sequences(self) -> tuple[Backward | None, ...]:
        """Every sequence as a dense problem of batch 1; None for one of a single key, which is none of that family."""
        fields = {name: getattr(self, name) for name in ("heads", "head_dim", "kv_heads", "dtype", "causal")}
        return tuple(
            Backward(batch=1, seq_q=seq_q, seq_kv=seq_kv, **fields) if seq_kv > 1 else None
            for seq_q, seq_kv in zip(self.seqs_q, self.seqs_kv, strict=True)
        )

    @property
    def visible_pairs(self) -> int:
        """(query, key) pairs of one head, of all sequences, that the mask lets through."""
        # The last row of a sequence sees its single key, and where there is no mask the others do too.
        alone = (1 if self.causal else seq_q for seq_q in self.seqs_q)
        return sum(one.visible_pairs if one else pairs for one, pairs in zip(self.sequences, alone, strict=True))

    @property
    def flops(self) -> float:
        """10 D per visible pair and head, as `Backward`."""
        return float(10 * self.head_dim * self.visible_pairs * self.heads)

    @property
    def bytes_min(self) -> float:
        """q, k, v, out, dout, lse (fp32) and both offsets (int32) read once; dq, dk and dv written once."""
        rows, keys = sum(self.seqs_q) * self.heads, sum(self.seqs_kv) * self.kv_heads
        tensors = 4 * (rows + keys) * self.head_dim * DTYPE_BYTES[self.dtype]
        return float(tensors + rows * _LSE_BYTES + 2 * (self.batch + 1) * _OFFSET_BYTES)

    def definition(self) -> dict[str, Any]:
        """Every field (`cold` only where it is; lengths as text), the scale and the alignment of the mask."""
        fields = asdict(self)
        for name in ("seqs_q", "seqs_kv"):
            fields[name] = lengths_text(fields[name])
        if not self.cold:
            del fields["cold"]
        alignment = "bottom-right" if self.causal else "none"
        return {"family": self.family, **fields, "scale": "1/sqrt(head_dim)", "mask_alignment": alignment}

    def make_inputs(self, seed: int, device: str, *, planted: bool) -> Tensors:
        """(q, k, v, dout, out, lse, cu_seqlens_q, cu_seqlens_k) on `device`: the first four from N(0, 1), out and lse
        from the exact forward pass.

        With `planted`, keys are planted in every sequence, see `planted_keys`, with a seed of its own.
        """
        import torch

        generator = torch.Generator(device=device).manual_seed(seed)
        query_shape = (sum(self.seqs_q), self.heads, self.head_dim)
        key_shape = (sum(self.seqs_kv), self.kv_heads, self.head_dim)
        q, k, v, dout = (
            torch.randn(shape, generator=generator, device=device)
            for shape in (query_shape, key_shape, key_shape, query_shape)
        )
        if planted:
            for number, (rows, keys) in enumerate(self.slices()):
                planted_keys.plant(q[None, rows], k[None, keys], causal=self.causal, seed=seed + number)
        dtype = getattr(torch, TORCH_DTYPES[self.dtype])
        offsets = (
            torch.tensor(_offsets(lengths), dtype=torch.int32, device=device) for lengths in (self.seqs_q, self.seqs_kv)
        )
        return (*self._with_forward(*(tensor.to(dtype) for tensor in (q, k, v, dout))), *offsets)

    def slices(self) -> Iterator[tuple[slice, slice]]:
        """(rows of q, rows of k) of every sequence."""
        offsets = (itertools.pairwise(_offsets(lengths)) for lengths in (self.seqs_q, self.seqs_kv))
        for rows, keys in zip(*offsets, strict=True):
            yield slice(*rows), slice(*keys)

    def _with_forward(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, dout: torch.Tensor) -> Tensors:
        import torch

        out, lse = torch.empty_like(q), torch.empty(q.shape[1], q.shape[0], device=q.device)
        for rows, keys in self.slices():
            forward = attention_math.reference(
                q[None, rows], k[None, keys], v[None, keys], causal=self.causal, lse=True
            )
            out[rows], lse[:, rows] = forward["out"][0].to(q.dtype), forward["lse"][0].float()
        return q, k, v, dout, out, lse

    def reference(self, inputs: Tensors) -> Outputs:
        """From q, k, v and dout alone, in fp64 on a CPU and for f32; in fp32 without TF32 on a GPU for f16 and bf16."""
        q, k, v, dout, *_ = inputs
        return self._joined(
            attention_gradients.reference(
                q[None, rows], k[None, keys], v[None, keys], dout[None, rows], causal=self.causal
            )
            for rows, keys in self.slices()
        )

    def plain(self, inputs: Tensors) -> Outputs:
        """The same in the working dtype, rounded where autograd of eager attention rounds."""
        return self._plain(inputs, wide_dp=False)

    def plain_otherwise(self, inputs: Tensors) -> tuple[Outputs, ...]:
        """The same, rounded where kernels round; none in f32, where nothing is rounded in between."""
        return () if self.dtype == "f32" else (self._plain(inputs, wide_dp=True),)

    def _plain(self, inputs: Tensors, *, wide_dp: bool) -> Outputs:
        q, k, v, dout, out, lse, *_ = inputs
        return self._joined(
            attention_gradients.plain(
                *(q[None, rows], k[None, keys], v[None, keys], dout[None, rows], out[None, rows], lse[None, :, rows]),
                causal=self.causal,
                wide_dp=wide_dp,
            )
            for rows, keys in self.slices()
        )

    @staticmethod
    def _joined(of_sequences: Iterator[Outputs]) -> Outputs:
        """Gradients of batches of one, end to end."""
        import torch

        found = list(of_sequences)
        return {name: torch.cat([one[name][0] for one in found]) for name in found[0]}


def _lengths_read(fields: dict[str, Any]) -> dict[str, Any]:
    """Fields as parsed, with the lengths in place of their text."""
    return {name: parse_lengths(value) if name.startswith("seqs_") else value for name, value in fields.items()}


def _offsets(lengths: Sequence[int]) -> list[int]:
    """Where every sequence begins, and where the last one ends."""
    return [0, *itertools.accumulate(lengths)]
